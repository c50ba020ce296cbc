"""The simulations of choosing, and their commands."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from grid.cli import simulate
from grid.sim.bench import pick as bench_pick
from grid.sim.virtual import partition, stale
from grid.sim.virtual.fleet import Clock, Slots


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    simulate.register(app)
    app.command("other")(lambda: None)
    return app


def rows(command: typer.Typer, *arguments: str) -> Any:
    found = CliRunner().invoke(command, ["simulate", *arguments, "-o", "json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_partition_prints_the_stated_keys_and_pictures(command: typer.Typer, tmp_path: Path) -> None:
    found = rows(
        command, "partition", "--clients", "16,64", "--duration", "12", "--gateways", "2", "--plot", str(tmp_path)
    )
    assert [(row["clients"], row["policy"]) for row in found["rows"]] == [
        (clients, policy) for clients in (16, 64) for policy in ("before", "after", "grid", "perfect")
    ]
    assert set(found["rows"][0]) == {
        "policy", "clients", "gateways", "requests", "shares", "peak_window_share", "overshoot", "failed",
    }  # fmt: skip
    assert all(row["gateways"] == 2 and len(row["shares"]) == 3 for row in found["rows"])
    assert {path.name for path in tmp_path.iterdir()} == {
        f"partition-{what}-{clients}.svg"
        for clients in (16, 64)
        for what in ("waits", "oscillation", *(f"shares-{policy}" for policy in partition.POLICIES))
    }
    drawn = (tmp_path / "partition-shares-grid-64.svg").read_text()
    assert all(word in drawn for word in ("64 clients, 2 gateways", "site-0", "site-1", "site-2", "fair share"))


def test_stale_prints_the_stated_keys_and_pictures(command: typer.Typer, tmp_path: Path) -> None:
    found = rows(command, "stale", "--columns", "a,d", "--duration", "20", "--seeds", "1", "--plot", str(tmp_path))
    assert [(row["column"], row["policy"]) for row in found["rows"]] == [
        (column, policy) for column in "AD" for policy in stale.POLICIES
    ]
    assert {"column", "policy", "mean_ms", "p99_ms", "hottest"} <= set(found["rows"][0])
    sited = [policy for policy in stale.POLICIES if policy != "central"]
    assert {path.name for path in tmp_path.iterdir()} == {
        f"stale-{what}.svg"
        for column in "AD"
        for what in (
            f"waits-{column}", f"oscillation-{column}", *(f"shares-{column}-{policy}" for policy in sited),
        )
    }  # fmt: skip
    swings = (tmp_path / "stale-oscillation-D.svg").read_text()
    assert all(word in swings for word in ("2 equal sites", "(windows of 10 s)", *sited))
    assert "central" not in swings
    assert "central" in (tmp_path / "stale-waits-D.svg").read_text()


@pytest.mark.parametrize("columns", ["A..C", "abc", "A,B,C", "CBA", "a..c"])
def test_columns_are_named_in_several_ways(command: typer.Typer, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run(names: Any, **options: Any) -> list[dict[str, Any]]:
        asked.extend(names)
        return [{"column": name, "about": ""} for name in names]

    monkeypatch.setattr(stale, "run", run)
    found = CliRunner().invoke(command, ["simulate", "stale", "--columns", columns])
    assert found.exit_code == 0
    assert sorted(asked) == ["A", "B", "C"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("stale", "--columns", "X"),
        ("stale", "--columns", ""),
        ("stale", "--columns", "F..A"),
        ("partition", "--clients", "many"),
        ("partition", "--clients", "0"),
        ("partition", "--clients", "5,,6"),
    ],
)
def test_wrong_options_are_usage_errors(command: typer.Typer, arguments: tuple[str, ...]) -> None:
    found = CliRunner().invoke(command, ["simulate", *arguments])
    assert found.exit_code == 2
    assert "Invalid value" in found.output


def test_admission_prints_its_figures(command: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    from grid.sim.virtual import admission

    figures = {"idle_p99_ms": 1.0, "on_p99_ms": 2.0, "off_p99_ms": 9.0, "ratio_on": 2.0, "ratio_off": 9.0}
    monkeypatch.setattr(admission, "run", lambda *, seed, progress, show: figures | {"seed": seed})
    assert rows(command, "admission", "--seed", "7") == figures | {"seed": 7}


def test_tables_are_for_people(command: typer.Typer) -> None:
    found = CliRunner().invoke(command, ["simulate", "partition", "--clients", "16", "--duration", "5"])
    assert re.search(r" 0\.4\d / 0\.4\d / 0\.1\d ", found.stdout)


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = (partition.simulate("grid", 64, seconds=5).row() for _ in range(2))
    assert one == other
    column = stale.COLUMNS["D"]
    waits = [stale.simulate(column, "grid", seconds=20.0).waits for _ in range(2)]
    assert waits[0] == waits[1]


def test_a_site_serves_in_turn_and_counts_what_came() -> None:
    clock = Clock()
    waited: list[float] = []
    site = Slots("a", 1, clock)
    for n in range(3):
        clock.at(0.1 * n, lambda: site.send(1.0, waited.append))
    clock.at(0.05, lambda: site.take(0.5, waited.append))
    clock.run(1.02)
    assert (site.held, site.running, len(site.queue)) == (3, 1, 2)
    signal = site.signal(0.1, 5.0)
    assert (signal.held, signal.queue, signal.saturation, signal.age_s) == (3, 2, 3.0, 0.1)
    clock.run(10.0)
    assert [round(one, 6) for one in waited] == [0.0, 0.95, 1.4, 2.3]
    assert (site.seen, site.met_full, site.held) == (3, 2, 0)


def test_the_peer_of_the_bench_is_asked_for_the_same_deployments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []

    class Router:
        def __init__(self, *, model_list: list[dict[str, Any]], routing_strategy: str) -> None:
            seen.append((routing_strategy, len(model_list)))
            self.slow = routing_strategy == "simple-shuffle"

        async def async_get_available_deployment(self, **asked: Any) -> None:
            assert asked["model"] == "bench-model-0"
            if self.slow:
                sum(range(5000))

    monkeypatch.setitem(sys.modules, "litellm", type(sys)("litellm"))
    monkeypatch.setattr(sys.modules["litellm"], "Router", Router, raising=False)
    row, *_ = bench_pick.run(sites=(3, 9), batches=2, size=50)
    assert seen == [(strategy, sites) for sites in (3, 9) for strategy in ("simple-shuffle", "least-busy")]
    assert row["peer"].startswith("litellm ")
    assert row["peer"].endswith(", least-busy")
    assert row["ratio"] == pytest.approx(row["peer_p50_us"] / row["p50_us"], rel=0.5)


def test_the_bench_of_picks_runs_without_its_peer() -> None:
    """Ratios to an empty call hold on a busy machine too; the figures themselves are for a quiet one."""
    program = (
        "import json, sys; sys.modules['litellm'] = None\n"
        "from grid.sim.bench import pick\n"
        "print(json.dumps(pick.run(sites=(2, 8, 250), batches=15, size=500)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    found = json.loads(done.stdout)
    picks = [row for row in found if "sites" in row]
    assert [row["sites"] for row in picks] == [2, 8, 250]
    for row in picks:
        assert row["peer"].startswith("an empty Python call")
        assert row["p50_us"] < 40 * row["empty_call_us"]
        assert row["route_p50_us"] < 110 * row["empty_call_us"]
        assert row["full_p50_us"] < 70 * row["empty_call_us"]
    # A look at every site would cost a hundred times as much for 250 of them as for 2.
    assert max(row["p50_us"] for row in picks) < 5 * min(row["p50_us"] for row in picks), "flat"
    changes = {row["case"].split(",")[0]: row["p50_ms"] for row in found if "p50_ms" in row}
    assert changes["take over a frame"] < 100
    assert changes["take over a document"] < 200
