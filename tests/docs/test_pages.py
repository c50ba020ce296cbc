"""Pages against the program: commands exist with the options shown, configurations load, links lead somewhere."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from grid.config import parse
from tests.cli.conftest import grid
from tests.conftest import ROOT
from tests.support.ports import free_port
from tests.support.redis_server import program

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`(grid [^`]+)`")
_LINK = re.compile(r"\]\(([^)#:]+?)(?:#[^)]*)?\)")
_WAIT = "for i in $(seq 200); do curl -sf {} >/dev/null && break; sleep 0.05; done"
_GROUPS = {"bench", "overlay", "simulate"}


def _blocks(page: Path, *kinds: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if kind in kinds]


def _commands(page: Path) -> set[str]:
    found = set(_CODE.findall(page.read_text(encoding="utf-8")))
    for block in _blocks(page, "sh", "bash", "console"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.split("|"):
                if part.strip().startswith("grid "):
                    found.add(part.partition("#")[0].partition(">")[0].strip().rstrip("&").strip())
    return found


@cache
def _help(*path: str) -> str:
    result = grid(*path, "--help")
    assert result.exit_code == 0, f"grid {' '.join(path)} is no command"
    return result.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    for command in sorted(_commands(page)):
        words = shlex.split(command)[1:]
        if not words or words[0].startswith("-") or not re.fullmatch(r"[a-z]+", words[0]):
            continue
        path = words[:2] if words[0] in _GROUPS and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]) else words[:1]
        text = _help(*path)
        for word in words:
            option = word.partition("=")[0].strip("[]")
            if option.startswith("-") and len(option) > 1:
                assert option in text, f"{page.name}: `{command}` has {option}, which grid {' '.join(path)} has not"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configurations_load(page: Path) -> None:
    for block in _blocks(page, "yaml"):
        if block.startswith("network:"):
            assert parse(block, name=page.name).network


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_speak_of_this_project_alone(page: Path) -> None:
    text = page.read_text(encoding="utf-8").lower()
    for word in ("/work/", "pyenv", "shared/fixtures", "helper", "pypi.org"):
        assert word not in text, f"{page.name} says {word!r}"


@pytest.mark.real_server
def test_the_tour_of_the_readme_runs(tmp_path: Path) -> None:
    """Every shell block after the installation, in one shell, as a reader would type it."""
    blocks = [block for block in _blocks(ROOT / "README.md", "sh") if "make " not in block]
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "grid").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m grid "$@"\n')
    (bin_folder / "grid").chmod(0o755)
    (bin_folder / "python").symlink_to(sys.executable)
    pages_port, port = str(free_port()), str(free_port())
    (tmp_path / "docs").mkdir()
    tour = (ROOT / "docs" / "tour.yaml").read_text(encoding="utf-8")
    (tmp_path / "docs" / "tour.yaml").write_text(tour.replace("19191", pages_port).replace("7070", port))
    script = ["set -e", f"cd '{tmp_path}'"]
    for block in blocks:
        for line in block.replace("19191", pages_port).strip().splitlines():
            script.append(line)
            if "sim.pages" in line:
                script.append(_WAIT.format(f"http://127.0.0.1:{pages_port}/east"))
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}:{Path(program('7')).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    with subprocess.Popen(
        ["bash", "-c", "\n".join(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    ) as shell:
        output = b""
        try:
            deadline = time.monotonic() + 90
            assert shell.stdout is not None
            while shell.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            for how in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(shell.pid, how)
                except ProcessLookupError:
                    break
                time.sleep(2.0 if how is signal.SIGTERM else 0)
            assert shell.stdout is not None
            output = shell.stdout.read()
    text = output.decode()
    assert shell.returncode == 0, text
    assert "west is draining until" in text, text
    assert "west-llama at west: new_and_existing (admitted), fresh" in text, text
    assert "1.04" in text, text
