"""From the signal frames of the bus to what admission control acts on.

A pool is named ``site/cluster`` here, as gateways report their in-flight counts.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from grid.flow.pools import PoolSignal
from grid.overlay.frames import ProviderSignal, SignalFrame

_NONE: Final[Mapping[str, float]] = MappingProxyType({})


def pool_signals(
    frame: SignalFrame,
    *,
    own: Mapping[str, int],
    declared: Mapping[str, float],
    lags: Mapping[str, float] = _NONE,
    since: float = 0.0,
) -> list[PoolSignal]:
    """What ``frame`` says of every pool, for one gateway process.

    ``own``: requests of this process in flight, by pool, as it last reported them. ``declared``: ``max_running`` by
    provider id, of those that have one; the capacity of others is learned, and begins with what the daemon has
    learned. ``lags``: ``PoolSignal.lag`` by provider id, for those whose load is known from means only. ``since``: s
    since the frame came.
    """
    sent: dict[str, int] = {}
    for gateway in frame.gateways.values():
        for key, count in gateway.in_flight.items():
            sent[key] = sent.get(key, 0) + count
    found = []
    for provider, signal in frame.providers.items():
        key = f"{signal.site}/{signal.cluster}"
        known = _signal(key, signal, declared.get(provider), since)
        share = traffic_share(own.get(key, 0), sent.get(key, 0), frame.instances)
        found.append(replace(known, share=share, gateways=max(1, frame.instances), lag=lags.get(provider, known.lag)))
    return found


def traffic_share(own: int, sent: int, instances: int) -> float:
    """This process's part of the free room of a pool, above 0, at most 1.

    Half of the room goes by traffic, (own + 1) / (all + instances) with ``own`` and ``sent`` the requests in flight
    there of this process and of all ``instances`` gateway processes; the other half goes evenly, so that one with
    little traffic gets its few requests through when all is full. The shares of all add up to 1.
    """
    if instances <= 1:
        return 1.0
    return ((own + 1) / (max(own, sent) + instances) + 1 / instances) / 2


def _signal(key: str, signal: ProviderSignal, declared: float | None, since: float) -> PoolSignal:
    return PoolSignal(
        key,
        ready=signal.ready,
        max_running=declared,
        held=signal.held if signal.age_s is not None else None,
        # A capacity that is not declared is the daemon's own mark: the most it saw running.
        running=signal.capacity if declared is None else None,
        queued=signal.queue,
        kv=signal.kv,
        age=(signal.age_s or 0.0) + since,
        bound=signal.bound_s,
        queue_capacity=5.0 if signal.queue_capacity is None else signal.queue_capacity,
        kv_ceiling=0.9 if signal.kv_ceiling is None else signal.kv_ceiling,
    )
