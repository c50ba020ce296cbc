"""A real Prometheus on a loopback port, and the pages it scrapes.

A Prometheus takes 5 to 10 s from its start to its first scrape, so one of them serves all tests of a session: its
targets are paths of one small HTTP server, and a test takes paths of its own and puts pages there.
"""

import contextlib
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from tests.support.ports import free_port

STARTUP = 60.0


class Pages:
    """An HTTP server in a thread of its own that serves ``pages[path]``; 503 where there is none."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.served_at: dict[str, float] = {}
        """Monotonic s of the last answer, by path."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                page = outer.pages.get(self.path)
                outer.served_at[self.path] = time.monotonic()
                self.send_response(503 if page is None else 200)
                self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("content-length", str(len(page or b"")))
                self.end_headers()
                self.wfile.write(page or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="pages", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def prometheus(
    scrape_configs: Sequence[Mapping[str, object]] = (),
    *,
    scrape_interval: str = "500ms",
    web_config: Mapping[str, object] | None = None,
) -> Iterator[str]:
    """Run a Prometheus with these scrape configurations and yield ``127.0.0.1:port``.

    Skips the test, loudly, where Prometheus is not installed.
    """
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("NO PROMETHEUS: install the Debian package prometheus")
    with tempfile.TemporaryDirectory(prefix="grid-prometheus-") as name:
        home = Path(name)
        settings = {
            "global": {"scrape_interval": scrape_interval, "scrape_timeout": scrape_interval},
            "scrape_configs": list(scrape_configs),
        }
        (home / "prometheus.yml").write_text(yaml.safe_dump(settings))
        (home / "web.yml").write_text(yaml.safe_dump(dict(web_config or {})))
        process, address = _start(program, home)
        try:
            yield address
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(program: str, home: Path) -> tuple[subprocess.Popen[bytes], str]:
    for _ in range(3):  # another process may take the port between our look and its start
        port = free_port()
        command = [
            program,
            f"--config.file={home / 'prometheus.yml'}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--web.config.file={home / 'web.yml'}",
            "--log.level=warn",
        ]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=home)
        deadline = time.monotonic() + STARTUP
        while time.monotonic() < deadline and process.poll() is None:
            if _ready(f"127.0.0.1:{port}"):
                return process, f"127.0.0.1:{port}"
            time.sleep(0.05)
        process.kill()
        process.wait()
    pytest.fail(f"prometheus does not come up: {(home / 'log').read_text()[-2000:]}")


def _ready(address: str) -> bool:
    """Whether it answers queries: it listens before that, and says 503. A login or TLS that is wanted is an answer."""
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except urllib.error.HTTPError as error:
        return error.code != HTTPStatus.SERVICE_UNAVAILABLE
    except OSError:
        return False


def ask(address: str, query: str) -> list[dict[str, Any]]:
    """Series of one instant query, asked without any of our own code."""
    url = f"http://{address}/api/v1/query?{urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found
