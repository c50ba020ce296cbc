"""``grid simulate`` as a command: progress on terminals alone, pictures where they can be drawn."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from grid.sim import virtual
from grid.sim.virtual import admission, churn, partition, stale
from tests.cli.conftest import grid, json_of
from tests.conftest import ROOT

SHORT = ("simulate", "partition", "--clients", "8,16", "--duration", "1")


def shown(path: int) -> str:
    """What a terminal was sent, until whoever wrote to it is gone."""
    parts = []
    while True:
        try:
            part = os.read(path, 65536)
        except OSError:  # EIO: the other end is closed
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()


def test_progress_is_shown_on_a_terminal_and_results_stay_apart() -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "grid", *SHORT, "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        text=True,
    ) as process:
        os.close(theirs)
        seen = shown(ours)
        os.close(ours)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, seen
    assert "partition" in seen
    assert "8/8" in seen
    assert "virtual s/s" in seen
    assert output.startswith("{")
    assert output.endswith("}\n")


def test_pipes_get_results_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "grid", *SHORT],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "FORCE_COLOR": "1"},
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    assert "perfect" in done.stdout


@pytest.mark.parametrize("command", ["partition", "stale", "churn", "admission"])
def test_pictures_without_the_extra_say_what_to_install_before_anything_runs(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "grid.sim.virtual.plots", raising=False)
    monkeypatch.delattr(virtual, "plots", raising=False)
    for room in (partition, stale, churn, admission):
        monkeypatch.setattr(room, "run", lambda *_, **__: pytest.fail("it ran"))
    result = grid("simulate", command, "--plot", tmp_path / "pictures")
    assert result.exit_code == 2
    assert "matplotlib" in result.stderr
    assert "pip install 'llm-grid[plots]'" in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "pictures").exists()


def test_a_folder_that_cannot_be_made_is_said_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(partition, "run", lambda *_, **__: pytest.fail("it ran"))
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "below"):
        result = grid("simulate", "partition", "--plot", folder)
        assert result.exit_code == 2
        assert str(folder) in result.stderr.replace("\n", "")


def test_pictures_are_of_virtual_time_alone(tmp_path: Path) -> None:
    result = grid("simulate", "admission", "--real", "--plot", tmp_path)
    assert result.exit_code == 2
    assert "--real" in result.stderr


def test_pictures_and_rows_come_of_one_run(tmp_path: Path) -> None:
    result = grid(*SHORT, "--plot", tmp_path / "a" / "b", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert len(json_of(result)["rows"]) == 8
    assert len(list((tmp_path / "a" / "b").glob("*.svg"))) == 12


UNWRITABLE = Path("/proc/self")
"""A folder that nobody can write into, root neither."""


@pytest.mark.parametrize("command", ["partition", "stale", "churn", "admission"])
def test_a_folder_that_cannot_be_written_is_said_before_anything_runs(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in (partition, stale, churn, admission):
        monkeypatch.setattr(room, "run", lambda *_, **__: pytest.fail("it ran"))
    result = grid("simulate", command, "--plot", UNWRITABLE)
    assert result.exit_code == 2
    assert f"cannot write into {UNWRITABLE}" in result.stderr
    result = grid("simulate", command, "--plot", "")
    assert result.exit_code == 2
    assert "--plot" in result.stderr


def test_rows_are_printed_where_pictures_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "partition-waits-8.svg").mkdir()
    result = grid(*SHORT, "--plot", tmp_path, "-o", "json")
    assert len(json_of(result)["rows"]) == 8
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"error: cannot write {tmp_path}")


def test_what_a_measurement_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for name in [name for name in sys.modules if name.startswith(("grid.sim.admission_real", "grid.sim.engine"))]:
        monkeypatch.delitem(sys.modules, name)
    result = grid("simulate", "admission", "--real")
    assert result.exit_code == 2
    assert "pip install 'llm-grid[gateway]'" in result.stderr


@pytest.mark.parametrize(
    ("columns", "names"),
    [("A,B..C", "ABC"), ("ace", "ACE"), ("F, A..B", "FAB"), ("A..F", "ABCDEF"), ("A,A", "A"), ("B..B", "B")],
)
def test_columns_are_letters_and_spans(columns: str, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run(given: Iterable[str], **_: object) -> list[object]:
        asked.extend(given)
        return []

    monkeypatch.setattr(stale, "run", run)
    assert grid("simulate", "stale", "--columns", columns, "-o", "json").exit_code == 0
    assert asked == list(names)


@pytest.mark.parametrize("columns", ["A..H", "C..A", "A,,B", "", "A..", "..C", "AG", "A..C..F"])
def test_unknown_columns_are_refused(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale, "run", lambda *_, **__: pytest.fail("it ran"))
    result = grid("simulate", "stale", "--columns", columns)
    assert result.exit_code == 2
    assert "--columns" in result.stderr


def test_clients_are_bounded_and_each_number_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def run(given: Iterable[int], **_: object) -> list[object]:
        asked.extend(given)
        return []

    monkeypatch.setattr(partition, "run", run)
    assert grid("simulate", "partition", "--clients", "8, 10000,8", "-o", "json").exit_code == 0
    assert asked == [8, 10_000]
    result = grid("simulate", "partition", "--clients", "8,10001")
    assert result.exit_code == 2
    assert "1 to 10000" in result.stderr


def test_no_scenario_is_not_every_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(churn, "run", lambda *_, **__: pytest.fail("it ran"))
    result = grid("simulate", "churn", "--only", "")
    assert result.exit_code == 2
    assert "--only" in result.stderr


@pytest.mark.parametrize(
    "text",
    ["{bad", '{"rows": {}}', '{"size": "small", "cpu_s": 1.0, "rows": {}, "pictures": {}}', "\\udcff"],
)
def test_a_page_of_broken_rows_is_refused_in_words(text: str, tmp_path: Path) -> None:
    data = tmp_path / "balancing" / "report.json"
    data.parent.mkdir()
    data.write_text(text)
    result = grid("simulate", "report", "--render", "--out", tmp_path)
    assert result.exit_code == 2
    assert str(data) in result.stderr.replace("\n", "")
    assert not (tmp_path / "balancing.md").exists()


def test_the_page_goes_to_docs_where_no_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = grid("simulate", "report", "--render")
    assert result.exit_code == 2
    assert "docs/balancing/report.json" in result.stderr.replace("\n", "")


def test_a_page_of_no_rows_makes_no_folders(tmp_path: Path) -> None:
    result = grid("simulate", "report", "--render", "--out", tmp_path / "none")
    assert result.exit_code == 2
    assert not (tmp_path / "none").exists()


def test_a_report_looks_at_its_folder_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grid.sim.report.run.simulate", lambda *_, **__: pytest.fail("it ran"))
    result = grid("simulate", "report", "--out", UNWRITABLE)
    assert result.exit_code == 2
    assert str(UNWRITABLE) in result.stderr
