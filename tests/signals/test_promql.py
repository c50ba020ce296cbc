"""Queries and answers, without a server."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.model import Reason, ScrapeError
from grid.signals.dialects import DIALECTS, WANTED
from grid.signals.promql import (
    Answer,
    Series,
    choose_target,
    history_query,
    page_of,
    parse_interval,
    parse_vector,
    quoted,
    sampled_at,
    selector,
    signals_query,
)
from grid.signals.scan import read_page

label_values = st.text(max_size=20)
label_names = st.from_regex(r"[a-z][a-z_]{2,10}", fullmatch=True).filter(
    lambda name: name not in {"name", "stage", "detector"}
)


def ready(pool: str, value: str = "2", **labels: str) -> Series:
    return Series("llm_d_epp_ready_endpoints", {"name": pool, **labels}, value)


def test_every_signal_is_asked_for() -> None:
    query = signals_query({"cluster": "west"})
    for name in WANTED:
        assert name in query
    assert len(query) < 4000  # proxies in between take request lines of 8 kB, and quoting adds a fifth


def test_selectors() -> None:
    assert selector({}) == "{}"
    assert selector({"b": "2", "a": 'x"\\\n'}) == '{a="x\\"\\\\\\n",b="2"}'
    assert selector({"a": "1"}, ["x", "y"]) == '{__name__=~"x|y",a="1"}'
    assert history_query("x", {"a": "1"}) == 'x{a="1"}[300s]'


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_a_quoted_string_ends_where_it_should(text: str) -> None:
    """Read it as Prometheus does: a backslash and what follows is one character, the next quote ends it."""
    inside = quoted(text)[1:-1]
    position = 0
    while position < len(inside):
        assert inside[position] not in '"\n'
        position += 2 if inside[position] == "\\" else 1
    assert position == len(inside)


@given(
    pool=label_values,
    target=st.dictionaries(label_names, label_values, max_size=4),
    shadow=st.none() | st.text(string.ascii_letters, max_size=5),
)
def test_a_page_comes_back_from_its_series(pool: str, target: dict[str, str], shadow: str | None) -> None:
    """Whatever the pool and the target are called, and whether or not the target hides the page's label."""
    labels = {**target, "name": pool} if shadow is None else {**target, "name": shadow, "exported_name": pool}
    added = target if shadow is None else {**target, "name": shadow}
    gauges = [Series(name, labels, "2") for name in DIALECTS[0].gauges]
    endpoints = [
        Series(DIALECTS[0].per_endpoint, {**labels, "model_server_endpoint": endpoint}, "0") for endpoint in "ab"
    ]
    answer = Answer((*gauges, *endpoints), 0.0)
    assert choose_target(answer, None) == added
    assert choose_target(answer, pool) == added
    reading = read_page(page_of(answer, added), pool=pool).reading
    assert (reading.pool, reading.ready_endpoints, reading.average_queue_size) == (pool, 2, 2)


def test_series_of_other_targets_stay_out() -> None:
    mine, other = {"instance": "a", "job": "epp"}, {"instance": "b", "job": "epp"}
    answer = Answer(
        (
            ready("llama", **mine),
            Series("llm_d_epp_request_running", mine, "3"),
            Series("llm_d_epp_request_running", other, "100"),
            Series("process_start_time_seconds", other, "5"),
        ),
        0.0,
    )
    reading = read_page(page_of(answer, mine)).reading
    assert (reading.in_flight, reading.started_at) == (3, None)


def test_summed_series_lose_labels_that_the_target_has_too() -> None:
    target = {"instance": "a", "model_name": "llama"}
    answer = Answer((ready("p", **target), Series("llm_d_epp_request_running", {"instance": "a"}, "3")), 0.0)
    assert choose_target(answer, "p") == target
    assert read_page(page_of(answer, target)).reading.in_flight == 3


def test_many_targets_and_many_pools_are_named_in_part() -> None:
    answer = Answer(tuple(ready(f"p{number}", instance=f"i{number}", job="epp") for number in range(9)), 0.0)
    with pytest.raises(ScrapeError) as error:
        choose_target(answer, None)
    assert error.value.reason is Reason.PROMETHEUS_SEVERAL
    assert error.value.message == (
        '9 targets answer: instance="i0" | instance="i1" | instance="i2" | instance="i3" | ...'
    )
    with pytest.raises(ScrapeError) as error:
        choose_target(answer, "q")
    assert error.value.reason is Reason.POOL_MISSING
    assert error.value.message.endswith('"p7" and more')


def test_the_oldest_time_of_the_family_counts() -> None:
    target = {"instance": "a"}

    def time(name: str, value: str, instance: str = "a") -> Series:
        return Series(name, {"name": "p", "instance": instance}, value, is_time=True)

    answer = Answer(
        (
            time("llm_d_epp_ready_endpoints", "100"),
            time("llm_d_epp_per_endpoint_queue_size", "90"),
            time("llm_d_epp_per_endpoint_queue_size", "10", instance="b"),
            time("inference_pool_ready_pods", "50"),
        ),
        120.0,
    )
    assert sampled_at(answer, target, "llm_d_epp") == 90
    assert sampled_at(answer, target, "inference_pool") == 50
    assert sampled_at(answer, target, "llm_d_router_epp") is None


def test_parts_of_an_answer_carry_their_names_in_labels() -> None:
    answer = parse_vector(
        [
            {"metric": {"__name__": "llm_d_epp_ready_endpoints", "name": "p"}, "value": [7.5, "2"]},
            {"metric": {"grid_part": "llm_d_epp_request_running", "job": "epp"}, "value": [7.5, "3"]},
            {"metric": {"grid_time_of": "llm_d_epp_ready_endpoints", "name": "p"}, "value": [7.5, "7.25"]},
            {"metric": {"__name__": "something_else"}, "value": [7.5, "1"]},
        ]
    )
    assert answer.evaluated_at == 7.5
    assert answer.series == (
        Series("llm_d_epp_ready_endpoints", {"name": "p"}, "2"),
        Series("llm_d_epp_request_running", {"job": "epp"}, "3"),
        Series("llm_d_epp_ready_endpoints", {"name": "p"}, "7.25", is_time=True),
    )


def test_the_interval_is_the_usual_gap() -> None:
    mine = {"metric": {"instance": "a", "name": "p"}, "values": [[0, "1"], [15, "1"], [30, "1"], [90, "1"], [105, "1"]]}
    other = {"metric": {"instance": "b", "name": "p"}, "values": [[0, "1"], [1, "1"], [2, "1"], [3, "1"], [4, "1"]]}
    assert parse_interval([mine, other], {"instance": "a"}) == 15
    assert parse_interval([mine], {"instance": "c"}) == 0
    assert parse_interval([{**mine, "values": [[0, "1"]]}], {"instance": "a"}) == 0
    with pytest.raises(ValueError, match="validation error"):
        parse_interval([{"metric": {}, "value": [0, "1"]}], {})
