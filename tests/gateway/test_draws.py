"""Draws are the exact inverse of the running totals, in every layout."""

import random
from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.gateway.draws import WORD, Line, Odds, Wheel, weight_of
from tests.gateway.stage import chi_square

WORDS = st.integers(0, 2**32 - 1)
WEIGHTS = st.lists(st.integers(1, 3_000_000), min_size=1, max_size=60)


def expected(weights: list[int], word: int) -> int:
    """By the book: the first whose running total exceeds word x total / 2**32."""
    return next(n for n, bound in enumerate(accumulate(weights)) if bound << WORD > word * sum(weights))


@given(WEIGHTS, WORDS)
def test_a_line_a_wheel_and_odds_agree_with_the_book(weights: list[int], word: int) -> None:
    members = range(len(weights))
    right = expected(weights, word)
    wheel = Wheel(members, weights)
    assert Line(members, weights).at(word) == right
    assert wheel.at(word) == right
    assert Odds(members, weights).at(word) == right
    cell = wheel.table[word >> WORD - wheel.bits]
    assert cell is None or cell == right


@given(WEIGHTS, st.data())
def test_a_cell_is_undecided_exactly_where_two_members_share_it(weights: list[int], data: st.DataObject) -> None:
    wheel = Wheel(range(len(weights)), weights)
    low = WORD - wheel.bits
    index = data.draw(st.integers(0, (1 << wheel.bits) - 1))
    first, last = expected(weights, index << low), expected(weights, (index + 1 << low) - 1)
    assert (wheel.table[index] is None) is (first != last)
    rest = data.draw(st.integers(0, (1 << low) - 1))
    assert wheel.settle(index, lambda bits: rest if bits == low else -1) == expected(weights, index << low | rest)


@given(st.lists(st.integers(1, 3000), min_size=2, max_size=40), WORDS, st.data())
def test_the_rest_is_drawn_as_if_the_first_were_not_there(weights: list[int], word: int, data: st.DataObject) -> None:
    members = list(range(len(weights)))
    out = data.draw(st.integers(0, len(weights) - 1))
    others = [n for n in members if n != out]
    right = others[expected([weights[n] for n in others], word)]
    wheel = Wheel(members, weights)
    assert Line(members, weights).at_rest(word, out) == right
    assert wheel.at_rest(word, out) == right
    assert wheel.at_rest(word, out) == right, "the same from what was kept"
    assert Odds(members, weights).at_rest(word, out) == right


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 9))),
    WORDS,
)
def test_odds_follow_their_changes(weights: list[int], changes: list[tuple[int, int]], word: int) -> None:
    odds = Odds(range(len(weights)), weights)
    for spot, weight in changes:
        if spot < len(weights):
            weights[spot] = weight
            odds.put(spot, weight)
    assert odds.total == sum(weights)
    if odds.total:
        found = odds.at(word)
        assert weights[found] > 0
        positive = [n for n, weight in enumerate(weights) if weight]
        assert found == positive[expected([weights[n] for n in positive], word)]
        assert odds.ends() == (positive[0], positive[-1])
        if len(positive) > 1:
            others = [n for n in positive if n != found]
            assert odds.at_rest(word, found) == others[expected([weights[n] for n in others], word)]


@pytest.mark.parametrize("number", [2, 3, 16, 17, 256, 2000])
def test_two_draws_are_never_the_same_and_keep_their_shares(number: int) -> None:
    rng = random.Random(number)
    weights = [rng.randint(1, 50) for _ in range(number)]
    wheel = Wheel(range(number), weights)
    seen: Counter[int] = Counter()
    for _ in range(20_000):
        first = wheel.at(rng.getrandbits(32))
        second = wheel.at_rest(rng.getrandbits(32), first)
        assert second != first
        seen[first] += 1
    assert chi_square([seen[n] for n in range(number)], weights) < 1 + 6 / number**0.5


@pytest.mark.parametrize("weights", [[], [0], [5, 0], [-1]])
def test_weights_are_above_nothing(weights: list[int]) -> None:
    with pytest.raises(ValueError, match="weights above 0"):
        Line(range(len(weights)), weights)
    with pytest.raises(ValueError, match="weights above 0"):
        Line([1, 2, 3], [1])


def test_capacities_become_whole_weights() -> None:
    assert [weight_of(capacity) for capacity in (1.0, 0.5, 12.7, 1e-9)] == [1024, 512, 13005, 1]
