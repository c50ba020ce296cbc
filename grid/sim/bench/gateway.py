"""What the reference gateway adds to a request, beside a bare pass-through on the same two libraries in the same run.

A provider on loopback answers in server-sent events; the same requests go to it directly, through the pass-through and
through the gateway, in turns. Of each way the quietest round counts, since other work on the machine only ever adds.
``added`` is its median above that of the direct way; ``ratio`` the gateway's over the pass-through's. Each of the two
runs in a process of its own, provider and clients in this one.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import orjson

from grid.sim.bench.passthrough import MODEL

_EVENT: Final = b'data: {"sent":"%016.6f","choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
_SENT: Final = b'"sent":"'
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST: Final = b"0\r\n\r\n"
_WAYS: Final = ("direct", "bare", "gateway")


def run(*, serial: int = 300, streams: int = 256, rounds: int = 5, pause: float = 0.05) -> list[dict[str, Any]]:
    """Rows for one stream after another and for ``streams`` at once; ``rounds`` turns of all three ways each.

    ``serial``: streams of each way in a round of the first; ``pause``: s between two events of the second. Times in ms,
    added ones in us; ``cpu_us`` is what a request costs the gateway's process.
    """
    loads = [_Load("1 stream", 1, serial, 8, 0.001), _Load(f"{streams} streams", streams, 5, 20, pause)]
    return asyncio.run(_measure(loads, rounds))


@dataclass(frozen=True, slots=True)
class _Load:
    """``streams`` clients, each with so many requests one after the other; ``chunks`` events every ``pause`` s."""

    case: str
    streams: int
    requests: int
    chunks: int
    pause: float


@dataclass(slots=True)
class _Times:
    """Of one way in one round, in s: to the first byte of an answer, and of an event from provider to client."""

    first: list[float] = field(default_factory=list)
    event: list[float] = field(default_factory=list)
    cpu: float = 0.0

    def p50(self, what: str) -> float:
        return float(median(getattr(self, what)))


@dataclass(frozen=True, slots=True)
class _Way:
    """Where its requests go, and whose CPU time counts."""

    port: int
    pid: int | None = None

    def cpu(self) -> float:
        """CPU time of its process so far, s."""
        if self.pid is None:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _measure(loads: list[_Load], rounds: int) -> list[dict[str, Any]]:
    async with contextlib.AsyncExitStack() as stack:
        provider = await stack.enter_async_context(_provider())
        ways = {"direct": _Way(provider)}
        for way in ("bare", "gateway"):
            ways[way] = await stack.enter_async_context(_process(way, provider))
        rows = []
        for load in loads:
            times: dict[str, list[_Times]] = {way: [] for way in _WAYS}
            for _ in range(rounds):
                for way in _WAYS:
                    times[way].append(await _round(ways[way], load))
            rows += _rows(load, times)
        return rows


async def _round(way: _Way, load: _Load) -> _Times:
    found, before = _Times(), await asyncio.to_thread(way.cpu)
    await _clients(way.port, load, found)
    found.cpu = (await asyncio.to_thread(way.cpu) - before) / (load.streams * load.requests)
    return found


def _rows(load: _Load, times: dict[str, list[_Times]]) -> list[dict[str, Any]]:
    rows = []
    for what in ("first", "event"):
        direct, peer, ours = (min(one.p50(what) for one in times[way]) for way in _WAYS)
        rows.append(
            {
                "case": f"{load.case}, {'first byte' if what == 'first' else 'each event'}",
                "requests": sum(len(one.first) for one in times["gateway"]),
                "direct_p50_ms": round(direct * 1e3, 3),
                "p50_ms": round(ours * 1e3, 3),
                "added_p50_us": round((ours - direct) * 1e6),
                "cpu_us": round(min(one.cpu for one in times["gateway"]) * 1e6),
                "peer": "uvicorn + aiohttp, bare",
                "peer_added_p50_us": round((peer - direct) * 1e6),
                "peer_cpu_us": round(min(one.cpu for one in times["bare"]) * 1e6),
                "ratio": round((ours - direct) / (peer - direct), 2) if peer > direct else None,
            }
        )
    return rows


# --- the provider -----------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _provider() -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(_Provider, "127.0.0.1", 0, backlog=1024)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class _Provider(asyncio.Protocol):
    """Answers each request at once: head and first event, then an event every so often, as the request says."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: Any = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self._buffer = b""
        wanted = orjson.loads(body)
        self._transport.write(_HEAD + _chunk())
        self._go_on(wanted["chunks"] - 1, wanted["pause"])

    def _go_on(self, left: int, pause: float) -> None:
        if left:
            self._loop.call_later(pause, self._event, left, pause)
        else:
            self._transport.write(_LAST)

    def _event(self, left: int, pause: float) -> None:
        self._transport.write(_chunk())
        self._go_on(left - 1, pause)


def _chunk() -> bytes:
    event = _EVENT % perf_counter()
    return b"%x\r\n%b\r\n" % (len(event), event)


# --- the clients ------------------------------------------------------------------------------------------------------


async def _clients(port: int, load: _Load, times: _Times) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Where am I?" * 20}], "stream": True}
    data = orjson.dumps(body | {"chunks": load.chunks, "pause": load.pause})
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        b"accept: text/event-stream\r\nauthorization: Bearer bench\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)
    )
    # Spread over the time of one answer: nobody's clients all begin in the same instant.
    gap = load.chunks * load.pause / load.streams if load.streams > 1 else 0.0
    await asyncio.gather(
        *(_client(port, request, load.requests, number * gap, times) for number in range(load.streams))
    )


async def _client(port: int, request: bytes, number: int, delay: float, times: _Times) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(delay)
    transport, caller = await loop.create_connection(_Caller, "127.0.0.1", port)
    try:
        for turn in range(number):
            sent = perf_counter()
            first, events = await caller.call(request)
            if turn or number == 1:  # the first one opens connections
                times.first.append(first - sent)
                times.event += events
    finally:
        transport.close()


class _Caller(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: Any = None
        self._first = 0.0
        self._tail = b""
        self._events: list[float] = []
        self._done: asyncio.Future[tuple[float, list[float]]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the answer broke off"))

    def call(self, request: bytes) -> "asyncio.Future[tuple[float, list[float]]]":
        """When the first event came, and how long each was on its way, s."""
        self._done = asyncio.get_running_loop().create_future()
        self._events, self._tail = [], b""
        self._transport.write(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        now = perf_counter()
        at = data.rfind(_SENT)
        if at >= 0:
            if not self._events:
                if not (self._tail + data).startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"no good answer: {data[:200]!r}")
                self._first = now
            self._events.append(now - float(data[at + len(_SENT) : at + len(_SENT) + 16]))
        self._tail = (self._tail + data)[-256:]
        if self._tail.endswith(_LAST) and self._done is not None:
            self._done.set_result((self._first, self._events))


@contextlib.asynccontextmanager
async def _process(way: str, provider: int) -> AsyncIterator[_Way]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "grid.sim.bench.passthrough", way, f"http://127.0.0.1:{provider}",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("no pipes")
        yield _Way(int(await process.stdout.readline()), process.pid)
        process.stdin.close()
        async with asyncio.timeout(10):
            await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
