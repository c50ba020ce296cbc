"""``grid simulate`` as a command: progress on terminals alone, pictures where they can be drawn."""

import os
import subprocess
import sys
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
