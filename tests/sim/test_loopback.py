import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from grid.sim.loopback import Answer, BrokenBodyError, LoopbackServer, Request
from tests.support.until import PATIENCE

SEEN: list[Request] = []


async def handle(request: Request) -> Answer:
    match request.path:
        case "/echo":
            return Answer(200, request.body)
        case "/fault":
            raise RuntimeError("on purpose")
        case "/chunks":
            return Answer(200, chunks(broken=False))
        case "/broken":
            return Answer(200, chunks(broken=True))
        case "/wait":
            await asyncio.Event().wait()
    return Answer(404)


async def chunks(*, broken: bool) -> AsyncGenerator[bytes, None]:
    yield b"one"
    yield b""
    if broken:
        raise BrokenBodyError
    yield b"two"


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    made = LoopbackServer(handle)
    await made.start()
    yield made
    await made.stop()


async def talk(server: LoopbackServer, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), PATIENCE)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def request(path: str, *headers: str, body: bytes = b"", close: bool = True) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", *headers, f"Connection: {'close' if close else 'keep-alive'}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def test_two_requests_in_one_packet_are_answered_in_order(server: LoopbackServer) -> None:
    first = request("/echo?x=1", "Content-Length: 3", body=b"abc", close=False)
    second = request("/echo", "Content-Length: 3", body=b"def")
    answer = await talk(server, first + second)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert answer.index(b"abc") < answer.index(b"def")


async def test_a_chunked_body_is_read_whole(server: LoopbackServer) -> None:
    body = b"3\r\nabc\r\n4;note=1\r\ndefg\r\n0\r\n\r\n"
    assert (await talk(server, request("/echo", "Transfer-Encoding: chunked", body=body))).endswith(b"\r\n\r\nabcdefg")


async def test_a_request_may_arrive_in_pieces(server: LoopbackServer) -> None:
    whole = request("/echo", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n\r\n")
    reader, writer = await asyncio.open_connection(server.host, server.port)
    for at in range(len(whole)):
        writer.write(whole[at : at + 1])
        await writer.drain()
    assert (await asyncio.wait_for(reader.read(), PATIENCE)).endswith(b"abc")
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/3\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        request("/echo", "Content-Length: many"),
        request("/echo", "Transfer-Encoding: chunked", body=b"zz\r\n"),
        b"x" * 70_000,
    ],
)
async def test_what_is_no_http_is_hung_up_on(server: LoopbackServer, data: bytes) -> None:
    assert await talk(server, data) == b""


async def test_a_fault_in_a_handler_is_a_500_and_the_server_lives(server: LoopbackServer) -> None:
    assert (await talk(server, request("/fault"))).startswith(b"HTTP/1.1 500")
    assert (await talk(server, request("/echo"))).startswith(b"HTTP/1.1 200")


async def test_a_body_in_chunks_and_one_that_breaks(server: LoopbackServer) -> None:
    assert (await talk(server, request("/chunks"))).endswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert not (await talk(server, request("/broken"))).endswith(b"0\r\n\r\n")


async def test_stop_ends_what_is_under_way(server: LoopbackServer) -> None:
    waiting = asyncio.create_task(talk(server, request("/wait")))
    async with asyncio.timeout(PATIENCE):
        while not server.connections:  # noqa: ASYNC110 - a poll with a deadline
            await asyncio.sleep(0)
    await server.stop()
    assert await waiting == b""
    assert not server.connections
