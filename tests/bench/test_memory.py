"""The bench of memory at a reduced size: every row has both sides, each measured in a process that did its part."""

import pytest

from grid.sim.bench.memory import run
from grid.sim.bench.resident import resident


@pytest.mark.real_server
def test_rows() -> None:
    idle, small, page, snapshot, subscriber, admission = run(
        providers=(5,), interval=0.3, sites=20, models=2, snapshots=4, subscribers=4, candidates=6, queued=300,
        tenants=10, page_tenants=100,
    )  # fmt: skip
    assert (idle["case"], idle["providers"]) == ("daemon, idle", 0)
    assert (small["case"], small["providers"]) == ("daemon over 5 providers", 5)
    for row in (idle, small):
        assert row["rss_mb"] > 20 < row["peer_rss_mb"]
        assert row["ratio"] == pytest.approx(row["rss_mb"] / row["peer_rss_mb"], rel=0.01)
    assert page["bytes"] > 3e6
    assert page["extra_mb"] < page["peer_extra_mb"], "a page that is read whole would take as much"
    for row in (snapshot, subscriber, admission):
        assert row["grown_kb"] > 0
        assert row["rss_mb"] > 20
        assert row["ratio"] is None or row["ratio"] == pytest.approx(row["grown_kb"] / row["peer_grown_kb"], rel=0.1)
    assert {row["better"] for row in (idle, small, page, snapshot, subscriber, admission)} == {"less"}
    assert (snapshot["candidates"], snapshot["copies"]) == (40, 4)
    assert (admission["queued"], admission["tenants"]) == (300, 10)


def test_the_most_that_was_held_is_at_least_what_is_held() -> None:
    assert 10 < resident() <= resident(most=True) + 1
