"""A recording through the policy, offline: ``grid replay``. No clock but the recording's own."""

from collections.abc import Iterable, Iterator

from grid.policy import Event, Pass, replay
from grid.signals.recording import (
    DrainsLine,
    ErrorLine,
    GapLine,
    Line,
    NetworkLine,
    ProbeLine,
    RecordingReader,
    ScrapeLine,
)
from grid.signals.store import SampleStore


def passes(recording: RecordingReader, *, until: float | None = None) -> Iterator[Pass]:
    """The passes that the recorded lines lead to; ``until``: s since the beginning at which to stop."""
    network = recording.header.network
    yield from replay(network, _events(recording, SampleStore(network.providers)), until=until)


def _events(lines: Iterable[Line], store: SampleStore) -> Iterator[Event]:
    """What the store of a daemon makes of the lines, as the policy takes it."""
    for line in lines:
        match line:
            case ScrapeLine():
                sample = store.apply(line.provider, line.scrape(), interval=line.interval)
                yield Event(line.t, line.provider, sample=sample, probe=_probe(store, line.provider))
            case ErrorLine():
                store.fail(line.provider, line.problem)
                yield Event(line.t, line.provider, problem=line.problem, probe=_probe(store, line.provider))
            case ProbeLine():
                store.probed(line.provider, line.result)
                sample = store.state(line.provider).sample
                yield Event(line.t, line.provider, sample=sample, probe=_probe(store, line.provider))
            case NetworkLine():
                store.sync(line.network.providers)
                yield Event(line.t, network=line.network)
            case DrainsLine():
                yield Event(line.t, drains=line.drains)
            case GapLine():
                continue


def _probe(store: SampleStore, provider: str) -> bool | None:
    probe = store.state(provider).probe
    return None if probe is None else probe.healthy
