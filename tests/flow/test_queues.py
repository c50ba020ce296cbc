"""Turns of tenants: round robin, deficit round robin, debts, bounds; held against a plain model."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.flow.queues import SPAN, TurnQueue
from grid.flow.routes import Route
from grid.flow.settings import AdmissionPolicy
from grid.flow.tickets import Ticket

ROUTE = Route("llama", AdmissionPolicy())


def ticket(tenant: str, cost: int = 1, at: float = 0.0) -> Ticket:
    return Ticket("llama", ROUTE, 0, tenant=tenant, cost=cost, now=at)


def queue(quantum: int = 0, idle_limit: int = 1024) -> TurnQueue:
    return TurnQueue(quantum=quantum, idle_limit=idle_limit)


def filled(*names: str, quantum: int = 0, cost: int = 1) -> TurnQueue:
    made = queue(quantum)
    for name in names:
        made.push(ticket(name, cost))
    return made


def drain(made: TurnQueue) -> str:
    order = ""
    while made.size:
        order += made.take().tenant
    return order


def test_tenants_take_turns_and_a_tenant_keeps_its_order() -> None:
    made = queue()
    tickets = [ticket(name) for name in "aaabbc"]
    for one in tickets:
        made.push(one)
    taken = [made.take() for _ in range(6)]
    assert "".join(one.tenant for one in taken) == "abcaba"
    assert [one for one in taken if one.tenant == "a"] == tickets[:3]


def test_who_comes_back_stands_at_the_end() -> None:
    made = filled("a", "b", "b", "c")
    assert made.take().tenant == "a"
    made.push(ticket("a"))
    assert drain(made) == "bcab"


def test_leaving_and_coming_back_gains_nothing() -> None:
    made = filled("b", "c")
    mine = ticket("a")
    made.push(mine)
    order = ""
    for _ in range(4):
        made.remove(mine)
        mine = ticket("a")
        made.push(mine)
        other = made.take().tenant
        order += other
        if other != "a":
            made.push(ticket(other))
    assert "a" not in order[:2]


def test_leaving_from_the_middle_keeps_the_turn() -> None:
    made = queue()
    first, second = ticket("a"), ticket("a")
    for one in (first, second, ticket("b")):
        made.push(one)
    made.remove(first)
    assert made.take() is second
    assert drain(made) == "b"


def test_each_is_served_in_proportion_to_cost() -> None:
    made = queue(quantum=100)
    for _ in range(400):
        made.push(ticket("dear", 400))
        made.push(ticket("cheap", 100))
    taken = [made.take().tenant for _ in range(250)]
    assert taken.count("cheap") == pytest.approx(4 * taken.count("dear"), abs=4)


def test_a_request_dearer_than_many_quanta_is_served_without_counting_rounds_one_by_one() -> None:
    made = filled("a", quantum=1, cost=10**9)
    assert made.take().charged == SPAN
    made = queue(quantum=1)
    made.push(ticket("dear", 1000))
    for _ in range(1100):
        made.push(ticket("cheap", 1))
    order = [made.take().tenant for _ in range(1101)]
    assert order.index("dear") == pytest.approx(1000, abs=2)


def test_a_cheaper_head_moves_forward_when_the_dear_one_leaves() -> None:
    made = queue(quantum=10)
    dear = ticket("a", 1000)
    made.push(dear)
    made.push(ticket("a", 10))
    for _ in range(5):
        made.push(ticket("b", 10))
    made.remove(dear)
    assert "a" in [made.take().tenant for _ in range(2)]


def test_no_credit_is_collected_while_idle() -> None:
    made = queue(quantum=10)
    made.push(ticket("a", 10))
    made.take()
    for _ in range(50):
        made.push(ticket("b", 10))
    for _ in range(25):
        made.take()
    for _ in range(10):
        made.push(ticket("a", 10))
    order = [made.take().tenant for _ in range(20)]
    assert order.count("a") == 10
    assert "aa" not in "".join(order)


def test_a_debt_is_paid_off_by_the_rounds_of_others() -> None:
    def rounds_until_served(rounds: int) -> int:
        made = queue(quantum=10)
        mine = ticket("a", 10)
        made.push(mine)
        made.take()
        made.correct(mine, 60)  # five quanta too little were charged
        for _ in range(100):
            made.push(ticket("b", 10))
        for _ in range(rounds):
            made.take()
        made.push(ticket("a", 10))
        return [made.take().tenant for _ in range(20)].index("a")

    assert rounds_until_served(0) == pytest.approx(5, abs=1)
    assert rounds_until_served(3) == pytest.approx(2, abs=1)
    assert rounds_until_served(50) <= 1


def test_what_was_charged_too_much_comes_back_while_waiting_and_is_lost_when_idle() -> None:
    made = queue(quantum=10)
    mine = ticket("a", 100)
    made.push(mine)
    for _ in range(20):
        made.push(ticket("a", 10))
        made.push(ticket("b", 10))
    while made.take() is not mine:
        pass
    made.correct(mine, 10)
    assert [made.take().tenant for _ in range(12)].count("a") >= 9

    idle = queue(quantum=10)
    mine = ticket("a", 100)
    idle.push(mine)
    idle.take()
    idle.correct(mine, 10)
    for _ in range(10):
        idle.push(ticket("a", 10))
        idle.push(ticket("b", 10))
    assert [idle.take().tenant for _ in range(10)].count("a") == 5


def test_a_correction_that_changes_no_turn_moves_nobody() -> None:
    made = queue(quantum=100)
    mine = ticket("a", 50)
    made.push(mine)
    made.push(ticket("a", 50))
    made.push(ticket("b", 100))
    assert made.take() is mine
    made.correct(mine, 40)
    assert drain(made) == "ba"


def test_a_debt_is_bounded() -> None:
    made = queue(quantum=1)
    mine = ticket("a", 1)
    made.push(mine)
    made.push(ticket("a", 1))
    made.take()
    made.correct(mine, 10**9)
    for _ in range(SPAN + 10):
        made.push(ticket("b", 1))
    assert "a" in [made.take().tenant for _ in range(SPAN + 5)]


def test_a_correction_for_a_forgotten_tenant_is_dropped() -> None:
    made = queue(quantum=10, idle_limit=0)
    mine = ticket("a", 10)
    made.push(mine)
    made.take()
    made.correct(mine, 1000)
    assert made.remembered == 0


def test_idle_tenants_are_bounded_and_the_least_recently_seen_go() -> None:
    made = queue(idle_limit=3)
    for name in "abc":
        made.served(name)
    made.served("a")
    made.served("d")
    assert [tenant.key for tenant in made.known()] == ["c", "a", "d"]
    assert {tenant.key: tenant.granted for tenant in made.known()} == {"c": 1, "a": 2, "d": 1}


def test_waiting_tenants_are_never_dropped() -> None:
    made = queue(idle_limit=2)
    for index in range(100):
        made.push(ticket(f"t{index}"))
        made.served(f"idle{index}")
    made.served("t0")
    assert (made.tenants, made.remembered) == (100, 2)
    assert len({made.take().tenant for _ in range(100)}) == 100


def test_the_longest_queue_is_known_whatever_comes_and_goes() -> None:
    made = filled("a", "a", "a", "b")
    assert made.longest_of_other("c") is not None
    assert made.longest_of_other("b") is not None
    assert made.longest_of_other("a") is None
    newest = made.longest_of_other("c")
    assert newest is not None
    assert newest.tenant == "a"
    made.remove(newest)
    made.take()
    made.take()
    assert made.longest_of_other("c") is None, "one of a is left, and c would have as many"


def test_how_many_go_ahead() -> None:
    made = filled("a", "a", "a", "a", "b")
    assert made.ahead("c") == 2
    assert made.ahead("b") == 3
    assert made.ahead("a") == 5
    assert queue().ahead("a") == 0


def test_the_oldest_is_found_across_tenants() -> None:
    made = queue()
    assert made.oldest() is None
    made.push(ticket("b", at=2.0))
    made.push(ticket("a", at=1.0))
    made.push(ticket("a", at=3.0))
    assert made.oldest() == 1.0


class PlainRoundRobin:
    """The same in the obvious way: a ring of tenants, each with its line."""

    def __init__(self) -> None:
        self.ring: deque[str] = deque()
        self.lines: dict[str, deque[Ticket]] = {}

    def push(self, one: Ticket) -> None:
        line = self.lines.setdefault(one.tenant, deque())
        if not line:
            self.ring.append(one.tenant)
        line.append(one)

    def remove(self, one: Ticket) -> None:
        self.lines[one.tenant].remove(one)
        if not self.lines[one.tenant]:
            self.ring.remove(one.tenant)

    def take(self) -> Ticket:
        tenant = self.ring.popleft()
        one = self.lines[tenant].popleft()
        if self.lines[tenant]:
            self.ring.append(tenant)
        return one


@given(st.lists(st.tuples(st.sampled_from(["push", "take", "remove"]), st.integers(0, 7)), max_size=200))
def test_turns_by_requests_are_plain_round_robin(steps: list[tuple[str, int]]) -> None:
    made, plain = queue(), PlainRoundRobin()
    waiting: list[Ticket] = []
    for step, number in steps:
        if step == "push":
            one = ticket(f"t{number % 4}")
            made.push(one)
            plain.push(one)
            waiting.append(one)
        elif waiting and step == "take":
            one = made.take()
            assert one is plain.take()
            waiting.remove(one)
        elif waiting:
            one = waiting.pop(number % len(waiting))
            made.remove(one)
            plain.remove(one)
        assert made.size == len(waiting)
        longest = max((len(line) for line in plain.lines.values()), default=0)
        assert made._longest == longest
        assert sum(map(len, made._by_length.values())) == made.tenants


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "push", "take", "remove", "correct"]), st.integers(0, 5), st.integers(1, 60)
        ),
        max_size=300,
    )
)
def test_turns_by_cost_stay_consistent_and_within_the_bound_of_deficit_round_robin(
    steps: list[tuple[str, int, int]],
) -> None:
    quantum, dearest = 10, 60
    made = queue(quantum)
    waiting: list[Ticket] = []
    taken: list[Ticket] = []
    since: dict[str, dict[str, int]] = {}  # per waiting tenant: what the others were charged since it began to wait
    corrected = False
    for step, number, cost in steps:
        name = f"t{number % 3}"
        if step == "push":
            one = ticket(name, cost)
            made.push(one)
            waiting.append(one)
            since.setdefault(name, {})
        elif waiting and step == "take":
            one = made.take()
            waiting.remove(one)
            taken.append(one)
            for key in {two.tenant for two in waiting}:
                since[key][one.tenant] = since[key].get(one.tenant, 0) + one.charged
                own = since[key].get(key, 0)
                for other, spent in since[key].items():
                    # Each round gives both a quantum; a tenant lags by its head and one quantum at most.
                    if not corrected:
                        assert spent <= own + 2 * dearest + 2 * quantum, (key, other)
        elif waiting and step == "remove":
            one = waiting.pop(number % len(waiting))
            made.remove(one)
        elif taken and step == "correct":
            made.correct(taken.pop(), cost)
            corrected = True
        for key in list(since):
            if all(one.tenant != key for one in waiting):
                del since[key]
        assert made.size == len(waiting)
    while waiting:
        waiting.remove(made.take())
    assert (made.size, made.tenants) == (0, 0)
    assert len(made._rounds) == len(made._by_round) == len(set(made._rounds))
