"""A page streams through in constant memory, and how it is cut makes no difference."""

import itertools
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.model import Reason
from grid.signals import tally
from grid.signals.dialects import WANTED
from grid.signals.exposition import MAX_LINE, OVERLONG, LineReader, line_pattern
from grid.signals.scan import PageScan, ScanResult, read_page
from grid.signals.tally import MAX_REMEMBERED
from tests.signals.pages import GO_LINES, current, flow_control, in_flight, legacy, page, queue

FULL = page(
    *GO_LINES,
    *legacy(running=6.5),
    *current(),
    *flow_control(0.5, 1),
    *queue([3, "NaN", 4], prefix="inference_extension"),
    *queue([3, 4]),
    *in_flight([1, 2]),
    "process_start_time_seconds 1.79598333811e+09",
)
PATTERN = line_pattern(WANTED)


def scan(chunks: list[bytes], **options: str) -> ScanResult:
    scanner = PageScan(**options)
    for chunk in chunks:
        scanner.feed(chunk)
    return scanner.finish()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


places = st.lists(st.integers(min_value=0, max_value=1 << 30), max_size=12)
odd_lines = st.sampled_from(
    [
        *current(),
        *in_flight([1]),
        *in_flight(["oops"]),
        "# a comment",
        "#",
        "",
        "\r",
        "go_goroutines 1",
        "<html>",
        "word and word",
        "llm_d_epp_ready_endpoints",
        "llm_d_epp_ready_endpoints ",
        "llm_d_epp_ready_endpoints{",
        'llm_d_epp_request_running{fairness_id="' + "x" * 90 + '"} 5',
        "z" * 90,
        "# " + "z" * 90,
        "z 1" + " " * 90,
    ]
)
odd_pages = st.builds(
    lambda bom, lines, end: bom + "\n".join(lines).encode() + end,
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(odd_lines, max_size=12),
    st.sampled_from([b"", b"\n", b"\r\n", b"\n# EOF", b"\n# EOF\n"]),
)


@given(places)
def test_any_split_of_a_good_page(where: list[int]) -> None:
    assert scan(cut(FULL, where)) == read_page(FULL)


@given(odd_pages, places)
def test_any_split_of_any_page(data: bytes, where: list[int]) -> None:
    assert scan(cut(data, where)) == scan([data])


@given(odd_pages, places)
def test_any_split_with_lines_over_the_limit(data: bytes, where: list[int]) -> None:
    def read(chunks: list[bytes]) -> tuple[object, ...]:
        reader = LineReader(PATTERN, max_line=80)
        lines = [line for chunk in chunks for line in reader.feed(chunk)]
        reader.finish()
        return lines, reader.size, reader.has_samples, reader.has_content, bool(reader.cut), reader.ends_in_eof

    assert read(cut(data, where)) == read([data])


def test_byte_by_byte() -> None:
    assert scan([FULL[place : place + 1] for place in range(len(FULL))]) == read_page(FULL)


@pytest.mark.parametrize("size", [MAX_LINE - 200, MAX_LINE + 1, 3 * MAX_LINE])
@pytest.mark.parametrize("step", [1 << 12, 1 << 16, 1 << 30])
def test_a_very_long_line(size: int, step: int) -> None:
    long = 'llm_d_epp_request_running{fairness_id="' + "x" * size + '"} 5'
    data = page(*current(), long, *in_flight([2]))
    result = scan([data[start : start + step] for start in range(0, len(data), step)])
    fits = size < MAX_LINE
    assert result.reading.in_flight == (7 if fits else None)
    assert [problem.code for problem in result.problems] == ([] if fits else [Reason.BAD_VALUE])
    assert result.reading.ready == 3


def test_an_endless_line_is_passed_over() -> None:
    reader = LineReader(PATTERN)
    for _ in range(8):
        assert reader.feed(b"y" * MAX_LINE) == []
    name, _, _, rest = reader.feed(b"\n" + current()[-1].encode() + b"\n")[0]
    assert (name, rest) == (b"llm_d_epp_per_endpoint_queue_size", b"")
    assert reader.feed(b"llm_d_epp_request_running " + b"1" * MAX_LINE * 2) == [
        (b"llm_d_epp_request_running", b"", b"", OVERLONG)
    ]
    reader.finish()
    assert reader.cut


def endless(kind: str, size: int) -> Iterator[bytes]:
    """A hostile page in chunks: ever new series of a metric that is read."""
    number = sent = 0
    while sent < size:
        lines = []
        for _ in range(400):
            number += 1
            if kind == "tenants":
                lines += in_flight([1], name="llm_d_epp_request_running")
                lines[-1] = lines[-1].replace("tenant-0", f"tenant-{number}-{'x' * 80}")
            elif kind == "pools":
                lines.append(f'llm_d_epp_ready_endpoints{{name="pool-{number}-{"x" * 80}"}} 1')
            else:
                lines.append(f"# HELP family_{number} " + "x" * 80)
        chunk = page(*lines)
        sent += len(chunk)
        yield chunk


@pytest.mark.parametrize("kind", ["tenants", "pools", "comments"])
def test_memory_does_not_grow_with_the_page(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered has a bound: once it is reached, a page may go on for ever."""
    monkeypatch.setattr(tally, "MAX_REMEMBERED", 5000)
    tally._place.cache_clear()
    scanner = PageScan()
    tracemalloc.start()
    try:
        chunks = endless(kind, 8_000_000)
        while scanner.size < 4_500_000:
            scanner.feed(next(chunks))
        before, _ = tracemalloc.get_traced_memory()
        for chunk in chunks:
            scanner.feed(chunk)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert scanner.size > 8_000_000
    assert after - before < 300_000
    assert peak < 20_000_000


def test_more_series_than_are_remembered_are_still_added() -> None:
    lines = (f'llm_d_epp_request_running{{fairness_id="{number}"}} 1' for number in range(MAX_REMEMBERED + 500))
    result = read_page(page(*current(), *lines))
    assert result.reading.in_flight == MAX_REMEMBERED + 500
    assert result.problems == ()
