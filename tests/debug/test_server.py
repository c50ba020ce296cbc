"""The application on a real socket."""

import asyncio
import signal

import httpx
import pytest

from grid.debug import DebugServer, create_app
from grid.debug.server import is_loopback
from grid.model import DaemonError, Reason
from tests.debug.fake_view import FakeFeed, FakeView


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
        async with asyncio.timeout(5):
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
        async with asyncio.timeout(5):
            await view.feed.closed.wait()
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
