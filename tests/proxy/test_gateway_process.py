"""The gateway with a real Redis, and as a process that is told to end."""

import asyncio
import contextlib
import importlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import typer
import yaml
from typer.testing import CliRunner

from grid.bus.reports import read_reports
from grid.cli import extras
from grid.cli.gateway import register
from grid.model import ConfigError, Picker, Reason
from grid.proxy.gateway import Gateway
from tests.overlay.build import candidate, document
from tests.proxy.conftest import Daemon
from tests.proxy.raw import line, request
from tests.proxy.rig import Provider, Seen, configuration, eventually, load
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.until import PATIENCE, until

pytestmark = pytest.mark.real_server


def documents(*names: str) -> Any:
    rows = [
        candidate(f"{name}-llama", rank=rank, selection_group=0, traffic_weight=100) for rank, name in enumerate(names)
    ]
    return document(*rows, picker=Picker.ROUND_ROBIN)


def settings(server: RedisServer, providers: dict[str, str | None], state: Path | None = None) -> dict[str, Any]:
    made = configuration(providers) | {"bus": {"url": server.url}}
    if state is not None:
        made["daemon"] = {"state_dir": str(state)}
    return made


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    made = Provider("east")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as made:
        yield made


async def ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/readyz") as got:
            return bool(got.status == 200)
    except aiohttp.ClientError:
        return False


@contextlib.asynccontextmanager
async def running(made: dict[str, Any], **options: Any) -> AsyncIterator[Gateway]:
    gateway = Gateway(load(made), "edge", **options)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


async def test_documents_and_reports_go_over_the_bus(
    server: RedisServer, daemon: Daemon, provider: Provider, http: aiohttp.ClientSession
) -> None:
    go_on = asyncio.Event()

    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"ab")
        await go_on.wait()
        writer.write(b"cd")

    provider.script = script
    await daemon.publish(documents("east"))
    async with running(settings(server, {"east": provider.url})) as gateway:
        await eventually(lambda: ready(http, gateway.url))
        asked = asyncio.create_task(http.post(f"{gateway.url}/v1/completions", json={"model": "llama"}))
        await until(lambda: gateway.client.in_flight == {"east/east-llama": 1})

        async def reported() -> bool:
            found = await read_reports(daemon.bus)
            return (
                bool(found)
                and found[0].in_flight == {"east/east-llama": 1}
                and "east/east-llama" in found[0].first_byte_s
            )

        await eventually(reported)
        (report,) = await read_reports(daemon.bus)
        assert report.gateway == "edge"
        assert 0.04 < report.first_byte_s["east/east-llama"] < PATIENCE
        go_on.set()
        assert (await asked).status == 200


async def test_a_frozen_redis_is_not_felt(
    server: RedisServer, daemon: Daemon, provider: Provider, http: aiohttp.ClientSession
) -> None:
    await daemon.publish(documents("east"))
    await daemon.beat(0.1)
    async with running(settings(server, {"east": provider.url})) as gateway:
        await eventually(lambda: ready(http, gateway.url))

        async def median_ms(number: int) -> float:
            took = []
            for _ in range(number):
                began = time.perf_counter()
                async with http.post(f"{gateway.url}/v1/completions", json={"model": "llama"}) as got:
                    assert got.status == 200
                took.append((time.perf_counter() - began) * 1e3)
            return statistics.median(took)

        before = await median_ms(200)
        server.freeze()
        try:
            frozen = await median_ms(1000)

            async def stale() -> bool:
                async with http.get(f"{gateway.url}/readyz?verbose") as got:
                    shown = orjson.loads(await got.read())
                return bool(shown["ready"] and shown["status"] == "stale" and shown["stale_since"])

            await eventually(stale)
        finally:
            server.thaw()
        # Whoever waited for it would wait for seconds.
        assert frozen < before * 5 + 100


async def test_the_saved_document_is_enough(
    server: RedisServer, daemon: Daemon, provider: Provider, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    made = settings(server, {"east": provider.url}, tmp_path)
    await daemon.publish(documents("east"))
    async with running(made) as gateway:
        await eventually(lambda: ready(http, gateway.url))
        await until((tmp_path / "gateway-edge.json").exists)
    server.kill()
    async with running(made) as gateway:
        await eventually(lambda: ready(http, gateway.url))
        async with http.post(f"{gateway.url}/v1/completions", json={"model": "llama"}) as got:
            assert (got.status, got.headers["x-grid-site"]) == (200, "east")
        async with http.get(f"{gateway.url}/readyz?verbose") as got:
            shown = orjson.loads(await got.read())
        assert (shown["ready"], shown["status"], shown["version"]) == (True, "stale", 1)


# --- as a process -----------------------------------------------------------------------------------------------------

GRACE = 30.0

_MAIN = """
import sys
from pathlib import Path
from grid import logs
from grid.proxy.gateway import main
logs.configure("warning")
sys.exit(main(Path(sys.argv[1]), "edge", listen=("127.0.0.1", int(sys.argv[2])), grace=float(sys.argv[3])))
"""


class Process:
    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    async def ended(self) -> tuple[int, float]:
        """Its exit code, and how long that took."""
        began = time.monotonic()
        await until(lambda: self.process.poll() is not None)
        return self.process.returncode, time.monotonic() - began


@contextlib.asynccontextmanager
async def process(made: dict[str, Any], folder: Path, grace: float = GRACE) -> AsyncIterator[Process]:
    file, port = folder / "grid.yaml", free_port()
    await asyncio.to_thread(file.write_text, yaml.safe_dump(made))
    found = await asyncio.to_thread(
        subprocess.Popen, [sys.executable, "-c", _MAIN, str(file), str(port), str(grace)], stderr=subprocess.PIPE
    )
    try:
        yield Process(found, f"http://127.0.0.1:{port}")
    finally:
        found.kill()
        _, said = await asyncio.to_thread(found.communicate)
        assert b"Traceback" not in said, said.decode()


class Talker:
    """Streams until told to end."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    async def __call__(self, _: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not self.end.is_set():
            writer.write(b"3\r\nabc\r\n")
            await asyncio.sleep(0.02)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def test_sigterm_lets_streams_end_and_takes_no_new_work(
    server: RedisServer, daemon: Daemon, provider: Provider, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    talker = provider.script = Talker()
    await daemon.publish(documents("east"))
    async with process(settings(server, {"east": provider.url}), tmp_path) as gateway:
        await eventually(lambda: ready(http, gateway.url))
        async with http.post(f"{gateway.url}/v1/completions", json={"model": "llama"}) as stream:
            assert await stream.content.readexactly(3) == b"abc"
            gateway.process.send_signal(signal.SIGTERM)

            async def not_ready() -> bool:
                return not await ready(http, gateway.url)

            await eventually(not_ready)
            async with http.post(f"{gateway.url}/v1/completions", json={"model": "llama"}) as got:
                assert (got.status, orjson.loads(await got.read())["error"]["code"]) == (503, "shutting_down")
            await stream.content.readexactly(30)
            assert gateway.process.poll() is None
            talker.end.set()
            assert set(await stream.content.read()) <= set(b"abc"), "to its proper end"
        code, took = await gateway.ended()
        assert code == 0
        assert took < GRACE / 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_with_nothing_under_way_it_ends_at_once(
    server: RedisServer, http: aiohttp.ClientSession, provider: Provider, tmp_path: Path, number: signal.Signals
) -> None:
    async with process(settings(server, {"east": provider.url}), tmp_path) as gateway:

        async def alive() -> bool:
            try:
                async with http.get(f"{gateway.url}/livez") as got:
                    return bool(got.status == 200)
            except aiohttp.ClientError:
                return False

        await eventually(alive)
        gateway.process.send_signal(number)
        code, took = await gateway.ended()
        assert code == 0
        assert took < GRACE / 2


async def test_a_second_signal_ends_it_whatever_is_under_way(
    server: RedisServer, daemon: Daemon, provider: Provider, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    provider.script = Talker()
    await daemon.publish(documents("east"))
    async with process(settings(server, {"east": provider.url}), tmp_path) as gateway:
        await eventually(lambda: ready(http, gateway.url))
        async with line(gateway.url) as client:
            await client.send(request(b'{"model":"llama"}'))
            await client.reader.readuntil(b"abc\r\n")
            gateway.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            assert gateway.process.poll() is None
            gateway.process.send_signal(signal.SIGTERM)
            code, took = await gateway.ended()
            assert code == 128 + signal.SIGTERM
            assert took < GRACE / 2


async def test_what_takes_longer_than_the_grace_is_cut_off(
    server: RedisServer, daemon: Daemon, provider: Provider, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    provider.script = Talker()
    await daemon.publish(documents("east"))
    async with process(settings(server, {"east": provider.url}), tmp_path, grace=0.5) as gateway:
        await eventually(lambda: ready(http, gateway.url))
        async with line(gateway.url) as client:
            await client.send(request(b'{"model":"llama"}'))
            await client.reader.readuntil(b"abc\r\n")
            gateway.process.send_signal(signal.SIGTERM)
            code, _ = await gateway.ended()
            assert code == 0
            rest = await client.reader.read()
            assert not rest.endswith(b"0\r\n\r\n"), "and that shows"


# --- as a command -----------------------------------------------------------------------------------------------------


def command(*arguments: str) -> Any:
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_says_what_is_wrong_with_its_options(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(yaml.safe_dump(configuration({"east": "http://127.0.0.1:9"})))
    for arguments, said in (
        (("--listen", "8080"), "no host:port"),
        (("--grace", "3"), "has no unit"),
        (("--key-file", str(tmp_path / "missing")), "cannot read"),
    ):
        result = command("-c", str(file), "--name", "edge", *arguments)
        assert (result.exit_code, said in result.output) == (2, True), result.output
    result = command("-c", str(file), "--name", "edgy")
    assert "no gateway 'edgy'" in str(result.exception)
    assert command("--help").exit_code == 0


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    with pytest.raises(ConfigError, match="needs httptools") as caught, extras.told():
        importlib.import_module("httptools")
    assert (caught.value.reason, caught.value.hint) == (Reason.EXTRA_MISSING, "pip install 'llm-grid[gateway]'")
    with pytest.raises(ModuleNotFoundError), extras.told():
        importlib.import_module("no_such_module")
