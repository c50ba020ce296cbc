import pytest

from grid.sim.bench import admission


@pytest.mark.may_block  # it runs its own loops
def test_the_length_of_the_queue_and_its_tenants_do_not_show_in_a_turn() -> None:
    *rows, by_queue, by_tenants = admission.run(rounds=300, queued=3000, tenants=300)
    assert [row["case"].partition(":")[0] for row in rows] == [
        "core", "shell", "end, grant the next, enqueue one", "end, grant the next, enqueue one",
        "cancel anywhere, enqueue one",
    ]  # fmt: skip
    for row in rows:
        assert row["ratio"] > 1
        assert row["better"] == "less"
        assert row["p50_us"] <= row["p99_us"]
    assert by_queue["case"] == "growth of a turn of the queue with requests in it"
    assert by_queue["sizes"] == [30, 100, 300, 3000]
    assert by_tenants["case"] == "growth of a turn of the queue with tenants"
    assert by_tenants["sizes"] == [3, 30, 300]
    for row in (by_queue, by_tenants):
        # A look at every request or tenant would be at 1.
        assert abs(row["exponent"]) < 0.6
