"""The run of everything and its page: what was kept gives it again, and the page in docs/ is of the run beside it."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from grid.sim import virtual
from grid.sim.report import page
from grid.sim.report import run as report
from grid.sim.report.run import SIZES, Report, Size, read, simulate
from grid.sim.virtual import plots
from grid.sim.virtual.progress import Progress
from tests.cli.conftest import grid, json_of
from tests.conftest import ROOT

KEPT = ROOT / "docs" / page.FOLDER

TINY = replace(
    SIZES["small"],
    clients=(256,),
    seconds=2.0,
    stale_seconds=20.0,
    columns=("A", "B", "F"),
    scenarios=("join", "return", "unreadable-12-4"),
    interactive=replace(Size().interactive, seconds=30.0, warm_up=5.0),
)


@pytest.fixture(scope="module")
def tiny() -> Report:
    return simulate(TINY, "tiny", keep=page.pictures())


def texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))


def test_a_report_reads_back_as_it_was_written(tiny: Report) -> None:
    text = tiny.text()
    again = read(text)
    assert again == tiny
    assert again.text() == text
    assert max(text.splitlines(), key=len).startswith('"'), "a line for each row and picture"


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"size": "small", "cpu_s": 1, "rows": {}}'])
def test_anything_else_is_no_report(text: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        read(text)


def test_everything_runs_and_is_watched() -> None:
    heard: dict[str, list[tuple[int, int]]] = {}

    def watch(name: str) -> Progress:
        heard[name] = []
        return lambda done, runs, seconds: heard[name].append((done, runs))

    found = simulate(TINY, "tiny", keep=(), watch=watch)
    assert found.pictures == {}
    assert set(found.rows) == set(report.PARTS)
    assert all(found.rows.values())
    assert {"partition, 1 gateway", "partition, 4 gateways", "stale", "churn", "admission"} <= set(heard)
    for name, steps in heard.items():
        assert [done for done, _ in steps] == list(range(1, steps[-1][1] + 1)), name


def test_the_page_has_every_figure_and_shows_every_picture_that_is_kept(tiny: Report, tmp_path: Path) -> None:
    text = page.render(tiny)
    assert set(tiny.pictures) == page.pictures()
    assert all(f"]({page.FOLDER}/{name}.svg)" in text for name in tiny.pictures)
    assert "$" not in text
    for row in tiny.rows["partition"]:
        if row["gateways"] > 1 and row["policy"] != "grid":
            continue
        assert f"| {row['requests']} " in text or f"| {row['requests']} / " in text
    lengths = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| 256")}
    assert len(lengths) == 1


def churn_row(policy: str, what: str, figure: float, **more: object) -> dict[str, object]:
    row = {"column": "surge", "policy": policy, "what": what, "figure": figure, "at": "most", "bound": 2.4}
    return row | {"within": True, "failed": 0, "refused": 0, "requests": 1000, "about": "too much"} | more


def churned(tiny: Report, *rows: dict[str, object]) -> list[str]:
    text = page.render(replace(tiny, rows={**tiny.rows, "churn": rows}))
    return text[text.index("## What befalls") : text.index("## One site")].splitlines()


def test_what_fails_or_is_refused_has_a_line_without_a_bound_too(tiny: Report) -> None:
    ours = churn_row("grid", "load", 2.2, refused=341, within=False)
    lines = churned(tiny, ours, churn_row("p2c-stale", "load", 5.98, failed=3))
    assert "| `surge`: too much | load | at most 2.4 | 2.2 (not held) | 5.98 |" in lines
    assert "|  | part of the requests that fail | - | 0 | 0.003 |" in lines
    assert "|  | part of the requests refused | - | 0.341 | 0 |" in lines
    assert "Grid broke 1 of 1 bounds: surge: load 2.2, at most 2.4." in lines


def test_what_has_a_bound_has_one_line_and_what_nobody_did_is_told_in_a_sentence(tiny: Report) -> None:
    refused = "part of the requests refused"
    ours = churn_row("grid", refused, 0.0178, bound=0.85, at="least", refused=18)
    lines = churned(tiny, ours, churn_row("grid", "documents published", 0))
    assert [line for line in lines if refused in line] == [
        f"| `surge`: too much | {refused} | at least 0.85 | 0.0178 |"
    ]
    assert "Grid kept all 2 bounds." in lines
    (left,) = [line for line in lines if line.startswith("Without a line")]
    assert left.endswith("documents published (everywhere).")


def test_published_figures_stand_beside_ours_where_there_are_any(tiny: Report) -> None:
    lines = [line for line in page.render(tiny).splitlines() if line.startswith("| 256 |")]
    assert [line for line in lines if "28655" in line] == [lines[0]]
    assert "/ 24517 |" in lines[0]
    assert "42290" in lines[1]
    assert [line.split("|")[3].strip() for line in lines if line.startswith("| 256 | 4 |")] == ["**Grid**"]


@pytest.mark.parametrize(
    ("slots", "load", "service", "wait"),
    [
        (1, 0.8, 1.0, 4.0),  # M/M/1: load / (1 - load) services
        (2, 0.5, 3.0, 1.0),  # M/M/2: load^2 / (1 - load^2) services
        (48, 0.8, 2.0, 0.0193),
    ],
)
def test_one_central_queue_waits_as_long_as_erlang_says(slots: int, load: float, service: float, wait: float) -> None:
    assert page.central_queue(slots, load, service) == pytest.approx(wait, rel=3e-3)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_page_rows_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(report.SIZES, "small", TINY)
    result = grid("simulate", "report", "--size", "small", "--out", tmp_path / "out", "-o", "json")
    assert result.exit_code == 0, result.output
    said = json_of(result)
    assert {"size", "page", "data", "pictures", "cpu_s", "took_s"} <= set(said)
    assert said["size"] == "small"
    written = (tmp_path / "out" / "balancing.md").read_text()
    assert len(said["pictures"]) == len(page.pictures())
    assert all(Path(path).exists() for path in said["pictures"])

    (tmp_path / "out" / "balancing.md").write_text("old")
    monkeypatch.setattr(report, "simulate", lambda *_, **__: pytest.fail("it ran"))
    again = grid("simulate", "report", "--render", "--out", tmp_path / "out")
    assert again.exit_code == 0, again.output
    assert (tmp_path / "out" / "balancing.md").read_text() == written


@pytest.mark.parametrize("kept", [None, "", "{}"])
def test_rendering_again_needs_what_a_run_left(tmp_path: Path, kept: str | None) -> None:
    if kept is not None:
        (tmp_path / "balancing").mkdir()
        (tmp_path / "balancing" / "report.json").write_text(kept)
    result = grid("simulate", "report", "--render", "--out", tmp_path)
    assert result.exit_code == 2
    assert "report.json" in result.stderr
    assert "without --render" in result.stderr


def test_a_report_without_the_extra_says_what_to_install_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "grid.sim.virtual.plots", raising=False)
    monkeypatch.delattr(virtual, "plots", raising=False)
    monkeypatch.setattr(report, "simulate", lambda *_, **__: pytest.fail("it ran"))
    result = grid("simulate", "report", "--out", tmp_path)
    assert result.exit_code == 2
    assert "pip install 'llm-grid[plots]'" in result.stderr
    assert list(tmp_path.iterdir()) == []


# --- what lies in docs/ -----------------------------------------------------------------------------------------------


def test_the_page_is_that_of_the_rows_beside_it() -> None:
    kept = read((KEPT / page.DATA).read_text(encoding="utf-8"))
    assert kept.size == "weekly"
    assert kept.text() == (KEPT / page.DATA).read_text(encoding="utf-8")
    now = page.render(kept)
    assert now == (ROOT / "docs/balancing.md").read_text(encoding="utf-8"), "grid simulate report --render"


def test_the_pictures_are_those_of_the_rows_beside_them(tmp_path: Path) -> None:
    kept = read((KEPT / page.DATA).read_text(encoding="utf-8"))
    assert {path.stem for path in KEPT.glob("*.svg")} == set(kept.pictures) == page.pictures()
    for path in plots.save(tmp_path, kept.pictures):
        assert texts(path) == texts(KEPT / path.name), "grid simulate report --render"
