import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grid.model import CapacitySource, HeldSource, Load, LoadSource, Problem, Provider, Reading, Reason, Sample, Step
from grid.policy.load import assess, clean
from grid.policy.memory import ProviderMemory
from grid.signals.scan import read_page
from tests.policy.build import busy, provider, reading, sample

A = provider("a")
LEARNING = provider("a", max_running=None)


def load_of(page: Reading, given: Provider = A) -> Load:
    return assess(given, sample(page), ProviderMemory(), 0.0)[0]


class Scrapes:
    """One provider's scrapes in a row, with the memory that goes along."""

    def __init__(self, given: Provider = LEARNING, *, interval: float = 2.0) -> None:
        self.provider, self.memory = given, ProviderMemory()
        self.at, self.sequence, self.interval = 0.0, 0, interval
        self.steps: tuple[Step, ...] = ()

    def read(self, page: Reading, *, after: float = 2.0) -> Load:
        self.at += after
        self.sequence += 1
        taken = sample(page, self.at, self.sequence, interval=self.interval)
        load, self.memory, self.steps = assess(self.provider, taken, self.memory, self.at)
        return load


# --- held ---


def test_in_flight_and_the_epps_queue_are_what_is_held() -> None:
    found = load_of(busy(19, flow_control_queue=101, average_running_requests=2.0, average_queue_size=13.5))
    assert (found.held, found.held_source) == (120, HeldSource.LIVE)
    assert found.queue == 128


def test_without_in_flight_counts_means_times_ready_are_held() -> None:
    found = load_of(reading(3, average_running_requests=6.33, average_queue_size=2.0, flow_control_queue=1))
    assert found.held == pytest.approx(25.99)
    assert found.held_source is HeldSource.ENGINE


def test_a_page_with_neither_leaves_held_and_saturation_unknown() -> None:
    found = load_of(reading(3, average_queue_size=2.0))
    assert (found.held, found.held_source, found.saturation) == (None, None, None)


def test_real_pages_are_worth_what_was_true(shared_fixtures: Path) -> None:
    index = json.loads((shared_fixtures / "epp" / "index.json").read_text())
    for name, entry in index.items():
        if entry.get("unpacked", 0) > 1_000_000:
            continue  # the same signals on a page of 40 MB; reading it is tested where pages are read
        page = read_page((shared_fixtures / "epp" / name).read_bytes()).reading
        found = load_of(page, LEARNING)
        assert found.held == (None if entry["reads"]["held"] is None else pytest.approx(entry["reads"]["held"])), name
        assert (found.load is not None and bool(found.ready)) is entry["reads"]["usable"], name


def test_a_real_pool_that_queues_at_its_epp_is_no_bypass(shared_fixtures: Path) -> None:
    page = read_page((shared_fixtures / "epp" / "v0.10-traffic.queueing.txt").read_bytes()).reading
    assert page.held_engine == 132
    scrapes = Scrapes()
    for _ in range(20):
        found = scrapes.read(page)
        assert (found.held, found.held_source) == (120, HeldSource.LIVE)


# --- traffic that bypasses the EPP ---


def page_of(in_flight: float, engine: float, ready: int = 2, **numbers: Any) -> Reading:
    """In flight at the EPP, and requests per endpoint that the engines say they run."""
    return busy(in_flight, ready, average_running_requests=engine, average_queue_size=0.0, **numbers)


def test_engines_above_the_epps_count_on_two_refreshes_mean_a_bypass() -> None:
    scrapes = Scrapes()
    assert scrapes.read(page_of(4, 10.0)).held_source is HeldSource.LIVE
    found = scrapes.read(page_of(4, 10.5))
    assert (found.held, found.held_source) == (21.0, HeldSource.ENGINE)
    assert scrapes.steps[0].reason is Reason.BYPASS
    assert "counts only 4" in scrapes.steps[0].detail


def test_the_same_means_within_5_s_are_no_second_refresh_and_after_5_s_they_are() -> None:
    scrapes = Scrapes()
    for _ in range(3):
        assert scrapes.read(page_of(4, 10.0)).held_source is HeldSource.LIVE
    assert scrapes.read(page_of(4, 10.0), after=1.0).held_source is HeldSource.ENGINE


def test_engines_stay_the_source_until_two_refreshes_agree_again() -> None:
    scrapes = Scrapes()
    scrapes.read(page_of(4, 10.0))
    scrapes.read(page_of(4, 10.5))
    assert scrapes.read(page_of(4, 2.0)).held_source is HeldSource.ENGINE
    assert scrapes.read(page_of(4, 10.0)).held_source is HeldSource.ENGINE, "the count of agreement starts again"
    assert scrapes.read(page_of(4, 2.0)).held_source is HeldSource.ENGINE
    assert scrapes.read(page_of(4, 2.1)).held_source is HeldSource.LIVE


def test_means_of_an_earlier_peak_are_no_bypass() -> None:
    scrapes = Scrapes()
    scrapes.read(page_of(20, 2.0))
    for in_flight, engine in ((4, 10.0), (3, 9.5), (2, 9.0)):
        assert scrapes.read(page_of(in_flight, engine)).held_source is HeldSource.LIVE


def test_a_peak_out_of_the_window_explains_nothing_any_more() -> None:
    scrapes = Scrapes()
    scrapes.read(page_of(20, 2.0))
    scrapes.read(page_of(4, 10.0), after=9.5)
    assert scrapes.read(page_of(4, 10.5)).held_source is HeldSource.ENGINE


def test_queues_at_the_epp_under_constant_clients_are_no_bypass() -> None:
    """120 closed-loop clients on 8 slots: the engines' side read 123 to 133 while the live count was exact."""
    scrapes = Scrapes(provider("a", max_running=4))
    pages = [(19, 101, 15.5), (29, 91, 9.5), (19, 101, 15.0), (22, 98, 11.5), (19, 101, 15.5), (31, 89, 9.5)] * 5
    for in_flight, waiting, engine in pages:
        found = scrapes.read(page_of(in_flight, engine, flow_control_queue=waiting))
        assert (found.held, found.held_source) == (120, HeldSource.LIVE)


@pytest.mark.parametrize(("engine", "ready", "bypass"), [(5.0, 2, False), (5.51, 2, False), (5.52, 2, True)])
def test_the_margin_is_a_request_and_the_rounding_of_small_counts(engine: Any, ready: Any, bypass: Any) -> None:
    scrapes = Scrapes()
    scrapes.read(page_of(10, engine, ready), after=5.0)
    found = scrapes.read(page_of(10, engine, ready), after=5.0)
    assert (found.held_source is HeldSource.ENGINE) is bypass


@pytest.mark.parametrize(("engine", "bypass"), [(55.0, False), (55.02, True)])
def test_the_margin_is_a_tenth_of_large_counts(engine: Any, bypass: Any) -> None:
    scrapes = Scrapes()
    scrapes.read(page_of(100, engine), after=5.0)
    found = scrapes.read(page_of(100, engine), after=5.0)
    assert (found.held_source is HeldSource.ENGINE) is bypass


def test_frozen_means_leave_the_verdict_as_it_is() -> None:
    scrapes = Scrapes()
    scrapes.read(page_of(4, 10.0))
    scrapes.read(page_of(4, 10.5))
    found = scrapes.read(busy(4))
    assert (found.held, found.held_source) == (4, HeldSource.LIVE)
    assert scrapes.memory.observed.bypass
    assert scrapes.read(page_of(4, 10.5)).held_source is HeldSource.ENGINE


def test_a_page_without_the_running_mean_cannot_tell() -> None:
    scrapes = Scrapes()
    for _ in range(4):
        scrapes.read(busy(4, average_queue_size=9.0), after=5.0)
    assert not scrapes.memory.observed.bypass


def test_the_window_is_bounded_and_never_hides_the_largest_too_early() -> None:
    scrapes = Scrapes(interval=0.01)
    for step in range(500):
        scrapes.read(busy(1000.0 - step), after=0.01)
        assert scrapes.memory.observed.in_flight[0][1] == 1000.0
    assert len(scrapes.memory.observed.in_flight) <= 32


# --- capacity ---


def test_declared_capacity_follows_the_ready_count() -> None:
    assert load_of(busy(5, ready=3)).capacity == 30
    assert load_of(busy(5, ready=2)).capacity == 20
    found = load_of(busy(5, ready=0))
    assert (found.capacity, found.saturation) == (0, None)


def test_the_mean_unchanged_after_a_scale_down_does_not_keep_the_capacity() -> None:
    before = load_of(reading(20, average_running_requests=2.0, average_queue_size=0.0))
    after = load_of(reading(2, average_running_requests=2.0, average_queue_size=0.0))
    assert (before.capacity, after.capacity) == (200, 20)
    assert (before.held, after.held) == (40, 4)


def test_capacity_is_unknown_without_a_ready_count() -> None:
    found = load_of(busy(5, ready=None))
    assert (found.capacity, found.capacity_source, found.saturation) == (None, None, None)


def test_capacity_is_learned_from_what_ran_and_grows_at_once() -> None:
    scrapes = Scrapes()
    assert scrapes.read(reading(2, average_running_requests=0.0, average_queue_size=0.0)).capacity is None
    for running in (3.0, 8.0):
        found = scrapes.read(reading(2, average_running_requests=running, average_queue_size=0.0))
        assert (found.capacity, found.capacity_source) == (running * 2, CapacitySource.LEARNED)


def test_low_traffic_and_held_back_traffic_teach_nothing() -> None:
    scrapes = Scrapes()
    scrapes.read(reading(2, average_running_requests=8.0, average_queue_size=0.0))
    for running in (1.0, 0.0, 4.0, 0.0) * 20:
        found = scrapes.read(
            reading(2, average_running_requests=running, average_queue_size=0.0, flow_control_queue=50)
        )
    assert found.capacity == 16


def test_engines_that_queue_below_the_mark_lower_it_a_tenth_of_the_gap_per_refresh() -> None:
    scrapes = Scrapes()
    scrapes.read(reading(2, average_running_requests=8.0, average_queue_size=0.0))
    page = reading(2, average_running_requests=4.0, average_queue_size=3.0)
    assert scrapes.read(page).capacity == pytest.approx(15.2)
    assert scrapes.read(page).capacity == pytest.approx(15.2), "the same means are no new evidence"
    assert scrapes.read(page, after=3.0).capacity == pytest.approx(14.48)


def test_engines_that_queue_at_the_mark_confirm_it() -> None:
    scrapes = Scrapes()
    page = reading(2, average_running_requests=8.0, average_queue_size=3.0)
    for _ in range(10):
        assert scrapes.read(page, after=5.0).capacity == 16


def test_a_stuck_engine_ends_at_one_request_per_endpoint() -> None:
    scrapes = Scrapes()
    scrapes.read(reading(2, average_running_requests=8.0, average_queue_size=0.0))
    for _ in range(200):
        found = scrapes.read(reading(2, average_running_requests=0.0, average_queue_size=6.0), after=5.0)
    assert found.capacity == 2
    assert found.saturation == 6


def test_less_than_one_running_per_endpoint_still_means_one() -> None:
    assert load_of(reading(4, average_running_requests=0.25, average_queue_size=0.0), LEARNING).capacity == 4


@pytest.mark.parametrize(
    ("numbers", "capacity"),
    [
        ({"average_queue_size": 0.0}, 6.0),
        ({"average_queue_size": 1.0}, None),  # in flight includes what engines queue
        ({}, None),  # nobody says that engines do not queue
    ],
)
def test_in_flight_stands_in_for_the_running_mean_only_where_engines_do_not_queue(numbers: Any, capacity: Any) -> None:
    assert load_of(busy(6, ready=2, **numbers), LEARNING).capacity == capacity


# --- load and its sources ---


def test_saturation_comes_first() -> None:
    found = load_of(busy(15, pool_saturation=0.1, kv_cache_utilization=0.1))
    assert (found.load, found.load_source, found.saturation) == (0.75, LoadSource.SATURATION, 0.75)


def test_pool_saturation_comes_second() -> None:
    found = load_of(busy(15, pool_saturation=0.4), LEARNING)
    assert (found.load, found.load_source) == (0.4, LoadSource.POOL_SATURATION)


@pytest.mark.parametrize("numbers", [{"ready": 0}, {"ready": 2, "ready_live": 0}])
def test_pool_saturation_1_of_an_epp_without_endpoints_is_no_load(numbers: Any) -> None:
    found = load_of(reading(**numbers, pool_saturation=1.0), LEARNING)
    assert (found.load, found.pool_saturation) == (None, None)


def test_pool_saturation_1_of_a_living_pool_is_a_load() -> None:
    assert load_of(reading(2, pool_saturation=1.0), LEARNING).load == 1.0


def test_queue_against_its_limit_comes_third() -> None:
    found = load_of(reading(2, average_queue_size=2.0, flow_control_queue=4, kv_cache_utilization=0.09), LEARNING)
    assert (found.load, found.load_source, found.queue) == (0.8, LoadSource.QUEUE, 8)


def test_a_mean_queue_is_judged_even_where_nobody_counts_endpoints() -> None:
    found = load_of(Reading(average_queue_size=2.5, flow_control_queue=3), LEARNING)
    assert (found.load, found.load_source, found.queue) == (0.5, LoadSource.QUEUE, None)


def test_an_epp_queue_alone_is_a_queue() -> None:
    assert load_of(reading(2, flow_control_queue=5), LEARNING).load == 0.5


@pytest.mark.parametrize(
    ("page", "load", "source"),
    [
        (busy(10, kv_cache_utilization=0.81), 0.9, LoadSource.KV),
        (busy(19, kv_cache_utilization=0.81), 0.95, LoadSource.SATURATION),
        (reading(None, kv_cache_utilization=0.45), 0.5, LoadSource.KV),
    ],
)
def test_kv_pressure_is_a_floor_and_is_named_where_it_decides(page: Any, load: Any, source: Any) -> None:
    found = load_of(page)
    assert found.load == pytest.approx(load)
    assert found.load_source is source


def test_an_engine_that_admits_nothing_does_not_win_by_its_empty_kv_cache() -> None:
    stuck, healthy = Scrapes(), Scrapes()
    for _ in range(20):
        first = stuck.read(reading(1, average_queue_size=6.0, average_running_requests=0.0, kv_cache_utilization=0.0))
        second = healthy.read(
            reading(1, average_queue_size=1.0, average_running_requests=8.0, kv_cache_utilization=0.6)
        )
    assert first.load is not None
    assert second.load is not None
    assert first.load > second.load


def test_an_empty_page_has_no_load_and_says_so() -> None:
    load, _, steps = assess(A, sample(Reading()), ProviderMemory(), 0.0)
    assert load.load is None
    assert {step.reason for step in steps} == {Reason.LOAD_UNKNOWN}


def test_a_provider_that_was_never_read_has_no_load() -> None:
    load, memory, steps = assess(A, None, ProviderMemory(), 5.0)
    assert (load.load, load.capacity) == (None, None)
    assert memory == ProviderMemory()
    assert steps[0].reason is Reason.LOAD_UNKNOWN


def test_of_a_stale_sample_only_ready_and_capacity_remain() -> None:
    load, _, _ = assess(A, sample(busy(15, kv_cache_utilization=0.5)), ProviderMemory(), 1000.0)
    assert (load.ready, load.capacity) == (2, 20)
    assert (load.held, load.saturation, load.load, load.kv, load.queue) == (None, None, None, None, None)


# --- numbers that are none ---


@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf, -3.0, 1e309, 1e308])
def test_a_number_that_is_none_is_unknown(bad: Any) -> None:
    for field in ("in_flight", "average_queue_size", "kv_cache_utilization", "pool_saturation", "flow_control_queue"):
        page = clean(replace(busy(5, average_queue_size=1.0, average_running_requests=2.0), **{field: bad}))
        assert getattr(page, field) is None
    load, memory, _ = assess(A, sample(busy(bad, kv_cache_utilization=bad)), ProviderMemory(), 0.0)
    assert (load.held, load.load) == (None, None)
    assert memory.level is None


def test_a_clean_page_is_left_alone() -> None:
    page = busy(5)
    assert clean(page) is page


def test_a_ratio_beyond_all_numbers_is_unknown() -> None:
    tiny = provider("a", max_running=None, queue_capacity=5e-324)
    assert load_of(reading(2, flow_control_queue=1e15), tiny).load is None


# --- counting scrapes ---


def test_one_scrape_teaches_once_and_scrapes_are_told_apart_by_number_not_by_value() -> None:
    memory = ProviderMemory()
    first = sample(reading(2, average_running_requests=4.0, average_queue_size=0.0), at=1.0, sequence=1)
    _, memory, _ = assess(LEARNING, first, memory, 1.0)
    assert not memory.counts(first)
    assert not memory.counts(replace(first, interval=9.0))
    assert memory.counts(replace(first, sequence=2, received_at=3.0))
    assert not memory.counts(replace(first, sequence=2, received_at=1.0)), "an earlier scrape of the predecessor's"
    same: Sample = replace(first, sequence=1, received_at=9.0)
    assert not memory.counts(same)


def test_free_requests_follow_smoothly() -> None:
    scrapes = Scrapes(provider("a"))
    scrapes.read(busy(0))
    assert scrapes.memory.free == 20
    scrapes.read(busy(20))
    assert scrapes.memory.free == pytest.approx(20 * math.exp(-0.2))
    for _ in range(100):
        scrapes.read(busy(30))
    assert scrapes.memory.free == pytest.approx(0.0, abs=1e-6)


def test_the_level_moves_only_where_the_load_leaves_it_clearly() -> None:
    scrapes = Scrapes(provider("a", max_running=100))
    levels = []
    for held in (100, 105, 115, 125, 124, 131, 95, 92, 69, 2000000):
        scrapes.read(busy(held))
        levels.append(scrapes.memory.level)
    assert levels == [5, 5, 5, 5, 5, 6, 4, 4, 3, 10000]
    scrapes.read(reading(2))
    assert scrapes.memory.level == 10000, "an unknown load changes nothing"


# --- what was wrong with the page ---


def _steps(page: Reading, given: Provider = A, *problems: Problem) -> dict[str, str]:
    taken = replace(sample(page), problems=problems)
    return {step.rule: step.detail for step in assess(given, taken, ProviderMemory(), 0.0)[2]}


def test_what_was_wrong_with_the_page_comes_first_in_the_chain_of_reasons() -> None:
    problems = (Problem(Reason.BAD_VALUE, "llm_d_epp_average_queue_size NaN"), Problem(Reason.POLL_ERRORS, "3 more"))
    taken = replace(sample(busy(4)), problems=problems)
    _, _, steps = assess(A, taken, ProviderMemory(), 0.0)
    assert steps[:2] == tuple(Step("page", problem.code, problem.detail) for problem in problems)
    assert [step.rule for step in steps[2:]] == ["held", "capacity", "load"]
    _, _, stale = assess(A, taken, ProviderMemory(), 1000.0)
    assert [step.rule for step in stale] == ["page", "page", "load"]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (reading(3, average_running_requests=2.0), "no usable mean of queue size"),
        (reading(3, average_queue_size=2.0), "no usable mean of running requests"),
        (reading(3), "no usable mean of running requests or queue size"),
        (reading(0), "the means count for nothing while the EPP's ready count is 0"),
        (reading(None), "the means count for nothing while the EPP's ready count is unknown"),
    ],
)
def test_what_is_held_says_exactly_what_is_missing(page: Reading, said: str) -> None:
    assert _steps(page)["held"] == f"unknown: no usable count in flight, and {said}"


@pytest.mark.parametrize(
    ("page", "given", "said"),
    [
        (busy(5), A, "0.25 = held / capacity"),
        (
            reading(2, average_running_requests=2.0, pool_saturation=0.4),
            A,
            "0.4 = the EPP's own pool saturation, since held unknown",
        ),
        (busy(0, pool_saturation=0.4), LEARNING, "0.4 = the EPP's own pool saturation, since capacity unknown"),
        (busy(3, 0, pool_saturation=0.4), A, "0.4 = the EPP's own pool saturation, since capacity is 0"),
        (
            reading(2, average_queue_size=1.0),
            A,
            "0.2 = queue / queue capacity, since held unknown, no pool saturation",
        ),
        (
            reading(2, kv_cache_utilization=0.45),
            A,
            "0.5 of KV / KV ceiling, since held unknown, no pool saturation, no queue to judge",
        ),
        (
            reading(None, pool_saturation=1.0, ready_live=0),
            A,
            "no signal on the page gives one: held and capacity unknown, its pool saturation is that of an empty pool, "
            "no queue to judge, no KV use",
        ),
    ],
)
def test_the_load_says_which_yardstick_it_took_and_why_no_better_one(page: Reading, given: Provider, said: str) -> None:
    assert _steps(page, given)["load"] == said
