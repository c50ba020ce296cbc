"""What the simulated pool and the page of its EPP speak about."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DETECTOR_FRESH = 0.2
"""s since its last answer after which the EPP's saturation detector calls an endpoint stale."""
QUEUE_THRESHOLD = 5.0
KV_THRESHOLD = 0.8


@dataclass(frozen=True, slots=True)
class Engine:
    """One endpoint as its EPP last saw it: ``age`` is s since it last answered, 0 while it does; ``kv`` is 0 to 1."""

    name: str
    running: int = 0
    waiting: int = 0
    kv: float = 0.0
    age: float = 0.0

    @property
    def stale(self) -> bool:
        """Whether the saturation detector has no fresh word from it."""
        return self.age > DETECTOR_FRESH


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """Whose requests, for which model: the key of all per-request series. ``tenant`` is a client's own word."""

    tenant: str = "default-flow"
    model: str = "sim-model"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """Of one flow: given to engines and not yet answered, waiting in the EPP, ever given, answered, their s."""

    in_flight: int = 0
    queued: int = 0
    requests: int = 0
    answered: int = 0
    seconds: float = 0.0


Flows = Mapping[Flow, FlowCounts]


def saturation(engines: Sequence[Engine]) -> float:
    """What an EPP's utilization detector says of a pool, 1 being the set point and more past it.

    Mean over endpoints of max(waiting / 5, KV use / 0.8); a stale endpoint counts 1, a pool without any is 1.
    """
    if not engines:
        return 1.0
    return statistics.fmean(
        1.0 if engine.stale else max(engine.waiting / QUEUE_THRESHOLD, engine.kv / KV_THRESHOLD) for engine in engines
    )
