"""What is wrong with a page has a reason code, and spoils no more than it must."""

import pytest

from grid.model import Problem, Reading, Reason
from grid.signals.scan import ScanResult, compare, read_page
from tests.signals.pages import GO_LINES, current, flow_control, in_flight, legacy, page, queue


def codes(result: ScanResult) -> list[Reason]:
    return [problem.code for problem in result.problems]


class TestNoPage:
    @pytest.mark.parametrize(
        ("body", "word"),
        [
            (b"<!DOCTYPE html>\n<html><body><pre>\nllm 1\n</pre></body></html>\n", "html"),
            (b"\xef\xbb\xbf  <html></html>", "html"),
            (b'{"status": "ok", "ready": 3}\n', "JSON"),
            (b"[1, 2]", "JSON"),
            (b"\x0a\x05hello\x12\x03abc\x00\x01", "binary"),
            (b"It works!\nThis is the default page.\n", "It works!"),
            (b"Unauthorized", "Unauthorized"),
        ],
    )
    def test_what_is_no_metrics_page(self, body: bytes, word: str) -> None:
        result = read_page(body)
        assert codes(result)[0] is Reason.NOT_METRICS
        assert word in result.problems[0].detail
        assert result.unusable is result.problems[0]
        assert result.reading == Reading()

    @pytest.mark.parametrize("body", [b"", b"\n\n", b"# HELP a b\n# TYPE a gauge\n", b"# EOF\n", b" \r\n"])
    def test_empty(self, body: bytes) -> None:
        result = read_page(body)
        assert codes(result) == [Reason.EMPTY_PAGE]
        assert result.unusable is not None

    def test_metrics_of_another_program(self) -> None:
        result = read_page(page(*GO_LINES))
        assert codes(result) == [Reason.METRIC_MISSING]
        assert result.unusable is not None

    def test_a_pool_that_is_named_and_no_pool_at_all(self) -> None:
        assert codes(read_page(page(*GO_LINES), pool="llama")) == [Reason.METRIC_MISSING]


class TestBadValues:
    @pytest.mark.parametrize(
        "value", ["NaN", "-nan", "nan", "+Inf", "-Inf", "Inf", "-3", "1e309", "1_000", "0x10", "", "abc", "3 4 5 6"]
    )
    def test_each_is_no_value_and_harms_no_other(self, value: str) -> None:
        result = read_page(page(*current(queue=value)))
        assert result.reading.average_queue_size is None
        assert (result.reading.average_running_requests, result.reading.ready) == (6.5, 3)
        assert codes(result) == [Reason.BAD_VALUE]
        assert "llm_d_epp_average_queue_size" in result.problems[0].detail

    @pytest.mark.parametrize("missing", ["queue", "running", "kv"])
    @pytest.mark.parametrize("prefix", ["llm_d_epp", "llm_d_router_epp"])
    def test_a_mean_that_is_not_there_is_said_and_harms_no_other(self, missing: str, prefix: str) -> None:
        names = {
            "queue": "average_queue_size",
            "running": "average_running_requests",
            "kv": "average_kv_cache_utilization",
        }
        result = read_page(page(*current(prefix=prefix, **{missing: None})))  # type: ignore[arg-type]
        assert result.problems == (Problem(Reason.METRIC_MISSING, f"no {prefix}_{names[missing]} on the page"),)
        assert (result.reading.ready, result.unusable) == (3, None)

    def test_a_ready_count_that_is_none_makes_the_means_unknown(self) -> None:
        result = read_page(page(*current(ready="NaN")))
        assert (result.reading.ready, result.reading.average_queue_size) == (None, None)
        assert codes(result) == [Reason.BAD_VALUE]
        assert result.unusable is None

    def test_a_count_must_be_whole(self) -> None:
        result = read_page(page(*current(ready=2.5)))
        assert result.reading.ready is None
        assert codes(result) == [Reason.BAD_VALUE]

    @pytest.mark.parametrize(
        ("value", "number"), [("3.0", 3), ("+3", 3), ("3e0", 3), ("0.3e1", 3), ("-0", 0), ("3 1700000000000", 3)]
    )
    def test_spellings(self, value: str, number: float) -> None:
        result = read_page(page(*current(queue=value)))
        assert result.reading.average_queue_size == number
        assert str(result.reading.average_queue_size) == str(float(number))
        assert result.problems == ()

    def test_bad_values_in_a_family_that_is_not_read_are_nobodys_business(self) -> None:
        assert read_page(page(*legacy(queue="NaN"), *current())).problems == ()

    @pytest.mark.parametrize(
        "line",
        [
            'llm_d_epp_ready_endpoints{name="llama} 3',
            'llm_d_epp_ready_endpoints{name="llama"',
            'llm_d_epp_ready_endpoints{name="llama"}',
            "llm_d_epp_ready_endpoints{name=llama} 3",
            'llm_d_epp_ready_endpoints{"name"="llama"} 3',
        ],
    )
    def test_a_garbled_wanted_line(self, line: str) -> None:
        result = read_page(page(*current(ready=None), line))
        assert codes(result) == [Reason.METRIC_MISSING, Reason.BAD_VALUE]
        assert result.reading.ready is None

    def test_only_a_garbled_line_of_the_pool(self) -> None:
        result = read_page(page("go_goroutines 1", "llm_d_epp_ready_endpoints{ 3"))
        assert codes(result) == [Reason.METRIC_MISSING]
        assert "llm_d_epp_ready_endpoints" in result.problems[0].detail

    def test_a_garbled_line_makes_a_sum_unknown(self) -> None:
        result = read_page(page(*current(), *queue([1, 2]), "llm_d_epp_flow_control_queue_size{oops 3"))
        assert result.reading.flow_control_queue is None
        assert codes(result) == [Reason.BAD_VALUE]

    def test_what_stands_on_a_page_is_shown_short_and_printable(self) -> None:
        line = 'llm_d_epp_request_running{fairness_id="\x1b[31m' + "x" * 5000 + '"} NaN'
        detail = read_page(page(*current(), line)).problems[0].detail
        assert detail.isprintable()
        assert len(detail) < 200


class TestHarmless:
    GARBAGE = (
        "# TYPE go_goroutines counter",
        "# TYPE go_goroutines gauge",
        "# TYPE llm_d_epp_ready_endpoints counter",
        "# TYPE llm_d_epp_ready_endpoints gauge",
        "# HELP llm_d_epp_ready_endpoints twice",
        "llm_d_epp_ready_endpoints_total 7",
        "llm_d_epp_ready_endpoints: 9",
        'x{a="b} 1',
        "}{ not a line",
        "\x00\xff",
        'other{fairness_id="a\\nllm_d_epp_ready_endpoints{name=\\"llama\\"} 99"} 1',
        'other{fairness_id="llm_d_epp_ready_endpoints 99"} 1',
        "go_goroutines NaN",
        "",
        "   ",
    )

    @pytest.mark.parametrize("before", [True, False])
    def test_garbage_in_other_families(self, before: bool) -> None:
        lines = [*self.GARBAGE, *current()] if before else [*current(), *self.GARBAGE]
        assert read_page(page(*lines)) == read_page(page(*current()))

    def test_repeated_type_lines_in_the_middle_of_ours(self) -> None:
        lines = [part for line in current() for part in ("# TYPE llm_d_epp_x gauge", line, "# TYPE llm_d_epp_x gauge")]
        assert read_page(page(*lines)) == read_page(page(*current()))

    @pytest.mark.parametrize("end", ["\r\n", "\n"])
    def test_line_ends_of_other_systems(self, end: str) -> None:
        data = "".join(line + end for line in [*GO_LINES, *current()]).encode()
        assert read_page(data) == read_page(page(*current()))

    def test_a_byte_order_mark(self) -> None:
        assert read_page(b"\xef\xbb\xbf" + page(*current())) == read_page(page(*current()))


class TestDuplicates:
    def test_of_equal_series_the_first_counts(self) -> None:
        result = read_page(page(*current(), 'llm_d_epp_ready_endpoints{name="llama"} 9'))
        assert result.reading.ready_endpoints == 3
        assert codes(result) == [Reason.DUPLICATE_SERIES]

    def test_the_order_of_labels_makes_no_other_series(self) -> None:
        one = 'llm_d_epp_flow_control_queue_size{fairness_id="a",inference_pool="llama",model_name="m"} 3'
        same = 'llm_d_epp_flow_control_queue_size{model_name="m",inference_pool="llama",fairness_id="a"} 3'
        result = read_page(page(*current(), one, same))
        assert result.reading.flow_control_queue == 3
        assert codes(result) == [Reason.DUPLICATE_SERIES]

    def test_series_that_are_summed_or_counted_count_once(self) -> None:
        lines = [*current(), *in_flight([3, 4]), *flow_control()]
        result = read_page(page(*lines, *in_flight([3, 4]), current()[-1]))
        assert (result.reading.in_flight, result.reading.ready_live) == (7, 3)
        assert codes(result) == [Reason.DUPLICATE_SERIES] * 2

    def test_the_same_pool_under_two_sets_of_labels(self) -> None:
        result = read_page(page(*current(), 'llm_d_epp_average_queue_size{instance="b",name="llama"} 9'))
        assert result.reading.average_queue_size == 2
        assert codes(result) == [Reason.DUPLICATE_SERIES]


class TestEndings:
    def test_a_last_line_without_end_is_not_read(self) -> None:
        """A page cut inside a number reads well: 123 becomes 12."""
        result = read_page(page(*current(kv=None)) + b'llm_d_epp_average_kv_cache_utilization{name="llama"} 0.4')
        assert result.reading.kv_cache_utilization is None
        assert codes(result) == [Reason.METRIC_MISSING, Reason.TRUNCATED]
        assert result.unusable is None

    def test_a_page_of_one_unfinished_line(self) -> None:
        result = read_page(b'llm_d_epp_ready_endpoints{name="llama"} 1')
        assert codes(result) == [Reason.METRIC_MISSING, Reason.TRUNCATED]

    def test_cut_inside_a_comment(self) -> None:
        assert codes(read_page(page(*current()) + b"# HELP llm")) == [Reason.TRUNCATED]

    @pytest.mark.parametrize("end", [b"# EOF\n", b"# EOF", b"# EOF\r\n"])
    def test_openmetrics(self, end: bytes) -> None:
        result = read_page(page(*current()) + end, content_type="application/openmetrics-text; version=1.0.0")
        assert result.problems == ()

    def test_openmetrics_without_its_end_is_no_total_loss(self) -> None:
        result = read_page(page(*current()), content_type="application/openmetrics-text; version=1.0.0")
        assert codes(result) == [Reason.TRUNCATED]
        assert result.reading.ready == 3
        assert result.unusable is None

    @pytest.mark.parametrize("kind", [None, "text/plain; version=0.0.4", "text/html"])
    def test_plain_text_needs_no_end_mark(self, kind: str | None) -> None:
        assert read_page(page(*current()), content_type=kind).problems == ()

    def test_openmetrics_numbers_and_exemplars(self) -> None:
        errors = (
            'llm_d_epp_datalayer_poll_errors_total{source_type="x"} 17.0 1700000000.5 # {trace_id="a b}"} 1.0 1.7e9'
        )
        assert read_page(page(*current(ready="3.0"), errors)).reading.poll_errors == 17


class TestCompare:
    def test_nothing_new(self) -> None:
        reading = Reading(started_at=100.0, poll_errors=5)
        assert compare(reading, reading) == ()
        assert compare(Reading(), reading) == ()
        assert compare(reading, Reading()) == ()
        assert compare(reading, Reading(started_at=100.0)) == ()

    @pytest.mark.parametrize("moved", [-2.0, -1.0, 0.01, 1.0, 2.0])
    def test_a_clock_that_is_set_right_is_no_restart(self, moved: float) -> None:
        assert compare(Reading(started_at=100.0), Reading(started_at=100.0 + moved)) == ()

    @pytest.mark.parametrize("moved", [-50.0, 2.5, 3000.0])
    def test_another_start(self, moved: float) -> None:
        (problem,) = compare(Reading(started_at=1e9, poll_errors=3), Reading(started_at=1e9 + moved, poll_errors=9))
        assert problem.code is Reason.RESTARTED

    def test_a_counter_that_falls_is_another_start(self) -> None:
        (problem,) = compare(Reading(poll_errors=9), Reading(poll_errors=2))
        assert problem.code is Reason.RESTARTED

    @pytest.mark.parametrize(("before", "after"), [(3, 8), (None, 5)])
    def test_new_poll_errors(self, before: float | None, after: float) -> None:
        """The series does not exist before the first error."""
        (problem,) = compare(Reading(started_at=7.0, poll_errors=before), Reading(started_at=7.0, poll_errors=after))
        assert problem.code is Reason.POLL_ERRORS
        assert problem.detail.startswith("5 more")
