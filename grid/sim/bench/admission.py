"""What admission control costs a request: granted at the door, and with a long queue behind many tenants.

In the same run an ``asyncio.Semaphore`` does what the shell's ``async with`` does, without bands, tenants or leases,
and a plain ``heapq`` keeps 10 000 waiting entries in order, without fairness, time-outs or cancelling. ``ratio`` is
this room's median over the peer's, so less is better. One operation follows the other: these are costs, not waits. The
last rows say how a turn of the queue grows with the requests in it, and with the tenants that these are of.
"""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from statistics import quantiles
from time import perf_counter
from typing import Any, Final

from grid.flow import Admission, AdmissionCore, AdmissionPolicy, Band, PoolSignal, State
from grid.flow.tickets import Ticket
from grid.sim.bench.growth import Better, grown, least

_MODEL: Final = "bench"
_SEMAPHORE: Final = "asyncio.Semaphore, acquire and release"
_BANDS: Final = (Band("gold", 1.5), Band("silver", 1.0), Band("bronze", 0.7))


def run(*, rounds: int = 20_000, queued: int = 10_000, tenants: int = 1000) -> list[dict[str, Any]]:
    """One row per case: median and 99th percentile in us, and the peer's median; then the rows of growth."""
    semaphore = asyncio.run(_semaphore(rounds))
    heap = _heap(rounds, queued)
    rows = [
        _row("core: grant without waiting", _door(rounds), _SEMAPHORE, semaphore),
        _row("shell: async with slot", asyncio.run(_shell(rounds)), _SEMAPHORE, semaphore),
    ]
    for waiting, callers in ((queued // 100, max(1, tenants // 100)), (queued, tenants)):
        case = f"end, grant the next, enqueue one: {waiting} queued, {callers} tenants"
        rows.append(_row(case, _times(_turn(waiting, callers), rounds), f"heapq, pop and push at {queued}", heap))
    case = f"cancel anywhere, enqueue one: {queued} queued, {tenants} tenants"
    rows.append(_row(case, _cancels(rounds, queued, tenants), f"heapq, pop and push at {queued}", heap))
    return rows + _growth(queued, tenants)


def _growth(queued: int, tenants: int) -> list[dict[str, Any]]:
    few = max(1, tenants // 100)
    by_queue = {number: _work(number, few) for number in (queued // 100, queued // 30, queued // 10, queued)}
    by_tenants = {number: _work(queued, number) for number in sorted({few, max(1, tenants // 10), tenants})}
    return [
        grown("a turn of the queue", "requests in it", least(by_queue)),
        grown("a turn of the queue", "tenants", least(by_tenants)),
    ]


def _work(queued: int, tenants: int) -> Callable[[], object]:
    """One turn after the other."""
    turn, number = _turn(queued, tenants), count()
    return lambda: turn(next(number))


def _core(queued: int, pools: int = 3) -> AdmissionCore:
    core = AdmissionCore(AdmissionPolicy(bands=_BANDS, max_queued=2 * queued + 1, max_wait=3600.0))
    keys = tuple(f"site-{index}/pool" for index in range(pools))
    core.reroute(0.0, {_MODEL: keys})
    core.update(0.0, [PoolSignal(key, ready=2, max_running=32, held=0) for key in keys])
    return core


def _door(rounds: int) -> tuple[float, float]:
    core = _core(1)

    def once(turn: int) -> float:
        now = turn * 1e-3
        began = perf_counter()
        ticket = core.arrive(now, _MODEL, "silver", tenant=f"tenant-{turn % 50}")
        took = perf_counter() - began
        core.started(now, ticket)
        core.finished(now, ticket)
        return took

    return _times(once, rounds)


async def _shell(rounds: int) -> tuple[float, float]:
    admission = Admission(AdmissionPolicy(bands=_BANDS))
    admission.reroute({_MODEL: ("site-0/pool",)})
    admission.update([PoolSignal("site-0/pool", ready=2, max_running=32, held=0)])
    taken = []
    for turn in range(rounds):
        began = perf_counter()
        async with admission.slot(_MODEL, band="silver", tenant=f"tenant-{turn % 50}"):
            pass
        taken.append(perf_counter() - began)
    admission.close()
    return _marks(taken)


async def _semaphore(rounds: int) -> tuple[float, float]:
    semaphore = asyncio.Semaphore(64)
    taken = []
    for _ in range(rounds):
        began = perf_counter()
        async with semaphore:
            pass
        taken.append(perf_counter() - began)
    return _marks(taken)


def _filled(queued: int, tenants: int) -> tuple[AdmissionCore, list[Ticket], list[Ticket]]:
    """A core whose slots are all taken, with ``queued`` requests waiting: those with slots, and those without."""
    core = _core(queued)
    running: list[Ticket] = []
    waiting: list[Ticket] = []
    number = 0
    while core.waiting < queued:
        ticket = core.arrive(0.0, _MODEL, "silver", tenant=f"tenant-{number % tenants}")
        (running if ticket.state is State.GRANTED else waiting).append(ticket)
        number += 1
    for ticket in running:
        core.started(0.0, ticket)
    return core, running, waiting


def _turn(queued: int, tenants: int) -> Callable[[int], float]:
    """What ends the next request that runs, grants a waiting one and enqueues another; it tells how many s it took."""
    core, running, _ = _filled(queued, tenants)

    def once(turn: int) -> float:
        now = turn * 1e-3
        ended = running[turn % len(running)]
        began = perf_counter()
        (granted,) = core.finished(now, ended)
        core.started(now, granted)
        core.arrive(now, _MODEL, "silver", tenant=f"tenant-{turn % tenants}")
        took = perf_counter() - began
        running[turn % len(running)] = granted
        return took

    return once


def _cancels(rounds: int, queued: int, tenants: int) -> tuple[float, float]:
    core, _, waiting = _filled(queued, tenants)

    def once(turn: int) -> float:
        spot = turn * 7919 % len(waiting)
        began = perf_counter()
        core.cancelled(0.0, waiting[spot])
        ticket = core.arrive(0.0, _MODEL, "silver", tenant=f"tenant-{turn % tenants}")
        took = perf_counter() - began
        waiting[spot] = ticket
        return took

    return _times(once, rounds)


def _heap(rounds: int, queued: int) -> tuple[float, float]:
    heap = [(number, number) for number in range(queued)]

    def once(turn: int) -> float:
        began = perf_counter()
        heapq.heappop(heap)
        heapq.heappush(heap, (queued + turn, turn))
        return perf_counter() - began

    return _times(once, rounds)


def _row(case: str, own: tuple[float, float], peer: str, other: tuple[float, float]) -> dict[str, Any]:
    return {
        "case": case,
        "p50_us": round(own[0], 2),
        "p99_us": round(own[1], 2),
        "peer": peer,
        "peer_p50_us": round(other[0], 2),
        "ratio": round(own[0] / other[0], 2),
        "better": Better.LESS,
    }


def _times(once: Callable[[int], float], rounds: int) -> tuple[float, float]:
    return _marks([once(turn) for turn in range(rounds)])


def _marks(taken: list[float]) -> tuple[float, float]:
    """Median and 99th percentile, us."""
    marks = quantiles((1e6 * one for one in taken), n=100, method="inclusive")
    return marks[49], marks[98]
