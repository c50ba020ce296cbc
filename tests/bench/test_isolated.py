import time

from grid.sim.bench.isolated import ran


def test_a_bench_runs_in_a_process_of_its_own() -> None:
    found = ran("render", {"rounds": 2, "sites": 5}, within=60)
    assert found.error == ""
    assert "render and digest: 5 sites x 4 models" in {row["case"] for row in found.rows}
    assert {row["better"] for row in found.rows} == {"more", "less"}
    assert 0 < found.seconds < 60


def test_why_one_does_not_run_is_told_in_a_line() -> None:
    assert "No module named 'grid.sim.bench.speed'" in ran("speed", {}, within=60).error
    assert "unexpected keyword argument 'haste'" in ran("render", {"haste": 1}, within=60).error


def test_one_that_takes_too_long_is_ended() -> None:
    began = time.monotonic()
    found = ran("sites", {"seconds": 600.0}, within=1.0)
    assert "out of time" in found.error
    assert found.late
    assert time.monotonic() - began < 60
