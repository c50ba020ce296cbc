"""How many requests a second of one core the fleet in virtual time gets through, without and with admission control.

Each request is chosen for by the router as it runs in production, counted, run and measured; beside it run ticks,
scrapes, passes, frames and reports. ``requests_per_s`` is requests answered per s of CPU time, in the quickest of the
rounds. The calibration is the least that a simulation by events can be: a heap that gives one event per request and
takes the next one in. ``ratio`` is the cost of a request over that of such an event.
"""

import heapq
import random
from collections.abc import Callable
from time import thread_time
from typing import Any, Final

from grid.flow import AdmissionPolicy, Band
from grid.sim.bench.growth import Better
from grid.sim.virtual.gateways import Habits
from grid.sim.virtual.measure import Tally
from grid.sim.virtual.traffic import closed_loop, poisson
from grid.sim.virtual.work import Fixed, Request, Work
from grid.sim.virtual.world import Fleet, Shape, World

ROUNDS: Final = 3

_SLOTS: Final = (128, 128, 64)
_SERVICE_S: Final = 0.2
_BEFORE_S: Final = 6.0
"""s that the fleet lives before clients come."""
_CLIENTS: Final = 256
_BATCH_CLIENTS: Final = 500
_RATE: Final = 200.0
_TENANTS: Final = 8
_PEER: Final = "one event out of a heap and one in, per request"


def run(*, seconds: float = 45.0, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """A row without and one with admission control; ``seconds`` of virtual time each."""
    cases = {
        f"choosing alone: {_CLIENTS} clients in closed loops, 3 sites, 1 gateway": _choosing,
        f"with admission: {_BATCH_CLIENTS} batch clients, {_RATE:g} interactive/s, 3 full sites, 4 gateways": _admitted,
    }
    return [_row(case, made, seconds, rounds) for case, made in cases.items()]


def _row(case: str, made: Callable[[], tuple[World, Tally]], seconds: float, rounds: int) -> dict[str, Any]:
    costs, events, answered = [], [], 0
    for _ in range(rounds):
        world, tally = made()
        began = thread_time()
        world.clock.run(_BEFORE_S + seconds)
        took = thread_time() - began
        answered = tally.answered
        costs.append(took / answered)
        events.append(_bare(answered) / answered)
    cost, event = min(costs), min(events)
    return {
        "case": case,
        "requests": answered,
        "requests_per_s": round(1 / cost),
        "us": round(cost * 1e6, 2),
        "peer": _PEER,
        "peer_us": round(event * 1e6, 3),
        "ratio": round(cost / event, 1),
        "better": Better.LESS,
    }


def _choosing() -> tuple[World, Tally]:
    world = World(Fleet(tuple(Shape(slots) for slots in _SLOTS), interval=5.0))
    tally = Tally(world.sites, world.clock)
    closed_loop(
        world.clock,
        world.gateways,
        Fixed(_SERVICE_S),
        clients=_CLIENTS,
        rng=world.rng("clients"),
        heard=tally.heard,
        start=_BEFORE_S,
        spread=_SERVICE_S,
    )
    return world, tally


def _admitted() -> tuple[World, Tally]:
    policy = AdmissionPolicy(bands=(Band("interactive", 1.5), Band("batch", 0.0)), max_queued=10_000, max_wait=3600.0)
    habits = Habits(admission=policy)
    world = World(Fleet(tuple(Shape(slots) for slots in _SLOTS), gateways=4, habits=habits))
    tally = Tally(world.sites, world.clock)
    closed_loop(
        world.clock,
        world.gateways,
        _of("batch"),
        clients=_BATCH_CLIENTS,
        rng=world.rng("batch"),
        heard=tally.heard,
        start=_BEFORE_S,
    )
    poisson(
        world.clock,
        world.gateways,
        _of("interactive"),
        rate=_RATE,
        rng=world.rng("interactive"),
        heard=tally.heard,
        start=_BEFORE_S,
    )
    return world, tally


def _of(band: str) -> Work:
    service = Fixed(_SERVICE_S)

    def work(rng: random.Random) -> Request:
        request = service(rng)
        request.band, request.tenant = band, f"tenant-{rng.randrange(_TENANTS)}"
        return request

    return work


def _bare(events: int) -> float:
    """CPU s that so many events take where nothing happens."""
    due = [(_SERVICE_S * client / _CLIENTS, client, None) for client in range(_CLIENTS)]
    began = thread_time()
    for number in range(_CLIENTS, _CLIENTS + events):
        when, _, what = heapq.heappop(due)
        heapq.heappush(due, (when + _SERVICE_S, number, what))
    return thread_time() - began
