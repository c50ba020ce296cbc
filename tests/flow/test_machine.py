"""Anything may happen in any order; what always holds of admission control is held against an account of its own."""

import math
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from grid.flow import AdmissionCore, AdmissionPolicy, Band, PoolSignal, State, Ticket, describe
from grid.flow.pools import Pool

KEYS = ("east", "west", "north")
MODELS = ("llama", "qwen")
TENANTS = ("a", "b", "c", "d")
ENDS = {State.FINISHED, State.CANCELLED, State.REFUSED, State.EXPIRED, State.LAPSED}
HOLDS = {State.GRANTED, State.RUNNING}
MAX_QUEUED, MAX_WAIT, LEASE = 6, 20.0, 5.0


class Admission(RuleBasedStateMachine):
    tickets = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.all: list[Ticket] = []
        self.told: dict[Ticket, State] = {}
        self.routes: dict[str, tuple[str, ...]] = {}
        self.slots = dict.fromkeys(KEYS, 0)
        self.others = dict.fromkeys(KEYS, 0)
        self.ready = dict.fromkeys(KEYS, 1)
        # Per model, band and waiting tenant: slots that others had since it came, or since its last turn.
        self.passed_over: dict[tuple[str, int, str], Counter[str]] = {}

    @initialize(
        ceilings=st.lists(st.sampled_from([0.0, 0.4, 1.0, 1.5]), min_size=1, max_size=3),
        by_cost=st.booleans(),
        slots=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    )
    def begin(self, ceilings: list[float], by_cost: bool, slots: list[int]) -> None:
        self.bands = tuple(Band(f"b{at}", ceiling) for at, ceiling in enumerate(sorted(ceilings, reverse=True)))
        self.by_cost = by_cost
        self.core = AdmissionCore(
            AdmissionPolicy(
                bands=self.bands,
                max_queued=MAX_QUEUED,
                max_wait=MAX_WAIT,
                lease=LEASE,
                by_cost=by_cost,
                quantum=5,
                idle_tenants=2,
            )
        )
        self.slots = dict(zip(KEYS, slots, strict=True))
        self.routes = {"llama": ("east", "west"), "qwen": ("west", "north")}
        self.settle(self.core.reroute(self.now, self.routes))
        self.sample()

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(
        target=tickets,
        model=st.sampled_from((*MODELS, "nonesuch")),
        band=st.integers(0, 2),
        tenant=st.sampled_from(TENANTS),
        cost=st.integers(0, 30),
        deadline=st.one_of(st.none(), st.floats(-1, 30)),
    )
    def arrive(self, model: str, band: int, tenant: str, cost: int, deadline: float | None) -> Ticket:
        until = None if deadline is None else self.now + deadline
        ticket = self.core.arrive(self.now, model, f"b{band}", tenant=tenant, cost=cost, deadline=until)
        self.all.append(ticket)
        self.settle(self.core.collect(), ticket)
        return ticket

    @rule(target=tickets, count=st.integers(2, 30), model=st.sampled_from(MODELS), band=st.integers(0, 2))
    def burst(self, count: int, model: str, band: int) -> object:
        return multiple(*(self.arrive(model, band, TENANTS[number % 4], 1, None) for number in range(count)))

    @rule(ticket=tickets)
    def start(self, ticket: Ticket) -> None:
        self.settle(self.core.started(self.now, ticket))

    @rule(ticket=tickets, cost=st.one_of(st.none(), st.integers(0, 100)))
    def finish(self, ticket: Ticket, cost: int | None) -> None:
        self.settle(self.core.finished(self.now, ticket, cost))

    @rule(ticket=tickets)
    def cancel(self, ticket: Ticket) -> None:
        self.settle(self.core.cancelled(self.now, ticket))

    @rule(ticket=tickets, number=st.integers(0, 5))
    def pick(self, ticket: Ticket, number: int) -> None:
        allowed, held = ticket.allowed, ticket.pool
        if held is None or ticket.state not in HOLDS or not ticket.route.pools:
            return
        pools = ticket.route.pools
        fitting = [pool.key for pool in pools if pool is held or pool.used < pool.limits[ticket.level]]
        assert list(allowed) == (fitting or [pool.key for pool in pools])
        key = allowed[number % len(allowed)]
        assert self.core.bind(self.now, ticket, key) is (key in fitting)
        assert ticket.pool_key == key
        self.settle(self.core.collect())

    @rule(seconds=st.floats(0.001, 12))
    def time_passes(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.core.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            self.settle(self.core.tick(self.now))
        self.now = until

    @rule()
    def sample(self) -> None:
        """Every pool is read; what the sample says is what is there."""
        self.now += 0.5
        signals = [
            PoolSignal(
                key,
                ready=self.ready[key],
                max_running=self.slots[key],
                held=self.running(key) + self.others[key],
                bound=8.0,
            )
            for key in KEYS
        ]
        self.settle(self.core.update(self.now, signals))

    @rule(key=st.sampled_from(KEYS), slots=st.integers(0, 6))
    def capacity_changes(self, key: str, slots: int) -> None:
        self.slots[key] = slots
        self.sample()

    @rule(key=st.sampled_from(KEYS), others=st.integers(0, 6))
    def others_come_and_go(self, key: str, others: int) -> None:
        self.others[key] = others
        self.sample()

    @rule(key=st.sampled_from(KEYS), ready=st.integers(0, 2))
    def endpoints_come_and_go(self, key: str, ready: int) -> None:
        self.ready[key] = ready
        self.sample()

    @rule(model=st.sampled_from(MODELS), keys=st.sets(st.sampled_from(KEYS)))
    def providers_come_and_go(self, model: str, keys: set[str]) -> None:
        self.routes[model] = tuple(sorted(keys))
        self.settle(self.core.reroute(self.now, self.routes))

    # --- what always holds --------------------------------------------------------------------------------------------

    def settle(self, news: list[Ticket], door: Ticket | None = None) -> None:
        """Look at everything that one call has changed."""
        assert len(news) == len(set(news)), "told twice"
        fresh = [ticket for ticket in self.all if ticket.state in HOLDS and self.told.get(ticket) not in HOLDS]
        for ticket in fresh:
            assert ticket is door or ticket in news or self.told.get(ticket) is State.LAPSED
        self.turns([ticket for ticket in news if ticket.state is State.GRANTED])
        granted = [ticket for ticket in fresh if ticket.state is State.GRANTED and ticket.pool is not None]
        lowest: dict[Pool, int] = {}
        for ticket in granted:
            self.nobody_above_waits(ticket)
            assert ticket.pool is not None
            lowest[ticket.pool] = max(lowest.get(ticket.pool, 0), ticket.level)
        for pool, level in lowest.items():
            self.no_more_than_room(pool, level)
        for ticket in self.all:
            before = self.told.get(ticket)
            if before in ENDS and before is not State.LAPSED:
                assert ticket.state is before, "one outcome, for good"
            if before is State.LAPSED:
                assert ticket.state in {State.LAPSED, *HOLDS, *ENDS}
            self.told[ticket] = ticket.state

    def no_more_than_room(self, pool: Pool, level: int) -> None:
        """What is there in truth (all who hold a slot, and others) after a grant fits the ceiling of its band.

        ``level`` is the lowest that got something here in this call: it came last.
        """
        fresh = pool.state.value == "fresh"
        ready = self.ready[pool.key] if fresh else max(1, self.ready[pool.key])
        there = pool.used + (self.others[pool.key] if fresh else 0)
        assert there <= math.floor(ready * (self.slots[pool.key] + self.bands[level].ceiling * 5) + 1e-6)

    def nobody_above_waits(self, ticket: Ticket) -> None:
        for other in self.all:
            if other.state is State.QUEUED and other.level < ticket.level:
                assert ticket.pool not in other.route.pools, "strict order across bands"

    def turns(self, taken: list[Ticket]) -> None:
        """Plain turns: while a tenant waits, no other gets two slots before it gets one."""
        if self.by_cost:
            return
        left = Counter(
            (ticket.model, ticket.level, ticket.tenant) for ticket in self.all if ticket.state is State.QUEUED
        )
        still = set(left)
        mine = [ticket for ticket in taken if ticket.pool is not None]
        left.update((ticket.model, ticket.level, ticket.tenant) for ticket in mine)
        for ticket in mine:
            key = (ticket.model, ticket.level, ticket.tenant)
            for (model, level, tenant), counts in self.passed_over.items():
                if (model, level) == key[:2] and tenant != ticket.tenant and left[model, level, tenant]:
                    counts[ticket.tenant] += 1
                    assert counts[ticket.tenant] <= 1, "turns"
            left[key] -= 1
            self.passed_over.get(key, Counter()).clear()
        self.passed_over = {key: self.passed_over.get(key, Counter()) for key in still}

    @invariant()
    def accounts_agree(self) -> None:
        if not self.all:
            return
        for key, pool in self.core.pools.items():
            holders = [ticket for ticket in self.all if ticket.state in HOLDS and ticket.pool is pool]
            assert pool.used == len(holders) == pool.own + pool.leases
            assert pool.leases == sum(ticket.state is State.GRANTED for ticket in holders)
            assert key == pool.key
        held = [ticket for ticket in self.all if ticket.state in HOLDS and ticket.pool is not None]
        assert self.core.slots == len(held)
        assert self.core.waiting == sum(ticket.state is State.QUEUED for ticket in self.all)

    @invariant()
    def nobody_waits_who_could_go(self) -> None:
        for ticket in self.all:
            if ticket.state is State.QUEUED:
                assert ticket.route is self.core.routes[ticket.model]
                for pool in ticket.route.pools:
                    assert pool.used >= pool.limits[ticket.level]

    @invariant()
    def bounds_hold(self) -> None:
        for ticket in self.all:
            if ticket.state is State.QUEUED:
                assert ticket.expires_at <= ticket.arrived + MAX_WAIT
        if not self.all:
            return
        for route in self.core.routes.values():
            for queue in route.queues:
                assert queue.size <= MAX_QUEUED
                assert queue.remembered <= 2
        shown = describe(self.core, self.now)
        assert shown["waiting"] == sum(row["waiting"] for row in shown["bands"])
        for ticket in self.all:
            if ticket.state in {State.REFUSED, State.EXPIRED}:
                assert ticket.reason is not None
                assert ticket.status in {503, 504}
                assert ticket.retry_after in range(1, 61)

    def teardown(self) -> None:
        if not self.all:
            return
        for ticket in self.all:
            self.core.cancelled(self.now, ticket)
        assert all(ticket.state in ENDS for ticket in self.all)
        self.core.reroute(self.now, {})
        self.core.update(self.now + 1, [])
        core = self.core
        assert (core.waiting, core.slots, len(core._leases), len(core._expiries)) == (0, 0, 0, 0)
        assert core.pools == {}
        assert core.next_deadline() is None

    # --- helpers ------------------------------------------------------------------------------------------------------

    def running(self, key: str) -> int:
        return sum(ticket.state is State.RUNNING and ticket.pool_key == key for ticket in self.all)


Admission.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestAdmission = Admission.TestCase
