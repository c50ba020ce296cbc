"""The probe beside the page: what counts as ready, as not ready, and as no answer."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import trustme

from grid.model import Reason
from grid.signals.readiness import ProbeResult, ReadinessProbe
from tests.support.http_server import Answer, Handler, Request, serve


def always(answer: Answer | bytes | None) -> Handler:
    async def handler(_: Request) -> Answer | bytes | None:
        return answer

    return handler


async def ask(url: str, *, within: float = 30.0, ssl_context: ssl.SSLContext | None = None) -> ProbeResult:
    probe = ReadinessProbe(url, timeout=within, ssl_context=ssl_context)
    try:
        return await probe.check()
    finally:
        await probe.aclose()


def code(result: ProbeResult) -> Reason | None:
    return result.problem.code if result.problem else None


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A loopback port that is taken but not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize("status", [200, 204, 299])
async def test_any_2xx_is_healthy(status: int) -> None:
    async with serve(always(Answer(status))) as origin:
        assert await ask(f"{origin}/health") == ProbeResult(True)


@pytest.mark.parametrize("status", [304, 400, 401, 404, 429, 500, 503])
async def test_any_other_status_denies(status: int) -> None:
    async with serve(always(Answer(status, b"loading\n weights"))) as origin:
        result = await ask(f"{origin}/health")
    assert result.healthy is False
    assert result.problem is not None
    assert result.problem.code is Reason.PROBE_DENIED
    assert result.problem.detail == f"status {status}" + ("" if status == 304 else ": 'loading weights'")


async def test_a_refused_connection_is_not_ready(closed_port: int) -> None:
    result = await ask(f"http://127.0.0.1:{closed_port}/health")
    assert (result.healthy, code(result)) == (False, Reason.PROBE_FAILED)
    assert f"127.0.0.1:{closed_port}" in str(result.problem)


async def test_silence_is_unknown_and_ends_at_the_deadline() -> None:
    async def hang(_: Request) -> None:
        await asyncio.sleep(60)

    async with serve(hang) as origin:
        begin = time.monotonic()
        result = await ask(f"{origin}/health", within=0.3)
    assert time.monotonic() - begin < 15
    assert (result.healthy, code(result)) == (None, Reason.PROBE_FAILED)
    assert "within 0.3 s" in str(result.problem)


@contextlib.asynccontextmanager
async def dripping(head: bytes) -> AsyncIterator[str]:
    """A server that sends ``head`` and then a byte now and then for ever."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_slowly_dripping_headers_end_at_the_deadline() -> None:
    async with dripping(b"HTTP/1.1 200 OK\r\nx-pad: ") as origin:
        result = await ask(origin, within=0.3)
    assert (result.healthy, code(result)) == (None, Reason.PROBE_FAILED)


async def test_an_endless_body_changes_nothing() -> None:
    async with dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n") as origin:
        assert (await ask(origin, within=15.0)).healthy is True
    async with dripping(b"HTTP/1.1 503 No\r\ncontent-length: 100000000\r\n\r\n" + b"y" * 10_000) as origin:
        result = await ask(origin, within=15.0)
    assert (result.healthy, code(result)) == (False, Reason.PROBE_DENIED)
    assert len(str(result.problem)) < 300


async def test_a_broken_connection_is_unknown() -> None:
    async with serve(always(None)) as origin:
        result = await ask(origin)
    assert (result.healthy, code(result)) == (None, Reason.PROBE_FAILED)


async def test_what_is_not_http_is_unknown() -> None:
    async with serve(always(b"SSH-2.0-OpenSSH\r\n\r\n")) as origin:
        result = await ask(origin)
    assert (result.healthy, code(result)) == (None, Reason.PROBE_FAILED)


async def test_a_name_that_does_not_resolve_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    result = await ask("http://nowhere.invalid/health")
    assert (result.healthy, code(result)) == (None, Reason.PROBE_FAILED)
    assert "does not resolve" in str(result.problem)


async def test_redirects_inside_the_origin_are_followed() -> None:
    async def handler(request: Request) -> Answer:
        return Answer() if request.target == "/healthz/" else Answer(307, headers={"location": "/healthz/"})

    async with serve(handler) as origin:
        assert (await ask(f"{origin}/healthz")).healthy is True


async def test_redirects_do_not_go_round_for_ever() -> None:
    asked = 0

    async def handler(_: Request) -> Answer:
        nonlocal asked
        asked += 1
        return Answer(302, headers={"location": "/again"})

    async with serve(handler) as origin:
        result = await ask(origin)
    assert (result.healthy, code(result), asked) == (None, Reason.PROBE_FAILED, 4)


async def test_another_origin_is_not_asked() -> None:
    asked = 0

    async def other(_: Request) -> Answer:
        nonlocal asked
        asked += 1
        return Answer()

    async with serve(other) as elsewhere:
        location = elsewhere.replace("http://", "http://user:secret@") + "/login?token=secret"
        async with serve(always(Answer(302, headers={"location": location}))) as origin:
            result = await ask(origin)
    assert (result.healthy, code(result), asked) == (None, Reason.REDIRECT_REFUSED, 0)
    assert "secret" not in str(result.problem)


async def test_https_with_its_own_roots() -> None:
    authority = trustme.CA()
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_context)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(trusting)
    doubting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with serve(always(Answer()), ssl_context=server_context) as origin:
        assert (await ask(origin, ssl_context=trusting)).healthy is True
        result = await ask(origin, ssl_context=doubting)
    assert (result.healthy, code(result)) == (None, Reason.PROBE_FAILED)
    assert "TLS" in str(result.problem)


async def test_the_url_shows_no_password(closed_port: int) -> None:
    result = await ask(f"http://user:hunter2@127.0.0.1:{closed_port}/health")
    assert "hunter2" not in str(result.problem)


async def test_a_probe_can_be_asked_again_and_again() -> None:
    answers = [Answer(), Answer(503), None, Answer()]

    async def handler(_: Request) -> Answer | None:
        return answers.pop(0)

    async with serve(handler) as origin:
        probe = ReadinessProbe(origin)
        assert [(await probe.check()).healthy for _ in range(4)] == [True, False, None, True]
        await probe.aclose()
        await probe.aclose()
