"""The bench of the whole way: at a reduced size, and what becomes of its notes."""

import random
from itertools import pairwise
from typing import Any

import pytest

from grid.signals.scan import read_page
from grid.sim.bench.cycle import PARTS, Setup, drawn, run, traced
from grid.sim.bench.cycle_sites import pages


@pytest.mark.real_server
def test_a_row_follows_every_change_to_every_gateway() -> None:
    setup = Setup(3, instances=2, sites=8, models=2, interval=0.3, rate=4.0, seconds=1.5)
    (row,) = run(setups=[setup])
    assert (row["gateways"], row["instances"], row["processes"], row["candidates"]) == (3, 2, 1, 16)
    assert row["changes"] > 0
    for part in (*PARTS, "total", "beyond_scrape_wait"):
        assert 0 <= row[f"{part}_p50_ms"] <= row[f"{part}_p99_ms"]
    assert row["beyond_scrape_wait_p50_ms"] <= row["total_p50_ms"]
    assert row["scrape_wait_p99_ms"] <= row["total_p99_ms"]
    assert row["join_p50_ms"] >= 19, "news of 20 ms is joined"
    assert row["ratio"] > 0 < row["peer_p50_ms"]


def test_changes_are_drawn_beforehand_and_none_before_its_page_was_read() -> None:
    setup = Setup(1, interval=0.5, rate=50.0, seconds=20.0)
    sites = [f"site-{number}" for number in range(5)]
    changes = drawn(setup, sites, 100.0, random.Random(1))
    assert changes == drawn(setup, sites, 100.0, random.Random(1))
    assert all(100.0 <= at <= 120.0 for at, _ in changes)
    for site in sites:
        mine = [at for at, name in changes if name == site]
        assert len(mine) > 5
        assert min(after - before for before, after in pairwise(mine)) >= 2.5 * 0.5


def test_both_pages_of_a_site_tell_what_it_holds() -> None:
    quiet, full = (read_page(page, pool="site-1").reading for page in pages("v0.10", "site-1"))
    assert (quiet.held_live, full.held_live) == (4, 20)
    assert quiet.ready == full.ready == 2


SEEN = {"changes": [("a", 10.0)], "scrapes": [("a", 9.9, 0), ("a", 10.9, 1), ("a", 11.9, 1)]}
TOLD: dict[str, Any] = {
    "samples": [("a", 9.91), ("a", 10.92), ("a", 11.92)],
    "cycles": [(9.95, 9.96, 9.97), (10.95, 10.96, 10.98), (11.95, 11.96, 11.97)],
    "publications": [
        (9.98, 9.99, {"edge": (1, 1, True), "rim": (1, 1, True)}),
        (10.99, 11.0, {"edge": (1, 2, True), "rim": (1, 2, True)}),
    ],
}
EDGE = ("edge", [(1, 1, 9.995), (1, 2, 11.01)])


def test_the_parts_of_a_change_add_up_to_its_way_to_the_last_gateway() -> None:
    (change,) = traced(SEEN, TOLD, [EDGE, ("rim", [(1, 1, 9.995), (1, 2, 11.02)])])
    assert change.total == pytest.approx(1.02)
    assert sum(change.parts.values()) == pytest.approx(change.total)
    assert change.parts == pytest.approx(
        {
            "scrape_wait": 0.9, "scrape": 0.02, "join": 0.03, "decide": 0.01, "render": 0.02, "publish": 0.02,
            "apply": 0.02,
        }
    )  # fmt: skip


def test_a_gateway_may_pick_from_a_document_before_the_daemon_hears_that_it_is_out() -> None:
    (change,) = traced(SEEN, TOLD, [("edge", [(1, 1, 9.995), (1, 2, 10.995)])])
    assert change.parts["apply"] == 0
    assert change.total == pytest.approx(0.995)


def test_a_change_that_got_lost_is_no_figure() -> None:
    with pytest.raises(RuntimeError, match="never applied"):
        traced(SEEN, TOLD, [("edge", [(1, 1, 9.995)])])
    with pytest.raises(RuntimeError, match="change 1 of a never came to a publication"):
        traced(SEEN, TOLD | {"publications": TOLD["publications"][:1]}, [EDGE])
    unchanged = [(10.99, 11.0, {"edge": (1, 2, False)})]
    with pytest.raises(RuntimeError, match="change 1 of a changed no document"):
        traced(SEEN, TOLD | {"publications": unchanged}, [EDGE])
