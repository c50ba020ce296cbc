"""Scenarios that operators of other routers report, each tried on this one."""

from collections import Counter
from typing import Any

import pytest

from grid.gateway import Router
from grid.model import Picker
from tests.gateway.stage import Time, frame, hold, loads, router, signal


def spread(made: Router, number: int) -> list[int]:
    for _ in range(number):
        made.pick("llama").place.target.begin()
    return [target.own for target in made.targets]


@pytest.mark.parametrize("number", [8, 1000])
def test_a_number_polled_long_ago_does_not_draw_everybody(number: int) -> None:
    """Loads of 0 and 1 request were polled, then many come at once: nearly even, and gone when they end."""
    made = router(0, 0)
    made.observe(frame(signal(0, 0.0, 2000.0), signal(1, 1 / 2000, 2000.0)), 100.0)
    counts = spread(made, number)
    assert max(counts) - min(counts) <= 2
    for target in made.targets:
        for _ in range(target.own):
            target.end()
    assert made.in_flight == {}
    assert [round(target.estimate * 2000, 6) for target in made.targets] == [0.0, 1.0]


def test_signals_that_read_nothing_for_a_while_leave_the_spread_to_own_counts() -> None:
    """After a cold start every sample says 0 for seconds: 200 requests over three sites are spread all the same."""
    time = Time()
    made = router(0, 0, 0, clock=time)
    for n in range(200):
        if n % 50 == 0:
            made.observe(loads(0.0, 0.0, 0.0, capacity=200.0), time.now)
        made.pick("llama").place.target.begin()
        time.now += 0.02
        made.tick(time.now)
    counts = [target.own for target in made.targets]
    assert max(counts) < 1.35 * min(counts)


@pytest.mark.parametrize("picker", [Picker.RANDOM, Picker.WEIGHTED_RANDOM, Picker.SATURATION, Picker.ROUND_ROBIN])
@pytest.mark.parametrize("known", [True, False])
def test_equal_or_missing_loads_spread_evenly_in_every_mode(picker: Picker, known: bool) -> None:
    made = router(0, 0, 0, picker=picker)
    if known:
        made.observe(loads(0.5, 0.5, 0.5), 100.0)
    seen = Counter(made.pick("llama").site for _ in range(10_000))
    assert all(3100 < seen[f"s{n}"] < 3570 for n in range(3))


def test_counts_never_fall_below_nothing() -> None:
    made = router(0, 0)
    route = made.route("llama")
    route.__exit__(None, None, None)
    with route, made.route("llama", tried=[made.pick("llama")]):
        pass
    route.__exit__(None, None, None)
    assert [target.own for target in made.targets] == [0, 0]


@pytest.mark.parametrize(
    "broken",
    [
        {"capacity": 0.0, "saturation": None},
        {"ready": 0, "capacity": 0.0},
        {"capacity": None, "saturation": None},
        {"load": None, "held": None, "saturation": None},
        {"capacity": float("nan"), "held": float("nan"), "load": float("inf"), "queue": float("nan")},
        {"kv": float("nan"), "kv_ceiling": 0.0, "age_s": float("nan"), "bound_s": float("inf")},
    ],
)
@pytest.mark.parametrize("spot", [0, 1, 2])
def test_one_record_without_numbers_breaks_nothing(broken: dict[str, Any], spot: int) -> None:
    made = router(0, 0, 0)
    signals = [signal(n, 0.4, 10.0)._replace(**(broken if n == spot else {})) for n in range(3)]
    made.observe(frame(*signals), 100.0)
    seen = Counter(made.pick("llama").site for _ in range(300))
    assert all(seen[f"s{n}"] > 60 for n in range(3) if n != spot)
    assert all(target.estimate >= 0 for target in made.targets)
    hold(made, spot, 3)
    made.pick("llama").explain()


def test_an_idle_reading_of_long_ago_attracts_nothing() -> None:
    """One site was idle ten minutes ago and is silent since; the others are fresh and half busy."""
    made = router(0, 0, 0)
    made.observe(frame(signal(0, 0.0, age_s=600.0), signal(1, 0.5), signal(2, 0.5)), 100.0)
    assert {made.pick("llama").site for _ in range(200)} == {"s1", "s2"}


def test_all_stale_together_spread_by_own_counts_and_recover_with_one_good_sample() -> None:
    made = router(0, 0, 0, 0, 0)
    made.observe(loads(*[0.9] * 5, age_s=60.0), 100.0)
    counts = spread(made, 100)
    assert max(counts) < 2 * min(counts)
    made.observe(loads(0.1, 0.9, 0.9, 0.9, 0.9), 101.0)
    assert all(target.known for target in made.targets)
    assert made.pick("llama").case in {"two_drawn", "lower_of_two", "only_one"}


def test_a_site_that_comes_and_goes_is_used_when_it_is_there() -> None:
    """Good and bad on every other frame: each frame counts at once, and nothing else moves."""
    made = router(0, 0)
    seen = []
    for n in range(10):
        made.observe(frame(signal(0, 0.0, ready=n % 2), signal(1, 0.5)), 100.0 + n)
        seen.append(made.pick("llama").site)
    assert seen == ["s1", "s0"] * 5


def test_a_site_that_joins_empty_is_not_flooded() -> None:
    """Between two frames a newcomer takes only what brings it up to the others."""
    made = router(0, 0, 0, 0)
    made.observe(loads(0.7, 0.7, 0.7, 0.0, capacity=100.0), 100.0)
    counts = spread(made, 120)
    assert made.targets[3].estimate < 0.85
    assert counts[3] < 85
