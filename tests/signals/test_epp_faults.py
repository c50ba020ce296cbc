"""Exchanges that break: each has its reason, ends in time, and takes neither memory nor others with it."""

import asyncio
import contextlib
import gzip
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator

import pytest

from grid.model import Reason, ScrapeError
from grid.signals.epp import EppScraper, EppTarget
from tests.signals.pages import GO_LINES, current, page
from tests.signals.test_epp import always, refused, scrape
from tests.support.http_server import Answer, serve
from tests.support.raw_server import abort, raw_server

PAGE = page(*GO_LINES, *current())
MIB = 1024 * 1024


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A loopback port that is taken but not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


class TestConnections:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    async def test_nobody_listens(self, closed_port: int, host: str) -> None:
        error = await refused(f"http://{host}:{closed_port}/metrics")
        assert error.reason is Reason.CONNECT_REFUSED

    async def test_a_name_that_does_not_resolve(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lookup(*_: object, **__: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", lookup)
        error = await refused("http://epp.elsewhere.example/metrics")
        assert error.reason is Reason.DNS_FAILED
        assert "epp.elsewhere.example: Name or service not known" in error.message

    async def test_a_name_that_cannot_be_one(self) -> None:
        assert (await refused(f"http://{'a' * 70}.example/")).reason in (Reason.DNS_FAILED, Reason.BAD_URL)

    async def test_a_server_that_hangs_up(self) -> None:
        async with serve(always(None)) as origin:
            assert (await refused(origin)).reason is Reason.DISCONNECTED

    async def test_a_server_that_resets(self) -> None:
        async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            abort(writer)

        async with raw_server(script) as server:
            error = await refused(server.origin)
        assert error.reason is Reason.DISCONNECTED
        assert server.connections == 2

    @pytest.mark.parametrize(
        "answer",
        [
            b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
            b"-ERR unknown command 'GET'\r\n\r\n",
            b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        ],
    )
    async def test_what_does_not_speak_http(self, answer: bytes) -> None:
        async with serve(always(answer)) as origin:
            assert (await refused(origin)).reason is Reason.NOT_HTTP

    async def test_a_head_of_200_kb(self) -> None:
        answer = Answer(200, PAGE, {"x-filler": "a" * 200_000})
        async with serve(always(answer)) as origin:
            error = await refused(origin)
        assert error.reason is Reason.TOO_LARGE
        assert len(str(error)) < 400


class TestDeadline:
    async def test_no_answer_at_all(self) -> None:
        async def script(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        started = time.monotonic()
        async with raw_server(script) as server:
            error = await refused(server.origin, within=0.4)
        assert error.reason is Reason.TIMEOUT
        assert "0.4 s passed before an answer came" in error.message
        assert 0.39 < time.monotonic() - started < 15

    async def test_no_one_accepts(self) -> None:
        """A listener whose queue is full drops what comes: no refusal, no connection."""
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as held:
            address = listener.getsockname()
            for _ in range(4):
                filler = held.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(address)
            error = await refused(f"http://127.0.0.1:{address[1]}/", within=0.2)
        assert error.reason is Reason.TIMEOUT

    @pytest.mark.parametrize("kind", ["head", "body", "chunks"])
    async def test_a_trickle(self, kind: str) -> None:
        """Each byte comes well in time, and the page never ends."""

        async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            starts = {
                "head": b"HTTP/1.1 200 OK\r\nx: ",
                "body": b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n",
                "chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            }
            writer.write(starts[kind])
            while True:
                writer.write(b"1\r\na\r\n" if kind == "chunks" else b"a")
                await writer.drain()
                await asyncio.sleep(0.01)

        started = time.monotonic()
        async with raw_server(script) as server:
            error = await refused(server.origin, within=0.5)
        assert error.reason is Reason.TIMEOUT
        assert ("before an answer came" if kind == "head" else "while the page came in") in error.message
        assert time.monotonic() - started < 15

    async def test_redirects_count_as_one_exchange(self) -> None:
        async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.15)
            writer.write(b"HTTP/1.1 302 Found\r\nlocation: /next\r\ncontent-length: 0\r\n\r\n")

        async with raw_server(script) as server:
            assert (await refused(server.origin, within=0.25)).reason is Reason.TIMEOUT

    async def test_one_that_hangs_delays_no_other(self) -> None:
        async def script(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        async with raw_server(script) as server, serve(always(Answer(200, PAGE))) as origin:
            hanging = asyncio.create_task(refused(server.origin, within=60))
            fine = EppScraper("fine", EppTarget(origin), timeout=30)
            for _ in range(20):
                await fine.scrape()
            await fine.aclose()
            assert not hanging.done()
            hanging.cancel()
            await asyncio.gather(hanging, return_exceptions=True)

    async def test_a_name_server_that_hangs_costs_one_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However often a provider is scraped, one lookup of its name waits, in a thread that nobody else needs."""
        release, calls = threading.Event(), 0
        real = socket.getaddrinfo

        def lookup(host: str, *rest: object, **named: object) -> object:
            nonlocal calls
            if host == "hangs.example":
                calls += 1
                release.wait(60)
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return real(host, *rest, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(socket, "getaddrinfo", lookup)
        scraper = EppScraper("east", EppTarget("http://hangs.example:9090/metrics"), timeout=0.1)
        try:
            for _ in range(5):
                with pytest.raises(ScrapeError) as caught:
                    await scraper.scrape()
                assert caught.value.reason is Reason.TIMEOUT
                assert "while the host name was looked up" in caught.value.message
            assert calls == 1
            async with serve(always(Answer(200, PAGE))) as origin:
                assert (await scrape(origin.replace("127.0.0.1", "localhost"))).reading.ready == 3
        finally:
            release.set()
        await scraper.aclose()


class TestCutBodies:
    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n" + PAGE,
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(PAGE), PAGE),
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc",
        ],
        ids=["length", "chunks", "garbled chunk"],
    )
    async def test_the_frame_tells(self, answer: bytes) -> None:
        async with serve(always(answer)) as origin:
            error = await refused(origin)
        assert error.reason is Reason.TRUNCATED
        assert f"after {len(PAGE) if PAGE in answer else 0} bytes" in error.message

    async def test_a_reset_in_the_middle(self) -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n" + PAGE)
            await writer.drain()
            await reading.wait()
            abort(writer)

        reading = asyncio.Event()
        async with raw_server(script) as server:
            asyncio.get_running_loop().call_later(0.1, reading.set)
            error = await refused(server.origin)
        assert error.reason is Reason.TRUNCATED
        assert server.connections == 1

    async def test_a_length_that_is_too_short(self) -> None:
        """The frame is whole and the page is not: its last line is left out."""
        kept = len(PAGE) - 3
        async with serve(always(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (kept, PAGE))) as origin:
            found = await scrape(origin)
        assert Reason.TRUNCATED in [problem.code for problem in found.problems]
        assert found.page_bytes == kept
        assert found.reading.ready_endpoints == 3

    async def test_gzip_without_its_end(self) -> None:
        packed = gzip.compress(PAGE)
        for left in (len(packed) - 1, 40, 5):
            answer = Answer(200, packed[:left], {"content-encoding": "gzip"})
            async with serve(always(answer)) as origin:
                assert (await refused(origin)).reason is Reason.TRUNCATED

    @pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, gzip"])
    async def test_another_encoding_than_it_claims(self, encoding: str) -> None:
        async with serve(always(Answer(200, PAGE, {"content-encoding": encoding}))) as origin:
            error = await refused(f"{origin}/metrics")
        assert error.reason is Reason.BAD_ENCODING
        assert error.message.startswith(f"{origin}/metrics: ")


class TestSize:
    async def test_an_announced_length(self) -> None:
        async with serve(always(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n" + PAGE)) as origin:
            error = await refused(origin)
        assert error.reason is Reason.TOO_LARGE
        assert "67108864" in error.message

    async def test_an_endless_page(self) -> None:
        sent = 0

        async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(PAGE * 40)
                sent += len(PAGE) * 40
                await writer.drain()

        async with raw_server(script) as server:
            error = await refused(server.origin, max_page=MIB, within=60)
        assert error.reason is Reason.TOO_LARGE
        assert sent < 20 * MIB

    async def test_a_bomb_of_1_gb(self) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        first = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
        again = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
        bomb = first + again * 1023
        async with serve(always(Answer(200, bomb, {"content-encoding": "gzip"}))) as origin:
            tracemalloc.start()
            started = time.monotonic()
            try:
                error = await refused(origin, within=60)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert error.reason is Reason.TOO_LARGE
        assert peak < 8 * MIB
        assert time.monotonic() - started < 30

    async def test_a_page_of_zeros_within_the_ratio_ends_at_the_limit(self) -> None:
        data = b"".join(b"%d\n" % (number * 7919 % 100_003) for number in range(200_000))
        answer = Answer(200, gzip.compress(data), {"content-encoding": "gzip"})
        async with serve(always(answer)) as origin:
            assert (await refused(origin, max_page=MIB)).reason is Reason.TOO_LARGE
