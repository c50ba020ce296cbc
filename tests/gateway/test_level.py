"""The water level: whom of a group the fleet's arrivals have reached."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.gateway import Target
from grid.gateway.fleet import OwnCounts
from grid.gateway.level import WaterLevel


def target(load: float, capacity: float = 10.0, *, sampled_at: float = 100.0, turnover: float | None = 0.5) -> Target:
    made = Target("s", "s-llama")
    made.rebase(
        capacity=capacity,
        held=load * capacity,
        own_at_sample=0.0,
        scale=16.0,
        trusted=False,
        sampled_at=sampled_at,
        turnover=turnover,
    )
    return made


def test_the_emptiest_come_first_and_the_others_when_those_are_as_full() -> None:
    """15 are held and half of it comes anew each second; 1 brings s1 up to s2, 12 more these two up to s0."""
    water = WaterLevel([target(0.9), target(0.2), target(0.4, 5.0), target(0.2)])
    held, arrivals = 9 + 2 + 2 + 2, 7.5
    assert held / 2 == arrivals
    assert water.reached(100.0) == [1, 3]
    first = (0.4 - 0.2) * 20 / arrivals
    assert water.reached(100.0 + first - 0.01) == []
    assert water.reached(100.0 + first + 0.01) == [2]
    last = (0.9 * 25 - 6) / arrivals
    assert water.reached(100.0 + last - 0.01) == []
    assert water.reached(100.0 + last + 0.01) == [0]
    assert water.reached(200.0) == []


def test_each_goes_by_the_age_of_its_own_sample() -> None:
    """A full one that was sampled long ago has been reached; one that was so just now has not."""
    water = WaterLevel([target(0.2), target(0.9, sampled_at=97.0), target(0.9, sampled_at=100.0)])
    assert water.reached(100.0) == [0, 1]
    assert water.reached(101.0) == [2]


def test_without_a_turnover_everybody_is_reached_and_without_arrivals_only_the_lowest() -> None:
    assert WaterLevel([target(0.9, turnover=None), target(0.2)]).reached(-math.inf) == [0, 1]
    idle = WaterLevel([target(0.0), target(0.0), target(0.5, turnover=0.0)])
    assert idle.reached(1e9) == [0, 1]


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0.5, 50)), min_size=1, max_size=8), st.floats(0, 10))
def test_those_below_the_level_are_the_ones_that_water_would_fill(sites: list[tuple[float, float]], age: float) -> None:
    """By the book: find the level at which what is poured in equals what has come, by halving."""
    targets = [target(load, capacity) for load, capacity in sites]
    poured = sum(one.arrivals or 0.0 for one in targets) * age
    low, high = 0.0, 2 + poured / min(capacity for _, capacity in sites)
    for _ in range(100):
        level = (low + high) / 2
        if sum(capacity * max(0.0, level - load) for load, capacity in sites) < poured:
            low = level
        else:
            high = level
    found = set(WaterLevel(targets).reached(100.0 + age))
    for spot, (load, _) in enumerate(sites):
        if abs(load - low) > 1e-6:
            assert (spot in found) is (load < low or load <= min(load for load, _ in sites))


def test_the_turnover_is_what_ends_of_what_is_under_way_per_second() -> None:
    own, one = OwnCounts(), Target("a", "a")
    own.follow([one])
    assert own.turnover(0.0) is None
    own.record(0.0)
    assert own.turnover(0.0) is None, "nothing was under way"
    for second in range(1, 31):
        for _ in range(3):
            one.begin()
            if one.own > 6:
                one.end()
        own.record(float(second))
    # Three begin each second and six are under way: each takes two seconds.
    assert own.turnover(30.0) == pytest.approx(0.5, rel=0.1)
    while one.own:
        one.end()
    for second in range(31, 60):
        own.record(float(second))
    assert own.turnover(60.0) is None


def test_nothing_begun_is_no_turnover() -> None:
    own, one = OwnCounts(), Target("a", "a")
    own.follow([one])
    one.begin()
    own.record(0.0)
    assert own.turnover(0.0) is None, "a single moment"
    own.record(5.0)
    assert own.turnover(5.0) is None, "nothing has come since"
