"""Who is served how much when much more is asked for than there is, in virtual time."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from grid.flow import State, Ticket
from tests.flow.build import MODEL, core, signal


@dataclass
class Served:
    """Cost served and asked for, by tenant, between warm-up and the end."""

    served: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)


def play(
    rates: Mapping[str, float],
    *,
    slots: int = 20,
    seconds: float = 400.0,
    warm_up: float = 50.0,
    cost: Callable[[random.Random, str], int] = lambda rng, tenant: 1,
    actual: Callable[[random.Random, int], int] | None = None,
    per_cost: float = 1.0,
    **policy: Any,
) -> Served:
    """Tenants send at ``rates`` (per s, Poisson) to one pool; cost c takes c x ``per_cost`` s on average."""
    made = core(pools=[signal(slots=slots)], **{"max_queued": 1000, "max_wait": 60.0} | policy)
    rng = random.Random(11)
    order = itertools.count()
    events: list[tuple[float, int, str, Ticket | None]] = []
    found = Served()

    def begin(now: float, ticket: Ticket) -> None:
        made.started(now, ticket)
        spent = ticket.cost if actual is None else actual(rng, ticket.cost)
        if now >= warm_up:
            found.served[ticket.tenant] += spent
        ticket.owner = spent
        heapq.heappush(events, (now + rng.expovariate(1 / (spent * per_cost)), next(order), "", ticket))

    for tenant, rate in rates.items():
        heapq.heappush(events, (rng.expovariate(rate), next(order), tenant, None))
    while events:
        now, _, tenant, ticket = heapq.heappop(events)
        if now > seconds:
            break
        if ticket is None:
            price = cost(rng, tenant)
            if now >= warm_up:
                found.asked[tenant] += price
            news = [made.arrive(now, MODEL, tenant=tenant, cost=price), *made.collect()]
            heapq.heappush(events, (now + rng.expovariate(rates[tenant]), next(order), tenant, None))
        else:
            news = made.finished(now, ticket, ticket.owner)
        news += made.tick(now)
        for one in news:
            if one.state is State.GRANTED:
                begin(now, one)
    return found


def jain(values: list[float]) -> float:
    return float(sum(values) ** 2 / (len(values) * sum(value * value for value in values)))


def max_min(asked: Mapping[str, float], capacity: float) -> dict[str, float]:
    """Fair shares by filling from the bottom: nobody gets more than it asks for, the rest is split evenly."""
    shares: dict[str, float] = {}
    left, rest = capacity, len(asked)
    for tenant in sorted(asked, key=lambda tenant: asked[tenant]):
        shares[tenant] = min(asked[tenant], left / rest)
        left -= shares[tenant]
        rest -= 1
    return shares


def loud_and_49(capacity_per_s: float, load: float = 20.0) -> dict[str, float]:
    """50 tenants ask for ``load`` times the capacity; one sends 90 % of it."""
    rates = {f"t{index:02}": load * capacity_per_s * 0.1 / 49 for index in range(49)}
    return {"loud": load * capacity_per_s * 0.9, **rates}


def test_fifty_tenants_get_the_same_while_one_sends_ninety_percent() -> None:
    rates = loud_and_49(20.0)
    found = play(rates)
    assert jain([float(found.served[tenant]) for tenant in rates]) >= 0.99
    assert sum(found.served.values()) == pytest.approx(20 * 350, rel=0.05), "and nothing is left unused"


def test_served_cost_is_the_same_where_turns_are_by_cost() -> None:
    """The loud one sends dear requests too, and nobody knows beforehand what a request will cost in the end."""

    def cost(rng: random.Random, tenant: str) -> int:
        return rng.randint(1, 40) * (5 if tenant == "loud" else 1)

    def actual(rng: random.Random, expected: int) -> int:
        return max(1, int(expected * rng.random()))

    rates = loud_and_49(20.0)
    found = play(
        rates, cost=cost, actual=actual, per_cost=0.1, by_cost=True, quantum=20, seconds=700.0, max_wait=1000.0
    )
    assert jain([float(found.served[tenant]) for tenant in rates]) >= 0.99


def test_plain_turns_are_not_fair_by_cost() -> None:
    """What the test above would not see if it measured nothing."""
    rates = loud_and_49(20.0)
    found = play(rates, cost=lambda rng, tenant: 200 if tenant == "loud" else 20, per_cost=0.05, seconds=300.0)
    assert jain([float(found.served[tenant]) for tenant in rates]) < 0.9


def test_nobody_gets_less_than_its_fair_share_where_some_ask_for_less() -> None:
    capacity = 20.0
    rates = {"loud": 0.9 * 20 * capacity}
    rates |= {f"modest{index}": 0.1 + 0.03 * index for index in range(10)}  # up to 0.37 a second: below the even split
    rates |= {f"eager{index}": 1.0 for index in range(39)}
    found = play(rates, seconds=800.0)
    shares = max_min(found.asked, sum(found.served.values()))
    worst = min(found.served[tenant] / shares[tenant] for tenant in rates)
    assert worst >= 0.98
    assert all(shares[f"modest{index}"] == found.asked[f"modest{index}"] for index in range(10))
    assert shares["eager0"] < found.asked["eager0"]
