"""The estimate of one provider, kept up to date at every begin and end."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.gateway import Target


class Ear:
    """A place that writes down what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bool]] = []

    def room_changed(self, has_room: bool) -> None:
        self.heard.append(("room", has_room))

    def open_changed(self, is_open: bool) -> None:
        self.heard.append(("open", is_open))

    def over_changed(self, is_over: bool) -> None:
        self.heard.append(("over", is_over))

    def sure_changed(self, surely_over: bool) -> None:
        self.heard.append(("sure", surely_over))


def target(**rebase: Any) -> Target:
    made = Target("east", "east-llama")
    if rebase:
        made.rebase(**{"capacity": 10.0, "held": 4.0, "own_at_sample": 0.0, "scale": 1.0, **rebase})
    return made


def test_the_estimate_is_the_sample_and_the_own_change_since() -> None:
    made = target(held=4.0, own_at_sample=2.0, scale=3.0)
    for _ in range(3):
        made.begin()
    assert made.estimate == pytest.approx((4 + 3 * (3 - 2)) / 10)
    made.end()
    assert made.estimate == pytest.approx(0.4)
    made.end()
    assert made.estimate == pytest.approx(0.1)
    made.end()
    assert made.estimate == 0.0, "never below nothing"
    assert made.load_at(5) == pytest.approx(1.3)
    assert (made.own, made.begun, made.key) == (0, 3, "east/east-llama")


def test_kv_pressure_is_a_floor_and_takes_the_room() -> None:
    made = target(held=1.0, kv_pressure=0.7)
    assert made.estimate == 0.7
    made.begin()
    assert made.estimate == 0.7
    for _ in range(7):
        made.begin()
    assert made.estimate == pytest.approx(0.9)
    assert not target(held=1.0, kv_pressure=1.0).has_room


def test_past_the_bound_only_own_counts_remain() -> None:
    made = target(held=9.0, own_at_sample=3.0, kv_pressure=0.95, saturation=0.9, queue=7.0, expires=5.0, sampled_at=1.0)
    for _ in range(2):
        made.begin()
    made.forget(4.0, 10.0)
    assert made.estimate == pytest.approx(4 * 2 / 10)
    assert (made.known, made.trusted, made.saturation, made.queue) == (False, False, None, None)
    assert (made.expires, made.sampled_at) == (math.inf, None)


def test_what_has_no_size_is_never_full() -> None:
    made = target()
    made.forget(1.0)
    for _ in range(50):
        made.begin()
    assert (made.estimate, made.has_room, made.is_over, made.sized) == (50.0, True, False, False)
    made.rebase(capacity=None, held=0.3, own_at_sample=50.0, scale=1.0)
    made.begin()
    assert made.estimate == pytest.approx(1.3)
    assert (made.has_room, made.is_over) == (True, False)


def test_places_hear_of_room_and_overflow_once_each() -> None:
    made, ear, other = target(held=8.0), Ear(), Ear()
    made.attach((ear, other))
    for _ in range(5):
        made.begin()
    assert ear.heard == [("open", False), ("room", False), ("over", True), ("sure", True)]
    assert (made.has_room, made.is_over) == (False, True)
    for _ in range(5):
        made.end()
    assert ear.heard == other.heard
    assert ear.heard[4:] == [("over", False), ("sure", False), ("open", True), ("room", True)]


def test_a_frame_tells_no_place() -> None:
    made, ear = target(held=1.0), Ear()
    made.attach((ear,))
    made.rebase(capacity=10.0, held=30.0, own_at_sample=0.0, scale=1.0)
    made.forget(1.0, 10.0)
    assert ear.heard == []


def test_without_a_known_load_own_requests_alone_may_put_it_over_and_never_surely() -> None:
    made = target()
    made.forget(1.0, 2.0)
    for _ in range(5):
        made.begin()
    assert (made.estimate, made.has_room, made.is_over, made.surely_over) == (2.5, False, True, False)
    assert made.spent
    made.forget(1.0)
    assert not made.is_over, "nothing is full where nobody's capacity is known"


@given(
    st.floats(0.5, 500),
    st.floats(0, 1000),
    st.floats(0, 50),
    st.floats(1, 16),
    st.floats(0, 1.5),
    st.lists(st.booleans(), max_size=60),
    st.floats(0.5, 2),
)
def test_the_running_sum_is_the_formula(
    capacity: float, held: float, own_then: float, scale: float, kv: float, steps: list[bool], spill: float
) -> None:
    made = Target("east", "east-llama", spill=spill, overflow=spill + 0.25)
    made.rebase(capacity=capacity, held=held, own_at_sample=own_then, scale=scale, kv_pressure=kv)
    for begins in steps:
        if begins or not made.own:
            made.begin()
        else:
            made.end()
        load = (held + scale * (made.own - own_then)) / capacity
        assert made.estimate == pytest.approx(max(0.0, kv, load), rel=1e-9, abs=1e-9)
        assert made.has_room is (made.estimate < spill)
        if abs(load - spill - 0.25) > 1e-9:
            assert made.is_over is (load > spill + 0.25)


def test_nobody_is_surely_over_for_what_others_are_only_supposed_to_do() -> None:
    """Three idle gateways, 16 slots: 7 requests here look like 21 to the estimate, and are 7 as far as is known."""
    target = Target("east", "east-llama")
    target.rebase(capacity=16.0, held=0.0, own_at_sample=0.0, scale=3.0, proven=1.0, saturation=0.0)
    seen = []
    for _ in range(21):
        target.begin()
        seen.append((target.has_room, target.is_over, target.surely_over))
    assert seen.index((False, False, False)) == 5, "the estimate is full with the sixth, 18 of 16"
    assert seen.index((False, True, False)) == 6, "and over with the seventh"
    assert [sure for *_, sure in seen].index(True) == 20, "1.25 x 16 of its own are over for certain"
    target.end()
    assert not target.surely_over
