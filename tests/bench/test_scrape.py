"""The bench of scraping runs against a server in another process and says what it measured."""

from pathlib import Path

import pytest

from grid.sim.bench import scrape
from grid.sim.bench.parse import simulated


def test_rows() -> None:
    single, with_token, fleet, growth = scrape.run(scrapes=10, providers=20, interval=0.2, seconds=0.6)
    for row in (single, with_token):
        assert row["bytes"] == len(simulated(0))
        assert row["scrapes"] == 10
        assert 0 < row["ratio"] < 2
        assert row["cpu_ms"] > 0
        assert row["load"] == "closed loop, one after the other"
    assert fleet["case"] == "20 providers every 0.2 s"
    assert fleet["errors"] == 0
    assert fleet["scrapes"] + fleet["skipped"] >= 40
    assert 0 < fleet["cores"] < 1.5
    assert fleet["rss_mb"] > 10
    assert fleet["load"] == "open loop, each on its beat"
    assert 0 < fleet["p50_ms"] <= fleet["p99_ms"]
    assert fleet["ratio"] == pytest.approx(fleet["peer_cpu_ms"] / fleet["cpu_ms"], abs=0.02)
    assert {row["better"] for row in (single, with_token, fleet)} == {"more"}
    assert growth["case"] == "growth of a round of scrapes with providers"
    # One client for all of them was quadratic.
    assert 0.5 < growth["exponent"] < 1.5


def test_a_page_of_ones_own(tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_bytes(simulated(2))
    rows = scrape.run(page, scrapes=3, providers=0)
    assert [row["bytes"] for row in rows] == [len(simulated(2))] * 2


def test_a_page_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="page server ended"):
        scrape.run(tmp_path / "none.txt", scrapes=1, providers=0)
