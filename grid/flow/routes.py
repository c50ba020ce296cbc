"""One model: the pools that may serve it, and who waits for it."""

from collections import Counter

from grid.flow.drain import DrainRate
from grid.flow.pools import Pool
from grid.flow.queues import TurnQueue
from grid.flow.settings import AdmissionPolicy


class Route:
    """``pools`` in the picker's order; ``queues`` and ``counts`` (outcomes so far, by name) by band from the top."""

    __slots__ = ("counts", "drain", "model", "pools", "queues")

    def __init__(self, model: str, policy: AdmissionPolicy) -> None:
        quantum = policy.quantum if policy.by_cost else 0
        self.model = model
        self.pools: tuple[Pool, ...] = ()
        self.queues = tuple(TurnQueue(quantum=quantum, idle_limit=policy.idle_tenants) for _ in policy.bands)
        self.counts: tuple[Counter[str], ...] = tuple(Counter() for _ in policy.bands)
        self.drain = DrainRate()

    def roomiest(self, level: int) -> Pool | None:
        """The pool with the most room for a band; None where none has any. One look at each pool of the model."""
        best, most = None, 0
        for pool in self.pools:
            room = pool.limits[level] - pool.used
            if room > most:
                best, most = pool, room
        return best

    def ahead(self, level: int, tenant: str) -> int:
        """How many would go before the next request of ``tenant`` in this band."""
        return sum(queue.size for queue in self.queues[:level]) + self.queues[level].ahead(tenant)
