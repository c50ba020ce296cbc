"""A reference gateway on loopback in front of scripted providers; documents and frames are put into it by hand."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import uvicorn
import yaml

from grid.config import Config, parse
from grid.model import Picker
from grid.overlay import ProviderSignal, SignalFrame
from grid.overlay.frames import GatewaySignal
from grid.proxy.asgi import App
from grid.proxy.gateway import Gateway, Limits
from tests.overlay.build import candidate, envelope
from tests.support.ports import free_port
from tests.support.until import PATIENCE, until

MODEL = "llama"
NOBODY = "unix:///nonexistent/redis.sock"


@dataclass
class Seen:
    """One request as a provider got it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    arrived: float = 0.0

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


Script = Callable[["Provider", Seen, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def answer(
    writer: asyncio.StreamWriter, status: int = 200, body: bytes = b"{}", headers: Iterable[tuple[str, str]] = ()
) -> None:
    lines = [f"HTTP/1.1 {status} Status", f"content-length: {len(body)}", *(f"{k}: {v}" for k, v in headers)]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()


async def says_its_name(
    provider: "Provider", seen: Seen, _: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await answer(writer, body=b'{"from":"%b"}' % provider.name.encode(), headers=[("content-type", "application/json")])


@dataclass
class Provider:
    """Reads whole requests and answers by ``script``; keeps connections alive."""

    name: str
    script: Script = says_its_name
    read_body: bool = True
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    begun: int = 0
    """Requests that ``script`` was given, which is later than ``seen``: their bodies are here, where it reads them."""
    broken: int = 0
    """Connections that the other side closed while ``script`` ran."""
    connections: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None
    ssl: Any = None

    @property
    def url(self) -> str:
        return f"{'https' if self.ssl else 'http'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.port = self.port or free_port()
        self._server = await asyncio.start_server(self._converse, "127.0.0.1", self.port, ssl=self.ssl)

    async def stop(self) -> None:
        """Refuse connections, and break those there are."""
        if self._server is None:
            return
        self._server.close()
        for writer in tuple(self.open):
            writer.transport.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open.add(writer)
        self.connections += 1
        try:
            while True:
                seen = await self._request(reader)
                self.seen.append(seen)
                if self.read_body:
                    seen.body = await read_body(seen, reader)
                await self._run(seen, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _run(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The script, ended when the other side hangs up."""
        work = asyncio.ensure_future(self.script(self, seen, reader, writer))
        self.begun += 1
        if not self.read_body:
            await work
            return
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.broken += 1
                raise asyncio.IncompleteReadError(b"", None)
            work.result()
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _request(self, reader: asyncio.StreamReader) -> Seen:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8", "surrogateescape")
        first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        pairs = [line.split(": ", 1) for line in lines]
        return Seen(method, target, [(key, value) for key, value in pairs], arrived=time.monotonic())


async def read_body(seen: Seen, reader: asyncio.StreamReader) -> bytes:
    length = seen.header("content-length")
    if length is not None:
        return await reader.readexactly(int(length))
    body = b""
    if seen.header("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    return body


def configuration(providers: Mapping[str, str | None], **gateway: Any) -> dict[str, Any]:
    """``providers``: url by name; each is a site of its own. ``gateway``: settings of gateway ``edge``."""
    return {
        "network": "acme",
        "bus": {"url": NOBODY},
        "sites": {name: {} for name in providers},
        "providers": {
            name: {
                "site": name,
                "cluster": f"{name}-llama",
                "models": [MODEL],
                "source": {"epp": "http://127.0.0.1:9/metrics"},
                "max_running": 8,
                **({} if url is None else {"url": url}),
            }
            for name, url in providers.items()
        },
        "gateways": {"edge": {"site": next(iter(providers)), "picker": "saturation", **gateway}},
    }


@dataclass
class Rig:
    """``gateway`` runs, ``client`` talks to it."""

    gateway: Gateway
    client: aiohttp.ClientSession
    providers: dict[str, Provider]
    sequence: int = 0

    @property
    def url(self) -> str:
        return self.gateway.url

    def post(self, body: Any = None, path: str = "/v1/chat/completions", **options: Any) -> Any:
        """An answer to be entered. ``body`` bytes, or JSON with the model put in."""
        data = body if isinstance(body, bytes) else None
        json = None if data is not None else {"model": MODEL, **(body or {})}
        return self.client.post(f"{self.url}{path}", data=data, json=json, **options)

    async def ask(self, body: Any = None, path: str = "/v1/chat/completions", **options: Any) -> tuple[int, Any, Any]:
        """Status, headers and body."""
        async with self.post(body, path, **options) as got:
            data = await got.read()
            return got.status, got.headers, data

    def frame(self, **signals: Mapping[str, Any]) -> None:
        """A frame with these numbers by provider; what is not named has eight free slots."""
        self.sequence += 1
        usual = {"held": 0.0, "capacity": 8.0, "saturation": 0.0, "load": 0.0, "ready": 1, "age_s": 0.0}
        frame = SignalFrame(
            "acme", 1, self.sequence, 1.0, time.time(), {},
            {
                name: ProviderSignal(name, f"{name}-llama", **{**usual, "bound_s": 60.0, **signals.get(name, {})})
                for name in self.providers
            },
            {"edge": GatewaySignal(1, self.gateway.client.in_flight)},
        )  # fmt: skip
        self.gateway.client.observe(frame, time.monotonic())

    def counted(self, site: str = "", reason: str = "") -> float:
        """Of ``grid_route_decisions_total``."""
        registry = self.gateway.metrics.registry
        found = registry.get_sample_value("grid_route_decisions_total", {"site": site, "reason": reason})
        return found or 0.0

    @property
    def in_flight(self) -> int:
        return sum(self.gateway.client.in_flight.values())


@contextlib.asynccontextmanager
async def rig(
    *names: str,
    scripts: Mapping[str, Script] | None = None,
    groups: Mapping[str, int] | None = None,
    picker: Picker = Picker.SATURATION,
    limits: Limits | None = None,
    change: Callable[[dict[str, Any]], None] | None = None,
    document: bool = True,
    **gateway: Any,
) -> AsyncIterator[Rig]:
    """Providers ``names`` (in groups of their own where ``groups`` says so) behind a gateway."""
    providers = {name: Provider(name, (scripts or {}).get(name, says_its_name)) for name in names or ("east", "west")}
    async with contextlib.AsyncExitStack() as stack:
        for provider in providers.values():
            await provider.start()
            stack.push_async_callback(provider.stop)
        settings = configuration({name: provider.url for name, provider in providers.items()}, **gateway)
        if change is not None:
            change(settings)
        running = Gateway(load(settings), "edge", limits=limits, rng=random.Random(3))
        await running.start()
        stack.push_async_callback(running.stop)
        client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60), auto_decompress=False)
        stack.push_async_callback(client.close)
        made = Rig(running, client, providers)
        if document:
            running.client.apply(
                envelope(
                    *(
                        candidate(f"{name}-llama", rank=rank, selection_group=(groups or {}).get(name, 0),
                                  traffic_weight=100)
                        for rank, name in enumerate(providers)
                    ),
                    picker=picker,
                )
            )  # fmt: skip
            made.frame()
        yield made


@contextlib.asynccontextmanager
async def served(app: App, http: str) -> AsyncIterator[str]:
    """``app`` on a uvicorn of the usual kind, which knows nothing of Grid."""
    application: Any = app
    settings: Any = {"http": http}
    config = uvicorn.Config(
        application, **settings, port=0, log_config=None, access_log=False, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await task


async def eventually(check: Callable[[], Awaitable[bool]], seconds: float = PATIENCE) -> None:
    """Poll ``check`` until it says yes."""
    async with asyncio.timeout(seconds):
        while not await check():  # noqa: ASYNC110 - the other side is a real server
            await asyncio.sleep(0.01)


def load(settings: Mapping[str, Any]) -> Config:
    return parse(yaml.safe_dump(dict(settings), sort_keys=False))
