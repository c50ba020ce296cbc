"""The order of publications, and the pauses between tries."""

import random

from hypothesis import given
from hypothesis import strategies as st

from grid.bus.backoff import Backoff
from grid.bus.order import Choice, Position, choose, skipped

positions = st.builds(Position, st.integers(1, 5), st.integers(1, 5))
revisions = st.sampled_from(["a", "b", None])


def test_a_higher_epoch_wins_with_a_lower_version() -> None:
    assert choose(Position(7, 12), "a", Position(8, 1), "a") is Choice.APPLY
    assert choose(Position(8, 1), "a", Position(7, 13), "b") is Choice.OLDER


def test_the_same_place_with_another_revision_is_a_clash() -> None:
    assert choose(Position(7, 12), "a", Position(7, 12), "b") is Choice.CLASH
    assert choose(Position(7, 12), "a", Position(7, 12), "a") is Choice.SAME
    assert choose(Position(7, 12), "a", Position(7, 12), None) is Choice.SAME


@given(positions, revisions, positions, revisions)
def test_one_of_two_is_the_newer_or_they_are_at_the_same_place(
    one: Position, one_revision: str | None, two: Position, two_revision: str | None
) -> None:
    forth, back = choose(one, one_revision, two, two_revision), choose(two, two_revision, one, one_revision)
    assert (forth is Choice.APPLY) == (back is Choice.OLDER)
    assert (forth is Choice.CLASH) == (back is Choice.CLASH)
    assert (forth is Choice.SAME) == (back is Choice.SAME)


def test_a_gap_is_a_version_left_out_within_an_epoch() -> None:
    assert skipped(Position(7, 11), Position(7, 13))
    assert not skipped(Position(7, 11), Position(7, 12))
    assert not skipped(Position(7, 11), Position(7, 11))
    assert not skipped(Position(7, 11), Position(8, 40))


class _Highest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return b


def test_pauses_double_to_the_bound_and_start_over() -> None:
    pause = Backoff(0.1, 1.0, _Highest())
    assert [round(pause.next(), 3) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    pause.reset()
    assert round(pause.next(), 3) == 0.1


def test_pauses_are_spread_over_the_whole_range() -> None:
    pause = Backoff(1.0, 1.0, random.Random(3))
    drawn = sorted(pause.next() for _ in range(400))
    assert drawn[0] < 0.05
    assert drawn[-1] > 0.95
    assert 0.4 < drawn[200] < 0.6
