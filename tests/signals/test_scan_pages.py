"""Pages of real EPPs, and pages of old ones written by hand, give what is true of their pools."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from grid.model import Reading, ReadySource, Reason
from grid.signals.scan import Decompressor, PageScan, ScanResult, read_page
from tests.signals.pages import current, flow_control, in_flight, legacy, page, queue

PAGES = (
    "main-fc.busy.txt", "main-fc.zero-ready-frozen.txt", "v0.10-big.txt.gz", "v0.10-fc.busy.txt", "v0.10-fc.full.txt",
    "v0.10-fc.gzip.txt.gz", "v0.10-fc.idle.txt", "v0.10-fc.no-endpoints.txt", "v0.10-fc.one-of-three-dead.txt",
    "v0.10-fc.openmetrics.txt", "v0.10-traffic.after.txt", "v0.10-traffic.queueing.txt", "v0.9.busy.txt",
    "v0.9.first-seconds.txt", "v0.9.idle.txt", "v0.9.never-ready.txt", "v0.9.zero-ready-frozen.txt",
)  # fmt: skip


def codes(result: ScanResult) -> list[Reason]:
    return [problem.code for problem in result.problems]


def as_read(reading: Reading) -> dict[str, Any]:
    live = reading.held_live
    return {
        "average_queue_size": reading.average_queue_size,
        "average_running_requests": reading.average_running_requests,
        "flow_control_queue": reading.flow_control_queue,
        "held": live if live is not None else reading.held_engine,
        "kv_cache_utilization": reading.kv_cache_utilization,
        "pool_saturation": reading.pool_saturation,
        "ready": reading.ready,
        "ready_endpoints": reading.ready_endpoints,
        "ready_live": reading.ready_live,
    }


def test_the_index_lists_these_pages(shared_fixtures: Path) -> None:
    assert set(PAGES) == set(json.loads((shared_fixtures / "epp" / "index.json").read_text()))


@pytest.mark.parametrize("name", PAGES)
def test_real_pages(shared_fixtures: Path, name: str) -> None:
    entry = json.loads((shared_fixtures / "epp" / "index.json").read_text())[name]
    expected = {key: value for key, value in entry["reads"].items() if key != "usable"}
    if name == "v0.10-big.txt.gz":
        # The index says null, an oversight of its reader: two endpoints are listed and none is stale.
        expected["ready_live"] = 2
    headers = entry.get("headers", {})
    scan = PageScan(content_type=headers.get("Content-Type"))
    decompressor = Decompressor("gzip" if name.endswith(".gz") else "")
    for piece in decompressor.pieces((shared_fixtures / "epp" / name).read_bytes()):
        scan.feed(piece)
    decompressor.finish()
    result = scan.finish()
    assert as_read(result.reading) == expected
    assert Reason.BAD_VALUE not in codes(result)
    assert Reason.TRUNCATED not in codes(result)


def test_a_gzipped_page_in_memory_is_unpacked(shared_fixtures: Path) -> None:
    data = (shared_fixtures / "epp" / "v0.10-fc.gzip.txt.gz").read_bytes()
    assert read_page(data) == read_page(gzip.decompress(data))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v0.10-fc.busy.txt", []),
        ("v0.10-traffic.queueing.txt", []),
        ("v0.9.first-seconds.txt", [Reason.METRIC_MISSING]),
        ("v0.9.never-ready.txt", [Reason.ENDPOINTS_STALE, Reason.NO_READY_ENDPOINTS]),
        ("v0.9.zero-ready-frozen.txt", [Reason.ENDPOINTS_STALE, Reason.NO_READY_ENDPOINTS, Reason.MEANS_FROZEN]),
        ("main-fc.zero-ready-frozen.txt", [Reason.ENDPOINTS_STALE, Reason.NO_READY_ENDPOINTS, Reason.MEANS_FROZEN]),
        ("v0.10-fc.no-endpoints.txt", [Reason.NO_READY_ENDPOINTS, Reason.MEANS_FROZEN]),
        ("v0.10-fc.one-of-three-dead.txt", [Reason.ENDPOINTS_STALE]),
        ("v0.10-fc.gzip.txt.gz", [Reason.MEANS_FROZEN]),
    ],
)
def test_problems_of_real_pages(shared_fixtures: Path, name: str, expected: list[Reason]) -> None:
    result = read_page((shared_fixtures / "epp" / name).read_bytes())
    assert codes(result) == expected
    assert (result.unusable is None) == (Reason.METRIC_MISSING not in expected)


class TestOldReleases:
    def test_floored_means(self) -> None:
        """GIE 0.4 to 1.4: the mean queue is cut to a whole number, and nothing says how many requests run."""
        result = read_page(page(*legacy(queue=0, kv=0.5, ready=4, pods=4)))
        reading = result.reading
        assert (reading.dialect, reading.ready, reading.ready_source) == ("inference_pool", 4, ReadySource.EPP)
        assert (reading.average_queue_size, reading.average_running_requests) == (0, None)
        assert reading.held_engine is None
        assert codes(result) == [Reason.MEANS_FLOORED, Reason.READY_MAYBE_FROZEN]
        assert result.unusable is None

    def test_ready_count_that_may_be_frozen(self) -> None:
        """GIE up to 1.2 keeps the ready count too when the endpoints are gone; the page alone cannot tell."""
        result = read_page(page(*legacy(ready=2, pods=0)))
        assert result.reading.ready == 2
        assert codes(result) == [Reason.MEANS_FLOORED, Reason.READY_MAYBE_FROZEN]

    def test_zero_ready_is_believed(self) -> None:
        """GIE 1.3 and later write 0, and 0 is never a frozen value."""
        result = read_page(page(*legacy(ready=0)))
        assert result.reading.ready == 0
        assert result.reading.average_queue_size is None
        assert codes(result) == [
            Reason.ENDPOINTS_STALE,
            Reason.NO_READY_ENDPOINTS,
            Reason.MEANS_FROZEN,
            Reason.MEANS_FLOORED,
        ]

    def test_running_mean_of_gie_1_5(self) -> None:
        result = read_page(page(*legacy(running=7.25, queue=0.75, ready=4, pods=4)))
        assert result.problems == ()
        assert result.reading.held_engine == 32

    def test_no_ready_count_at_all(self) -> None:
        """GIE 0.2 has means and no count, so the means cannot be trusted."""
        result = read_page(page(*legacy(ready=None, pods=0)))
        assert codes(result)[0] is Reason.METRIC_MISSING
        assert result.unusable is not None
        assert (result.reading.ready, result.reading.kv_cache_utilization) == (None, None)

    def test_queue_without_the_pool_label(self) -> None:
        """GIE 1.2 labels its flow-control queue by flow only."""
        flows = [f'inference_extension_flow_control_queue_size{{fairness_id="t{n}",priority="0"}} {n}' for n in (1, 2)]
        assert read_page(page(*legacy(), *flows)).reading.flow_control_queue == 3

    def test_an_epp_without_pool_metrics(self) -> None:
        result = read_page(page("# TYPE go_goroutines gauge", "go_goroutines 9", "process_start_time_seconds 1.7e+09"))
        assert codes(result) == [Reason.METRIC_MISSING]
        assert result.unusable is not None
        assert result.reading.started_at == 1.7e9


class TestReadyEndpoints:
    def test_the_live_count_goes_before_the_gauge(self) -> None:
        reading = read_page(page(*current(ready=3), *flow_control(stale=1))).reading
        assert (reading.ready, reading.ready_source) == (2, ReadySource.LIVE)
        assert (reading.ready_live, reading.ready_endpoints) == (2, 3)

    def test_more_stale_than_listed_is_none_ready(self) -> None:
        """The number of stale endpoints is as of the last detector call; the list may have shrunk since."""
        result = read_page(page(*current(ready=3, endpoints=1), *flow_control(stale=3)))
        assert (result.reading.ready, result.reading.ready_live) == (0, 0)
        assert result.reading.average_queue_size is None
        assert Reason.NO_READY_ENDPOINTS in codes(result)

    @pytest.mark.parametrize("ready", [None, "NaN"])
    @pytest.mark.parametrize("stale", [0, 2])
    def test_none_listed_is_not_none_ready_where_nothing_else_counts_endpoints(self, ready: object, stale: int) -> None:
        """As after an update that renames the ready gauge and the per-endpoint series: missing means unknown."""
        result = read_page(page(*current(ready=ready, endpoints=0), *flow_control(stale=stale)))
        reading = result.reading
        assert (reading.ready, reading.ready_live, reading.ready_source) == (None, None, None)
        assert reading.average_queue_size is None
        assert Reason.NO_READY_ENDPOINTS not in codes(result)
        assert codes(result)[0] is (Reason.METRIC_MISSING if ready is None else Reason.BAD_VALUE)
        assert (result.unusable is not None) is (ready is None)

    def test_none_listed_is_none_ready_beside_the_gauge(self) -> None:
        result = read_page(page(*current(ready=0, queue=None, running=None, kv=None, endpoints=0), *flow_control()))
        assert (result.reading.ready, result.reading.ready_live) == (0, 0)

    def test_listed_endpoints_count_without_the_gauge(self) -> None:
        result = read_page(page(*current(ready=None, endpoints=3), *flow_control(stale=1)))
        assert (result.reading.ready, result.reading.ready_live) == (2, 2)
        assert result.unusable is None

    @pytest.mark.parametrize(
        "signs",
        [
            flow_control(detector="concurrency-detector"),
            [*flow_control(), 'llm_d_epp_flow_control_stale_endpoints{detector="other"} 0'],
            flow_control()[1:],
            [
                *(
                    f'llm_d_epp_flow_control_pool_saturation{{inference_pool="llama",stage="{stage}"}} 0.5'
                    for stage in ("prefill", "decode", "effective")
                ),
                flow_control()[1],
            ],
        ],
        ids=["other detector", "two detectors", "flow control off", "two stages"],
    )
    def test_where_the_live_count_is_only_a_hint_the_gauge_counts(self, signs: list[str]) -> None:
        result = read_page(page(*current(ready=3), *signs))
        assert (result.reading.ready, result.reading.ready_source) == (3, ReadySource.EPP)
        assert result.reading.ready_live is None
        assert codes(result) == [Reason.LIVE_READY_HINT]

    def test_one_stage_is_no_doubt(self) -> None:
        lines = [
            f'llm_d_epp_flow_control_pool_saturation{{inference_pool="llama",stage="{stage}"}} 0.5'
            for stage in ("decode", "effective")
        ]
        reading = read_page(page(*current(), *lines, flow_control()[1])).reading
        assert (reading.ready_live, reading.pool_saturation) == (3, 0.5)

    def test_a_stale_count_without_value_leaves_the_gauge(self) -> None:
        result = read_page(page(*current(), *flow_control(stale="NaN")))
        assert (result.reading.ready, result.reading.ready_source) == (3, ReadySource.EPP)
        assert codes(result) == [Reason.BAD_VALUE]

    def test_the_first_seconds_with_flow_control_are_worth_something(self) -> None:
        result = read_page(page(*current(ready=None, queue=None, running=None, kv=None), *flow_control(0.25)))
        assert codes(result) == [Reason.METRIC_MISSING]
        assert result.unusable is None
        assert (result.reading.ready, result.reading.pool_saturation) == (3, 0.25)

    @pytest.mark.parametrize("lines", [current(endpoints=0), legacy(running=1, pods=0)])
    def test_a_deleted_pool(self, lines: list[str]) -> None:
        result = read_page(page(*lines))
        assert codes(result) == [Reason.POOL_DELETED, Reason.NO_READY_ENDPOINTS, Reason.MEANS_FROZEN]
        assert (result.reading.ready, result.reading.ready_source) == (0, ReadySource.LIVE)
        assert result.reading.ready_endpoints == 3
        assert result.reading.average_queue_size is None

    def test_stale_endpoints_show_without_flow_control_too(self) -> None:
        result = read_page(page(*current(ready=2, endpoints=3)))
        assert [(problem.code, problem.detail) for problem in result.problems] == [(Reason.ENDPOINTS_STALE, "1 of 3")]


class TestOwnCounts:
    def test_a_queue_that_dips_below_zero_is_clamped_after_adding(self) -> None:
        assert read_page(page(*current(), *queue([-2, 5, -1]))).reading.flow_control_queue == 2
        assert read_page(page(*current(), *queue([-2, 1]))).reading.flow_control_queue == 0
        assert read_page(page(*current(), *in_flight([-2, 5]))).reading.in_flight == 3

    def test_absent_is_unknown(self) -> None:
        reading = read_page(page(*current())).reading
        assert (reading.in_flight, reading.flow_control_queue, reading.pool_saturation) == (None, None, None)
        assert (reading.started_at, reading.poll_errors) == (None, None)

    @pytest.mark.parametrize("bad", ["NaN", "+Inf", "x"])
    def test_part_of_a_sum_is_no_sum(self, bad: str) -> None:
        result = read_page(page(*current(), *in_flight([3, bad, 4]), *queue([bad])))
        assert (result.reading.in_flight, result.reading.flow_control_queue) == (None, None)
        assert codes(result) == [Reason.BAD_VALUE, Reason.BAD_VALUE]

    def test_the_stage_effective_counts(self) -> None:
        lines = [
            f'llm_d_epp_flow_control_pool_saturation{{inference_pool="llama",stage="{stage}"}} {value}'
            for stage, value in (("decode", 0.9), ("effective", 0.7), ("prefill", 0.2))
        ]
        assert read_page(page(*current(), *lines)).reading.pool_saturation == 0.7

    def test_stages_without_the_effective_one_are_unknown(self) -> None:
        line = 'llm_d_epp_flow_control_pool_saturation{inference_pool="llama",stage="decode"} 0.9'
        assert read_page(page(*current(), line)).reading.pool_saturation is None

    def test_saturation_is_not_clamped(self) -> None:
        assert read_page(page(*current(), *flow_control(6.2))).reading.pool_saturation == 6.2

    def test_an_epp_without_a_pool_name_in_flow_control(self) -> None:
        """In standalone mode the label is empty while the pool gauges carry a name."""
        lines = [*current("epp-deployment"), *flow_control(0.4, pool=""), *queue([3, 4], pool="")]
        reading = read_page(page(*lines)).reading
        assert (reading.pool_saturation, reading.flow_control_queue, reading.ready_live) == (0.4, 7, 3)

    def test_the_label_that_matches_goes_before_others(self) -> None:
        lines = [*current(), *queue([3], pool="llama"), *queue([40], pool="")]
        assert read_page(page(*lines)).reading.flow_control_queue == 3


class TestSeveralPools:
    LINES = (
        *current("a", ready=1, endpoints=1),
        *current("b", ready=2, endpoints=2),
        *queue([5], pool="a"),
        *queue([70], pool="b"),
        *flow_control(0.1, pool="a"),
        *flow_control(0.9, pool="b")[:1],
        *in_flight([9]),
        "process_start_time_seconds 1.7e+09",
    )

    def test_none_named(self) -> None:
        result = read_page(page(*self.LINES))
        assert codes(result) == [Reason.POOL_AMBIGUOUS]
        assert result.problems[0].detail == "the page has 'a', 'b'"
        assert result.unusable is result.problems[0]
        assert result.reading == Reading()
        assert result.pools == ("a", "b")

    def test_another_named(self) -> None:
        result = read_page(page(*self.LINES), pool="c")
        assert codes(result) == [Reason.POOL_MISSING]
        assert result.problems[0].detail == "'c' is not on the page; it has 'a', 'b'"
        assert result.unusable is not None

    @pytest.mark.parametrize(("pool", "ready", "waiting", "saturation"), [("a", 1, 5, 0.1), ("b", 2, 70, 0.9)])
    def test_one_named(self, pool: str, ready: int, waiting: int, saturation: float) -> None:
        result = read_page(page(*self.LINES), pool=pool)
        reading = result.reading
        assert (reading.pool, reading.ready, reading.ready_source) == (pool, ready, ReadySource.EPP)
        assert (reading.flow_control_queue, reading.pool_saturation) == (waiting, saturation)
        # Whose requests are in flight, and whose process started when, such a page does not say.
        assert (reading.in_flight, reading.started_at) == (None, None)
        assert codes(result) == [Reason.LIVE_READY_HINT]

    def test_flow_control_without_matching_labels_is_nobodys(self) -> None:
        lines = [*current("a"), *current("b"), *queue([5], pool=""), *flow_control(0.5, pool="")]
        reading = read_page(page(*lines), pool="a").reading
        assert (reading.flow_control_queue, reading.pool_saturation) == (None, None)

    def test_many_pools_are_told_in_few_words(self) -> None:
        lines = [line for number in range(2000) for line in current(f"pool-{number:04}", endpoints=0)]
        result = read_page(page(*lines), pool="pool-1999")
        assert result.reading.ready_endpoints == 3
        assert len(result.pools) <= 1025
        ambiguous = read_page(page(*lines))
        assert len(ambiguous.problems[0].detail) < 200
