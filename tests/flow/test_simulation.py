"""The published figures in virtual time, and what the bench says."""

import pytest

from grid.flow import PoolSignal
from grid.sim.bench import admission as bench_admission
from grid.sim.virtual import admission
from grid.sim.virtual.admission import Scenario


@pytest.mark.parametrize("seed", [1, 2])
def test_interactive_requests_hardly_feel_five_hundred_batch_requests(seed: int) -> None:
    found = admission.run(seed=seed)
    assert found["ratio_on"] <= 1.15
    assert found["ratio_off"] >= 30
    assert found["on_p99_ms"] == pytest.approx(found["idle_p99_ms"] * found["ratio_on"], rel=0.01)


def test_the_same_with_a_capacity_that_is_learned() -> None:
    found = admission.run(Scenario(declared=False))
    assert found["ratio_on"] <= 1.15
    assert found["ratio_off"] >= 30


def test_it_plays_the_same_way_twice() -> None:
    short = Scenario(seconds=120.0)
    assert admission.run(short, seed=4) == admission.run(short, seed=4) != admission.run(short, seed=5)


def test_a_learned_capacity_outlasts_an_hour_of_traffic_that_is_held_back() -> None:
    """An hour of a band that may never queue anything, then of next to nothing: the mark stays where it was found."""
    scenario = Scenario(seconds=3600.0, declared=False, batch_clients=100, rate=0.5)
    core = admission.Simulation(scenario, 1, batch=True, policy=admission.POLICY).core
    assert core is not None
    marks = {key: pool.learned.mark for key, pool in core.pools.items()}
    assert all(30 <= mark <= 32 for mark in marks.values())
    for second in range(3600, 7200):
        core.update(float(second), [PoolSignal(key, ready=1, held=1, running=1, queued=0) for key in marks])
    assert {key: pool.learned.mark for key, pool in core.pools.items()} == marks


def test_the_bench_has_its_figures_and_its_peers() -> None:
    *rows, _, _ = bench_admission.run(rounds=300, queued=1000, tenants=100)  # but for how costs grow
    assert len(rows) == 5
    assert all(row["p50_us"] > 0 and row["peer_p50_us"] > 0 and row["ratio"] > 0 for row in rows)
    assert {row["peer"].split(",")[0] for row in rows} == {"asyncio.Semaphore", "heapq"}
    door = next(row for row in rows if row["case"].startswith("core"))
    assert door["p50_us"] <= 200
    few, many = (row for row in rows if row["case"].startswith("end, grant"))
    assert many["p50_us"] < 10 * few["p50_us"], "a hundred times the queue does not cost a hundred times as much"
