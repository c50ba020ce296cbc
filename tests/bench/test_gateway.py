import pytest

from grid.sim.bench.gateway import run


@pytest.mark.real_server
def test_the_bench_measures_the_gateway_beside_a_bare_pass_through() -> None:
    rows = run(serial=60, streams=16, rounds=2, pause=0.01)
    assert [row["case"] for row in rows] == [
        "1 stream, first byte", "1 stream, each event", "16 streams, first byte", "16 streams, each event",
    ]  # fmt: skip
    for row in rows:
        assert row["requests"] > 0
        assert 0 < row["direct_p50_ms"] < row["p50_ms"]
        assert row["peer_added_p50_us"] > 0
        # The full run holds 2; a short one beside other tests only shows that nothing is far off.
        assert 0 < row["ratio"] < 5
