"""From the signal frames of the bus to what admission control acts on.

A pool is named ``site/cluster`` here, as gateways report their in-flight counts.
"""

from collections.abc import Mapping

from grid.flow.pools import PoolSignal
from grid.overlay.frames import ProviderSignal, SignalFrame


def pool_signals(
    frame: SignalFrame,
    *,
    own: Mapping[str, int],
    declared: Mapping[str, float],
    since: float = 0.0,
) -> list[PoolSignal]:
    """What ``frame`` says of every pool, for one gateway process.

    ``own``: requests of this process in flight, by pool, as it last reported them. ``declared``: ``max_running`` by
    provider id, of those that have one; the capacity of others is learned, and begins with what the daemon has
    learned. ``since``: s since the frame came.
    """
    sent: dict[str, int] = {}
    for gateway in frame.gateways.values():
        for key, count in gateway.in_flight.items():
            sent[key] = sent.get(key, 0) + count
    found = []
    for provider, signal in frame.providers.items():
        key = f"{signal.site}/{signal.cluster}"
        share = traffic_share(own.get(key, 0), sent.get(key, 0), frame.instances)
        found.append(_signal(key, signal, declared.get(provider), share, since))
    return found


def traffic_share(own: int, sent: int, instances: int) -> float:
    """This process's part of the traffic to a pool, above 0, at most 1: (own + 1) / (all + instances).

    ``own`` and ``sent`` count requests in flight of this process and of all ``instances`` gateway processes. The one
    that everybody has on top keeps an idle gateway from being shut out, makes an equal split where nothing is known,
    and the shares still add up to 1.
    """
    if instances <= 1:
        return 1.0
    return (own + 1) / (max(own, sent) + instances)


def _signal(key: str, signal: ProviderSignal, declared: float | None, share: float, since: float) -> PoolSignal:
    limits = {}
    if signal.queue_capacity is not None:
        limits["queue_capacity"] = signal.queue_capacity
    if signal.kv_ceiling is not None:
        limits["kv_ceiling"] = signal.kv_ceiling
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
        share=share,
        **limits,
    )
