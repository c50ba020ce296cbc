"""What the data plane sees, and who is used last for it."""

import random

import pytest

from grid.gateway import Router
from grid.gateway.health import ObservedHealth
from grid.gateway.places import Place
from grid.model import Picker
from tests.gateway.stage import Time, frame, grouped, loads, router, signal

BITS = random.Random(1).getrandbits


def sites(made: Router, number: int = 40) -> set[str]:
    return {made.pick("llama").site for _ in range(number)}


def test_a_failed_connection_sets_back_for_a_second_and_doubles() -> None:
    health, now = ObservedHealth(), 100.0
    spans = []
    for _ in range(8):
        health.connect_failed(now, BITS)
        assert not health.healthy(now)
        spans.append(health.until - now)
        now = health.until
        assert health.healthy(now)
    assert all(
        0.9 * whole <= span <= 1.1 * whole for span, whole in zip(spans, [1, 2, 4, 8, 16, 30, 30, 30], strict=True)
    )
    assert len({round(span / whole, 6) for span, whole in zip(spans, [1, 2, 4, 8, 16, 30, 30, 30], strict=True)}) == 8


def test_a_fault_that_many_meet_at_once_counts_once() -> None:
    health = ObservedHealth()
    for _ in range(50):
        health.connect_failed(100.0, BITS)
    assert health.until - 100.0 < 1.2


def test_most_answers_being_errors_sets_back() -> None:
    health, rng = ObservedHealth(), random.Random(5)
    seen = 0
    while health.healthy(100.0):
        health.answered(100.0, BITS, failed=rng.random() < 0.6)
        seen += 1
        assert seen < 40
    health = ObservedHealth()
    for _ in range(500):
        health.answered(100.0, BITS, failed=rng.random() < 0.2)
    assert health.healthy(100.0)
    health = ObservedHealth()
    for _ in range(4):
        health.answered(100.0, BITS, failed=True)
    assert health.healthy(100.0), "four outcomes are too few"
    health.answered(100.0, BITS, failed=True)
    assert not health.healthy(100.0)


def test_the_first_error_after_a_set_back_is_enough() -> None:
    health, now = ObservedHealth(), 100.0
    for _ in range(5):
        health.answered(now, BITS, failed=True)
    for span in (2.0, 4.0):
        now = health.until
        health.answered(now, BITS, failed=True)
        assert 0.9 * span <= health.until - now <= 1.1 * span
    now = health.until
    health.answered(now, BITS, failed=False)
    for _ in range(3):
        health.answered(now, BITS, failed=True)
    assert health.healthy(now), "it passed its trial, so one error is no verdict any more"


def test_answers_that_come_while_it_is_set_back_say_nothing_of_what_follows() -> None:
    health = ObservedHealth()
    health.connect_failed(100.0, BITS)
    health.answered(100.5, BITS, failed=False)
    now = health.until
    health.answered(now, BITS, failed=True)
    assert not health.healthy(now)


def test_a_run_of_good_answers_makes_it_as_good_as_new() -> None:
    health, now = ObservedHealth(), 100.0
    for _ in range(4):
        health.connect_failed(now, BITS)
        now = health.until
    health.answered(now, BITS, failed=False)
    health.connect_failed(now, BITS)
    assert health.until - now > 14, "one good answer proves nothing"
    now = health.until
    for _ in range(5):
        health.answered(now, BITS, failed=False)
    health.connect_failed(now, BITS)
    assert health.until - now < 1.2


def test_who_is_set_back_is_used_last_and_comes_back() -> None:
    time = Time()
    made = router(0, 0, 1, clock=time)
    made.observe(loads(0.5, 0.5, 0.5), 100.0)
    decision = made.pick("llama")
    made.connect_failed(decision)
    assert sites(made) == {"s0", "s1"} - {decision.site}
    time.now += 1.2
    made.tick(time.now)
    assert sites(made, 200) == {"s0", "s1"}


@pytest.mark.parametrize("picker", [Picker.SATURATION, Picker.ROUND_ROBIN, Picker.DETERMINISTIC])
def test_a_lower_group_stands_in_and_the_set_back_when_nobody_else_is_left(picker: Picker) -> None:
    made = router(0, 1, picker=picker)
    near = made.pick("llama")
    assert (near.site, near.fallback, near.demoted) == ("s0", False, False)
    made.connect_failed(near)
    far = made.pick("llama")
    assert (far.site, far.fallback, far.spilled, far.reason) == ("s1", True, False, "fallback")
    retried = made.pick("llama", tried=[far])
    assert (retried.site, retried.demoted, retried.reason) == ("s0", True, "retry")
    made.connect_failed(far)
    last = made.pick("llama")
    assert (last.site, last.demoted, last.reason) == ("s0", True, "demoted")


def test_answers_count_only_once_something_failed() -> None:
    made = router(0, 0)
    decision = made.pick("llama")
    made.answered(decision, failed=False)
    assert decision.place.target.health is None
    for _ in range(5):
        made.answered(decision, failed=True)
    assert sites(made) == {"s0", "s1"} - {decision.site}
    made.answered(decision, failed=False)


def test_an_active_source_demotes_once_it_has_observed() -> None:
    made = router(0, 0)
    assert sites(made, 200) == {"s0", "s1"}
    made.clusters_down(["s0-llama"])
    assert sites(made) == {"s1"}
    made.apply(grouped(0, 0, 0))
    assert sites(made, 200) == {"s1", "s2"}
    made.clusters_down(["s2-llama"])
    assert sites(made, 200) == {"s0", "s1"}
    made.clusters_down(["s0-llama", "s1-llama", "s2-llama"])
    assert sites(made, 300) == {"s0", "s1", "s2"}
    made.clusters_down([])
    assert sites(made, 300) == {"s0", "s1", "s2"}


def test_what_was_observed_holds_for_a_provider_that_comes_later() -> None:
    made = router(0)
    made.clusters_down(["s1-llama"])
    made.apply(grouped(0, 0))
    assert sites(made) == {"s0"}


def test_a_provider_with_nothing_ready_is_used_last_at_once() -> None:
    made = router(0, 0, 0)
    made.observe(frame(signal(0, 0.0, ready=0), signal(1, 0.9), signal(2, 0.9)), 100.0)
    assert sites(made) == {"s1", "s2"}
    made.observe(loads(0.0, 0.9, 0.9), 100.0)
    assert "s0" in sites(made)


def test_health_may_be_told_before_there_is_a_document() -> None:
    made = Router(clock=Time())
    made.clusters_down(["s0-llama"])
    made.tick(100.0)
    made.apply(grouped(0, 0))
    assert sites(made) == {"s1"}


def test_failing_answers_lower_a_site_and_it_recovers() -> None:
    """The best site by its signal answers 60 % of its requests with an error; later it is well again."""
    time, rng = Time(), random.Random(2)
    made = router(0, 0, clock=time)
    made.observe(loads(0.0, 0.8, bound_s=1000.0), 100.0)
    per_minute = []
    for failing in (0.6, 0.6, 0.0, 0.0):
        hits = 0
        for _ in range(600):
            time.now += 0.1
            made.tick(time.now)
            decision = made.pick("llama")
            bad = decision.site == "s0"
            hits += bad
            made.answered(decision, failed=bad and rng.random() < failing)
        per_minute.append(hits / 600)
    assert max(per_minute[:2]) < 0.45
    assert per_minute[1] < 0.2
    assert per_minute[3] > 0.9


def test_a_place_outside_of_every_group_hears_nothing() -> None:
    made = router(0, 0)
    made.observe(loads(0.9, 0.1), 100.0)
    made.clusters_down(["s0-llama"])
    target = next(target for target in made.targets if target.site == "s0")
    for _ in range(5):
        target.begin()
    assert isinstance(made.pick("llama").place, Place)
    assert sites(made) == {"s1"}
