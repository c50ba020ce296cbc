from grid.sim.bench import simulate


def test_requests_of_a_core_second_without_and_with_admission() -> None:
    rows = simulate.run(seconds=4.0, rounds=1)
    assert [row["case"].partition(":")[0] for row in rows] == ["choosing alone", "with admission"]
    for row in rows:
        assert row["requests"] > 3000
        assert row["us"] > row["peer_us"] > 0
        assert row["ratio"] > 1
        assert row["better"] == "less"


def test_the_pools_behind_admission_are_full() -> None:
    world, tally = simulate._admitted()
    world.clock.run(12.0)
    assert sum(one.core.waiting for one in world.gateways if one.core is not None) > 100
    assert sum(site.held for site in world.sites) > 0.95 * 320
    assert tally.refused == tally.failed == 0
