from grid.sim.bench import policy


def test_a_pass_does_only_what_changed_and_says_so() -> None:
    *rows, by_providers, by_gateways = policy.run(providers=160, gateways=4, rounds=7)
    costs = {row["case"].partition(":")[0]: row["p50_ms"] for row in rows}
    assert costs["one sample new"] < costs["every sample new"] < costs["first pass"]
    for row in rows:
        assert row["peer_p50_ms"] > 0
        assert row["better"] == "less"
        assert row["ratio"] > 1
    assert by_providers["sizes"] == [20, 40, 80, 160]
    # A quadratic pass would be at 2.
    assert 0.5 < by_providers["exponent"] < 1.5
    assert by_gateways["case"] == "growth of a first policy pass with gateways"
    assert 0 < by_gateways["exponent"] < 1.5


def test_passes_change_nothing_that_routes() -> None:
    world = policy._World(12, 3)
    first = world.all_new()
    assert first.sentence == "12 of 12 providers open; nothing changed"
    assert world.one_new().plans == first.plans == world.first().plans
    assert len(world.calibration()) == 12
