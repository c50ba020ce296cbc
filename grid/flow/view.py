"""What admission control looks like now, as plain values for JSON (``/v1/admission``)."""

import heapq
import math
from collections import Counter
from typing import Any, Final

from grid.flow.core import AdmissionCore
from grid.flow.pools import Pool
from grid.flow.queues import Tenant
from grid.flow.routes import Route
from grid.flow.tickets import State
from grid.model import Reason

TOP: Final = 10
"""Tenants shown."""

_REFUSALS: Final = (Reason.QUEUE_FULL, Reason.QUEUE_TIMEOUT, Reason.ADMISSION_REFUSED)
_ENDS: Final = (State.GRANTED, State.FINISHED, State.CANCELLED, State.LAPSED)


def describe(core: AdmissionCore, now: float) -> dict[str, Any]:
    """The state of ``core`` at ``now``: JSON-able, unknown is null, ages in s, tenants by the names the core knows.

    ``bands`` from the most important down; ``queues`` by model and band; ``pools`` with who waits for them; the
    ``tenants`` with most waiting, then most granted; ``passed``: requests whose model no pool has a say in.
    """
    routes = list(core.routes.values())
    return {
        "waiting": core.waiting,
        "slots": core.slots,
        "bands": [_band(core, level, routes, now) for level in range(len(core.policy.bands))],
        "queues": [_queue(core, level, route, now) for route in routes for level in range(len(core.policy.bands))],
        "pools": [_pool(core, pool) for pool in core.pools.values()],
        "tenants": _top(routes),
        "passed": dict(sum(core.passed.counts, Counter())),
    }


def _band(core: AdmissionCore, level: int, routes: list[Route], now: float) -> dict[str, Any]:
    band = core.policy.bands[level]
    return {
        "band": band.name,
        "ceiling": band.ceiling,
        "kv_limit": band.kv_limit,
        "waiting": sum(route.queues[level].size for route in routes),
        "oldest_age_s": _age([route.queues[level].oldest() for route in routes], now),
        **_counts(sum((route.counts[level] for route in routes), Counter())),
    }


def _queue(core: AdmissionCore, level: int, route: Route, now: float) -> dict[str, Any]:
    queue = route.queues[level]
    return {
        "model": route.model,
        "band": core.policy.bands[level].name,
        "waiting": queue.size,
        "tenants": queue.tenants,
        "oldest_age_s": _age([queue.oldest()], now),
        "drain_per_s": route.drain.per_s(now),
        **_counts(route.counts[level]),
    }


def _pool(core: AdmissionCore, pool: Pool) -> dict[str, Any]:
    names = [band.name for band in core.policy.bands]
    return {
        "pool": pool.key,
        "state": pool.state,
        "saturation": pool.saturation,
        "capacity": pool.capacity,
        "capacity_source": "learned" if pool.signal.max_running is None else "declared",
        "queue_limit": pool.queue_limit,
        "kv_pressure": pool.kv_pressure,
        "in_flight": pool.in_flight,
        "own": pool.own,
        "leases": pool.leases,
        "share": pool.signal.share,
        "waiting": {
            name: sum(route.queues[level].size for route in pool.rings[level]) for level, name in enumerate(names)
        },
        "room": {name: max(0, pool.limits[level] - pool.used) for level, name in enumerate(names)},
    }


def _counts(counts: Counter[str]) -> dict[str, Any]:
    return {
        **{end.value: counts[end] for end in _ENDS},
        "refused": {reason.value: counts[reason] for reason in _REFUSALS if counts[reason]},
    }


def _age(arrivals: list[float | None], now: float) -> float | None:
    oldest = min((at for at in arrivals if at is not None), default=math.inf)
    return None if oldest == math.inf else max(0.0, now - oldest)


def _top(routes: list[Route]) -> list[dict[str, Any]]:
    waiting: Counter[str] = Counter()
    granted: Counter[str] = Counter()
    for route in routes:
        for queue in route.queues:
            for tenant in queue.known():
                _add(tenant, waiting, granted)
    top = heapq.nlargest(TOP, granted, key=lambda key: (waiting[key], granted[key], key))
    return [{"tenant": key, "waiting": waiting[key], "granted": granted[key]} for key in top]


def _add(tenant: Tenant, waiting: Counter[str], granted: Counter[str]) -> None:
    waiting[tenant.key] += len(tenant.waiting)
    granted[tenant.key] += tenant.granted
