"""What clients send that is no good: the stated answer, nothing of it reaches a provider, nothing is held."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator

import pytest

from grid.proxy import gateway, listener, observed, protocol, request_scan, upstreams
from grid.proxy.gateway import Limits
from grid.proxy.inbound import BodyLimits
from grid.proxy.protocol import HttpProtocol
from grid.proxy.upstreams import Pool
from tests.proxy.raw import line, request
from tests.proxy.rig import Provider, Rig, Seen, answer, rig
from tests.support.until import PATIENCE, until


@pytest.fixture
async def made() -> AsyncIterator[Rig]:
    async with rig("east", max_body="64KiB") as found:
        yield found
        await until(lambda: found.in_flight == found.gateway.in_progress == 0)


@pytest.fixture
async def hasty() -> AsyncIterator[Rig]:
    """With little patience for bodies."""
    async with rig("east", max_body="64KiB", limits=Limits(body_grace=0.4, body_rate=1e6)) as found:
        yield found
        await until(lambda: found.in_flight == found.gateway.in_progress == 0)


async def nothing_held(made: Rig, refused: int = 1) -> None:
    """No provider saw it, it is counted, and the next request is served."""
    assert made.providers["east"].seen == []
    assert made.counted("", "bad_request") == refused
    assert (await made.ask())[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"how are you?", id="no JSON"),
        pytest.param(b"<html></html>", id="HTML"),
        pytest.param(b'{"messages":[]}', id="no model"),
        pytest.param(b'{"model":"llama"', id="cut"),
        pytest.param(b'{"model":"llama","model":"other"}', id="two models"),
        pytest.param(b'{"model":"llama","mode\\u006c":"other"}', id="two models, one in disguise"),
        pytest.param(b'{"model":17}', id="a number"),
        pytest.param(b'{"model":" "}', id="blank"),
        pytest.param(b'{"model":"%b"}' % (b"m" * 257), id="257 bytes"),
        pytest.param(b'{"model":"%b"}' % ("ö" * 129).encode(), id="129 characters, 258 bytes"),
        pytest.param(b'{"model":"ll\xffma"}', id="no UTF-8 in the model"),
        pytest.param(b'{"model":"llama","user":"\xc3("}', id="no UTF-8 elsewhere"),
        pytest.param(b"\xff\xfe{\x00", id="UTF-16"),
    ],
)
async def test_bodies_that_name_no_good_model(made: Rig, body: bytes) -> None:
    async with line(made.url) as client:
        await client.send(request(body))
        status, headers, said = await client.answer()
        assert (status, headers["content-type"]) == (400, "application/json")
        error = said["error"]
        assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "bad_model", None)
        assert error["message"]
    await nothing_held(made)


async def test_a_name_of_256_bytes_is_merely_unknown(made: Rig) -> None:
    status, _, _ = await made.ask({"model": "m" * 256})
    assert status == 404


async def test_a_body_that_says_it_is_too_large(made: Rig) -> None:
    async with line(made.url) as client:
        await client.send(request(b'{"model":"llama",', length=10 << 30))
        status, headers, said = await client.answer()
        assert (status, said["error"]["code"], said["error"]["type"]) == (
            413,
            "body_too_large",
            "invalid_request_error",
        )
        assert headers["connection"] == "close"
        client.writer.write_eof()
        assert await client.closed()
    await nothing_held(made)


@pytest.mark.parametrize("model_first", [True, False])
async def test_a_body_that_grows_too_large(made: Rig, model_first: bool) -> None:
    """It is read on for a moment, so that a client which sends all before it reads learns why."""
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    async with line(made.url) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n")
        start = b'{"model":"llama","text":"' if model_first else b'{"text":"'
        await client.send(b"%x\r\n%b\r\n" % (len(start), start))
        for _ in range(40):
            await client.send(chunk)
        status, _, said = await client.answer()
        assert (status, said["error"]["code"]) == (413, "body_too_large")
        await client.send(b"0\r\n\r\n")
        assert await client.closed()
    assert made.counted("", "bad_request") == 1
    assert all(len(seen.body) == 0 for seen in made.providers["east"].seen), "no provider got a whole body"
    assert (await made.ask())[0] == 200


async def test_a_body_at_the_limit_is_fine(made: Rig) -> None:
    body = b'{"model":"llama","text":""}'
    body = body.replace(b'""', b'"%b"' % (b"x" * ((64 << 10) - len(body))))
    assert len(body) == 64 << 10
    assert (await made.ask(body))[0] == 200


@pytest.mark.parametrize(
    "sent", [b"", b'{"model":', b'{"model":"llama","messages":['], ids=["nothing", "some", "model"]
)
async def test_a_body_that_comes_too_slowly(hasty: Rig, sent: bytes) -> None:
    async with line(hasty.url) as client:
        await client.send(request(sent, length=1000))
        status, headers, said = await client.answer()
        assert (status, said["error"]["code"], headers["connection"]) == (408, "body_timeout", "close")
        assert await client.closed()
    assert hasty.counted("", "bad_request") == 1
    assert hasty.providers["east"].seen == [] or hasty.providers["east"].seen[0].body == b""
    assert hasty.in_flight == 0
    assert (await hasty.ask())[0] == 200


async def test_a_body_that_trickles_gets_no_more_time_for_it(hasty: Rig) -> None:
    async with line(hasty.url) as client:
        await client.send(request(b"", length=1000))
        answered = asyncio.ensure_future(client.answer())
        while not answered.done():
            client.writer.write(b" ")
            await asyncio.sleep(0.05)
        assert answered.result()[0] == 408


async def test_a_second_model_that_comes_after_the_request_has_been_sent_on(made: Rig) -> None:
    """The provider has most of the body by then, and never gets the end."""
    provider = made.providers["east"]
    first, rest = b'{"model":"llama","messages":[]', b',"model":"other"}'
    async with line(made.url) as client:
        await client.send(request(first, length=len(first + rest)))
        await until(lambda: len(provider.seen) == 1)
        assert made.in_flight == 1
        await client.send(rest)
        status, _, said = await client.answer()
        assert (status, said["error"]["code"]) == (400, "bad_model")
    await until(lambda: made.in_flight == 0)
    assert provider.seen[0].body == b"", "it never had a whole body"
    await until(lambda: not provider.open)


async def test_a_fault_after_the_answer_has_begun_breaks_it_off() -> None:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await asyncio.sleep(30)

    async with rig("east", scripts={"east": script}) as made:
        made.providers["east"].read_body = False
        async with line(made.url) as client:
            await client.send(request(b'{"model":"llama",', length=1000))
            assert (await client.reader.readuntil(b"abc\r\n")).startswith(b"HTTP/1.1 200")
            await client.send(b"nonsense")
            assert await client.closed()
        await until(lambda: made.in_flight == made.gateway.in_progress == 0)


async def test_compressed_bodies_are_refused(made: Rig) -> None:
    async with line(made.url) as client:
        await client.send(request(gzip.compress(b'{"model":"llama"}'), "content-encoding: gzip"))
        status, _, said = await client.answer()
        assert (status, said["error"]["code"]) == (415, "bad_request")
    await nothing_held(made)


async def test_a_header_that_is_no_text(made: Rig) -> None:
    async with line(made.url) as client:
        await client.send(request(b'{"model":"llama"}').replace(b"host: gateway", b"host: gateway\r\nx-user: \xff"))
        status, _, said = await client.answer()
        assert (status, said["error"]["code"]) == (400, "bad_request")
    await nothing_held(made)


# --- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"x-big: " + b"a" * 70_000 + b"\r\n", id="one long value"),
        pytest.param(b"a" * 70_000 + b": 1\r\n", id="one long name"),
        pytest.param(b"".join(b"x-%d: 1\r\n" % number for number in range(300)), id="many"),
        pytest.param(b"".join(b"x-%d: %b\r\n" % (n, b"v" * 400) for n in range(200)), id="much"),
    ],
)
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("step", [997, 1 << 20])
async def test_heads_that_are_too_large(made: Rig, head: bytes, ended: bool, step: int) -> None:
    data = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\n" + head + (b"\r\n" if ended else b"")
    async with line(made.url) as client:
        for at in range(0, len(data), step):
            await client.send(data[at : at + step])
        status, headers, said = await client.answer()
        assert (status, said["error"]["code"], headers["connection"]) == (431, "head_too_large", "close")
        client.writer.write_eof()
        assert await client.closed()
    assert made.providers["east"].seen == []
    await until(lambda: made.gateway.listener.connections == 0)
    assert (await made.ask())[0] == 200


async def test_a_head_without_end_is_cut_off(made: Rig) -> None:
    async with line(made.url) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nx: ")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 200:
                await client.send(b"a" * 65536)
                await asyncio.sleep(0.01)
                sent += 1
        assert sent < 200, "it went on and on"
    await until(lambda: made.gateway.listener.connections == 0)


@pytest.mark.parametrize(
    "noise", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"\x00" * 100, b"hello\r\n\r\n"]
)
async def test_noise_is_told_so(made: Rig, noise: bytes) -> None:
    async with line(made.url) as client:
        await client.send(noise)
        status, _, said = await client.answer()
        assert (status, said["error"]["code"], said["error"]["type"]) == (400, "bad_request", "invalid_request_error")
        client.writer.write_eof()
        assert await client.closed()
    await until(lambda: made.gateway.listener.connections == 0)


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"POST /v1", b"POST / HTTP/1.1\r\nx: 1\r\n"])
async def test_a_connection_that_asks_for_nothing_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(HttpProtocol, "head_seconds", 0.1)
    async with rig("east") as made, line(made.url) as client:
        await client.send(sent)
        assert await client.closed()
        await until(lambda: made.gateway.listener.connections == 0)


async def test_a_connection_that_served_and_then_asks_in_bits_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpProtocol, "head_seconds", 0.3)
    async with rig("east") as made, line(made.url) as client:
        for _ in range(2):
            await client.send(request(b'{"model":"llama"}'))
            assert (await client.answer())[0] == 200
            await asyncio.sleep(0.4)  # idle longer than a head may take: that is keep-alive's business
        await client.send(b"\r\n")
        assert await client.closed()


async def test_a_long_answer_is_not_cut_for_want_of_another_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpProtocol, "head_seconds", 0.3)

    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        await answer(writer)

    async with rig("east", scripts={"east": script}) as made:
        assert (await made.ask())[0] == 200


async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpProtocol, "stall_seconds", 0.2)

    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (1 << 30))
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with rig("east", scripts={"east": script}) as made, line(made.url) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request(b'{"model":"llama"}'))
        await until(lambda: made.providers["east"].begun == 1)
        await until(lambda: made.in_flight == made.gateway.in_progress == 0)
        await until(lambda: not made.providers["east"].open)


async def test_two_requests_in_one_go_are_answered_in_turn(made: Rig) -> None:
    async with line(made.url) as client:
        await client.send(request(b'{"model":"llama"}') + request(b'{"model":1}') + request(b'{"model":"llama"}'))
        assert [(await client.answer())[0] for _ in range(3)] == [200, 400, 200]


async def test_noise_behind_a_request_ends_the_connection() -> None:
    async def slow(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)
        await answer(writer)

    async with rig("east", scripts={"east": slow}) as made, line(made.url) as client:
        await client.send(request(b'{"model":"llama"}'))
        await until(lambda: len(made.providers["east"].seen) == 1)
        await client.send(b"\x00\x01\x02")
        await until(lambda: made.in_flight == made.gateway.in_progress == 0)
        client.writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            assert b"200" not in await client.reader.read(), "it is never answered"


async def test_expect_100_is_honoured_where_the_body_is_wanted(made: Rig) -> None:
    async with line(made.url) as client:
        await client.send(request(b"", "expect: 100-continue", length=17))
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b'{"model":"llama"}')
        assert (await client.answer())[0] == 200
        assert made.providers["east"].seen[0].header("expect") is None
    async with line(made.url) as client:
        await client.send(request(b"", "expect: 100-continue", length=1 << 20))
        assert (await client.answer())[0] == 413


def test_the_bounds_are_those_of_the_manual() -> None:
    """docs/reference-gateway.md names them."""
    assert (protocol.HEAD_BYTES, protocol.HEAD_FIELDS, protocol.HEAD_SECONDS) == (64 << 10, 256, 15)
    assert (protocol.STALL_SECONDS, listener.KEEP_ALIVE) == (60, 75)
    assert BodyLimits() == BodyLimits(32 << 20, 30, 16 << 10)
    assert Pool() == Pool(connections=2048, connect=2, turn=5, silence=600, idle=4)
    assert request_scan._MAX_MEMBERS == 1024
    assert (upstreams.REFRESH, observed.PERIOD, gateway.GRACE) == (1, 2, 30)
