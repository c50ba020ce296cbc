"""What is known of every provider: the newest sample, the last error, the last word of its readiness probe.

One frozen state per provider, replaced as a whole; nothing is shared between providers, so none can overwrite what
another one showed. Memory is bounded by the providers declared: a state holds one sample and counters by reason code,
and results of providers that are not (or no longer) declared are dropped.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from grid.model import Problem, Reason, Sample, ScrapeError
from grid.signals.readiness import ProbeResult
from grid.signals.scan import compare
from grid.signals.scrape import Scrape

_NO_FAILURES: Mapping[Reason, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LastError:
    """The newest failed scrape of a provider; it stays after the provider has recovered.

    ``at`` is wall-clock s, for people only. ``count`` failures so far, ``consecutive`` of them without a success since
    (0 once a scrape has succeeded).
    """

    problem: Problem
    at: float
    count: int
    consecutive: int


@dataclass(frozen=True, slots=True)
class SourceState:
    """All that scrapes and probes of one provider have said so far."""

    sample: Sample | None = None
    last_error: LastError | None = None
    probe: ProbeResult | None = None
    successes: int = 0
    failures: Mapping[Reason, int] = field(default_factory=lambda: _NO_FAILURES)
    restarts: int = 0
    sampled_at: float | None = None
    """``Scrape.sampled_at`` of the sample: the source's own clock."""

    @property
    def attempts(self) -> int:
        """Scrapes that have ended, well or not."""
        return self.successes + sum(self.failures.values())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The store at one moment; nothing in it changes afterwards. Keys are provider ids."""

    states: Mapping[str, SourceState]
    samples: Mapping[str, Sample]
    probes: Mapping[str, bool | None]
    """What the probes said last; a provider without a probe is not in here."""
    round_complete: bool
    """Whether a scrape of every declared provider has ended at least once, well or not."""


class SampleStore:
    """The newest state of every declared provider. Not thread-safe: it belongs to the event loop's thread."""

    def __init__(self, providers: Iterable[str] = (), *, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._states: dict[str, SourceState] = {provider: SourceState() for provider in providers}
        self._snapshot: Snapshot | None = None

    def sync(self, providers: Iterable[str]) -> None:
        """Make ``providers`` the declared ones: newcomers start with nothing, the others are forgotten."""
        self._states = {provider: self._states.get(provider, SourceState()) for provider in providers}
        self._snapshot = None

    def forget(self, provider: str) -> None:
        """Drop what is known of a provider that stays declared: its source is another one now."""
        self._put(provider, SourceState())

    def apply(self, provider: str, scrape: Scrape, *, interval: float) -> Sample | None:
        """Note a successful scrape and return the provider's newest sample.

        ``interval``: s between its scrapes as in force now. The sequence number rises by one with every new
        observation, whatever the values. Returns None where the provider is not declared.
        """
        state = self._states.get(provider)
        if state is None:
            return None
        interval = max(interval, scrape.observed_every)
        previous = state.sample
        if previous is not None and _already_known(state, previous, scrape):
            sample = replace(previous, interval=interval, cost=scrape.cost_s, page_bytes=scrape.page_bytes)
            sampled_at = state.sampled_at
            restarted = False
        else:
            found = compare(previous.reading, scrape.reading) if previous else ()
            restarted = any(problem.code is Reason.RESTARTED for problem in found)
            sampled_at = scrape.sampled_at
            sample = Sample(
                provider=provider,
                sequence=previous.sequence + 1 if previous else 1,
                received_at=scrape.received_at,
                reading=scrape.reading,
                interval=interval,
                cost=scrape.cost_s,
                page_bytes=scrape.page_bytes,
                healthy=state.probe.healthy if state.probe else None,
                restarted=restarted,
                problems=scrape.problems + found,
            )
        error = state.last_error
        self._put(
            provider,
            replace(
                state,
                sample=sample,
                sampled_at=sampled_at,
                successes=state.successes + 1,
                restarts=state.restarts + restarted,
                last_error=replace(error, consecutive=0) if error else None,
            ),
        )
        return sample

    def fail(self, provider: str, error: ScrapeError | Problem) -> LastError | None:
        """Note a failed scrape; the last good sample stays and ages. Returns None where it is not declared."""
        state = self._states.get(provider)
        if state is None:
            return None
        problem = error if isinstance(error, Problem) else Problem(error.reason, error.message)
        before = state.last_error
        last = LastError(
            problem=problem,
            at=self._wall_clock(),
            count=before.count + 1 if before else 1,
            consecutive=before.consecutive + 1 if before else 1,
        )
        failures = {**state.failures, problem.code: state.failures.get(problem.code, 0) + 1}
        self._put(provider, replace(state, last_error=last, failures=MappingProxyType(failures)))
        return last

    def probed(self, provider: str, result: ProbeResult) -> None:
        """Note what the readiness probe beside the page said."""
        state = self._states.get(provider)
        if state is None:
            return
        sample = replace(state.sample, healthy=result.healthy) if state.sample else None
        self._put(provider, replace(state, probe=result, sample=sample))

    def state(self, provider: str) -> SourceState:
        """Return what is known of one declared provider. Raises KeyError for any other."""
        return self._states[provider]

    def snapshot(self) -> Snapshot:
        """Return the immutable view of a cycle; the same object for as long as nothing has changed."""
        if self._snapshot is None:
            states = dict(self._states)
            self._snapshot = Snapshot(
                states=MappingProxyType(states),
                samples=MappingProxyType({name: state.sample for name, state in states.items() if state.sample}),
                probes=MappingProxyType({name: state.probe.healthy for name, state in states.items() if state.probe}),
                round_complete=all(state.attempts for state in states.values()),
            )
        return self._snapshot

    def _put(self, provider: str, state: SourceState) -> None:
        if provider in self._states:
            self._states[provider] = state
            self._snapshot = None


def _already_known(state: SourceState, previous: Sample, scrape: Scrape) -> bool:
    """Whether a Prometheus told us again, or something older: one of two that take turns may lag behind."""
    if scrape.sampled_at is None:
        return False
    return scrape.sampled_at == state.sampled_at or scrape.received_at < previous.received_at
