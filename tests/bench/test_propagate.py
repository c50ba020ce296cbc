"""The bench runs, and says what it measured."""

import pytest

from grid.sim.bench.propagate import run


@pytest.mark.may_block  # it runs its own loop
def test_rows_have_both_sides_of_the_same_run() -> None:
    rows = run(subscribers=4, sizes=(3_000, 60_000), rounds=3, warmup=1)
    assert [row["size"] for row in rows] == pytest.approx([3_000, 60_000], rel=0.15)
    for row in rows:
        assert row["case"] == "publish to the last of 4 gateways"
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert 0 < row["peer_p50_ms"] <= row["peer_p99_ms"]
        assert row["ratio"] == pytest.approx(row["p50_ms"] / row["peer_p50_ms"], rel=0.1)
        assert row["verify_ms"] > 0
        assert "redis-py" in row["peer"]
