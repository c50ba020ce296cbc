"""The guard: which figures it takes from rows, when it says worse, how often it measures, what it keeps."""

from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from grid.cli.bench import Bench
from grid.sim.bench import compare as room
from grid.sim.bench.compare import Baseline, Figure, Figures, Verdict, compare, figures, measured
from grid.sim.bench.growth import Better
from grid.sim.bench.isolated import Ran
from tests.cli.conftest import grid, json_of
from tests.conftest import ROOT


def row(case: str, ratio: float, better: str = "less", **more: Any) -> dict[str, Any]:
    return {"case": case, "ratio": ratio, "better": better, "peer": "a peer", **more}


def growth(case: str, exponent: float) -> dict[str, Any]:
    return {"case": case, "exponent": exponent, "better": "less", "sizes": [1, 2], "points": [1.0, 2.0]}


def measuring(**rows: Iterator[list[dict[str, Any]]]) -> Callable[[str, float], Ran]:
    """Each bench gives the next of its lists of rows; none is an error."""

    def measure(bench: str, _: float) -> Ran:
        found = next(rows[bench])
        return Ran(tuple(found)) if found else Ran(error="ImportError: no such thing")

    return measure


def test_figures_are_ratios_and_exponents_by_case() -> None:
    found = figures([row("a", 2.0), {"case": "absolute", "p50_ms": 3.0}, growth("growth", 0.9), row("none", 0) | {
        "ratio": None}])  # fmt: skip
    assert found == {
        "a": Figure(2.0, Better.LESS, peer="a peer"),
        "growth": Figure(0.9, Better.LESS, exponent=True),
    }


def test_ratios_of_steps_too_short_to_be_steady_are_left_out() -> None:
    found = figures([row("short", 1500.0, cpu_ms=0.008), row("long", 7.0, cpu_ms=1.5), row("edge", 2.0, cpu_ms=0.02)])
    assert list(found) == ["long", "edge"]


def test_cases_of_one_name_are_told_apart() -> None:
    by_size = figures([row("a", 2.0, size=3024), row("a", 3.0, size=20_000), row("b", 1.0, size=1)])
    assert list(by_size) == ["a, 3 kB", "a, 20 kB", "b"]
    assert list(figures([row("a", 2.0, gateways=1), row("a", 3.0, gateways=4)])) == ["a, gateways: 1", "a, gateways: 4"]


@pytest.mark.parametrize(
    ("before", "now", "better", "verdict"),
    [
        (10.0, 12.9, "less", Verdict.SAME),
        (10.0, 13.1, "less", Verdict.WORSE),
        (10.0, 7.6, "less", Verdict.BETTER),
        (10.0, 7.8, "more", Verdict.SAME),
        (10.0, 7.6, "more", Verdict.WORSE),
        (10.0, 13.1, "more", Verdict.BETTER),
    ],
)
def test_a_ratio_is_worse_by_a_factor_in_its_own_direction(
    before: float, now: float, better: str, verdict: Verdict
) -> None:
    assert Figure(now, Better(better)).verdict(Figure(before, Better(better))) is verdict


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [(0.0, 0.14, Verdict.SAME), (0.0, 0.16, Verdict.WORSE), (1.0, 1.16, Verdict.WORSE), (1.0, 0.8, Verdict.BETTER)],
)
def test_an_exponent_is_worse_by_a_difference(before: float, now: float, verdict: Verdict) -> None:
    one, other = (Figure(value, Better.LESS, exponent=True) for value in (now, before))
    assert one.verdict(other) is verdict


def test_ratios_to_other_peers_are_not_compared() -> None:
    litellm = Figure(100.0, Better.MORE, peer="litellm")
    assert litellm.verdict(Figure(10.0, Better.LESS, peer="an empty call")) is Verdict.OTHER_PEER


KEPT: dict[str, Figures] = {"pick": figures([row("a", 2.0), row("b", 2.0), growth("g", 0.0)])}


def test_what_is_as_it_was_is_measured_once() -> None:
    measure = measuring(pick=iter([[row("a", 2.1), row("b", 1.9), growth("g", 0.1)]]))
    compared = compare(KEPT, ["pick"], measure=measure)
    assert [line.verdict for line in compared.lines] == [Verdict.SAME] * 3
    assert compared.worse == ()
    assert compared.lines[0].row == {
        "bench": "pick", "case": "a", "figure": "ratio", "better": "less", "baseline": 2.0, "now": 2.1, "change": 1.05,
        "verdict": "same",
    }  # fmt: skip


def test_what_looks_worse_is_measured_again_and_counts_at_its_best() -> None:
    said: list[str] = []
    measure = measuring(
        pick=iter([
            [row("a", 3.0), row("b", 2.0), growth("g", 0.4)],
            [row("a", 2.0), row("b", 4.0), growth("g", 0.3)],
            [row("a", 9.0), row("b", 9.0), growth("g", 0.1)],
        ])
    )  # fmt: skip
    compared = compare(KEPT, ["pick"], measure=measure, said=said.append)
    assert [line.now.value for line in compared.lines if line.now] == [2.0, 2.0, 0.1]
    assert compared.worse == ()
    assert said == ["pick", *["pick again: something looked worse"] * 2]


def test_three_times_worse_is_worse() -> None:
    measure = measuring(pick=repeat([row("a", 3.0), row("b", 2.0), growth("g", 0.0)], 3))
    compared = compare(KEPT, ["pick"], measure=measure)
    assert [line.case for line in compared.worse] == ["a"]


def test_new_and_vanished_cases_are_told() -> None:
    measure = measuring(pick=iter([[row("a", 2.0), row("c", 1.0), growth("g", 0.0)]]))
    verdicts = {line.case: line.verdict for line in compare(KEPT, ["pick"], measure=measure).lines}
    assert verdicts == {"a": Verdict.SAME, "b": Verdict.GONE, "g": Verdict.SAME, "c": Verdict.NEW}


def test_a_bench_that_does_not_run_is_told_and_the_others_run() -> None:
    measure = measuring(gateway=iter([[]]), pick=iter([[row("a", 2.0)]]))
    compared = compare(KEPT, ["gateway", "pick"], measure=measure)
    assert compared.failed == {"gateway": "ImportError: no such thing"}
    assert {line.bench for line in compared.lines} == {"pick"}


def test_what_fails_only_when_it_runs_again_keeps_what_it_found() -> None:
    compared = compare(KEPT, ["pick"], measure=measuring(pick=iter([[row("a", 3.0)], []])))
    assert compared.failed == {}
    assert [line.case for line in compared.worse] == ["a"]


def test_what_time_does_not_suffice_for_is_left_out() -> None:
    asked: list[float] = []

    def measure(_: str, within: float) -> Ran:
        asked.append(within)
        return Ran((row("a", 2.0),))

    assert compare(KEPT, ["pick", "parse"], within=0.0, measure=measure).left_out == ("pick", "parse")
    assert asked == []
    assert compare(KEPT, ["pick"], within=50.0, measure=measure).left_out == ()
    assert 0 < asked[0] <= 50
    assert compare(KEPT, ["pick"], measure=measure).left_out == ()
    assert asked[1] == room.LONGEST


def test_what_was_no_worse_once_before_is_no_fault() -> None:
    kept = Figure(10.0, Better.LESS, worst=20.0)
    assert Figure(20.0, Better.LESS).verdict(kept) is Verdict.SAME
    assert Figure(20.1, Better.LESS).verdict(kept) is Verdict.WORSE
    assert Figure(12.0, Better.LESS).verdict(Figure(10.0, Better.LESS, worst=10.5)) is Verdict.SAME
    assert Figure(4.9, Better.MORE).verdict(Figure(10.0, Better.MORE, worst=5.0)) is Verdict.WORSE
    flat = Figure(0.0, Better.LESS, exponent=True, worst=0.3)
    assert Figure(0.3, Better.LESS, exponent=True).verdict(flat) is Verdict.SAME
    assert Figure(0.31, Better.LESS, exponent=True).verdict(flat) is Verdict.WORSE


def test_a_bench_that_time_ran_out_on_is_left_out_where_there_is_a_limit_and_has_failed_where_there_is_none() -> None:
    def measure(_: str, __: float) -> Ran:
        return Ran(error="stopped after 9 s: out of time", late=True)

    hurried = compare(KEPT, ["pick"], within=9.0, measure=measure)
    assert (hurried.failed, hurried.left_out) == ({}, ("pick",))
    patient = compare(KEPT, ["pick"], measure=measure)
    assert (list(patient.failed), patient.left_out) == (["pick"], ())


def test_a_baseline_keeps_the_figure_in_the_middle(tmp_path: Path) -> None:
    runs = [
        [row("a", ratio, "more"), growth("g", exponent)] for ratio, exponent in ((5.0, 0.3), (1.0, 0.1), (4.0, 0.2))
    ]
    found, failed = measured(["pick", "gateway"], measure=measuring(pick=iter(runs), gateway=iter([[]])))
    assert failed == {"gateway": "ImportError: no such thing"}
    assert {case: (figure.value, figure.worst) for case, figure in found["pick"].items()} == {
        "a": (4.0, 1.0),
        "g": (0.2, 0.3),
    }
    file = tmp_path / "baseline.json"
    room.write(file, Baseline(found))
    assert room.read(file) == Baseline(found, room.PYTHON)


def test_the_baseline_of_the_source_tree_has_every_bench() -> None:
    kept = room.read(ROOT / "tests/bench/baseline.json")
    assert set(kept.benches) == set(room.SETTINGS) == {bench.value for bench in Bench}
    for cases in kept.benches.values():
        assert cases
        assert all(figure.exponent or figure.peer for figure in cases.values())


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A baseline in which ``pick`` has been at 2; it is at 3 now."""
    file = tmp_path / "baseline.json"
    room.write(file, Baseline(KEPT))
    monkeypatch.setattr(room, "run", measuring(pick=repeat([row("a", 3.0), row("b", 2.0), growth("g", 0.0)], 3)))
    return file


def test_the_command_fails_where_something_is_worse_and_prints_all_of_it(kept: Path) -> None:
    result = grid("bench", "compare", "--only", "pick", "--baseline", kept, "-o", "json")
    assert result.exit_code == 1
    data = json_of(result)
    assert [one["verdict"] for one in data["rows"]] == ["worse", "same", "same"]
    assert (data["worse"], data["failed"], data["left_out"]) == (1, {}, [])
    assert "pick: a is worse" in result.stderr


def test_the_command_prints_a_table(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "run", measuring(pick=iter([[row("a", 2.0), row("b", 2.0), growth("g", 0.0)]])))
    result = grid("bench", "compare", "--only", "pick", "--baseline", kept)
    assert result.exit_code == 0
    assert result.stdout.count("same") == 3


def test_the_command_keeps_what_it_measures(kept: Path) -> None:
    assert grid("bench", "compare", "--only", "pick", "--baseline", kept, "--write").exit_code == 0
    assert room.read(kept).benches["pick"]["a"].value == 3.0


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    result = grid("bench", "compare", "--baseline", tmp_path / "none.json")
    assert result.exit_code == 2
    assert "--write makes one" in " ".join(result.stderr.split())
    (tmp_path / "other.json").write_text('{"rows": []}')
    result = grid("bench", "compare", "--baseline", tmp_path / "other.json")
    assert result.exit_code == 2
    assert "no baseline" in " ".join(result.stderr.split())
    for only in ("parse,speed", "", "parse,"):
        result = grid("bench", "compare", "--only", only)
        assert result.exit_code == 2
        assert repr(only.rpartition(",")[2]) in result.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "are objects"),
        ('{"rows": []}', "it lacks the key 'benches'"),
        ('{"benches": {}}', "it lacks the key 'python'"),
        ('{"python": "3.11", "benches": []}', "are objects"),
        ('{"python": "3.11", "benches": {"pick": {"a": {"better": "less"}}}}', "it lacks the key 'ratio'"),
        ('{"python": "3.11", "benches": {"pick": {"a": 1}}}', "are objects"),
    ],
)
def test_a_file_that_is_no_baseline_is_told_in_words(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    for more in ((), ("--write",)):
        result = grid("bench", "compare", "--only", "pick", "--baseline", file, *more)
        assert result.exit_code == 2
        assert says in " ".join(result.stderr.split())
        assert "Error(" not in result.stderr


def test_a_report_names_the_option_that_is_at_fault(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for text in (None, "{bad", "[]", '{"benches": {}}'):
        if text is not None:
            page.with_suffix(".json").write_text(text)
        result = grid("bench", "report", "--again", "--out", page)
        assert result.exit_code == 2
        assert "--again" in result.stderr
    result = grid("bench", "report", "--out", "/proc/self/page.md")
    assert result.exit_code == 2
    assert "--out" in result.stderr
