"""Clients that leave: wherever they do, the provider is told and nothing is held."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

from grid.proxy.asgi import App, Message, Receive, Scope, Send
from grid.proxy.gateway import Limits
from grid.proxy.listener import Listener
from grid.proxy.upstreams import Pool
from tests.proxy.raw import line, request
from tests.proxy.rig import Provider, Rig, Seen, answer, rig, served
from tests.support.until import until

BODY = b'{"model":"llama","messages":[]}'


async def holds(_: Provider, __: Seen, ___: asyncio.StreamReader, ____: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def talks(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Events without end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"7\r\ndata: \n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


def based(app: App) -> App:
    """The middleware class that most applications have one of."""

    async def dispatch(asked: Any, call_next: Any) -> Any:
        return await call_next(asked)

    wrapped: Any = BaseHTTPMiddleware(app, dispatch=dispatch)
    found: App = wrapped
    return found


def zipping(app: App) -> App:
    wrapped: Any = GZipMiddleware(app)
    found: App = wrapped
    return found


def repeating(app: App) -> App:
    """Reads the body for itself and hands on a ``receive`` that gives it again and again: a disconnect is not heard."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)

        async def again() -> Message:
            await asyncio.sleep(0)
            return {"type": "http.request", "body": body, "more_body": False}

        await app(scope, again, send)

    return wrapped


Serve = Callable[[Rig], Any]


def own(wrap: Callable[[App], App]) -> Serve:
    @asynccontextmanager
    async def serve(made: Rig) -> AsyncIterator[str]:
        listener = Listener(wrap(made.gateway.app), "127.0.0.1", 0)
        await listener.start()
        yield listener.url
        await listener.stop()

    return serve


def usual(wrap: Callable[[App], App], http: str) -> Serve:
    return lambda made: served(wrap(made.gateway.app), http)


def bare(app: App) -> App:
    return app


WAYS = [
    pytest.param(own(bare), id="plain"),
    pytest.param(own(based), id="BaseHTTPMiddleware"),
    pytest.param(own(zipping), id="GZipMiddleware"),
    pytest.param(own(repeating), id="middleware that repeats the body"),
    pytest.param(usual(bare, "h11"), id="h11"),
    pytest.param(usual(bare, "httptools"), id="httptools"),
    pytest.param(usual(based, "h11"), id="h11, BaseHTTPMiddleware"),
]


@pytest.mark.parametrize("serve", WAYS)
async def test_before_the_first_byte(serve: Serve) -> None:
    async with rig("east", scripts={"east": holds}) as made, serve(made) as url, line(url) as client:
        await client.send(request(BODY))
        await until(lambda: made.providers["east"].begun == 1)
        client.hang_up()
        await until(lambda: made.in_flight == made.gateway.in_progress == 0)
        await until(lambda: made.providers["east"].broken == 1)
        assert made.gateway.shared.waiting == {}


@pytest.mark.parametrize("serve", WAYS)
async def test_in_the_middle_of_a_stream(serve: Serve) -> None:
    async with rig("east", scripts={"east": talks}) as made, serve(made) as url, line(url) as client:
        await client.send(request(BODY, "accept-encoding: identity"))
        assert (await client.reader.readuntil(b"data: \n")).startswith(b"HTTP/1.1 200")
        assert made.in_flight == 1
        client.hang_up()
        await until(lambda: made.in_flight == made.gateway.in_progress == 0)
        await until(lambda: not made.providers["east"].open)


@pytest.mark.parametrize("serve", WAYS[:-1])
@pytest.mark.parametrize("sent", [b"", b'{"messages":[', b'{"model":"llama",'])
async def test_while_the_body_is_still_coming(serve: Serve, sent: bytes) -> None:
    async with rig("east") as made, serve(made) as url, line(url) as client:
        await client.send(request(sent, length=1000))
        await asyncio.sleep(0.05)
        client.hang_up()
        await until(lambda: made.in_flight == made.gateway.in_progress == 0)
        await until(lambda: not made.providers["east"].open)


async def test_a_client_that_has_its_answer_and_leaves_is_no_disconnect() -> None:
    async with rig("east") as made:
        for _ in range(3):
            async with line(made.url) as client:
                await client.send(request(BODY, "connection: close"))
                assert (await client.answer())[0] == 200
        assert made.providers["east"].broken == 0
        value = made.gateway.metrics.registry.get_sample_value
        assert value("grid_gateway_request_duration_seconds_count", {"site": "east", "status": "2xx"}) == 3
        assert value("grid_gateway_request_duration_seconds_count", {"site": "east", "status": "gone"}) is None


async def test_hundreds_leave_at_any_moment_and_nothing_is_left_of_them() -> None:
    rng = random.Random(5)

    async def sometimes(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(rng.uniform(0, 0.03))
        if rng.random() < 0.2:
            await answer(writer, 503, b"busy")
            return
        if rng.random() < 0.1:
            writer.transport.abort()
            return
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for ____ in range(3):
            writer.write(b"3\r\nabc\r\n")
            await asyncio.sleep(rng.uniform(0, 0.01))
        writer.write(b"0\r\n\r\n")

    async def visitor(made: Rig) -> None:
        async with line(made.url) as client:
            whole = request(BODY)
            cut = rng.choice((len(whole), rng.randrange(len(whole))))
            await client.send(whole[:cut])
            await asyncio.sleep(rng.uniform(0, 0.06))
            client.hang_up()

    async with rig("east", "west", scripts={"east": sometimes, "west": sometimes}) as made:
        before = asyncio.all_tasks()
        for _ in range(8):
            await asyncio.gather(*(visitor(made) for _ in range(50)))
        await until(lambda: made.in_flight == made.gateway.in_progress == 0)
        await until(lambda: made.gateway.listener.connections == 0)
        assert made.gateway.shared.waiting == {}
        left = {task.get_name() for task in asyncio.all_tasks() - before}
        assert not {name for name in left if name.startswith("request")}
        for target in made.gateway.client.targets:
            target.health = None
        for provider in made.providers.values():
            provider.script = _fine
        assert (await made.ask())[0] == 200


async def _fine(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await answer(writer)


async def test_256_streams_at_once() -> None:
    async def stream(_: Provider, seen: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(4):
            event = b"data: %d %b\n\n" % (number, seen.header("x-client").encode())  # type: ignore[union-attr]
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await asyncio.sleep(0.1)
        writer.write(b"0\r\n\r\n")

    async def one(made: Rig, number: int) -> bytes:
        async with made.post({"stream": True}, headers={"x-client": str(number)}) as got:
            assert got.status == 200
            body: bytes = await got.read()
            return body

    limits = Limits(pool=Pool(connect=60))  # they all connect at once
    async with rig("east", "west", scripts={"east": stream, "west": stream}, change=_roomy, limits=limits) as made:
        made.frame(**{name: {"capacity": 1000.0} for name in made.providers})
        connector: Any = made.client.connector
        connector._limit = 0
        answers = await asyncio.gather(*(one(made, number) for number in range(256)))
        for number, body in enumerate(answers):
            assert body == b"".join(b"data: %d %d\n\n" % (event, number) for event in range(4))
        assert made.in_flight == made.gateway.in_progress == 0
        assert all(len(provider.seen) > 80 for provider in made.providers.values())


def _roomy(settings: dict[str, Any]) -> None:
    for provider in settings["providers"].values():
        provider["max_running"] = 1000
