import json
import os
import signal
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from grid.model import GridError, Reason
from grid.sim.demo import run_demo

KEYS = {"published", "revisions", "scrapes", "providers", "gateways", "errors"}
GATEWAY_KEYS = {"version", "revision", "requests", "shares", "shed", "errors"}

pytestmark = [pytest.mark.real_server, pytest.mark.timeout(300)]


def left_behind() -> tuple[set[int], set[str]]:
    """Child processes of this one, and folders that demos made."""
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    return children, {str(path) for path in Path(tempfile.gettempdir()).glob("grid-demo-*")}


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A temporary directory of the demo's own, which must be empty afterwards, like the list of child processes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("grid.sim.load.PATIENCE", 30.0)
    before = left_behind()
    yield
    assert left_behind() == before


def check(summary: dict[str, Any]) -> None:
    assert summary.keys() >= KEYS
    json.dumps(summary, allow_nan=False)
    for gateway in summary["gateways"].values():
        assert gateway.keys() >= GATEWAY_KEYS
        assert gateway["version"] >= 1
        assert len(gateway["revision"]) == 64
        assert gateway["requests"] > 0
        assert gateway["errors"] == 0
        assert 0 < gateway["slowest_s"] < 30
        assert sum(gateway["shares"].values()) == pytest.approx(1.0, abs=0.001)
    assert summary["published"] >= summary["revisions"] >= 2
    assert summary["scrapes"] >= len(summary["sites"])
    assert set(summary["providers"]) == set(summary["sites"])
    assert summary["errors"] == 0


@pytest.mark.usefixtures("clean")
def test_a_short_demo_moves_traffic_away_and_ends_by_itself() -> None:
    events: list[str] = []
    screen = StringIO()
    summary = run_demo(10.0, sites=3, console=Console(file=screen, width=200), on_event=events.append, seed=4)
    check(summary)
    phases = summary["phases"]
    assert list(phases) == ["before", "filled", "killed", "back"]
    # The gateway at the site that is hit keeps to it before, and leaves it when it is full and when it is dead.
    near = "edge-east"
    assert phases["before"][near]["east"] > 0.5
    assert phases["filled"][near]["west"] > 0
    assert phases["killed"][near].get("east", 0.0) < 0.5
    assert phases["killed"][near]["west"] > 0.5
    assert phases["back"][near]["east"] > 0.05
    assert summary["providers"]["east"]["ready_endpoints"] == 2, "it is back at the end"
    said = "\n".join(events)
    for phase in phases:
        assert f"[{phase}]" in said
    assert "edge-east: version 1 of epoch" in said
    shown = screen.getvalue()
    assert "edge-east -> east 100%" in shown
    assert all(event in shown for event in events)
    assert "Where traffic went" in shown


@pytest.mark.usefixtures("clean")
def test_redis_may_restart_empty_and_nothing_fails() -> None:
    summary = run_demo(6.0, sites=2, scenario="redis-restart", seed=4)
    check(summary)
    assert {gateway["version"] for gateway in summary["gateways"].values()} == {1}
    assert summary["published"] == 2 * len(summary["gateways"]), "published again, with the same revisions"
    assert summary["revisions"] == len(summary["gateways"])


@pytest.mark.usefixtures("clean")
def test_an_operators_drain_takes_hold_and_is_taken_back() -> None:
    events: list[str] = []
    summary = run_demo(6.0, sites=2, scenario="drain", on_event=events.append, seed=4)
    check(summary)
    said = "\n".join(events)
    assert said.index("provider east is drained") < said.index("east is no longer drained")
    # A drain waits for no scrape; only requests that were under way already may end there.
    assert summary["phases"]["drained"]["edge-east"].get("east", 0.0) < 0.8
    assert summary["phases"]["back"]["edge-east"]["east"] > 0.1
    assert summary["providers"]["east"]["drained"] is False


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"scenario": "flood"}, "fill-kill-return"),
        ({"sites": 1}, "2 to 12"),
        ({"sites": 13}, "2 to 12"),
        ({"duration": 0.0}, "1 to 86400"),
    ],
)
def test_arguments_that_are_no_good_are_told(arguments: dict[str, Any], hint: str) -> None:
    with pytest.raises(GridError) as caught:
        run_demo(**arguments)
    assert (caught.value.reason, caught.value.exit_code) == (Reason.USAGE, 2)
    assert hint in caught.value.hint


def test_an_interrupt_ends_everything() -> None:
    code = "from grid.sim.demo import run_demo; run_demo(60.0, on_event=lambda text: print(text, flush=True))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    output = process.stdout
    assert output is not None
    try:
        while b"[before]" not in output.readline():
            assert process.poll() is None, "it ended too early"
        servers = psutil.Process(process.pid).children(recursive=True)
        assert servers, "the embedded server"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) in (-signal.SIGINT, 128 + signal.SIGINT)
        gone, alive = psutil.wait_procs(servers, timeout=30)
        assert not alive, gone
    finally:
        process.kill()
        process.wait()
        output.close()
