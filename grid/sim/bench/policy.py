"""What a pass of the policy costs: all providers judged, every gateway's candidates ordered.

A pass does again only what changed, so there are three cases: one sample is new since the pass before, as when a single
scrape has ended; all of them are, as after a full round; and nothing is known yet, so that every gateway is ordered
too. The calibration is a loop that builds one frozen value per provider and puts it into a dict, the least that a
judgement which nobody may change can cost; ``ratio`` is the pass over it. All are medians of CPU time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from statistics import median
from time import thread_time
from typing import Any, Final

from grid.model import Capability, Gateway, Kind, Network, Picker, Provider, Reading, ReadySource, Sample, Site
from grid.policy import PolicyInput, PolicyMemory, PolicyOutcome, PreviousCandidate, as_previous, decide
from grid.sim.bench.growth import Better, grown, least

_INTERVAL: Final = 2.0
_MODELS: Final = 4
_MAX_RUNNING: Final = 32
_CALIBRATION: Final = "a frozen value per provider into a dict"


def run(*, providers: int = 1000, gateways: int = 10, rounds: int = 15) -> list[dict[str, Any]]:
    """A row per case, medians in ms; then how a pass grows with providers, and a first one with gateways."""
    world = _World(providers, gateways)
    what = f"{providers} providers, {gateways} gateways"
    calibration = median(_times(world.calibration, rounds))
    rows = []
    cases = {"one sample new": world.one_new, "every sample new": world.all_new, "first pass": world.first}
    for case, work in cases.items():
        took = median(_times(work, rounds))
        rows.append(
            {
                "case": f"{case}: {what}",
                "p50_ms": round(took * 1e3, 3),
                "peer": _CALIBRATION,
                "peer_p50_ms": round(calibration * 1e3, 3),
                "ratio": round(took / calibration, 2),
                "better": Better.LESS,
            }
        )
    by_providers = {number: _World(number, gateways).all_new for number in _sizes(providers)}
    by_gateways = {number: _World(max(4, providers // 5), number).first for number in _sizes(4 * gateways)}
    rows.append(grown("a policy pass", "providers", least(by_providers)))
    rows.append(grown("a first policy pass", "gateways", least(by_gateways)))
    return rows


def _sizes(largest: int) -> list[int]:
    """Four sizes, each twice the one before."""
    return [max(1, largest // part) for part in (8, 4, 2, 1)]


class _World:
    """A network in which every provider has been read, and passes over it, one scrape interval after the other."""

    def __init__(self, providers: int, gateways: int) -> None:
        self._network = _network(providers, gateways)
        self._now = 0.0
        self._sequence = 0
        self._names = list(self._network.providers)
        self._samples: dict[str, Sample] = {}
        self._memory = PolicyMemory()
        self._previous: Mapping[str, tuple[PreviousCandidate, ...]] = {}
        # What is published once the first pass is through stays so: nothing that routes changes after it.
        self._previous = {name: as_previous(plan) for name, plan in self.all_new().plans.items()}
        self.all_new()

    def one_new(self) -> PolicyOutcome:
        """A pass after one scrape."""
        return self._pass(self._names[:1])

    def all_new(self) -> PolicyOutcome:
        """A pass after a scrape of everything."""
        return self._pass(self._names)

    def first(self) -> PolicyOutcome:
        """A pass of a daemon that has just read everything for the first time."""
        return decide(PolicyInput(self._network, self._samples, PolicyMemory(), self._now, previous=self._previous))

    def calibration(self) -> dict[str, Sample]:
        """As many frozen values as there are providers."""
        return {name: Sample(name, 1, 0.0, _READING, _INTERVAL) for name in self._names}

    def _pass(self, scraped: list[str]) -> PolicyOutcome:
        self._sequence += 1
        self._now += _INTERVAL / len(self._names) * len(scraped)
        # Loads go up and down by some requests, as they do: nothing that anybody is told changes.
        reading = replace(_READING, in_flight=20.0 + self._sequence % 7)
        for name in scraped:
            self._samples[name] = Sample(name, self._sequence, self._now, reading, _INTERVAL)
        outcome = decide(PolicyInput(self._network, self._samples, self._memory, self._now, previous=self._previous))
        self._memory = outcome.memory
        return outcome


_READING: Final = Reading(ready=2, ready_endpoints=2, ready_source=ReadySource.EPP, in_flight=20.0)


def _network(providers: int, gateways: int) -> Network:
    regions = ("east", "west", "north")
    sites = {
        f"site-{n}": Site(f"site-{n}", region=regions[n % 3], zone=f"{regions[n % 3]}-{n % 2}") for n in range(100)
    }
    models = [Capability(Kind.INFERENCE_MODEL, f"model-{n}") for n in range(_MODELS)]
    made = (
        Provider(f"provider-{n:04}", f"site-{n % 100}", f"cluster-{n}", (models[n % _MODELS],), _MAX_RUNNING)
        for n in range(providers)
    )
    edges = (Gateway(f"edge-{n:03}", f"site-{n % 100}", picker=Picker.SATURATION) for n in range(gateways))
    return Network("bench", sites, {one.id: one for one in made}, {one.name: one for one in edges})


def _times(work: Callable[[], object], rounds: int) -> Iterator[float]:
    for _ in range(rounds):
        began = thread_time()
        work()
        yield thread_time() - began
