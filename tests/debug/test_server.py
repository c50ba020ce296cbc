"""The application on a real socket."""

import asyncio
import contextlib
import signal
import time
from typing import Self

import httpx
import pytest

from grid.debug import DebugServer, create_app
from grid.debug.connections import WatchedConnection
from grid.debug.server import is_loopback
from grid.model import DaemonError, Reason
from tests.debug.fake_view import FakeFeed, FakeView
from tests.support.until import PATIENCE


async def test_it_serves_and_stops(view: FakeView) -> None:
    server = DebugServer(create_app(view), "127.0.0.1", 0)
    await server.start()
    try:
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
            assert (await client.get("/readyz")).text == "ok\n"
            head = await client.head("/v1/overlays/edge-east")
            assert (head.status_code, head.content) == (200, b"")
            assert int(head.headers["content-length"]) > 0
            assert "server" not in head.headers
    finally:
        await server.stop()
    with pytest.raises(httpx.ConnectError):
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.get(f"{server.url}/livez")
    await server.stop()


async def test_signals_stay_the_host_process_own(view: FakeView) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    server = DebugServer(create_app(view), "127.0.0.1", 0)
    await server.start()
    try:
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    finally:
        await server.stop()


async def test_a_taken_port_is_said_with_the_next_step(view: FakeView) -> None:
    first = DebugServer(create_app(view), "127.0.0.1", 0)
    await first.start()
    try:
        second = DebugServer(create_app(view), "127.0.0.1", first.port)
        with pytest.raises(DaemonError) as caught:
            await second.start()
        assert caught.value.reason is Reason.LISTEN_FAILED
        assert str(first.port) in caught.value.message
        await second.stop()
    finally:
        await first.stop()


async def test_an_address_that_is_not_here(view: FakeView) -> None:
    with pytest.raises(DaemonError) as caught:
        await DebugServer(create_app(view), "not an address", 0).start()
    assert caught.value.reason is Reason.LISTEN_FAILED


async def test_a_listener_that_never_leaves_does_not_hold_up_the_end(view: FakeView) -> None:
    view.feed = FakeFeed([], open_ended=True)
    server = DebugServer(create_app(view), "127.0.0.1", 0)
    await server.start()
    async with (
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("GET", f"{server.url}/v1/events") as answer,
    ):
        lines = answer.aiter_lines()
        assert (await anext(lines)).startswith(":")
        async with asyncio.timeout(PATIENCE):
            await server.stop()
            await view.feed.closed.wait()


async def test_a_listener_that_leaves_is_forgotten(view: FakeView) -> None:
    view.feed = FakeFeed([], open_ended=True)
    server = DebugServer(create_app(view), "127.0.0.1", 0)
    await server.start()
    try:
        async with (
            httpx.AsyncClient(trust_env=False) as client,
            client.stream("GET", f"{server.url}/v1/events") as answer,
        ):
            await anext(answer.aiter_lines())
        async with asyncio.timeout(PATIENCE):
            await view.feed.closed.wait()
    finally:
        await server.stop()


class Raw:
    """A connection by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, server: DebugServer) -> Self:
        return cls(*await asyncio.open_connection(server.host, server.port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ends(self) -> bytes:
        """What came until the other side closed the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""
            finally:
                self.writer.close()


GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/drains HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n"


async def _slowly(raw: Raw, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        for byte in data:
            await raw.send(bytes([byte]))
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n", POST, POST + b'{"target"'])
async def test_half_a_request_does_not_hold_its_connection(
    view: FakeView, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(WatchedConnection, "request_time", 0.3)
    server = DebugServer(create_app(view), "127.0.0.1", 0)
    await server.start()
    try:
        raw = await Raw.to(server)
        await raw.send(sent)
        assert b" 20" not in await raw.ends()
        assert not view.drained
        # Neither one that comes byte by byte, nor the second one on a connection.
        dripping = await Raw.to(server)
        drip = asyncio.create_task(_slowly(dripping, GET[:-2] + b"X-Long: " + b"x" * 500))
        assert await dripping.ends() == b""
        await drip
        second = await Raw.to(server)
        await second.send(GET)
        assert (await second.reader.readuntil(b"\r\n\r\nok\n")).startswith(b"HTTP/1.1 200")
        await second.send(sent or b"G")
        assert b" 20" not in await second.ends()
    finally:
        await server.stop()


async def test_answers_may_take_longer_than_requests(view: FakeView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatchedConnection, "request_time", 0.3)
    view.feed = FakeFeed([], open_ended=True)
    server = DebugServer(create_app(view), "127.0.0.1", 0)
    await server.start()
    try:
        async with (
            httpx.AsyncClient(trust_env=False) as client,
            client.stream("GET", f"{server.url}/v1/events") as answer,
        ):
            started, seen = time.monotonic(), 0
            async for _ in answer.aiter_lines():
                seen += 1
                if seen > 10 and time.monotonic() - started > 0.6:
                    break
            assert time.monotonic() - started > 0.6, "it did not end by itself"
    finally:
        await server.stop()


async def test_connections_are_bounded_and_those_that_wait_make_room(
    view: FakeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WatchedConnection, "max_connections", 8)
    server = DebugServer(create_app(view), "127.0.0.1", 0)
    await server.start()
    try:
        idle = await Raw.to(server)
        await idle.send(GET)
        await idle.reader.readuntil(b"\r\n\r\nok\n")
        halves = [await Raw.to(server) for _ in range(30)]
        for half in halves:
            with contextlib.suppress(ConnectionError):
                await half.send(b"GET /")
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
            assert (await client.get("/readyz")).text == "ok\n"
        for half in halves[:22]:
            assert await half.ends() == b"", "the oldest are cut"
        # The one that was idle before them has kept its place.
        await idle.send(GET)
        assert (await idle.reader.readuntil(b"\r\n\r\nok\n")).startswith(b"HTTP/1.1 200")
        for raw in (idle, *halves[22:]):
            raw.writer.close()
    finally:
        await server.stop()


async def test_where_all_are_at_work_the_newcomer_is_cut(view: FakeView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatchedConnection, "max_connections", 1)
    view.feed = FakeFeed([], open_ended=True)
    server = DebugServer(create_app(view), "127.0.0.1", 0)
    await server.start()
    try:
        async with (
            httpx.AsyncClient(trust_env=False) as client,
            client.stream("GET", f"{server.url}/v1/events") as answer,
        ):
            lines = answer.aiter_lines()
            await anext(lines)
            assert await (await Raw.to(server)).ends() == b""
            assert await anext(lines) is not None
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - nothing is bound
        ("::", False),
        ("grid.example", False),
    ],
)
def test_what_only_this_machine_can_reach(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
