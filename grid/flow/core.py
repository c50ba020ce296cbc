"""Admission control as a state machine: no clock, no loop, no randomness of its own.

Whoever drives it says what time it is (s of a monotonic clock) and hears which tickets changed. Between two calls this
holds: *no request waits that could go.* Every waiting request finds all pools of its model at the limit of its band.
From that follow, with ceilings that never rise downward:

- strict bands: where a request of some band waits, its pools have no room for any band below;
- no idle room: a slot that comes free goes to the first waiting request that may use it, in the same call;
- the door needs no look at the queues: where a pool has room for a band, nobody of that band or above waits for it.

Every call takes the time of what it changes: a grant looks at each pool of its model once, a cancelled request leaves
from anywhere in constant time, time-outs come off a heap.
"""

import heapq
import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from grid.flow.drain import RetrySpread
from grid.flow.pools import Pool, PoolSignal
from grid.flow.routes import Route
from grid.flow.settings import AdmissionPolicy
from grid.flow.tickets import State, Ticket
from grid.model import Reason

_STATUS: Final = {Reason.QUEUE_FULL: 503, Reason.ADMISSION_REFUSED: 503, Reason.QUEUE_TIMEOUT: 504}
_SLACK: Final = 64
_HOLDING: Final = (State.GRANTED, State.RUNNING)

News = list[Ticket]


class AdmissionCore:
    """Pools, queues and granted slots of one gateway process.

    ``phase`` in [0, 1) tells gateways apart where shares of a pool's room are rounded: instance i of n takes i / n
    where it can, anything else that differs (a hash of its name) otherwise.
    """

    def __init__(self, policy: AdmissionPolicy | None = None, *, phase: float = 0.0) -> None:
        self.policy = policy or AdmissionPolicy()
        self.passed = Route("", self.policy)
        """Where requests go in which no pool has a say, since their model has none; they are only counted."""
        self._phase = phase
        self._levels = {band.name: level for level, band in enumerate(self.policy.bands)}
        self._lowest = len(self.policy.bands) - 1
        self._now = -math.inf
        self._routes: dict[str, Route] = {}
        self._pools: dict[str, Pool] = {}
        self._leases: OrderedDict[Ticket, None] = OrderedDict()
        self._expiries: list[tuple[float, int, Ticket]] = []
        self._order = itertools.count()
        self._waiting = 0
        self._retry = RetrySpread(phase)
        self._news: News = []

    # --- what it looks like -------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._waiting

    @property
    def slots(self) -> int:
        """Slots that are taken: granted or under way."""
        return sum(pool.used for pool in self._pools.values())

    @property
    def routes(self) -> Mapping[str, Route]:
        """Models by name. To be read only."""
        return self._routes

    @property
    def pools(self) -> Mapping[str, Pool]:
        """Pools by key. To be read only."""
        return self._pools

    def level(self, band: str | None) -> int:
        """The band's place from the top; one that is not known goes to the lowest."""
        return self._levels.get(band, self._lowest) if band is not None else self._lowest

    def next_deadline(self) -> float | None:
        """When ``tick`` is due next; None: never. One timer is enough for everything."""
        expiries = self._expiries
        while expiries and expiries[0][2].state is not State.QUEUED:
            heapq.heappop(expiries)
        due = min((pool.stale_at for pool in self._pools.values()), default=math.inf)
        if expiries:
            due = min(due, expiries[0][0])
        if self._leases:
            due = min(due, self._lease_end(next(iter(self._leases))))
        return None if due == math.inf else due

    # --- one request --------------------------------------------------------------------------------------------------

    def arrive(
        self,
        now: float,
        model: str,
        band: str | None = None,
        *,
        tenant: str = "",
        cost: int = 1,
        deadline: float | None = None,
    ) -> Ticket:
        """A request comes to the door: its ticket is granted, queued or refused when this returns.

        ``deadline`` is the time by which it must have its slot. Others may have changed too (:meth:`collect`).
        """
        now = self._at(now)
        level = self.level(band)
        route = self._routes.get(model, self.passed)
        ticket = Ticket(model, route, level, tenant=tenant, cost=cost, now=now)
        if route is self.passed:
            self._pass(ticket, now)
        elif deadline is not None and deadline <= now:
            self._refuse(ticket, Reason.ADMISSION_REFUSED, now)
        elif (pool := route.roomiest(level)) is not None:
            route.queues[level].served(tenant)
            self._grant(ticket, pool, now)
        else:
            self._enqueue(route, ticket, now, deadline)
        return ticket

    def bind(self, now: float, ticket: Ticket, key: str) -> bool:
        """The pick has chosen: the slot counts against pool ``key`` from now on. Whether that pool had room for it.

        True for every pool in ``ticket.allowed``. The slot moves in any case, since that is where the request goes; the
        place it leaves may be granted to another (:meth:`collect`).
        """
        now = self._at(now)
        held, pool = ticket.pool, self._pools.get(key)
        if held is pool or held is None or pool is None or ticket.state not in _HOLDING:
            return held is pool
        had_room = pool.used < pool.limits[ticket.level]
        ticket.pool = pool
        if ticket.state is State.GRANTED:
            held.leases -= 1
            held.used -= 1
            pool.leases += 1
            pool.used += 1
        else:
            held.end(now)
            pool.take(now)
        self._freed(held, now)
        return had_room

    def started(self, now: float, ticket: Ticket) -> News:
        """The request is under way: its lease ends, and the gateway's own count has it from now on."""
        now = self._at(now)
        pool = ticket.pool
        if ticket.state is State.GRANTED:
            ticket.state = State.RUNNING
            if pool is not None:
                del self._leases[ticket]
                pool.begin(now)
        elif ticket.state is State.LAPSED and pool is not None:
            ticket.state = State.RUNNING
            ticket.pool = self._pools.setdefault(pool.key, pool)
            ticket.pool.take(now)
        return self.collect()

    def finished(self, now: float, ticket: Ticket, cost: int | None = None) -> News:
        """The request has ended; ``cost`` is what it cost in the end, where that is known."""
        return self._ended(now, ticket, State.FINISHED, cost)

    def cancelled(self, now: float, ticket: Ticket) -> News:
        """The caller is gone: the request leaves wherever it stands and holds nothing."""
        return self._ended(now, ticket, State.CANCELLED, None)

    # --- the world ----------------------------------------------------------------------------------------------------

    def update(self, now: float, signals: Iterable[PoolSignal], turn: int = 0) -> News:
        """What is known of the pools now. A pool that is not among ``signals`` keeps what it had, and grows stale.

        ``turn`` is a number that all gateways see alike and that changes with the samples (the frame's sequence).
        """
        now = self._at(now)
        named = {signal.key: signal for signal in signals}
        changed = []
        for pool in list(self._pools.values()):
            pool.named = pool.key in named
            self._forget(pool)
        for key, signal in named.items():
            pool = self._pool(key, now)
            pool.named = True
            if pool.learn(signal, turn, now):
                changed.append(pool)
        for pool in changed:
            self._dispatch(pool, now)
        return self.collect()

    def reroute(self, now: float, routes: Mapping[str, Sequence[str]]) -> News:
        """Which pools may take new work, by model: those that the pick may use. Replaces what was said before.

        Requests that wait for a model without any go on to the pick at once, which knows why nothing serves it.
        """
        now = self._at(now)
        routes = {model: keys for model, keys in routes.items() if keys}
        for model in self._routes.keys() - routes.keys():
            route = self._routes.pop(model)
            self._use(route, ())
            for queue in route.queues:
                while queue.size:
                    ticket = queue.take()
                    self._left(route, ticket.level)
                    self._pass(ticket, now)
                    self._news.append(ticket)
        for model, keys in routes.items():
            found = self._routes.get(model)
            if found is None:
                found = self._routes[model] = Route(model, self.policy)
            pools = tuple(self._pool(key, now) for key in dict.fromkeys(keys))
            if pools != found.pools:
                self._use(found, pools)
        for pool in list(self._pools.values()):
            self._forget(pool)
            self._dispatch(pool, now)
        return self.collect()

    def tick(self, now: float) -> News:
        """Time has passed: waits and leases that are over end, samples that are too old count no more."""
        now = self._at(now)
        while self._leases and self._lease_end(ticket := next(iter(self._leases))) <= now:
            self._let_go(ticket, State.LAPSED, now)
            self._news.append(ticket)
        expiries = self._expiries
        while expiries and (expiries[0][2].state is not State.QUEUED or expiries[0][0] <= now):
            ticket = heapq.heappop(expiries)[2]
            if ticket.state is State.QUEUED:
                self._unqueue(ticket)
                self._refuse(ticket, Reason.QUEUE_TIMEOUT, now, State.EXPIRED)
                self._news.append(ticket)
        for pool in self._pools.values():
            if pool.stale_at <= now:
                pool.expire()
                self._dispatch(pool, now)
        return self.collect()

    def collect(self) -> News:
        """The tickets that changed by themselves since the last look: granted, timed out, pushed out, lapsed."""
        news = self._news
        if news:
            self._news = []
        return news

    # --- inside: a ticket changes -------------------------------------------------------------------------------------

    def _at(self, now: float) -> float:
        """Time never runs backwards here, whatever the caller's clock does."""
        if now > self._now:  # noqa: PLR1730 - max() costs 60 ns
            self._now = now
        return self._now

    def _lease_end(self, ticket: Ticket) -> float:
        return (ticket.granted_at or 0.0) + self.policy.lease

    def _pass(self, ticket: Ticket, now: float) -> None:
        ticket.state = State.GRANTED
        ticket.granted_at = now
        ticket.route = self.passed
        self._count(ticket, State.GRANTED)

    def _grant(self, ticket: Ticket, pool: Pool, now: float) -> None:
        ticket.state = State.GRANTED
        ticket.granted_at = now
        ticket.pool = pool
        pool.leases += 1
        pool.used += 1
        self._leases[ticket] = None
        self._count(ticket, State.GRANTED)

    def _enqueue(self, route: Route, ticket: Ticket, now: float, deadline: float | None) -> None:
        level = ticket.level
        queue = route.queues[level]
        ticket.expires_at = now + self.policy.max_wait
        if deadline is not None:
            wait = route.drain.time_for(route.ahead(level, ticket.tenant) + 1, now)
            if wait is not None and now + wait > deadline:
                self._refuse(ticket, Reason.ADMISSION_REFUSED, now)
                return
            ticket.expires_at = min(ticket.expires_at, deadline)
        if queue.size >= self.policy.max_queued:
            longest = queue.longest_of_other(ticket.tenant)
            if longest is None:
                self._refuse(ticket, Reason.QUEUE_FULL, now)
                return
            self._unqueue(longest)
            self._refuse(longest, Reason.QUEUE_FULL, now)
            self._news.append(longest)
        if not queue.size:
            for pool in route.pools:
                pool.rings[level][route] = None
        queue.push(ticket)
        self._waiting += 1
        heapq.heappush(self._expiries, (ticket.expires_at, next(self._order), ticket))

    def _refuse(self, ticket: Ticket, reason: Reason, now: float, state: State = State.REFUSED) -> None:
        ticket.state = state
        ticket.reason = reason
        ticket.status = _STATUS[reason]
        ahead = sum(queue.size for queue in ticket.route.queues[: ticket.level + 1])
        ticket.retry_after = self._retry.after(ticket.route.drain.time_for(max(1, ahead), now))
        self._count(ticket, reason)

    def _ended(self, now: float, ticket: Ticket, state: State, cost: int | None) -> News:
        now = self._at(now)
        if ticket.state is State.QUEUED:
            self._unqueue(ticket)
            ticket.state = State.CANCELLED
            self._count(ticket, State.CANCELLED)
        elif ticket.state in _HOLDING:
            if cost is not None and ticket.charged and self.policy.by_cost:
                ticket.route.queues[ticket.level].correct(ticket, cost)
            self._let_go(ticket, state, now)
        return self.collect()

    def _let_go(self, ticket: Ticket, state: State, now: float) -> None:
        was, pool = ticket.state, ticket.pool
        ticket.state = state
        self._count(ticket, state)
        if pool is None:
            return
        ticket.route.drain.note(now)
        if was is State.GRANTED:
            del self._leases[ticket]
            pool.leases -= 1
            pool.used -= 1
        else:
            pool.end(now)
        self._freed(pool, now)

    def _count(self, ticket: Ticket, outcome: str) -> None:
        ticket.route.counts[ticket.level][outcome] += 1

    # --- inside: queues and pools -------------------------------------------------------------------------------------

    def _unqueue(self, ticket: Ticket) -> None:
        ticket.route.queues[ticket.level].remove(ticket)
        self._left(ticket.route, ticket.level)

    def _left(self, route: Route, level: int) -> None:
        """A request waits no longer: nobody looks for more where none is left, and no time-out is kept for it long."""
        self._waiting -= 1
        if not route.queues[level].size:
            for pool in route.pools:
                pool.rings[level].pop(route, None)
        if not self._waiting:
            self._expiries.clear()
        elif len(self._expiries) > 2 * self._waiting + _SLACK:
            self._expiries[:] = [entry for entry in self._expiries if entry[2].state is State.QUEUED]
            heapq.heapify(self._expiries)

    def _dispatch(self, pool: Pool, now: float) -> None:
        """Grant what ``pool`` has room for, most important band first, models of a band in turn."""
        if not self._waiting:
            return
        for level, ring in enumerate(pool.rings):
            limit = pool.limits[level]
            while ring and pool.used < limit:
                route = next(iter(ring))
                ring.move_to_end(route)
                ticket = route.queues[level].take()
                self._left(route, level)
                self._grant(ticket, pool, now)
                self._news.append(ticket)

    def _freed(self, pool: Pool, now: float) -> None:
        self._dispatch(pool, now)
        self._forget(pool)

    def _pool(self, key: str, now: float) -> Pool:
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(key, self.policy, phase=self._phase, now=now)
        return pool

    def _forget(self, pool: Pool) -> None:
        if not pool.used and not pool.named and not pool.routed:
            self._pools.pop(pool.key, None)

    @staticmethod
    def _use(route: Route, pools: tuple[Pool, ...]) -> None:
        """Change the pools of a model; whoever waits for it waits for the new ones."""
        for pool in route.pools:
            pool.routed -= 1
            for ring in pool.rings:
                ring.pop(route, None)
        route.pools = pools
        for pool in pools:
            pool.routed += 1
            for level, queue in enumerate(route.queues):
                if queue.size:
                    pool.rings[level][route] = None
