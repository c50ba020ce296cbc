"""What the scan costs: ratios to a peer in the same run, with room for a busy machine."""

import gzip
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import thread_time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from grid.signals.scan import PageScan, read_page


def best(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        started = thread_time()
        work()
        found.append(thread_time() - started)
    return min(found)


def test_the_40_mb_page_costs_at_most_four_times_its_decompression(shared_fixtures: Path) -> None:
    packed = (shared_fixtures / "epp" / "v0.10-big.txt.gz").read_bytes()
    peer = best(lambda: gzip.decompress(packed), 5)
    assert best(lambda: read_page(packed), 5) <= 4 * peer


def test_the_40_mb_page_needs_no_memory_of_its_size(shared_fixtures: Path) -> None:
    packed = (shared_fixtures / "epp" / "v0.10-big.txt.gz").read_bytes()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        read_page(packed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 8_000_000


@pytest.mark.parametrize("name", ["main-fc.busy.txt", "v0.10-fc.busy.txt"])
def test_an_idle_page_is_read_far_faster_than_it_can_be_parsed(shared_fixtures: Path, name: str) -> None:
    data = (shared_fixtures / "epp" / name).read_bytes()
    peer = best(lambda: list(text_string_to_metric_families(data.decode())), 8)
    assert best(lambda: read_page(data), 200) * 30 <= peer


def test_one_slice_of_a_page_holds_the_loop_only_briefly(shared_fixtures: Path) -> None:
    """What the scraper does between two turns of the loop: 256 KiB of the dearest page there is."""
    page = gzip.decompress((shared_fixtures / "epp" / "v0.10-big.txt.gz").read_bytes())
    size = 256 * 1024
    took = []
    for start in range(0, len(page), size):
        piece = page[start : start + size]
        took.append(best(partial(PageScan().feed, piece), 3))
    assert max(took) < 0.02
