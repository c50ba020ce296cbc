"""The share of the fleet, and own counts by time."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.gateway import Target
from grid.gateway.fleet import KEEP, OwnCounts, proven_of, scale_of


@pytest.mark.parametrize(
    ("own", "fleet", "instances", "scale", "reliable"),
    [
        (0, 0, 0, 1.0, True),
        (0, 0, 1, 1.0, True),
        (10, 10, 1, 1.0, True),
        (0, 0, 4, 4.0, True),
        (9, 39, 1, 4.0, True),
        (50, 20, 1, 1.0, True),
        (0, 0, 16, 16.0, True),
        (0, 0, 17, 16.0, False),
        (1, 1000, 4, 16.0, False),
    ],
)
def test_the_scale_is_one_over_the_share_within_bounds(
    own: float, fleet: float, instances: int, scale: float, reliable: bool
) -> None:
    found, relied_on = scale_of(own, fleet, instances)
    assert found == pytest.approx(scale)
    assert relied_on is reliable


@given(st.floats(0, 1e4), st.floats(0, 1e5), st.integers(0, 1000))
def test_the_scale_stays_within_1_and_16(own: float, fleet: float, instances: int) -> None:
    scale, reliable = scale_of(own, fleet, instances)
    assert 1.0 <= scale <= 16.0
    assert reliable or scale == 16.0


def counts() -> tuple[OwnCounts, Target, Target]:
    own, one, two = OwnCounts(), Target("a", "a"), Target("b", "b")
    own.follow([one, two])
    return own, one, two


def test_counts_between_two_records_are_in_proportion() -> None:
    own, one, two = counts()
    one.own, two.own = 2, 1
    own.record(10.0)
    one.own, two.own = 6, 1
    own.record(11.0)
    one.own = 10
    assert [own.at(one, moment, 12.0) for moment in (9.0, 10.0, 10.25, 11.0, 11.5, 12.0)] == [2, 2, 3, 6, 8, 10]
    assert own.at(two, 10.5, 12.0) == 1
    assert own.total(12.0) == (3 + 7) / 2


def test_without_a_record_the_counts_are_those_of_now() -> None:
    own, one, two = counts()
    one.own, two.own = 3, 4
    assert own.at(one, 5.0, 6.0) == 3
    assert own.total(6.0) == 7


def test_the_total_is_that_of_the_last_seconds() -> None:
    own, one, _ = counts()
    for second in range(10):
        one.own = second
        own.record(float(second))
    assert own.total(9.5) == (7 + 8 + 9) / 3


def test_of_two_records_of_one_moment_the_last_counts() -> None:
    own, one, _ = counts()
    own.record(10.0)
    one.own = 5
    own.record(10.0)
    one.own = 9
    assert own.at(one, 10.0, 10.0) == 5


def test_a_clock_that_is_read_late_does_not_turn_records_round() -> None:
    own, one, _ = counts()
    own.record(10.0)
    one.own = 4
    own.record(9.9)
    assert own.at(one, 10.0, 11.0) == 4


def test_old_records_go() -> None:
    own, one, _ = counts()
    one.own = 7
    own.record(0.0)
    one.own = 1
    own.record(1.0)
    own.record(KEEP + 0.5)
    assert own.at(one, 0.0, KEEP + 1) == 1


def test_a_target_that_was_not_followed_then_had_nothing() -> None:
    own, one, two = counts()
    own.record(0.0)
    late = Target("c", "c")
    own.follow([one, two, late])
    late.own = 4
    own.record(1.0)
    assert own.at(late, 0.5, 1.0) == 2


def test_a_target_is_never_taken_for_one_that_is_gone() -> None:
    own, one, two = counts()
    one.own = 9
    own.record(0.0)
    own.follow([two])
    del one
    gc.collect()
    for _ in range(100):
        assert own.at(Target("new", "new"), 0.0, 0.0) == 0


def test_the_count_nearest_to_a_page_is_one_that_was_recorded_about_then() -> None:
    own, target = OwnCounts(), Target("east", "east-llama")
    own.follow([target])
    for now in (10.0, 10.05, 10.1, 10.15):
        own.record(now)
        target.begin()
    # 1 from 10.05 on, 2 from 10.1 on, 3 from 10.15 on, and 4 now.
    assert [own.nearest(target, 10.12, held) for held in (0, 1, 1.4, 2, 3, 9)] == [1, 1, 1.4, 2, 3, 3]
    assert own.nearest(target, 10.3, 9) == 4
    assert own.nearest(target, 5.0, 9) == 0, "before the first record the first one stands"


@pytest.mark.parametrize(
    ("own", "fleet", "scale", "proven"),
    [
        (0, 0, 3.0, 1.0),  # an idle fleet: a guess to choose by, no reason to refuse
        (7, 7, 3.0, 1.0),  # only this gateway is at work
        (10, 40, 4.0, 2.0),  # four alike: each wanders for itself, so their sum wanders twice as far
        (10, 90, 2.5, 2.5),
        (1, 500, 16.0, 16.0),
    ],
)
def test_only_what_reports_bear_out_is_proven(own: float, fleet: float, scale: float, proven: float) -> None:
    assert proven_of(own, fleet, scale) == proven
