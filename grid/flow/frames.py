"""From the signal frames of the bus to what admission control acts on.

A pool is named ``site/cluster`` here, as gateways report their in-flight counts.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from grid.flow.pools import PoolSignal
from grid.model import CapacitySource, HeldSource
from grid.overlay.frames import ProviderSignal, SignalFrame

MEANS_AGE: Final = 7.0
"""s by which the means of engines may be older than the sample: the EPP rewrites them every 5 s, from readings up to
2 s old."""

_NONE: Final[Mapping[str, float]] = MappingProxyType({})


def pool_signals(
    frame: SignalFrame,
    *,
    own: Mapping[str, int],
    declared: Mapping[str, float] = _NONE,
    lags: Mapping[str, float] = _NONE,
    since: float = 0.0,
) -> list[PoolSignal]:
    """What ``frame`` says of every pool, for one gateway process.

    ``own``: requests of this process in flight, by pool, as it last reported them. ``since``: s since the frame came.

    What is declared and what lags stands in the frame (``capacity_source``, ``held_source``); a capacity that is not
    declared is learned, and begins with what the daemon has learned. For frames of a daemon that does not say so,
    ``declared`` (``max_running``) and ``lags`` (``PoolSignal.lag``) tell it by provider id; where given they count.
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
    says_declared = signal.capacity_source == CapacitySource.DECLARED
    if declared is None and says_declared and signal.capacity and signal.ready:
        declared = signal.capacity / signal.ready
    return PoolSignal(
        key,
        ready=signal.ready,
        max_running=declared,
        held=signal.held if signal.age_s is not None else None,
        # A capacity that is not declared is the daemon's own mark: the most it saw running.
        running=signal.capacity if declared is None and not says_declared else None,
        queued=signal.queue,
        kv=signal.kv,
        age=(signal.age_s or 0.0) + since,
        bound=signal.bound_s,
        queue_capacity=5.0 if signal.queue_capacity is None else signal.queue_capacity,
        kv_ceiling=0.9 if signal.kv_ceiling is None else signal.kv_ceiling,
        lag=MEANS_AGE if signal.held_source == HeldSource.ENGINE else 0.0,
    )
