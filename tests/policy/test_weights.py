from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any

import pytest

from grid.model import Contract, Picker, Placement, Reason
from grid.policy.memory import WeightBook
from grid.policy.weights import Claim, Weights, live, static
from tests.policy.build import LLAMA, QWEN, World, busy, candidates, edge, network, provider, reading, weights


class Book:
    """Passes of one capability's live weights, 1 s apart unless said otherwise."""

    def __init__(self) -> None:
        self.book, self.now = WeightBook(), 0.0

    def run(self, after: float = 1.0, *, joins: str = "", **requests: float | None) -> Weights:
        """``requests`` by provider; they are capacity and claim at once."""
        self.now += after
        claims = [Claim(name, 100, value, value, joins=name in joins) for name, value in requests.items()]
        found = live(Placement.CAPACITY, claims, self.book, self.now)
        self.book = found.book
        return found


def shares(found: Weights) -> dict[str, int]:
    return dict(found.weights)


# --- static ---


def test_static_weights_are_the_declared_ones() -> None:
    there = World(
        network(provider("a", capacity_weight=300), provider("b"), gateways=(edge(picker=Picker.WEIGHTED_RANDOM),))
    )
    outcome = there.after(2, a=busy(20), b=busy(0))
    assert weights(outcome) == {"a": 300, "b": 100}
    assert not outcome.memory.books


def test_a_weight_out_of_range_is_brought_into_it() -> None:
    assert shares(static([Claim("a", 0, None, None), Claim("b", 5000, None, None)])) == {"a": 1, "b": 1000}


# --- the unit ---


def test_weights_are_in_proportion_to_capacity() -> None:
    assert shares(Book().run(a=64, b=120, c=32)) == {"a": 256, "b": 480, "c": 128}


@pytest.mark.parametrize("largest", [1, 8, 64, 499, 500, 501, 1000, 1e6, 1e12])
def test_the_largest_capacity_gets_a_weight_in_the_upper_half_of_500(largest: float) -> None:
    found = shares(Book().run(a=largest, b=largest / 2))
    assert 250 <= found["a"] <= 500
    assert found["b"] == pytest.approx(found["a"] / 2, abs=1)


def test_one_providers_growth_moves_no_other() -> None:
    book = Book()
    before = shares(book.run(a=64, b=64))
    after = shares(book.run(20, a=64, b=128))
    assert after["a"] == before["a"]
    assert after["b"] == before["b"] * 1.25


def test_a_capacity_beyond_the_scale_makes_a_new_unit_and_leaves_the_shares() -> None:
    book = Book()
    before = shares(book.run(a=64, b=32))
    after = shares(book.run(1, a=64 * 40, b=32 * 40))
    assert before == {"a": 256, "b": 128}
    assert after == {"a": 8, "b": 4}, "the old shares in the new unit, from where they climb"
    for _ in range(40):
        after = shares(book.run(10, a=64 * 40, b=32 * 40))
    assert 250 < after["a"] <= 500
    assert after["a"] / after["b"] == pytest.approx(2, rel=0.1)


def test_capacities_too_small_for_the_scale_make_a_new_unit_once_the_weights_have_followed() -> None:
    book = Book()
    book.run(a=64, b=32)
    for _ in range(60):
        after = shares(book.run(10, a=1.6, b=0.8))
        assert after["a"] / after["b"] == pytest.approx(2, rel=0.3)
    assert 250 < after["a"] <= 500


# --- how they move ---


@pytest.mark.parametrize("change", [1.0, 1.09, 0.91])
def test_inside_the_dead_band_nothing_moves(change: float) -> None:
    book = Book()
    before = shares(book.run(a=64, b=64))
    found = book.run(60, a=64 * change, b=64)
    assert shares(found) == before
    assert found.moved == ()
    assert found.steps["a"].reason is Reason.WEIGHTED


def test_past_the_dead_band_it_moves_by_a_quarter_at_most_and_not_before_the_dwell() -> None:
    book = Book()
    start = shares(book.run(a=64, b=64))["a"]
    path, reasons = [], []
    for _ in range(35):
        found = book.run(a=32, b=64)
        path.append(found.weights["a"])
        reasons.append(found.steps["a"].reason)
    assert path[:9] == [start] * 9
    assert reasons[:9] == [Reason.WEIGHT_HELD] * 9
    first = start - start // 4
    second = first - first // 4
    assert path[9:19] == [first] * 10
    assert path[19:29] == [second] * 10
    assert (reasons[9], reasons[19], reasons[29]) == (Reason.WEIGHT_LIMITED, Reason.WEIGHT_LIMITED, Reason.WEIGHTED)
    assert path[29] == start // 2
    assert found.weights["b"] == start


def test_what_moved_is_said() -> None:
    book = Book()
    book.run(a=64, b=64)
    assert book.run(10, a=32, b=64).moved == ("a 256 to 192",)


def test_from_the_bottom_it_still_moves() -> None:
    book = Book()
    book.run(a=1, b=500)
    path = [book.run(10, a=500, b=500).weights["a"] for _ in range(40)]
    assert path[:6] == [2, 3, 4, 5, 6, 7]
    assert path[-1] > 450


def test_it_never_reaches_zero() -> None:
    book = Book()
    book.run(a=64, b=64)
    for _ in range(100):
        found = book.run(10, a=0.0, b=64)
    assert found.weights["a"] == 1


# --- unknown numbers, joining, leaving ---


def test_an_unknown_number_holds_the_weight() -> None:
    book = Book()
    before = shares(book.run(a=64, b=32))
    found = book.run(60, a=None, b=32)
    assert shares(found) == before
    assert found.steps["a"].reason is Reason.WEIGHT_HELD


def test_the_mean_stands_in_until_the_number_is_known() -> None:
    book = Book()
    found = shares(book.run(a=100, b=200, c=None))
    assert found["c"] == (found["a"] + found["b"]) / 2
    assert shares(book.run(60, a=100, b=200, c=None))["c"] == found["c"]
    assert shares(book.run(1, a=100, b=200, c=100))["c"] == found["a"]


def test_where_one_is_unknown_makes_no_difference() -> None:
    found = set()
    for capacities in permutations([100.0, 200.0, None]):
        a, b, c = capacities
        found.add(tuple(sorted(shares(Book().run(a=a, b=b, c=c)).values())))
    assert len(found) == 1


def test_without_any_number_the_declared_weights_hold() -> None:
    book = Book()
    assert shares(book.run(a=None, b=None)) == {"a": 100, "b": 100}
    assert book.book == WeightBook()
    known = shares(book.run(a=64, b=32))
    assert known["a"] == known["b"] * 2


def test_where_all_numbers_are_lost_a_newcomer_gets_its_declared_weight() -> None:
    book = Book()
    book.run(a=64)
    assert shares(book.run(a=None, b=None))["b"] == 100
    assert shares(book.run(a=64, b=64))["b"] == shares(book.run(a=64, b=64))["a"]


def test_a_newcomer_starts_at_a_tenth_and_climbs() -> None:
    book = Book()
    full = shares(book.run(joins="ab", a=64, b=64))["a"]
    found = book.run(1, joins="c", a=64, b=64, c=64)
    assert found.weights["c"] == round(full / 10)
    assert found.steps["c"].reason is Reason.WEIGHT_LIMITED
    path = [book.run(10, a=64, b=64, c=64).weights["c"] for _ in range(12)]
    assert path == sorted(path)
    assert path[-1] > full * 0.9
    assert all(later <= earlier * 1.25 + 1 for earlier, later in pairwise(path))


def test_all_that_start_together_start_at_their_full_shares() -> None:
    assert min(shares(Book().run(joins="ab", a=64, b=64)).values()) >= 250


def test_who_leaves_is_gone_at_once() -> None:
    book = Book()
    book.run(a=64, b=64)
    assert shares(book.run(0.1, b=64)) == {"b": 256}
    assert set(book.book.shares) == {"b"}


# --- through whole passes ---


def world(placement: Placement, **gateway: Any) -> World:
    gateways = (edge(picker=Picker.WEIGHTED_RANDOM, placement=placement, **gateway),)
    return World(network(provider("a"), provider("b"), gateways=gateways))


def test_capacity_follows_the_ready_endpoints() -> None:
    there = world(Placement.CAPACITY)
    assert weights(there.after(2, a=busy(1, ready=4), b=busy(1, ready=4))) == {"a": 320, "b": 320}
    outcome = there.after(12, a=busy(1, ready=1), b=busy(1, ready=4))
    assert weights(outcome) == {"a": 240, "b": 320}
    assert outcome.changes == ("llama: capacity weights move: a 320 to 240",)


def test_headroom_is_capacity_that_is_free() -> None:
    found = weights(world(Placement.HEADROOM).after(2, a=busy(15), b=busy(5)))
    assert found["b"] == pytest.approx(3 * (found["a"] or 0), rel=0.02)


def test_a_provider_without_endpoints_keeps_its_weight_while_it_is_still_offered() -> None:
    there = world(Placement.CAPACITY)
    first = weights(there.after(2, a=busy(1), b=busy(1)))
    assert weights(there.after(20, a=reading(0), b=busy(1))) == first


def test_a_closed_provider_gets_the_lowest_weight_and_comes_back_rising() -> None:
    there = world(Placement.CAPACITY)
    full = weights(there.after(2, a=busy(1), b=busy(1)))["a"] or 0
    for page in (reading(0), reading(0)):
        outcome = there.after(2, a=page, b=busy(1))
    assert weights(outcome)["a"] == 1
    path = []
    for _ in range(60):
        outcome = there.after(2, a=busy(1), b=busy(1))
        path.append(weights(outcome)["a"] or 0)
    assert path[0] == 1
    assert path[1] == round(full / 10)
    assert path == sorted(path)
    assert path[-1] > full * 0.9
    assert weights(outcome)["b"] == full


def test_gateways_of_one_placement_agree_and_capabilities_are_weighed_apart() -> None:
    gateways = (
        edge("a", name="one", picker=Picker.WEIGHTED_RANDOM, placement=Placement.CAPACITY),
        edge("b", name="two", picker=Picker.WEIGHTED_RANDOM, placement=Placement.CAPACITY),
        edge("b", name="three", picker=Picker.ROUND_ROBIN),
    )
    small = provider("c", capabilities=(QWEN,), max_running=1)
    there = World(network(provider("a"), provider("b", max_running=20), small, gateways=gateways))
    outcome = there.after(2, a=busy(1), b=busy(1), c=busy(1))
    assert weights(outcome, "one") == weights(outcome, "two")
    assert weights(outcome, "three") == {"a": 100, "b": 100}
    assert (candidates(outcome, "one", QWEN)[0].traffic_weight or 0) > 250
    assert set(outcome.memory.books) == {(Placement.CAPACITY, LLAMA), (Placement.CAPACITY, QWEN)}


def test_the_ordered_contract_needs_no_weights() -> None:
    outcome = world(Placement.CAPACITY, contract=Contract.PRAXIS_ORDERED).after(2, a=busy(1), b=busy(1))
    assert weights(outcome) == {"a": None, "b": None}
    assert not outcome.memory.books


def test_books_of_a_placement_that_nobody_uses_any_more_are_dropped() -> None:
    there = world(Placement.CAPACITY)
    assert there.after(2, a=busy(1), b=busy(1)).memory.books
    there.network = replace(there.network, gateways={"edge": edge()})
    assert not there.run().memory.books
