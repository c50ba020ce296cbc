"""``grid sync`` as a process: exit codes, words, signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from grid.bus import Publisher
from grid.cli import main, sync
from tests.proxy.conftest import Daemon
from tests.proxy.words import grouped, write_config
from tests.support.redis_server import RedisServer, wait_until

pytestmark = pytest.mark.real_server

URLS: dict[str, str | None] = {"east": "http://127.0.0.1:1001"}
RUN = """
from grid.cli import main, sync
if "sync" not in {command.name for command in main.app.registered_commands}:
    sync.register(main.app)
main.main()
"""


APP = typer.Typer(cls=main._Command)
sync.register(APP)
APP.callback()(lambda: None)


def command(config: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-c", RUN, "sync", "-c", str(config), "--name", "edge", "--out", str(out), *more]


def grid_sync(config: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(
        command(config, out, *more), capture_output=True, text=True, timeout=60, check=False, env=environment
    )


@pytest.fixture
def config(tmp_path: Path, server: RedisServer) -> Path:
    return write_config(tmp_path / "grid.yaml", server.url, URLS)


@pytest.fixture
async def published(daemon: Daemon) -> Publisher:
    await daemon.publish(grouped(("east", 0, 100)))
    return daemon.publisher


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("form", ["envelope", "envoy-eds"])
@pytest.mark.usefixtures("published")
def test_once(config: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out.json"
    done = grid_sync(config, out, "--once", "--format", form)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"{out} holds" in done.stderr
    found = json.loads(out.read_bytes())
    assert ("scope" in found) is (form == "envelope")
    assert json.loads((tmp_path / "out.json.status.json").read_bytes())["format"] == form


def test_once_without_a_bus(tmp_path: Path) -> None:
    config = write_config(tmp_path / "grid.yaml", "redis://127.0.0.1:1", URLS)
    done = grid_sync(config, tmp_path / "out.json", "--once", "--timeout", "200ms")
    assert done.returncode == 3, done.stderr
    assert "bus_unreachable" in done.stderr
    assert not (tmp_path / "out.json").exists()


@pytest.mark.usefixtures("published")
def test_once_refused(config: Path, tmp_path: Path, server: RedisServer) -> None:
    write_config(config, server.url, URLS, namespace="other")
    done = grid_sync(config, tmp_path / "out.json", "--once")
    assert done.returncode == 1, done.stderr
    assert "scope_mismatch" in done.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--timeout", "soon"], "--timeout"),
        (["--cluster-prefix", "a|b"], "--cluster-prefix"),
        (["--envoy-admin", "localhost:9901"], "--envoy-admin"),
        (["--key-file", "/nowhere/key"], "--key-file"),
    ],
)
def test_called_wrongly(tmp_path: Path, more: list[str], said: str) -> None:
    config = write_config(tmp_path / "grid.yaml", "redis://127.0.0.1:1", URLS)
    done = CliRunner().invoke(APP, command(config, tmp_path / "out.json", "--once", *more)[3:])
    assert done.exit_code == 2, done.output
    assert said in done.output


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_when_told(
    config: Path, tmp_path: Path, processes: list[subprocess.Popen[bytes]], number: signal.Signals
) -> None:
    out = tmp_path / "out.json"
    with (tmp_path / "log").open("wb") as log:
        processes.append(subprocess.Popen(command(config, out), stdout=log, stderr=log))
    wait_until(lambda: out.exists() or processes[0].poll() is not None)
    processes[0].send_signal(number)
    code = processes[0].wait(30)
    log_text = (tmp_path / "log").read_text()
    assert code == 0, log_text
    assert "Traceback" not in log_text
    assert json.loads(log_text.splitlines()[0])["event"] == "document written"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["grid.yaml", "log", "out.json", "out.json.status.json"]


@pytest.mark.usefixtures("published")
def test_killed_at_any_moment_it_leaves_a_whole_file(
    config: Path, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    out = tmp_path / "out.json"
    assert grid_sync(config, out, "--once").returncode == 0
    before = out.read_bytes()
    processes.append(subprocess.Popen(command(config, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    status = tmp_path / "out.json.status.json"
    since = status.stat().st_mtime_ns
    wait_until(lambda: status.stat().st_mtime_ns > since)
    os.kill(processes[0].pid, signal.SIGKILL)
    processes[0].wait()
    assert out.read_bytes() == before
    assert time.time() - status.stat().st_mtime < 60
