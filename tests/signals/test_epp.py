"""Scraping an EPP: what is asked, what comes back, and what the errors say."""

import asyncio
import gzip
import json
import logging
import os
import threading
import time
from pathlib import Path

import pytest

from grid.model import Reason, ScrapeError
from grid.signals.credentials import CredentialFiles, Credentials
from grid.signals.epp import EppScraper, EppTarget
from grid.signals.scan import PageScan
from grid.signals.scrape import Scrape
from tests.signals.pages import GO_LINES, current, page
from tests.support.http_server import Answer, Handler, Request, serve
from tests.support.raw_server import raw_server

PAGE = page(*GO_LINES, *current())
TOKEN = "eyJhbGciOi.s3cret-T0ken.x"


def always(answer: Answer | bytes | None) -> Handler:
    async def handler(_: Request) -> Answer | bytes | None:
        return answer

    return handler


async def scrape(url: str, *, within: float = 30.0, **target: object) -> Scrape:
    scraper = EppScraper("east", EppTarget(url, **target), timeout=within)  # type: ignore[arg-type]
    try:
        return await scraper.scrape()
    finally:
        await scraper.aclose()


async def refused(url: str, *, within: float = 30.0, **target: object) -> ScrapeError:
    with pytest.raises(ScrapeError) as caught:
        await scrape(url, within=within, **target)
    return caught.value


class TestGoodPages:
    async def test_what_is_asked_and_what_comes_back(self) -> None:
        requests: list[Request] = []

        async def handler(request: Request) -> Answer:
            requests.append(request)
            return Answer(200, PAGE, {"content-type": "text/plain; version=0.0.4; charset=utf-8"})

        started = asyncio.get_running_loop().time()
        async with serve(handler) as origin:
            found = await scrape(f"{origin}/metrics?x=1")
        assert found.reading.ready == 3
        assert found.problems == ()
        assert found.page_bytes == len(PAGE)
        assert started <= found.received_at <= asyncio.get_running_loop().time()
        assert 0 < found.cost_s < 5
        (request,) = requests
        assert (request.method, request.target) == ("GET", "/metrics?x=1")
        assert request.headers["accept"] == "text/plain;version=0.0.4"
        assert request.headers["accept-encoding"] == "gzip"
        assert request.headers["user-agent"].startswith("grid/")
        assert "authorization" not in request.headers

    async def test_gzip(self) -> None:
        answer = Answer(200, gzip.compress(PAGE), {"content-encoding": "gzip"})
        async with serve(always(answer)) as origin:
            found = await scrape(origin)
        assert (found.reading.ready, found.page_bytes) == (3, len(PAGE))

    async def test_a_real_page_in_chunks(self, shared_fixtures: Path) -> None:
        name = "v0.10-traffic.queueing.txt"
        data = gzip.compress((shared_fixtures / "epp" / name).read_bytes())
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (data[:99], data[99:5000], data[5000:]))
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"
        async with serve(always(head + chunks + b"0\r\n\r\n")) as origin:
            found = await scrape(origin)
        reads = json.loads((shared_fixtures / "epp" / "index.json").read_text())[name]["reads"]
        assert found.reading.held_live == reads["held"] == 120

    async def test_the_real_page_of_40_mb(self, shared_fixtures: Path) -> None:
        data = (shared_fixtures / "epp" / "v0.10-big.txt.gz").read_bytes()
        async with serve(always(Answer(200, data, {"content-encoding": "gzip"}))) as origin:
            found = await scrape(origin)
        assert found.page_bytes == 40_074_955
        assert (found.reading.ready_live, found.reading.held_live) == (2, 0)
        assert found.problems == ()

    async def test_the_connection_is_kept(self) -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                writer.write(Answer(200, PAGE).encode())
                await reader.readuntil(b"\r\n\r\n")

        async with raw_server(script) as server:
            scraper = EppScraper("east", EppTarget(server.origin), timeout=30)
            for _ in range(3):
                await scraper.scrape()
            await scraper.aclose()
        assert server.connections == 1

    async def test_a_connection_that_the_server_closes_after_each_answer(self) -> None:
        """An idle connection may be gone when it is wanted again; the next one is tried at once."""

        async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(Answer(200, PAGE).encode())
            await writer.drain()

        async with raw_server(script) as server:
            scraper = EppScraper("east", EppTarget(server.origin), timeout=30)
            for _ in range(4):
                assert (await scraper.scrape()).reading.ready == 3
            await scraper.aclose()
        assert 4 <= server.connections <= 8

    async def test_a_server_that_hangs_up_once(self) -> None:
        answers: list[Answer | None] = [None, Answer(200, PAGE)]
        async with serve(handler_of(answers)) as origin:
            assert (await scrape(origin)).reading.ready == 3

    async def test_a_page_that_ends_with_the_connection(self) -> None:
        async with serve(always(b"HTTP/1.0 200 OK\r\n\r\n" + PAGE)) as origin:
            assert (await scrape(origin)).reading.ready == 3

    async def test_openmetrics_without_its_end_still_counts(self) -> None:
        answer = Answer(200, PAGE, {"content-type": "application/openmetrics-text; version=1.0.0"})
        async with serve(always(answer)) as origin:
            found = await scrape(origin)
        assert [problem.code for problem in found.problems] == [Reason.TRUNCATED]
        assert found.reading.ready == 3

    async def test_the_pool_is_the_targets(self) -> None:
        async with serve(always(Answer(200, page(*current("a"), *current("b", ready=1))))) as origin:
            assert (await scrape(origin, pool="b")).reading.ready_endpoints == 1

    async def test_a_large_page_lets_others_take_turns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Between two turns of the loop no more than a slice is scanned, however much one packet unpacks to."""
        turns = 0
        fed: dict[int, int] = {}
        feed = PageScan.feed

        def counted(self: PageScan, chunk: bytes) -> None:
            fed[turns] = fed.get(turns, 0) + len(chunk)
            feed(self, chunk)

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        monkeypatch.setattr(PageScan, "feed", counted)
        filler = b"".join(b'other_metric_%d{a="%d"} 1\n' % (number % 7, number % 1000) for number in range(400_000))
        answer = Answer(200, gzip.compress(filler + PAGE), {"content-encoding": "gzip"})
        async with serve(always(answer)) as origin:
            watching = asyncio.create_task(others())
            found = await scrape(origin, within=30)
            watching.cancel()
        assert found.page_bytes > 8_000_000
        assert max(fed.values()) <= 2 * 256 * 1024


def handler_of(answers: list[Answer | None]) -> Handler:
    left = list(answers)

    async def handler(_: Request) -> Answer | None:
        return left.pop(0)

    return handler


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "body", "reason"),
        [
            (401, b"Unauthorized\n", Reason.CREDENTIAL_MISSING),
            (403, b"Authorization denied for user system:serviceaccount:a:b\n", Reason.CREDENTIAL_DENIED),
            (500, b"Authentication failed\n", Reason.CREDENTIAL_REJECTED),
            (500, b"Authorization for user x failed\n", Reason.CREDENTIAL_UNCHECKED),
            (500, b"An error has occurred while serving metrics:\n\n2 error(s)\n", Reason.GATHER_FAILED),
            (500, b"panic", Reason.HTTP_STATUS),
            (500, b"", Reason.HTTP_STATUS),
            (400, b"Client sent an HTTP request to an HTTPS server.\n", Reason.HTTP_STATUS),
            (404, b"404 page not found\n", Reason.HTTP_STATUS),
            (503, b"no endpoints\x1b[31m", Reason.HTTP_STATUS),
            (204, b"", Reason.HTTP_STATUS),
            (304, b"", Reason.HTTP_STATUS),
        ],
    )
    async def test_a_status_is_read_with_its_body(self, status: int, body: bytes, reason: Reason) -> None:
        async with serve(always(Answer(status, body))) as origin:
            error = await refused(f"{origin}/metrics")
        assert error.reason is reason
        assert f"status {status}" in error.message
        assert " ".join(body.decode().replace("\x1b", "").split()) in error.message
        assert error.message.startswith(f"{origin}/metrics: ")
        assert error.message.isprintable()
        assert error.hint

    async def test_a_gzipped_refusal(self) -> None:
        answer = Answer(500, gzip.compress(b"Authentication failed\n"), {"content-encoding": "gzip"})
        async with serve(always(answer)) as origin:
            assert (await refused(origin)).reason is Reason.CREDENTIAL_REJECTED

    async def test_a_refusal_whose_body_never_comes_is_still_read(self) -> None:
        async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 50\r\n\r\nUnau")
            await asyncio.Event().wait()

        async with raw_server(script) as server:
            error = await refused(server.origin, within=10)
        assert error.reason is Reason.CREDENTIAL_MISSING
        assert "'Unau'" in error.message

    async def test_an_endless_refusal_is_not_read_to_its_end(self) -> None:
        answer = Answer(503, b"no " * 2_000_000)
        async with serve(always(answer)) as origin:
            error = await refused(origin)
        assert error.reason is Reason.HTTP_STATUS
        assert len(error.message) < 400

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (b"<html>login</html>", Reason.NOT_METRICS),
            (b'{"ready": true}', Reason.NOT_METRICS),
            (b"\x00\x01\x02", Reason.NOT_METRICS),
            (b"", Reason.EMPTY_PAGE),
            (page(*GO_LINES), Reason.METRIC_MISSING),
            (page(*current("other")), Reason.POOL_MISSING),
        ],
    )
    async def test_a_page_that_is_of_no_use(self, body: bytes, reason: Reason) -> None:
        async with serve(always(Answer(200, body, {"content-type": "text/html"}))) as origin:
            error = await refused(origin, pool="llama")
        assert error.reason is reason
        assert ("text/html" in error.message) == (reason is Reason.NOT_METRICS)

    async def test_several_pools(self) -> None:
        async with serve(always(Answer(200, page(*current("a"), *current("b"))))) as origin:
            assert (await refused(origin)).reason is Reason.POOL_AMBIGUOUS

    @pytest.mark.parametrize(
        "url", ["", "x", "ftp://a/metrics", "http://", "http:///metrics", "http://[::1/m", "http://a:99999/"]
    )
    async def test_what_is_no_url(self, url: str) -> None:
        with pytest.raises(ScrapeError) as caught:
            EppScraper("east", EppTarget(url))
        assert caught.value.reason is Reason.BAD_URL

    async def test_secrets_in_the_url(self) -> None:
        with pytest.raises(ScrapeError) as caught:
            EppScraper("east", EppTarget("http://admin:hunter2@epp.example/metrics"))
        assert caught.value.reason is Reason.BAD_URL
        assert "hunter2" not in str(caught.value)
        async with serve(always(Answer(404))) as origin:
            assert "k3y" not in str(await refused(f"{origin}/metrics?key=k3y"))


class TestRedirects:
    async def test_within_the_origin(self) -> None:
        seen: list[str] = []

        async def handler(request: Request) -> Answer:
            seen.append(request.target)
            steps = {"/": "/metrics/", "/metrics/": "../metrics"}
            if request.target in steps:
                return Answer(301, b"moved", {"location": steps[request.target]})
            assert request.headers["authorization"] == f"Bearer {TOKEN}"
            return Answer(200, PAGE)

        async with serve(handler) as origin:
            context = EppScraper("east", EppTarget(origin), timeout=30)
            context._files = GivenToken(TOKEN)
            assert (await context.scrape()).reading.ready == 3
            await context.aclose()
        assert seen == ["/", "/metrics/", "/metrics"]

    async def test_another_origin_never_sees_the_token(self, tmp_path: Path) -> None:
        token_file = tmp_path / "token"
        token_file.write_text(TOKEN)
        elsewhere: list[Request] = []

        async def trap(request: Request) -> Answer:
            elsewhere.append(request)
            return Answer(200, PAGE)

        async with serve(trap) as other, serve(always(Answer(302, b"", {"location": f"{other}/m?t=1"}))) as origin:
            error = await refused(origin, token_file=token_file)
        assert error.reason is Reason.REDIRECT_REFUSED
        assert f"{other}/m" in error.message
        assert "t=1" not in error.message
        assert elsewhere == []

    @pytest.mark.parametrize(
        "location",
        [
            "https://127.0.0.1/x",
            "//elsewhere.example/",
            "http://127.0.0.1:1/",
            "http://[",
            "http://a:x/",
            "file:///etc",
        ],
    )
    async def test_other_origins(self, location: str) -> None:
        async with serve(always(Answer(307, b"", {"location": location}))) as origin:
            assert (await refused(origin)).reason is Reason.REDIRECT_REFUSED

    async def test_in_a_circle(self) -> None:
        async with serve(always(Answer(302, b"", {"location": "/"}))) as origin:
            error = await refused(origin)
        assert error.reason is Reason.REDIRECT_LOOP
        assert "redirects again and again: more than 3 in a row, the last to http://127.0.0.1" in error.message

    async def test_to_nowhere(self) -> None:
        async with serve(always(Answer(302))) as origin:
            assert (await refused(origin)).reason is Reason.HTTP_STATUS


class GivenToken(CredentialFiles):
    def __init__(self, token: str) -> None:
        super().__init__(tls=False)
        self._given_token = token

    def load(self) -> Credentials:
        return Credentials(self._given_token, None)


class TestTokens:
    async def test_it_is_read_again_when_the_symlink_is_swapped(self, tmp_path: Path) -> None:
        """As Kubernetes rotates a projected token: the file's own path stays a link to a link that is replaced."""
        for version, token in (("v1", "first"), ("v2", "second")):
            (tmp_path / version).mkdir()
            (tmp_path / version / "token").write_text(f"{token}\n")
        (tmp_path / "..data").symlink_to("v1")
        (tmp_path / "token").symlink_to("..data/token")
        taken = "first"

        async def handler(request: Request) -> Answer:
            if request.headers.get("authorization") != f"Bearer {taken}":
                return Answer(500, b"Authentication failed\n")
            return Answer(200, PAGE)

        async with serve(handler) as origin:
            scraper = EppScraper("east", EppTarget(origin, token_file=tmp_path / "token"), timeout=30)
            await scraper.scrape()
            taken = "second"
            with pytest.raises(ScrapeError) as caught:
                await scraper.scrape()
            assert caught.value.reason is Reason.CREDENTIAL_REJECTED
            (tmp_path / "..data_tmp").symlink_to("v2")
            (tmp_path / "..data_tmp").rename(tmp_path / "..data")
            assert (await scraper.scrape()).reading.ready == 3
            await scraper.aclose()

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (401, b"Unauthorized\n"),
            (403, b"Authorization denied for user x\n"),
            (500, b"Authentication failed\n"),
            (500, b"Authorization for user x failed\n"),
        ],
    )
    async def test_a_refused_one_is_read_again_however_unchanged_its_file_looks(
        self, tmp_path: Path, status: int, body: bytes
    ) -> None:
        path = tmp_path / "token"
        path.write_text("first")
        before = path.stat()

        async def handler(request: Request) -> Answer:
            if request.headers.get("authorization") != "Bearer other":
                return Answer(status, body)
            return Answer(200, PAGE)

        async with serve(handler) as origin:
            scraper = EppScraper("east", EppTarget(origin, token_file=path), timeout=30)
            with pytest.raises(ScrapeError):
                await scraper.scrape()
            path.write_text("other")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            after = path.stat()
            assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
                before.st_ino,
                before.st_size,
                before.st_mtime_ns,
            )
            assert (await scraper.scrape()).reading.ready == 3
            await scraper.aclose()

    async def test_it_is_read_once_while_it_stays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        reads = 0
        read = CredentialFiles._load_token

        def counted(self: CredentialFiles) -> str | None:
            nonlocal reads
            before = self._token_mark
            token = read(self)
            reads += self._token_mark != before
            return token

        monkeypatch.setattr(CredentialFiles, "_load_token", counted)
        path = tmp_path / "token"
        path.write_text("one")
        async with serve(always(Answer(200, PAGE))) as origin:
            scraper = EppScraper("east", EppTarget(origin, token_file=path), timeout=30)
            for _ in range(3):
                await scraper.scrape()
            assert reads == 1
            path.write_text("two")
            await scraper.scrape()
            assert reads == 2
            await scraper.aclose()

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (None, "No such file"),
            (b"", "is empty"),
            (b" \n", "is empty"),
            (b"two words", "holds blanks"),
            (b"a\r\nx-injected: 1", "holds blanks"),
            ("tökén".encode(), "beyond ASCII"),
            (b"x" * 70_000, "is larger than"),
        ],
    )
    async def test_files_without_a_usable_token(self, tmp_path: Path, content: bytes | None, words: str) -> None:
        path = tmp_path / "token"
        if content is not None:
            path.write_bytes(content)
        error = await refused("http://127.0.0.1:1/metrics", token_file=path)
        assert error.reason is Reason.CREDENTIAL_FILE
        assert words in error.message
        assert str(path) in error.message
        assert "injected" not in error.message

    async def test_a_directory_is_no_token(self, tmp_path: Path) -> None:
        assert (await refused("http://127.0.0.1:1/", token_file=tmp_path)).reason is Reason.CREDENTIAL_FILE

    async def test_it_shows_nowhere(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = tmp_path / "token"
        path.write_text(TOKEN)

        async def echo(request: Request) -> Answer:
            return Answer(403, f"denied: {request.headers['authorization']}".encode())

        caplog.set_level(logging.DEBUG)
        async with serve(echo) as origin:
            error = await refused(origin, token_file=path)
        assert error.reason is Reason.CREDENTIAL_DENIED
        assert "denied: Bearer ***" in error.message
        assert TOKEN not in caplog.text
        chain: BaseException | None = error
        while chain is not None:
            assert TOKEN not in f"{chain!r} {chain}"
            chain = chain.__cause__ or chain.__context__
        assert TOKEN not in repr(Credentials(TOKEN, None))

    async def test_a_file_system_that_hangs_costs_one_thread_and_delays_nobody(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        release = threading.Event()
        hanging, path = tmp_path / "hanging", tmp_path / "token"
        path.write_text("fine")
        stat, calls = os.stat, 0

        def slow(where: object, *rest: object, **named: object) -> os.stat_result:
            nonlocal calls
            if where == hanging:
                calls += 1
                release.wait(60)
            return stat(where, *rest, **named)  # type: ignore[arg-type]

        monkeypatch.setattr("grid.signals.credentials.os.stat", slow)
        async with serve(always(Answer(200, PAGE))) as origin:
            stuck = EppScraper("stuck", EppTarget(origin, token_file=hanging), timeout=0.1)
            fine = EppScraper("fine", EppTarget(origin, token_file=path), timeout=30)
            try:
                for _ in range(4):
                    with pytest.raises(ScrapeError) as caught:
                        await stuck.scrape()
                    assert caught.value.reason is Reason.TIMEOUT
                    assert "credential files" in caught.value.message
                    assert (await fine.scrape()).reading.ready == 3
                assert calls == 1
            finally:
                release.set()
            await stuck.aclose()
            await fine.aclose()


class TestLifetime:
    async def test_closing_twice_and_scraping_again(self) -> None:
        async with serve(always(Answer(200, PAGE))) as origin:
            scraper = EppScraper("east", EppTarget(origin), timeout=30)
            await scraper.aclose()
            await scraper.scrape()
            await scraper.aclose()
            await scraper.aclose()

    async def test_cancelled_in_the_middle_it_works_again(self) -> None:
        asked, gate = asyncio.Event(), asyncio.Event()

        async def handler(_: Request) -> Answer:
            asked.set()
            await gate.wait()
            return Answer(200, PAGE)

        async with serve(handler) as origin:
            scraper = EppScraper("east", EppTarget(origin), timeout=30)
            task = asyncio.create_task(scraper.scrape())
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.set()
            assert (await scraper.scrape()).reading.ready == 3
            await scraper.aclose()

    async def test_closed_in_the_middle_it_ends_with_an_error(self) -> None:
        asked = asyncio.Event()

        async def handler(_: Request) -> Answer:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with serve(handler) as origin:
            scraper = EppScraper("east", EppTarget(origin), timeout=30)
            task = asyncio.create_task(scraper.scrape())
            await asked.wait()
            await scraper.aclose()
            with pytest.raises(ScrapeError) as caught:
                await task
        assert caught.value.reason is Reason.DISCONNECTED

    async def test_closed_before_it_has_asked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        scraper = EppScraper("east", EppTarget("http://127.0.0.1:1/"), timeout=30)

        async def closed_meanwhile() -> None:
            await scraper.aclose()

        monkeypatch.setattr(scraper, "_look_up", closed_meanwhile)
        with pytest.raises(ScrapeError) as caught:
            await scraper.scrape()
        assert caught.value.reason is Reason.DISCONNECTED
        assert "on our side" in caught.value.message

    async def test_the_cost_is_the_sources_time(self) -> None:
        async def handler(_: Request) -> Answer:
            await asyncio.sleep(0.2)
            return Answer(200, PAGE)

        async with serve(handler) as origin:
            started = time.monotonic()
            found = await scrape(origin)
            assert 0.19 <= found.cost_s <= time.monotonic() - started
