"""Samples, own counts of a moment ago, and capacities that are learned."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.flow import AdmissionPolicy, pools
from grid.flow.drain import DrainRate, RetrySpread
from grid.flow.history import MOST, OwnHistory
from grid.flow.learning import LearnedCapacity
from grid.flow.pools import Pool, PoolState
from tests.flow.build import arrive, core, granted, run, signal

# --- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("true", [1, 8, 64, 256, 1024])
@pytest.mark.parametrize("ceiling", [0.0, 0.7, 1.5])
def test_a_capacity_is_learned_from_nothing_in_five_scrapes_under_load(true: int, ceiling: float) -> None:
    ready = 2
    made = core(("only", ceiling), pools=[signal(slots=None, ready=ready)], max_queued=10_000)
    waiting = arrive(made, 8000)
    for scrape in range(1, 6):
        run(made, waiting, at=scrape - 0.9)
        in_pool = made.pools["east"].own
        running, queued = min(in_pool, true * ready), max(0, in_pool - true * ready)
        made.update(float(scrape), [signal(slots=None, ready=ready, held=in_pool, running=running, queued=queued)])
        assert made.pools["east"].learned.mark <= true
    assert made.pools["east"].learned.mark >= 0.9 * true


def test_a_mark_at_which_nothing_queued_is_no_limit() -> None:
    learned = LearnedCapacity()
    assert learned.allowance(5.0) == 5.0
    learned.observe(10.0, 0.0)
    assert (learned.mark, learned.confirmed, learned.allowance(5.0)) == (10.0, False, 40.0)
    learned.observe(10.0, 3.0)
    assert (learned.mark, learned.confirmed, learned.allowance(5.0)) == (10.0, True, 10.0)
    learned.observe(11.0, None)
    assert (learned.mark, learned.confirmed) == (11.0, False), "it runs more than was believed to be the limit"


def test_a_mark_falls_only_where_engines_queue_below_it() -> None:
    learned = LearnedCapacity()
    learned.observe(20.0, 4.0)
    learned.observe(10.0, 4.0)
    assert learned.mark == pytest.approx(19.0)
    learned.observe(10.0, 0.0)
    learned.observe(10.0, None)
    assert learned.mark == pytest.approx(19.0)
    for _ in range(200):
        learned.observe(0.0, 1.0)
    assert learned.mark == 1.0, "an endpoint that runs anything can run one"


@given(st.lists(st.tuples(st.floats(0, 1000), st.one_of(st.none(), st.floats(0, 50))), max_size=60))
def test_a_mark_is_never_above_what_was_seen(samples: list[tuple[float, float | None]]) -> None:
    learned = LearnedCapacity()
    seen = 1.0
    for running, queued in samples:
        learned.observe(running, queued)
        seen = max(seen, running)
        assert learned.mark <= seen


def test_an_hour_of_low_or_held_back_traffic_teaches_nothing() -> None:
    rng = random.Random(5)
    learned = LearnedCapacity()
    learned.observe(64.0, 7.0)
    for second in range(3600):
        learned.observe(float(rng.randint(0, 20)) if second < 1800 else 64.0 * rng.random(), 0.0)
    assert learned.mark == 64.0


def test_what_the_daemon_learned_is_where_a_pool_begins() -> None:
    made = core(pools=[signal(slots=None, ready=2, held=0, running=100, queued=4)])
    assert made.pools["east"].capacity == 100
    assert granted(arrive(made, 500)) == 100


def test_a_pool_of_unknown_capacity_without_a_sample_is_open_as_far_as_its_queue_limit() -> None:
    assert granted(arrive(core(pools=[signal(slots=None, held=None, ready=None)]), 50)) == 5


# --- own counts -------------------------------------------------------------------------------------------------------


def test_the_lower_of_two_counts_is_what_a_sample_has_seen() -> None:
    history = OwnHistory(0.0)
    for at, count in ((1.0, 5), (1.9, 50), (2.5, 7)):
        history.note(at, count)
    assert history.before(2.0, 0.25) == 5, "the burst was too young to be seen"
    assert history.before(2.4, 0.25) == 50
    assert history.before(2.6, 0.25) == 7


def test_a_slot_that_passes_on_was_never_free() -> None:
    history = OwnHistory(0.0)
    history.note(1.0, 8)
    history.note(2.0, 7)
    history.note(2.0005, 8)
    assert history.before(2.0002, 0.25) == 8


def test_what_was_asked_for_is_forgotten() -> None:
    history = OwnHistory(0.0)
    for tick in range(100):
        history.note(tick * 0.01, tick)
    assert history.before(0.905, 0.25) == 65
    assert len(history) == 35


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60))
def test_counts_are_those_of_the_time_asked_for(counts: list[int]) -> None:
    history = OwnHistory(0.0)
    for at, count in enumerate(counts, start=1):
        history.note(float(at), count)
    every = [0, *counts]
    for at in range(2, len(every)):
        assert history.before(at + 0.5, 1.0) == min(every[at], every[at - 1])


def test_changes_kept_are_bounded() -> None:
    history = OwnHistory(0.0)
    for tick in range(50_000):
        history.note(tick * 0.002, tick % 300)
    assert len(history) <= MOST


# --- a pool -----------------------------------------------------------------------------------------------------------


def test_estimates_of_a_small_part_of_the_fleet_are_scaled_and_capped() -> None:
    made = core(("only", 1.0), pools=[signal(slots=64, held=32, share=0.5, queue_capacity=8)])
    pool = made.pools["east"]
    run(made, arrive(made, 4))
    assert pool.in_flight == 32 + 2 * 4
    made = core(("only", 1.0), pools=[signal(slots=64, held=32, share=0.01, queue_capacity=1000)])
    assert granted(arrive(made, 1)) == 1
    assert made.pools["east"].in_flight == 32 + 16


def test_the_cap_is_that_of_the_picker() -> None:
    from grid.gateway import target

    assert pools.MAX_SCALE == target.MAX_SCALE


def test_a_sample_may_be_too_old_when_it_comes() -> None:
    pool = Pool("east", AdmissionPolicy(), phase=0.0, now=0.0)
    assert pool.learn(signal(age=6.0, bound=5.0), 0, 10.0)
    assert pool.state is PoolState.STALE


def test_numbers_that_changed_are_a_new_sample_however_near() -> None:
    pool = Pool("east", AdmissionPolicy(), phase=0.0, now=0.0)
    assert pool.learn(signal(held=1), 0, 10.0)
    assert not pool.learn(signal(held=1, age=0.02), 0, 10.03)
    assert pool.learn(signal(held=2), 0, 10.03)
    assert pool.learn(signal(held=2), 0, 12.0)


# --- drain ------------------------------------------------------------------------------------------------------------


def test_a_rate_needs_something_to_go_by() -> None:
    rate = DrainRate()
    assert rate.per_s(0.0) is None
    for _ in range(10):
        rate.note(1.0)
    assert rate.per_s(1.0) is None, "all in one instant"
    assert rate.time_for(3, 1.0) is None


@given(st.floats(0.5, 50), st.floats(10, 300))
def test_a_steady_rate_is_found_soon(per_s: float, seconds: float) -> None:
    rate = DrainRate()
    ends = max(20, int(per_s * seconds))
    for number in range(ends):
        rate.note(number / per_s)
    assert rate.per_s(ends / per_s) == pytest.approx(per_s, rel=0.12)


def test_a_rate_falls_when_nothing_ends_any_more() -> None:
    rate = DrainRate()
    for number in range(100):
        rate.note(number * 0.1)
    soon, later = rate.time_for(10, 10.0), rate.time_for(10, 70.0)
    assert soon is not None
    assert later is not None
    assert soon == pytest.approx(1.0, rel=0.1)
    assert later > 5 * soon


@given(st.one_of(st.none(), st.floats(0, 1e9)), st.floats(0, 0.99))
def test_retry_after_is_whole_bounded_and_spread(wait: float | None, phase: float) -> None:
    spread = RetrySpread(phase)
    said = [spread.after(wait) for _ in range(50)]
    assert all(1 <= one <= 60 for one in said)
    assert all(type(one) is int for one in said)
    assert len(set(said)) > 1
    if wait is not None and wait <= 40:
        assert min(said) >= wait
