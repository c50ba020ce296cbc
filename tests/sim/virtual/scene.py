"""What the tests of virtual time share."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from grid.overlay import SignalFrame
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.site import Site
from grid.sim.virtual.traffic import poisson
from grid.sim.virtual.work import Done, Outcome, Request, Work
from grid.sim.virtual.world import Fleet, Shape, World


class Straight:
    """An entry that sends everything to one site."""

    def __init__(self, clock: Clock, site: Site) -> None:
        self._clock = clock
        self._site = site

    def send(self, request: Request, done: Done) -> None:
        request.born = self._clock.now
        request.left = done
        self._site.send(request)


@dataclass
class Ends:
    """How every request of a test has ended; each may end once only."""

    clock: Clock
    outcomes: dict[Request, Outcome] = field(default_factory=dict)
    at: dict[Request, float] = field(default_factory=dict)

    def heard(self, request: Request, outcome: Outcome) -> None:
        assert request not in self.outcomes, f"{outcome} after {self.outcomes[request]}"
        self.outcomes[request] = outcome
        self.at[request] = self.clock.now

    def count(self, outcome: Outcome) -> int:
        return list(self.outcomes.values()).count(outcome)


class Sent:
    """An entry that notes everything that goes through it."""

    def __init__(self, entry: object) -> None:
        self._entry = entry
        self.requests: list[Request] = []
        self.times: list[float] = []

    def send(self, request: Request, done: Done) -> None:
        self.requests.append(request)
        self._entry.send(request, done)  # type: ignore[attr-defined]
        self.times.append(request.born)


def fleet(*slots: int, **given: object) -> Fleet:
    return Fleet(tuple(Shape(one) for one in slots), **given)  # type: ignore[arg-type]


def settled(made: Fleet, *, seed: int = 1, absent: tuple[int, ...] = ()) -> World:
    """A world whose pages have been read and whose documents are out."""
    world = World(made, seed=seed, absent=absent)
    world.clock.run(made.interval + 2.0)
    return world


def frames(world: World) -> list[tuple[float, SignalFrame]]:
    """The frames from now on, each with its time."""
    heard: list[tuple[float, SignalFrame]] = []
    world.plane.listen(lambda frame: heard.append((world.clock.now, frame)))
    return heard


def traffic(
    world: World, work: Work, rate: float | Callable[[float], float], *, until: float
) -> tuple[Ends, list[Sent]]:
    """Arrivals at random at all gateways until ``until``."""
    ends, entries = Ends(world.clock), [Sent(gateway) for gateway in world.gateways]
    poisson(
        world.clock,
        entries,
        work,
        rate=rate,
        rng=world.rng("traffic"),
        heard=ends.heard,
        start=world.clock.now,
        until=until,
    )
    return ends, entries


def clockwork(seed: int = 1) -> tuple[Clock, random.Random]:
    return Clock(), random.Random(seed)
