"""The bench of the scan: what its rows say, and that it holds readings against its peer."""

import dataclasses
import gzip
from pathlib import Path

import pytest

from grid.signals.scan import read_page
from grid.sim.bench import parse


def test_rows_of_simulated_pages() -> None:
    idle, busy, growth = parse.run(tenants=(0, 3), rounds=3)
    assert (idle["case"], busy["case"]) == ("idle", "3 tenants")
    assert 50_000 < idle["bytes"] < busy["bytes"]
    for row in (idle, busy):
        assert row["peer"] == "prometheus_client"
        assert row["p50_us"] <= row["read_us"] * 2
        assert row["ratio"] == pytest.approx(row["peer_us"] / row["p50_us"], rel=0.01)
        assert row["ratio"] > 20
        assert row["better"] == "more"
    assert growth["case"] == "growth of scanning a page with bytes"
    assert growth["exponent"] == pytest.approx(1.0, abs=0.3)


def test_a_large_page_is_held_against_unpacking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "_LARGE", 50_000)
    row, _ = parse.run(tenants=(0,), rounds=3)
    assert (row["case"], row["peer"]) == ("idle, gzipped", "gzip.decompress alone")


@pytest.mark.parametrize("packed", [False, True])
def test_a_page_of_ones_own(tmp_path: Path, packed: bool) -> None:
    page = tmp_path / "mine.txt"
    data = parse.simulated(1)
    page.write_bytes(gzip.compress(data) if packed else data)
    rows = parse.run(page, rounds=2)
    assert [row["case"] for row in rows] == ["mine.txt", "mine.txt, gzipped"][: 1 + packed]
    assert {row["bytes"] for row in rows} == {len(data)}


def test_other_values_than_the_peers_are_refused() -> None:
    page = parse.simulated(2)
    reading = read_page(page).reading
    parse._require_equal(page, reading)
    for signal in ("ready_endpoints", "in_flight", "pool_saturation"):
        with pytest.raises(ValueError, match=signal):
            parse._require_equal(page, dataclasses.replace(reading, **{signal: 99}))  # type: ignore[arg-type]
