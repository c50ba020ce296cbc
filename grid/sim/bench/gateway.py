"""What the reference gateway adds to a request, beside a bare pass-through on the same two libraries in the same run.

A provider on loopback answers in server-sent events; the same requests go to it directly, through the pass-through and
through the gateway, in turns. Of each way the quietest round counts, since other work on the machine only ever adds.
``added`` is its median above that of the direct way; ``ratio`` the gateway's over the pass-through's, so less is
better. Each of the two runs in a process of its own, provider and clients in this one.

``load`` says how requests come. One stream after the other is a closed loop, meant so: nothing waits for anything, it
is the cost of a request alone. Many at once are an open loop: when requests begin is drawn before the first one, in a
Poisson process of the rate that keeps so many under way on average, the same for each way. A slow answer delays no
later request, and the time to the first byte counts from when a request was due, however late it began. An event counts
from when it was sent, by a schedule that nothing behind the provider can hold up.
"""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import quantiles
from time import monotonic
from typing import Any, Final

import orjson

from grid.sim.bench.growth import Better
from grid.sim.bench.passthrough import MODEL

_EVENT: Final = b'data: {"sent":"%016.6f","choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
_SENT: Final = b'"sent":"'
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_DIGITS: Final = 16
_LAST: Final = b"0\r\n\r\n"
_CHUNKS: Final = 20
_TURNS: Final = 5
"""How often all streams are begun anew in a round; the first time is the way to a steady state."""
_PATIENCE: Final = 60.0
"""s after which a round has failed."""
_WAYS: Final = ("direct", "bare", "gateway")


def run(*, serial: int = 300, streams: int = 256, rounds: int = 5, pause: float = 0.05) -> list[dict[str, Any]]:
    """Rows for one stream after another and for ``streams`` at once; ``rounds`` turns of all three ways each.

    ``serial``: streams of each way in a round of the first; ``pause``: s between two events of the second. Times in ms,
    added ones in us; ``cpu_us`` is what a request costs the gateway's process.
    """
    rng = random.Random(6)
    return asyncio.run(_measure([_serial(serial), _many(streams, pause, rng)], rounds))


@dataclass(frozen=True, slots=True)
class _Load:
    """Requests of ``chunks`` events every ``pause`` s.

    ``due``: when each begins, s from the start of a round, and those after ``settled`` s count; empty: as soon as the
    one before has ended.
    """

    case: str
    kind: str
    chunks: int
    pause: float
    requests: int
    due: tuple[float, ...] = ()
    settled: float = 0.0


def _serial(requests: int) -> _Load:
    return _Load("1 stream", "closed loop, one after the other", 8, 0.001, requests)


def _many(streams: int, pause: float, rng: random.Random) -> _Load:
    rate = streams / (_CHUNKS * pause)
    due = tuple(accumulate(rng.expovariate(rate) for _ in range(_TURNS * streams)))
    kind = f"open loop, {rate:.0f} a second"
    return _Load(f"{streams} streams", kind, _CHUNKS, pause, len(due), due, settled=streams / rate)


@dataclass(slots=True)
class _Times:
    """Of one way in one round, in s: to the first byte of an answer, and of an event from provider to client."""

    first: list[float] = field(default_factory=list)
    event: list[float] = field(default_factory=list)
    cpu: float = 0.0

    def mark(self, what: str, percent: int) -> float:
        return float(quantiles(getattr(self, what), n=100, method="inclusive")[percent - 1])


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
    found.cpu = (await asyncio.to_thread(way.cpu) - before) / load.requests
    return found


def _rows(load: _Load, times: dict[str, list[_Times]]) -> list[dict[str, Any]]:
    rows = []
    for what in ("first", "event"):
        direct, peer, ours = (min(one.mark(what, 50) for one in times[way]) for way in _WAYS)
        late, peer_late, our_late = (min(one.mark(what, 99) for one in times[way]) for way in _WAYS)
        rows.append(
            {
                "case": f"{load.case}, {'first byte' if what == 'first' else 'each event'}",
                "load": load.kind,
                "requests": sum(len(one.first) for one in times["gateway"]),
                "direct_p50_ms": round(direct * 1e3, 3),
                "p50_ms": round(ours * 1e3, 3),
                "p99_ms": round(our_late * 1e3, 3),
                "added_p50_us": round((ours - direct) * 1e6),
                "added_p99_us": round((our_late - late) * 1e6),
                "cpu_us": round(min(one.cpu for one in times["gateway"]) * 1e6),
                "peer": "uvicorn + aiohttp, bare",
                "peer_added_p50_us": round((peer - direct) * 1e6),
                "peer_added_p99_us": round((peer_late - late) * 1e6),
                "peer_cpu_us": round(min(one.cpu for one in times["bare"]) * 1e6),
                "ratio": round((ours - direct) / (peer - direct), 2) if peer > direct else None,
                "better": Better.LESS,
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
        self._transport.write(_HEAD + _chunk(monotonic()))
        self._go_on(wanted["chunks"] - 1, self._loop.time(), wanted["pause"])

    def _go_on(self, left: int, due: float, pause: float) -> None:
        if left:
            self._loop.call_at(due + pause, self._event, left, due + pause, pause)
        else:
            self._transport.write(_LAST)

    def _event(self, left: int, due: float, pause: float) -> None:
        self._transport.write(_chunk(monotonic()))
        self._go_on(left - 1, due, pause)


def _chunk(sent: float) -> bytes:
    event = _EVENT % sent
    return b"%x\r\n%b\r\n" % (len(event), event)


# --- the clients ------------------------------------------------------------------------------------------------------


async def _clients(port: int, load: _Load, times: _Times) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Where am I?" * 20}], "stream": True}
    data = orjson.dumps(body | {"chunks": load.chunks, "pause": load.pause})
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        b"accept: text/event-stream\r\nauthorization: Bearer bench\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)
    )
    clients = _Clients(port, request, times)
    try:
        async with asyncio.timeout(_PATIENCE):
            await (clients.on_time(load.due, load.settled) if load.due else clients.in_turn(load.requests))
    finally:
        clients.close()


class _Clients:
    """Clients of one port that keep connections open, and open one more where none is free."""

    def __init__(self, port: int, request: bytes, times: _Times) -> None:
        self._port = port
        self._request = request
        self._times = times
        self._free: list[_Caller] = []
        self._all: list[_Caller] = []

    async def in_turn(self, requests: int) -> None:
        """One request after the other; the first opens connections and does not count."""
        for number in range(requests):
            await self._call(monotonic(), counts=number > 0)

    async def on_time(self, due: Sequence[float], settled: float) -> None:
        """Requests that begin when they are due, whatever becomes of those before.

        What is due by ``settled`` s only brings everything to its steady state.
        """
        began = monotonic()
        async with asyncio.TaskGroup() as group:
            for after in due:
                await asyncio.sleep(began + after - monotonic())
                group.create_task(self._call(began + after, counts=after > settled), name="bench request")

    async def _call(self, due: float, *, counts: bool) -> None:
        caller = self._free.pop() if self._free else await self._opened()
        first, events = await caller.call(self._request)
        self._free.append(caller)
        if counts:
            self._times.first.append(first - due)
            self._times.event += events

    async def _opened(self) -> "_Caller":
        _, caller = await asyncio.get_running_loop().create_connection(_Caller, "127.0.0.1", self._port)
        self._all.append(caller)
        return caller

    def close(self) -> None:
        """Close the connections."""
        for caller in self._all:
            caller.close()


class _Caller(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: Any = None
        self._first = 0.0
        self._rest = b""
        self._events: list[float] = []
        self._done: asyncio.Future[tuple[float, list[float]]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the answer broke off"))

    def call(self, request: bytes) -> "asyncio.Future[tuple[float, list[float]]]":
        """When the first event came (monotonic s), and how long each one was on its way, s."""
        self._done = asyncio.get_running_loop().create_future()
        self._events, self._rest = [], b""
        self._transport.write(request)
        return self._done

    def close(self) -> None:
        """Close the connection."""
        if self._done is not None:
            self._done.cancel()
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        now = monotonic()
        self._rest += data
        # Events that were held up come together, and each of them counts.
        while (at := self._rest.find(_SENT)) >= 0 and len(self._rest) >= (end := at + len(_SENT) + _DIGITS):
            if not self._events:
                if not self._rest.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"no good answer: {self._rest[:200]!r}")
                self._first = now
            self._events.append(now - float(self._rest[end - _DIGITS : end]))
            self._rest = self._rest[end:]
        if self._rest.endswith(_LAST) and self._done is not None and not self._done.done():
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
