"""A real daemon over served pages, and the command called in this process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from typer.testing import CliRunner, Result

from grid.cli.main import app
from tests.daemon.fleet import page
from tests.support.ports import free_port
from tests.support.redis_server import program

CONFIG = """\
network: acme
daemon: {{listen: 127.0.0.1:{port}, state_dir: {folder}/s, scrape_interval: 500ms, scrape_timeout: 400ms}}
sites:
  east: {{region: eu-west, zone: eu-west-1a}}
  west: {{region: us-west, zone: us-west-2b}}
providers:
  east-llama: {{site: east, cluster: east-llama, models: [llama], max_running: 8, source: {{epp: "{pages}/east"}}}}
  west-llama: {{site: west, cluster: west-llama, models: [llama], max_running: 8, source: {{epp: "{pages}/west"}}}}
  dead-llama: {{site: west, cluster: dead-llama, models: [llama], max_running: 8, source: {{epp: "{pages}/dead"}}}}
  gone-llama: {{site: west, cluster: gone-llama, models: [llama], max_running: 8, source: {{epp: "{gone}/x"}}}}
gateways:
  edge-east: {{site: east, picker: saturation}}
  edge-west: {{site: west, contract: praxis-ordered}}
"""


def grid(*arguments: str | Path, given: bytes | None = None) -> Result:
    """Run the command here."""
    return CliRunner().invoke(app, [str(one) for one in arguments], input=given)


def json_of(result: Result) -> Any:
    """The one JSON document on stdout."""
    return orjson.loads(result.stdout)


@dataclass(frozen=True, slots=True)
class Running:
    """A daemon process: its configuration, its recording, where it listens."""

    config: Path
    recording: Path
    log: Path
    process: "subprocess.Popen[bytes]"
    url: str


def _start(arguments: list[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as out:
        return subprocess.Popen([sys.executable, "-m", *arguments], stdout=out, stderr=subprocess.STDOUT)


def _wait(condition: Any, log: Path, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"not within {within} s:\n{log.read_text()}")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon with four providers: two good ones, one whose engines are gone, one that nothing listens for."""
    os.environ["PATH"] = f"{Path(program('7')).parent}:{os.environ['PATH']}"
    folder = tmp_path_factory.mktemp("cli")
    for name, data in {"east": page(2, 3), "west": page(2, 12), "dead": page(0, 0)}.items():
        (folder / f"{name}.txt").write_bytes(data)
    pages_port, port = free_port(), free_port()
    pages_log, log = folder / "pages.log", folder / "daemon.log"
    served = [f"{name}={folder / name}.txt" for name in ("east", "west", "dead")]
    pages = _start(["grid.sim.pages", "--port", str(pages_port), *served], pages_log)
    config = folder / "grid.yaml"
    config.write_text(
        CONFIG.format(
            port=port,
            folder=folder,
            pages=f"http://127.0.0.1:{pages_port}",
            gone=f"http://127.0.0.1:{free_port()}",
        )
    )
    recording = folder / "recording.jsonl"
    url = f"http://127.0.0.1:{port}"
    process = None
    try:
        _wait(lambda: httpx.get(f"http://127.0.0.1:{pages_port}/east", trust_env=False).is_success, pages_log)
        process = _start(["grid", "run", "-c", str(config), "--record", str(recording)], log)
        dead = f"{url}/v1/providers/dead-llama"
        _wait(lambda: httpx.get(dead, trust_env=False).json().get("admission_state") == "none", log)
        yield Running(config, recording, log, process, url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        for one in (process, pages):
            if one is not None and one.poll() is None:
                one.kill()
                one.wait(30)
