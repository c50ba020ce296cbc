"""The bench runs, and says what it measured."""

from dataclasses import replace

import pytest

from grid.sim.bench.fanout import Load, applied_at
from grid.sim.bench.propagate import run


@pytest.mark.may_block  # it runs its own loop
@pytest.mark.real_server
def test_rows_have_both_sides_of_the_same_run() -> None:
    load = Load(gateways=5, processes=2, candidates=6, rate=10.0, seconds=0.5)
    loads = (load, replace(load, libraries=True), replace(load, distinct=True))
    rows = run(subscribers=4, sizes=(3_000, 60_000), rounds=3, warmup=1, loads=loads)
    assert [row["size"] for row in rows[:2]] == pytest.approx([3_000, 60_000], rel=0.15)
    assert [row["case"] for row in rows] == [
        "publish to the last of 4 gateways",
        "publish to the last of 4 gateways",
        "open loop: to the last of 5 subscribers",
        "open loop: to the last of 5 gateway libraries",
        "open loop: to the last of 5 subscribers, a document each",
    ]
    for row in rows:
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert 0 < row["peer_p50_ms"] <= row["peer_p99_ms"]
        assert row["ratio"] == pytest.approx(row["p50_ms"] / row["peer_p50_ms"], rel=0.1)
        assert row["better"] == "less"
        assert "redis-py" in row["peer"]
    assert all(row["verify_ms"] > 0 for row in rows[:2])
    for row in rows[2:]:
        assert (row["publications"], row["deliveries"], row["processes"]) == (5, 25, 2)
        assert row["delivery_p50_ms"] <= row["p50_ms"]
        assert row["delivery_p50_ms"] <= row["delivery_p99_ms"]


def test_a_newer_document_stands_for_one_that_was_skipped_and_a_lost_one_is_no_figure() -> None:
    followed = [(1, 1, 10.0), (1, 3, 12.0), (2, 1, 13.0)]
    assert applied_at(followed, (1, 2)) == 12.0
    assert applied_at(followed, (2, 1)) == 13.0
    with pytest.raises(RuntimeError, match=r"never applied 2\.2"):
        applied_at(followed, (2, 2))
