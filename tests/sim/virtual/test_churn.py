"""What may befall a fleet, at a reduced size: our gateways keep the bounds, others do not, and figures are right."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from grid.cli import simulate
from grid.sim.virtual.churn import GRID, broken, run, verdict
from grid.sim.virtual.pictures import Picture, Shares, Waits
from grid.sim.virtual.scenarios import SCENARIOS, Bound, Scenario
from grid.sim.virtual.stage import STEP, Look, Setting, Stage, ended, first_shares, share, wait
from grid.sim.virtual.work import Fixed, Outcome
from grid.sim.virtual.world import Fleet, Shape

TWO = Setting(Fleet((Shape(4), Shape(4))), load=0.5, before=4.0, after=6.0)


def small(name: str, **more: Any) -> list[dict[str, Any]]:
    return run([name], size="small", **more)


@pytest.mark.parametrize("name", SCENARIOS)
def test_our_gateways_keep_every_bound(name: str) -> None:
    rows = small(name, peers=False)
    assert [row["what"] for row in rows] == [bound.what for bound in SCENARIOS[name].bounds]
    assert [(row["what"], row["figure"], row["bound"]) for row in rows if not row["within"]] == []
    assert all(row["requests"] > 100 for row in rows)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("join", "five scrape intervals"),
        ("loss", "that fail beyond"),
        ("loss", "still wait there"),
        ("halved", "load of the site"),
        ("liar", "part of its fair share"),
        ("black-hole", "that fail"),
        ("no-frames", "mean wait"),
        ("drain", "nothing new is sent"),
        ("surge", "load of any site"),
        ("unreadable-12-4", "another site has a free slot"),
    ],
)
def test_a_rule_that_goes_by_stale_numbers_breaks_the_bound(name: str, what: str, peer_rows: Any) -> None:
    rows = [row for row in peer_rows(name) if what in row["what"]]
    assert len(rows) == 1
    assert not rows[0]["within"]


@pytest.fixture(scope="module")
def peer_rows() -> Any:
    """Rows of ``p2c-stale``, run once for each scenario; few runs will do, as it is far beyond."""
    found: dict[str, list[dict[str, Any]]] = {}

    def rows(name: str) -> list[dict[str, Any]]:
        if name not in found:
            scenario = SCENARIOS[name]
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(SCENARIOS, name, replace(scenario, runs=(2, 2)))
                found[name] = [row for row in small(name) if row["policy"] == "p2c-stale"]
        return found[name]

    return rows


def test_a_seed_gives_the_same_rows_and_another_one_others() -> None:
    name = "unreadable-8-4"
    rows = small(name, seed=3, peers=False)
    assert small(name, seed=3, peers=False) == rows
    assert small(name, seed=4, peers=False) != rows


def test_perfect_knowledge_makes_nobody_wait_beside_a_free_slot() -> None:
    scenario = SCENARIOS["unreadable-12-4"]
    runs = [Stage(scenario.setting, "perfect", seed).run(scenario.happens) for seed in range(2)]
    assert sum(one.arrived for one in runs) > 1000
    assert [one.needless for one in runs] == [0, 0]


# --- figures ----------------------------------------------------------------------------------------------------------


def looked(*seen: tuple[int, int], held: tuple[int, int] = (0, 0), capacity: tuple[int, int] = (4, 4)) -> Stage:
    """A stage on which this was seen, look by look."""
    stage = Stage(TWO, GRID, 1)
    stage.looks = [Look(one, held, capacity) for one in seen]
    return stage


def test_shares_are_parts_of_fair_ones() -> None:
    runs = [looked((0, 0), (3, 1), (6, 6)), looked((0, 0), (1, 3), (2, 6))]
    assert share(runs, 0, 0.5, 0, STEP) == 1.0
    assert share(runs, 0, 0.5, 0, 2 * STEP) == pytest.approx(2 * 8 / 20)
    assert share(runs, 1, 0.25, STEP, 2 * STEP) == pytest.approx(4 * 8 / 12)
    assert share([looked((0, 0), (0, 0))], 0, 0.5, 0, STEP) == 0.0


def test_first_shares_begin_with_the_first_request_of_each_run() -> None:
    steps = round(TWO.fleet.interval / STEP)
    late = [(0, 9 * n) for n in range(8)]
    then = [(n + 1, 63 + n + 1) for n in range(2 * steps)]
    runs = [looked(*late, *then), looked(*then)]
    assert first_shares(runs, 0, 0.5, intervals=1) == [1.0]
    assert first_shares(runs, 0, 0.5, since=8 * STEP, intervals=1) == [1.0]
    assert first_shares([looked((0, 0), (0, 5))], 0, 0.5) == [0.0] * 5
    assert runs[0].first_arrival(0, 0.0) == pytest.approx(7 * STEP)
    assert runs[0].last_arrival(1, 0.0, 3 * STEP) == pytest.approx(3 * STEP)
    assert looked((0, 0), (1, 0), (1, 2)).last_arrival(0, 0.0, 2 * STEP) == pytest.approx(STEP)
    assert looked((1, 0), (1, 0), (1, 2)).last_arrival(0, 0.0, 2 * STEP) == 0.0


def test_the_fullest_moment_leaves_out_who_has_no_slots() -> None:
    stage = looked((0, 0), held=(9, 3), capacity=(0, 2))
    assert stage.fullest((0, 1), 0, 1) == 1.5
    assert stage.fullest((0,), 0, 1) == 0.0


def test_it_happens_at_a_moment_of_its_own_and_only_what_comes_later_counts() -> None:
    moments = []
    for seed in range(3):
        stage = Stage(TWO, GRID, seed)
        stage.run(lambda one: moments.append(one.clock.now))
        assert moments[-1] == stage.at
        assert len(stage.looks) == round(TWO.after / STEP) + 1
        assert stage.arrived == pytest.approx(TWO.rate * TWO.after, abs=4 * (TWO.rate * TWO.after) ** 0.5)
    assert len(set(moments)) == 3
    assert all(TWO.before <= one < TWO.before + TWO.fleet.interval for one in moments)


def test_waits_and_ends_are_of_all_runs_together() -> None:
    setting = replace(TWO, fleet=Fleet((Shape(1),)), load=0.0001, work=Fixed(1.0, 0.0))
    runs = []
    for number, later in enumerate((0.2, 0.6)):
        stage = Stage(setting, "perfect", number)

        def happens(stage: Stage, later: float = later) -> None:
            stage.traffic(1e6, start=stage.at, until=stage.at + 1e-9)
            for moment in (0.0, later):
                stage.later(moment, lambda: stage.entries[0].send(setting.work(stage.world.rng("")), stage.tally.heard))

        runs.append(stage.run(happens))
    # The second of each waits for the rest of the first one's second.
    assert wait(runs) == pytest.approx((0.8 + 0.4) / 4)
    assert ended(runs, Outcome.ANSWERED) == 1.0
    assert ended(runs, Outcome.REFUSED) == 0.0


def test_who_waits_beside_a_free_slot_is_counted() -> None:
    """All of the traffic goes to the one site that can be read, though three are empty."""
    scenario = SCENARIOS["unreadable-12-1"]
    stage = Stage(replace(scenario.setting, after=10.0), "p2c-stale", 1).run(scenario.happens)
    assert stage.needless > 0.9 * stage.arrived > 50


# --- rows, pictures, command ------------------------------------------------------------------------------------------


def never(name: str) -> Scenario:
    return replace(SCENARIOS[name], bounds=(Bound("what never holds", -1.0, lambda _: 0.0),), runs=(1, 1))


def test_only_our_own_rows_are_broken_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, "two-sites", never("two-sites"))
    rows = small("two-sites")
    assert [(row["policy"], row["within"]) for row in rows] == [("grid", False), ("p2c-stale", False)]
    assert broken(rows) == [rows[0]]


def test_what_has_to_be_large_is_positive_and_has_its_bound_below(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = (
        Bound("small", 0.9, lambda _: 0.0178),
        Bound("large", 0.85, lambda _: 0.9262, "least"),
        Bound("lacking", 0.85, lambda _: 0.84, "least"),
        Bound("just so", 0.3, lambda _: 0.1 + 0.2),
        Bound("tiny", 0.01, lambda _: 0.00123456),
        Bound("counted", 0.0, lambda _: 12011),
    )
    monkeypatch.setitem(SCENARIOS, "two-sites", replace(SCENARIOS["two-sites"], bounds=bounds, runs=(1, 1)))
    rows = small("two-sites", peers=False)
    assert [(row["figure"], row["at"], row["bound"], row["within"]) for row in rows] == [
        (0.0178, "most", 0.9, True),
        (0.9262, "least", 0.85, True),
        (0.84, "least", 0.85, False),
        (0.3, "most", 0.3, True),
        (0.001235, "most", 0.01, True),
        (12011, "most", 0.0, False),
    ]
    said = "Grid broke 2 of 6 bounds: two-sites: lacking 0.84, at least 0.85; two-sites: counted 12011, at most 0."
    assert verdict(rows) == said
    assert verdict(rows[:2]) == "Grid kept all 2 bounds."


def test_a_load_that_is_bought_by_refusing_has_a_bound_on_that() -> None:
    """Who sheds more than a surge is beyond all slots is not within its bounds, however low its load."""
    (refused,) = [bound for bound in SCENARIOS["surge"].bounds if "refused" in bound.what]
    assert 1 / 3 < refused.limit < 0.4


@pytest.mark.parametrize("seed", [3, 5])
@pytest.mark.parametrize("name", ["join", "surge", "kv"])
def test_bounds_hold_for_more_than_the_published_seed(name: str, seed: int) -> None:
    assert broken(small(name, seed=seed, peers=False)) == []


def test_unknown_names_and_sizes_are_refused() -> None:
    with pytest.raises(KeyError, match="nothing"):
        small("nothing")
    with pytest.raises(ValueError, match="huge"):
        run(["join"], size="huge")


def test_runs_are_watched_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, "drain", replace(SCENARIOS["drain"], runs=(2, 2)))
    heard, shown = [], dict[str, Picture]()
    small("drain", progress=lambda *given: heard.append(given), show=shown.__setitem__)
    assert [(done, runs) for done, runs, _ in heard] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert set(shown) == {"churn-shares-drain-grid", "churn-shares-drain-p2c-stale", "churn-waits-drain"}
    picture = shown["churn-shares-drain-grid"]
    assert isinstance(picture, Shares)
    assert [since for since, _ in picture.fair] == [since for since, _ in picture.events] == [0.0, 10.0]
    assert all(sum(due) == pytest.approx(1.0) for _, due in picture.fair)
    assert sum(picture.arrivals[5]) > 0 == picture.arrivals[5][0], "drained"
    assert isinstance(shown["churn-waits-drain"], Waits)


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    simulate.register(app)
    app.command("other")(lambda: None)
    return app


def test_the_command_prints_the_stated_keys(command: typer.Typer, tmp_path: Path) -> None:
    given = ["simulate", "churn", "--only", "two-sites", "--size", "small", "--seed", "2", "--plot", str(tmp_path)]
    found = CliRunner().invoke(command, [*given, "-o", "json"])
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)["rows"]
    assert set(rows[0]) == {
        "column", "policy", "mean_ms", "p99_ms", "hottest", "what", "figure", "at", "bound", "within", "failed",
        "refused", "requests", "about",
    }  # fmt: skip
    assert {(row["column"], row["policy"]) for row in rows} == {("two-sites", "grid"), ("two-sites", "p2c-stale")}
    assert {path.name for path in tmp_path.iterdir()} == {
        "churn-shares-two-sites-grid.svg", "churn-shares-two-sites-p2c-stale.svg", "churn-waits-two-sites.svg",
    }  # fmt: skip


def test_the_command_ends_with_1_where_a_bound_is_broken(command: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, "two-sites", never("two-sites"))
    found = CliRunner().invoke(command, ["simulate", "churn", "--only", "two-sites", "--size", "small"])
    assert found.exit_code == 1
    assert found.stdout.endswith("Grid broke 1 of 1 bounds: two-sites: what never holds 0, at most -1.\n")


def test_the_table_shows_digits_that_count(command: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = (Bound("part of it", 0.005, lambda _: 0.00178),)
    monkeypatch.setitem(SCENARIOS, "two-sites", replace(SCENARIOS["two-sites"], bounds=bounds, runs=(1, 1)))
    found = CliRunner().invoke(command, ["simulate", "churn", "--only", "two-sites", "--size", "small"])
    assert found.exit_code == 0, found.output
    assert "0.00178" in found.stdout
    assert "0.005" in found.stdout
    assert found.stdout.endswith("Grid kept all 1 bounds.\n")


def test_the_command_refuses_unknown_scenarios(command: typer.Typer) -> None:
    found = CliRunner().invoke(command, ["simulate", "churn", "--only", "join,nothing"])
    assert found.exit_code == 2
    assert "nothing" in found.output
