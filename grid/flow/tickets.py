"""One request in admission control, from the door to its end."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from grid.model import Reason

if TYPE_CHECKING:
    from grid.flow.pools import Pool
    from grid.flow.routes import Route


class State(StrEnum):
    """Where a ticket stands. The last five are ends, and a ticket comes to one of them only.

    ``lapsed``: it was granted, nobody started it, and its lease ran out. It alone may come back, when its request is
    started after all.
    """

    QUEUED = "queued"
    GRANTED = "granted"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    EXPIRED = "expired"
    LAPSED = "lapsed"


class Ticket:
    """A request's place in admission control; made by ``AdmissionCore.arrive`` and changed by the core alone.

    ``level``: its band's place from the top. ``cost``: what it is expected to cost (tokens where tenants take turns by
    cost). ``arrived``, ``granted_at``, ``expires_at`` in s of the caller's clock; ``expires_at`` is when its wait ends.
    ``pool_key``: the pool that its slot counts against. ``reason``, ``status`` and ``retry_after`` (whole s) are set
    where it was refused or has waited too long. ``owner`` belongs to whoever delivers grants; the core only drops it.
    """

    __slots__ = (
        "arrived",
        "charged",
        "cost",
        "expires_at",
        "granted_at",
        "level",
        "model",
        "owner",
        "pool",
        "reason",
        "retry_after",
        "route",
        "state",
        "status",
        "tenant",
    )

    def __init__(self, model: str, route: "Route", level: int, *, tenant: str, cost: int, now: float) -> None:
        self.model = model
        self.route = route
        self.level = level
        self.tenant = tenant
        self.cost = cost
        self.arrived = now
        self.state = State.QUEUED
        self.granted_at: float | None = None
        self.expires_at = now
        self.charged = 0
        self.pool: Pool | None = None
        self.reason: Reason | None = None
        self.status: int | None = None
        self.retry_after: int | None = None
        self.owner: Any = None

    @property
    def pool_key(self) -> str | None:
        """The pool that the slot counts against; None while it waits, and where no pool has a say."""
        return None if self.pool is None else self.pool.key

    @property
    def waited(self) -> float | None:
        """How long it waited for its slot, s; None before it has one."""
        return None if self.granted_at is None else self.granted_at - self.arrived

    @property
    def allowed(self) -> tuple[str, ...]:
        """The pools that a granted request may go to, as of now: the one it counts against, and any with room for it.

        Empty where no pool has a say. A slot whose pool was lost while others are full may go to any of them: a
        request that was granted is served.
        """
        held, level, pools = self.pool, self.level, self.route.pools
        if held is None:
            return ()
        open_now = tuple(pool.key for pool in pools if pool is held or pool.used < pool.limits[level])
        return open_now or tuple(pool.key for pool in pools)
