"""Whose turn it is: the waiting requests of one band of one model, by tenant.

Deficit round robin (Shreedhar and Varghese, 1995) with whole rounds skipped. In every round each waiting tenant is
credited ``quantum`` and spends it on the requests at its head; one whose head costs more saves up over rounds. A
tenant therefore waits in the round in which its head becomes affordable, and rounds that nobody waits in cost no time.
With cost 1 and quantum 1 this is plain round robin: one slot a turn, and who comes or comes back stands at the end.

No credit is collected while idle: a tenant that returns starts with nothing, or with the debt that corrections left it
less what the rounds since then have paid off.

All steps take constant time, but for the heap of rounds; a cost counts for ``SPAN`` quanta at most, so that heap has a
bounded length whatever clients ask for.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from grid.flow.tickets import Ticket

SPAN: Final = 1024
"""Quanta that one request, or a debt, counts for at most."""


class Tenant:
    """One tenant in one queue. ``granted`` counts the slots it had; ``deficit`` is its credit as of round ``base``."""

    __slots__ = ("base", "deficit", "granted", "key", "round", "waiting")

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiting: OrderedDict[Ticket, None] = OrderedDict()
        self.granted = 0
        self.deficit = 0
        self.base = 0
        self.round = 0


class TurnQueue:
    """The queue. ``size`` counts waiting requests; ``quantum`` 0 means turns by requests."""

    __slots__ = (
        "_by_length",
        "_by_round",
        "_idle",
        "_idle_limit",
        "_longest",
        "_quantum",
        "_round",
        "_rounds",
        "_tenants",
        "size",
    )

    def __init__(self, *, quantum: int, idle_limit: int) -> None:
        self.size = 0
        self._quantum = quantum
        self._idle_limit = idle_limit
        self._tenants: dict[str, Tenant] = {}
        self._idle: OrderedDict[str, Tenant] = OrderedDict()
        self._by_round: dict[int, OrderedDict[Tenant, None]] = {}
        self._rounds: list[int] = []
        self._round = 0
        self._by_length: dict[int, OrderedDict[Tenant, None]] = {}
        self._longest = 0

    # --- what it looks like -------------------------------------------------------------------------------------------

    @property
    def tenants(self) -> int:
        """Tenants with a waiting request."""
        return len(self._tenants)

    @property
    def remembered(self) -> int:
        """Tenants without one that are still known."""
        return len(self._idle)

    def known(self) -> Iterator[Tenant]:
        """Every tenant that is known, waiting ones first."""
        yield from self._tenants.values()
        yield from self._idle.values()

    def oldest(self) -> float | None:
        """When the request that waits longest came, s; None when nothing waits. Takes a look at every tenant."""
        return min((next(iter(tenant.waiting)).arrived for tenant in self._tenants.values()), default=None)

    def ahead(self, key: str) -> int:
        """How many of this queue would go before the next request of tenant ``key``, if all took equal turns."""
        tenant = self._tenants.get(key)
        turns = 1 if tenant is None else len(tenant.waiting) + 1
        others = len(self._tenants) - (tenant is not None)
        return min(self.size, turns - 1 + turns * others)

    def served(self, key: str) -> None:
        """Tenant ``key`` was granted a slot without waiting: it costs no turn, and is remembered."""
        tenant = self._idle.get(key)
        if tenant is None:
            tenant = self._tenants.get(key)
            if tenant is None:
                tenant = Tenant(key)
                tenant.base = self._round
                self._remember(tenant)
        else:
            self._idle.move_to_end(key)
        tenant.granted += 1

    # --- who waits ----------------------------------------------------------------------------------------------------

    def push(self, ticket: Ticket) -> None:
        """``ticket`` waits, behind its tenant's others."""
        tenant = self._tenants.get(ticket.tenant)
        if tenant is None:
            tenant = self._tenants[ticket.tenant] = self._back(ticket.tenant)
            tenant.waiting[ticket] = None
            self._place(tenant)
        else:
            tenant.waiting[ticket] = None
        self.size += 1
        self._lengthen(tenant)

    def remove(self, ticket: Ticket) -> None:
        """``ticket`` no longer waits, wherever it stands."""
        tenant = self._tenants[ticket.tenant]
        was_head = next(iter(tenant.waiting)) is ticket
        self._drop(tenant, ticket)
        if not tenant.waiting:
            del self._by_round[tenant.round][tenant]
            self._leave(tenant)
        elif was_head and self._due(tenant) != tenant.round:
            del self._by_round[tenant.round][tenant]
            self._place(tenant)

    def take(self) -> Ticket:
        """The request whose turn it is; it waits no longer. Only while ``size`` is above 0."""
        while not self._by_round[self._rounds[0]]:
            del self._by_round[heapq.heappop(self._rounds)]
        self._round = at = self._rounds[0]
        tenant, _ = self._by_round[at].popitem(last=False)
        ticket = next(iter(tenant.waiting))
        self._drop(tenant, ticket)
        cost = self._price(ticket)
        tenant.deficit += (self._quantum or 1) * (at - tenant.base) - cost
        tenant.base = at
        tenant.granted += 1
        ticket.charged = cost
        if tenant.waiting:
            self._place(tenant)
        else:
            self._leave(tenant)
        return ticket

    def longest_of_other(self, key: str) -> Ticket | None:
        """The newest request of the tenant that has most; None unless it has more than ``key`` with one more."""
        tenant = self._tenants.get(key)
        own = 0 if tenant is None else len(tenant.waiting)
        if self._longest <= own + 1:
            return None
        return next(reversed(next(iter(self._by_length[self._longest])).waiting))

    def correct(self, ticket: Ticket, cost: int) -> None:
        """What ``ticket`` cost is known now: its tenant pays the rest, or gets back what was charged too much."""
        tenant = self._tenants.get(ticket.tenant)
        change = ticket.charged - max(1, cost)
        if tenant is not None:
            tenant.deficit = max(tenant.deficit + change, -SPAN * self._quantum)
            if self._due(tenant) != tenant.round:
                del self._by_round[tenant.round][tenant]
                self._place(tenant)
        elif (idle := self._idle.get(ticket.tenant)) is not None:
            self._settle(idle)
            idle.deficit = min(0, max(idle.deficit + change, -SPAN * self._quantum))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _price(self, ticket: Ticket) -> int:
        return min(max(1, ticket.cost), SPAN * self._quantum) if self._quantum else 1

    def _due(self, tenant: Tenant) -> int:
        """The round in which the tenant can afford its head."""
        missing = self._price(next(iter(tenant.waiting))) - tenant.deficit
        return max(self._round, tenant.base - (-missing // (self._quantum or 1)))

    def _place(self, tenant: Tenant) -> None:
        tenant.round = due = self._due(tenant)
        ring = self._by_round.get(due)
        if ring is None:
            ring = self._by_round[due] = OrderedDict()
            heapq.heappush(self._rounds, due)
        ring[tenant] = None

    def _back(self, key: str) -> Tenant:
        tenant = self._idle.pop(key, None)
        if tenant is None:
            tenant = Tenant(key)
            tenant.base = self._round
        self._settle(tenant)
        return tenant

    def _settle(self, tenant: Tenant) -> None:
        """The rounds that went by while it was idle pay off its debt and give it nothing."""
        tenant.deficit = min(0, tenant.deficit + self._quantum * (self._round - tenant.base))
        tenant.base = self._round

    def _leave(self, tenant: Tenant) -> None:
        del self._tenants[tenant.key]
        tenant.deficit = min(0, tenant.deficit)
        self._remember(tenant)

    def _remember(self, tenant: Tenant) -> None:
        self._idle[tenant.key] = tenant
        if len(self._idle) > self._idle_limit:
            self._idle.popitem(last=False)

    def _lengthen(self, tenant: Tenant) -> None:
        length = len(tenant.waiting)
        if length > 1:
            self._off_length(tenant, length - 1)
        self._by_length.setdefault(length, OrderedDict())[tenant] = None
        self._longest = max(self._longest, length)

    def _off_length(self, tenant: Tenant, length: int) -> None:
        same = self._by_length[length]
        del same[tenant]
        if not same:
            del self._by_length[length]

    def _drop(self, tenant: Tenant, ticket: Ticket) -> None:
        """Take one request out of its tenant's queue; lengths change by one, so the longest is found at once."""
        length = len(tenant.waiting)
        del tenant.waiting[ticket]
        self.size -= 1
        self._off_length(tenant, length)
        if length > 1:
            self._by_length.setdefault(length - 1, OrderedDict())[tenant] = None
        if self._longest == length and length not in self._by_length:
            self._longest = length - 1
