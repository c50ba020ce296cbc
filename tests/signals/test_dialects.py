"""The table of names, and pages in each of its dialects."""

import itertools

import pytest

from grid.model import Reading, Reason
from grid.signals.dialects import (
    DIALECTS,
    FLOW_CONTROL_QUEUE,
    IN_FLIGHT,
    POLL_ERRORS,
    POOL_SATURATION,
    STALE_ENDPOINTS,
    WANTED,
    Fold,
)
from grid.signals.scan import read_page
from tests.signals.pages import current, flow_control, in_flight, legacy, page, queue


def test_every_name_is_wanted_once() -> None:
    named = [name for dialect in DIALECTS for name in (*dialect.gauges, dialect.per_endpoint)]
    for twins in (IN_FLIGHT, FLOW_CONTROL_QUEUE, POOL_SATURATION, STALE_ENDPOINTS, POLL_ERRORS):
        named.extend(twins)
    assert len(named) == len(set(named))
    assert {*named, "process_start_time_seconds"} == set(WANTED)


def test_only_counts_that_may_be_added_are_summed() -> None:
    summed = {name for name, wanted in WANTED.items() if wanted.fold is Fold.SUM}
    assert summed == {*IN_FLIGHT, *FLOW_CONTROL_QUEUE, *POLL_ERRORS}


@pytest.mark.parametrize("prefix", ["llm_d_epp", "llm_d_router_epp"])
def test_current_names(prefix: str) -> None:
    result = read_page(page(*current(prefix=prefix)))
    assert result.problems == ()
    assert result.reading.dialect == prefix
    assert (result.reading.ready_endpoints, result.reading.average_queue_size) == (3, 2)
    assert (result.reading.average_running_requests, result.reading.kv_cache_utilization) == (6.5, 0.43)


def test_old_names_work_alike() -> None:
    old = read_page(page(*legacy(running=6.5))).reading
    new = read_page(page(*current())).reading
    assert old.dialect == "inference_pool"
    signals = ("ready", "ready_endpoints", "average_queue_size", "average_running_requests", "kv_cache_utilization")
    assert [getattr(old, name) for name in signals] == [getattr(new, name) for name in signals]


def test_no_known_name_is_never_an_empty_queue() -> None:
    result = read_page(page('vllm:num_requests_waiting{model_name="m"} 4', "go_goroutines 7"))
    assert [problem.code for problem in result.problems] == [Reason.METRIC_MISSING]
    assert result.unusable is not None
    assert result.reading == Reading()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_first_family_that_has_the_pool_counts_whatever_stands_where(order: tuple[int, ...]) -> None:
    families = [
        current(queue=1, ready=1, endpoints=1),
        current(prefix="llm_d_router_epp", queue=20, ready=2, endpoints=2),
        legacy(queue=300, ready=3, running=1, pods=3),
    ]
    lines = [line for number in order for line in families[number]]
    reading = read_page(page(*lines), pool="llama").reading
    assert (reading.dialect, reading.ready, reading.average_queue_size) == ("llm_d_epp", 1, 1)


def test_families_are_never_mixed() -> None:
    lines = [*current(running=None), *legacy(running=6.5)]
    reading = read_page(page(*lines)).reading
    assert reading.dialect == "llm_d_epp"
    assert reading.average_running_requests is None


def test_a_family_without_the_pool_is_passed_over() -> None:
    lines = [*current("other"), *legacy("llama", running=6.5)]
    result = read_page(page(*lines), pool="llama")
    assert (result.reading.dialect, result.reading.pool) == ("inference_pool", "llama")
    assert result.pools == ("llama", "other")


@pytest.mark.parametrize("names", IN_FLIGHT)
def test_requests_in_flight_have_twins_of_their_own(names: str) -> None:
    reading = read_page(page(*legacy(), *in_flight([3, 4], name=names))).reading
    assert reading.in_flight == 7


def test_of_twins_the_first_counts_and_none_is_added() -> None:
    lines = [
        *current(),
        *in_flight([7], name="inference_objective_running_requests"),
        *in_flight([3, 4]),
        *queue([5], prefix="inference_extension"),
        *queue([2, 3]),
        *flow_control(0.5),
        'inference_extension_flow_control_pool_saturation{inference_pool="llama"} 0.7',
        'llm_d_inference_scheduler_datalayer_poll_errors_total{source_type="metrics-data-source"} 9',
        'llm_d_epp_datalayer_poll_errors_total{source_type="metrics-data-source"} 8',
    ]
    reading = read_page(page(*lines)).reading
    assert (reading.in_flight, reading.flow_control_queue, reading.pool_saturation) == (7, 5, 0.5)
    assert reading.poll_errors == 8


@pytest.mark.parametrize("prefix", ["llm_d_epp", "llm_d_router_epp", "inference_extension"])
def test_flow_control_in_every_dialect(prefix: str) -> None:
    saturation = f'{prefix}_flow_control_pool_saturation{{inference_pool="llama"}} 1.5'
    reading = read_page(page(*legacy(), *queue([4, 6], prefix=prefix), saturation)).reading
    assert (reading.flow_control_queue, reading.pool_saturation) == (10, 1.5)
