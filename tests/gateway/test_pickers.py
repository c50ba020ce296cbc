"""The choice inside a group: exact for given draws, fair over many, safe for callers at once."""

import random
import threading
from collections import Counter
from itertools import accumulate, count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.gateway.pickers import Deterministic, Random, RoundRobin, WeightedRandom
from tests.gateway.words import Words

WORDS = st.integers(0, 2**32 - 1)


def names(number: int) -> list[str]:
    return [f"m{index}" for index in range(number)]


def test_deterministic_is_always_the_first() -> None:
    picker = Deterministic(["a", "b"])
    assert [picker.pick() for _ in range(5)] == ["a"] * 5


def test_round_robin_takes_turns_in_order() -> None:
    picker = RoundRobin(["a", "b", "c"], count())
    assert "".join(picker.pick() for _ in range(8)) == "abcabcab"


def test_round_robin_goes_on_where_its_cursor_stands() -> None:
    cursor = count()
    assert "".join(RoundRobin(["a", "b", "c"], cursor).pick() for _ in range(4)) == "abca"
    assert RoundRobin(["a", "b", "c"], cursor).pick() == "b"


def test_round_robin_gives_callers_at_once_each_a_turn_of_their_own() -> None:
    members, callers, turns = 7, 8, 3500
    picker = RoundRobin(list(range(members)), count())
    start = threading.Barrier(callers)
    taken: list[Counter[int]] = [Counter() for _ in range(callers)]

    def call(mine: Counter[int]) -> None:
        start.wait()
        for _ in range(turns):
            mine[picker.pick()] += 1

    threads = [threading.Thread(target=call, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(taken, Counter()) == Counter(dict.fromkeys(range(members), callers * turns // members))


@given(st.integers(1, 1024), WORDS)
def test_random_divides_the_words_evenly(number: int, word: int) -> None:
    assert Random(names(number), Words([word])).pick() == f"m{word * number >> 32}"


@pytest.mark.parametrize("number", [1, 2, 3, 8, 50])
def test_random_is_even_over_many_draws(number: int) -> None:
    picker = Random(names(number), random.Random(7).getrandbits)
    draws = 2000 * number
    seen = Counter(picker.pick() for _ in range(draws))
    assert_shares(seen, dict.fromkeys(names(number), 1 / number), draws)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300), WORDS)
def test_weighted_random_is_the_exact_inverse_of_the_running_totals(weights: list[int], word: int) -> None:
    totals = list(accumulate(weights))
    expected = next(index for index, bound in enumerate(totals) if bound << 32 > word * totals[-1])
    assert WeightedRandom(names(len(weights)), weights, Words([word])).pick() == f"m{expected}"


def ceil_div(number: int, by: int) -> int:
    return -(-number // by)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.data())
def test_weighted_random_is_exact_at_every_boundary(weights: list[int], data: st.DataObject) -> None:
    totals = list(accumulate(weights))
    place = data.draw(st.integers(0, len(weights) - 1))
    first = ceil_div((totals[place] - weights[place]) << 32, totals[-1])
    last = ceil_div(totals[place] << 32, totals[-1]) - 1
    picker = WeightedRandom(names(len(weights)), weights, Words([first, last]))
    assert [picker.pick(), picker.pick()] == [f"m{place}", f"m{place}"]


@pytest.mark.parametrize("weights", [[1], [1, 1], [1, 1000], [100, 200, 300], [1000, 1, 1, 1], list(range(1, 41))])
def test_weighted_random_keeps_its_shares_over_many_draws(weights: list[int]) -> None:
    picker = WeightedRandom(names(len(weights)), weights, random.Random(11).getrandbits)
    draws = 40_000
    seen = Counter(picker.pick() for _ in range(draws))
    total = sum(weights)
    assert_shares(seen, {f"m{index}": weight / total for index, weight in enumerate(weights)}, draws)


def assert_shares(seen: Counter[str], expected: dict[str, float], draws: int) -> None:
    """Every share within 5 standard deviations, which a seeded run meets or not, the same each time."""
    assert set(seen) <= set(expected)
    for name, share in expected.items():
        spread = 5 * (draws * share * (1 - share)) ** 0.5
        assert abs(seen[name] - draws * share) <= spread + 1e-9, name


@pytest.mark.parametrize("weights", [[], [0], [5, 0], [-1]])
def test_weights_are_above_nothing(weights: list[int]) -> None:
    with pytest.raises(ValueError, match="weights above 0"):
        WeightedRandom(names(len(weights)), weights, Words([]))
