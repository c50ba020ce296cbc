"""A Prometheus that is down, hangs, refuses or talks nonsense: a reason for each, and no thread too many."""

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from grid.model import Reason, ScrapeError
from grid.signals import prometheus_client
from grid.signals.prometheus import PrometheusScraper, PrometheusTarget
from tests.support.http_server import Answer, Request, serve
from tests.support.until import until

READY = {"__name__": "llm_d_epp_ready_endpoints", "name": "llama", "instance": "a", "job": "epp"}
TIME = {"grid_time_of": "llm_d_epp_ready_endpoints", "name": "llama", "instance": "a", "job": "epp"}


def vector(*series: Mapping[str, Any], stats: object = None) -> Answer:
    data = {"resultType": "vector", "result": list(series)} | ({"stats": stats} if stats else {})
    return answer(json.dumps({"status": "success", "data": data}))


def answer(body: str | bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    content = body.encode() if isinstance(body, str) else body
    return Answer(status, content, {"content-type": "application/json", **(headers or {})})


def sample(labels: Mapping[str, str], value: str, at: float = 1000.0) -> dict[str, object]:
    return {"metric": dict(labels), "value": [at, value]}


async def fault(url: str, *, provider: str = "west", within: float = 30.0, **more: Any) -> ScrapeError:
    scraper = PrometheusScraper(provider, PrometheusTarget(url, **more), timeout=within)
    try:
        with pytest.raises(ScrapeError) as error:
            await scraper.scrape()
    finally:
        await scraper.aclose()
    return error.value


async def fault_of(reply: Answer | bytes | None, **more: Any) -> ScrapeError:
    async def handler(_: Request) -> Answer | bytes | None:
        return reply

    async with serve(handler) as origin:
        return await fault(origin, **more)


def threads(provider: str) -> int:
    return sum(thread.name == f"prometheus-{provider}" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("reply", "reason", "words"),
    [
        (answer("Unauthorized", 401), Reason.CREDENTIAL_MISSING, "status 401"),
        (answer("Forbidden", 403), Reason.CREDENTIAL_DENIED, "status 403"),
        (
            answer('{"status":"error","errorType":"execution","error":"query timed out"}', 503),
            Reason.PROMETHEUS_ERROR,
            "status 503: query timed out",
        ),
        (answer("<html>no such page", 404), Reason.PROMETHEUS_ERROR, "status 404: '<html>no such page'"),
        (answer("[1]", 500), Reason.PROMETHEUS_ERROR, "status 500"),
        (answer("<html>log in"), Reason.PROMETHEUS_ERROR, "no answer of a Prometheus: '<html>log in'"),
        (answer(b"\xff\xfe"), Reason.PROMETHEUS_ERROR, "no answer of a Prometheus"),
        (answer("{}"), Reason.PROMETHEUS_ERROR, "no answer of a Prometheus: '{}'"),
        (answer("[]"), Reason.PROMETHEUS_ERROR, "no answer of a Prometheus"),
        (answer('{"data": null}'), Reason.PROMETHEUS_ERROR, "no answer of a Prometheus"),
        (answer('{"data": {"result": [1000, "5"]}}'), Reason.PROMETHEUS_ERROR, "no vector"),
        (answer('{"data": {"result": [{"metric": {}}]}}'), Reason.PROMETHEUS_ERROR, "no vector"),
        (vector({"metric": {"a": 1}, "value": [1, "2"]}), Reason.PROMETHEUS_ERROR, "no vector"),
        (answer('{"data": {"result": [{"metric": {}, "value": [NaN, "2"]}]}}'), Reason.PROMETHEUS_ERROR, "no vector"),
        (vector(sample(READY, "2"), sample(TIME, "NaN")), Reason.PROMETHEUS_ERROR, "no vector"),
        (vector(), Reason.PROMETHEUS_EMPTY, "no series of an EPP for {}"),
        (vector(sample({"__name__": "up"}, "1")), Reason.PROMETHEUS_EMPTY, "no series of an EPP"),
        (answer("", 302, {"location": "https://u:secret@sso.example/login?state=secret"}), Reason.REDIRECT_REFUSED,
         "status 302 to https://sso.example/login"),
        (answer("", 307, {"location": "/elsewhere"}), Reason.REDIRECT_REFUSED, "status 307 to /elsewhere"),
        (answer("not gzip", 200, {"content-encoding": "gzip"}), Reason.BAD_ENCODING, "content encoding"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", Reason.TRUNCATED, "ends early"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{", Reason.TRUNCATED, "ends early"),
        (None, Reason.DISCONNECTED, "broke before an answer"),
        (b"SSH-2.0-OpenSSH_9\r\n", Reason.NOT_HTTP, "does not speak HTTP"),
        (vector(sample(READY, "2"), sample(READY | {"name": "other"}, "2")), Reason.POOL_AMBIGUOUS, "'llama', 'other'"),
    ],
)  # fmt: skip
async def test_every_bad_answer_has_its_reason(reply: Answer | bytes | None, reason: Reason, words: str) -> None:
    error = await fault_of(reply)
    assert error.reason is reason
    assert words in error.message
    assert error.message.startswith("http://127.0.0.1:")
    assert "secret" not in str(error)
    assert len(str(error)) < 600


async def test_a_closed_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = await fault(f"http://user:hunter2@127.0.0.1:{taken.getsockname()[1]}/prefix/")
    assert error.reason is Reason.CONNECT_REFUSED
    assert "/prefix" in error.message
    assert "hunter2" not in str(error)


async def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert (await fault("http://nowhere.invalid:9090")).reason is Reason.DNS_FAILED


async def test_a_url_that_is_none() -> None:
    error = await fault("http://.example:9090")
    assert (error.reason, "InvalidURL" in error.message) == (Reason.PROMETHEUS_ERROR, True)


async def test_an_answer_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_client, "MAX_ANSWER", 100_000)
    error = await fault_of(answer(b" " * 200_000))
    assert (error.reason, "narrow match" in str(error)) == (Reason.TOO_LARGE, True)


async def test_token_files_that_are_of_no_use(tmp_path: Path) -> None:
    asked = 0

    async def handler(_: Request) -> Answer:
        nonlocal asked
        asked += 1
        return vector()

    async with serve(handler) as origin:
        for content, words in (
            (None, "cannot be read"),
            (b"", "is empty"),
            (b" \n", "is empty"),
            (b"two words", "blanks"),
            (b"a\r\nx-evil: 1", "line breaks"),
            (b"\xff\xfe", "token"),
        ):
            file = tmp_path / "token"
            file.unlink(missing_ok=True)
            if content is not None:
                file.write_bytes(content)
            error = await fault(origin, token_file=file)
            assert error.reason is Reason.CREDENTIAL_FILE
            assert words in error.message
            assert "evil" not in str(error)
    assert asked == 0


@contextlib.asynccontextmanager
async def dripping() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A server whose headers never end: each byte comes in time, so no timeout of a socket ends the exchange."""
    stop = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nx-pad: ")
            while not stop.is_set():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", stop
        stop.set()


async def test_a_hung_server_holds_one_thread_and_delays_nobody() -> None:
    async with dripping() as (hung, stop), serve(_good) as origin:
        scraper = PrometheusScraper("hung", PrometheusTarget(hung), timeout=1.0)
        other = PrometheusScraper("well", PrometheusTarget(origin), timeout=30.0)
        begin = time.monotonic()
        for _ in range(20):
            with pytest.raises(ScrapeError) as error:
                await scraper.scrape()
            assert error.value.reason is Reason.TIMEOUT
            assert threads("hung") == 1
        assert time.monotonic() - begin < 10  # one deadline; the others see at once that it still hangs
        assert "still hangs" in error.value.message
        assert (await other.scrape()).reading.ready_endpoints == 2
        await scraper.aclose()
        stop.set()
        await until(lambda: not threads("hung"))
        await other.aclose()


async def test_a_server_that_says_nothing_ends_at_the_deadline_and_is_asked_again() -> None:
    silent = True

    async def handler(request: Request) -> Answer:
        if silent:
            await asyncio.sleep(60)
        return await _good(request)

    async with serve(handler) as origin:
        scraper = PrometheusScraper("silent", PrometheusTarget(origin), timeout=1.0)
        begin = time.monotonic()
        with pytest.raises(ScrapeError) as error:
            await scraper.scrape()
        assert time.monotonic() - begin < 15
        assert error.value.reason is Reason.TIMEOUT
        await until(lambda: not threads("silent"))
        silent = False
        assert (await scraper.scrape()).reading.ready_endpoints == 2
        await scraper.aclose()
        await scraper.aclose()


async def test_an_endless_body_ends_at_the_deadline() -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(b" " * 1000)
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()

    server = await asyncio.start_server(pour, "127.0.0.1", 0)
    async with server:
        error = await fault(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", provider="poured", within=0.3)
        assert error.reason is Reason.TIMEOUT
        await until(lambda: not threads("poured"))


async def test_a_cancelled_scrape_leaves_nothing_behind() -> None:
    release = asyncio.Event()

    async def handler(request: Request) -> Answer:
        await release.wait()
        return await _good(request)

    async with serve(handler) as origin:
        scraper = PrometheusScraper("cancelled", PrometheusTarget(origin), timeout=30.0)
        task = asyncio.create_task(scraper.scrape())
        await until(lambda: threads("cancelled"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await scraper.aclose()  # closes the connection as soon as the thread lets go of it
        release.set()
        await until(lambda: not threads("cancelled"))


async def _good(request: Request) -> Answer:
    if "%5B300s%5D" in request.target:
        return vector()
    times = [sample(TIME, "997.5")]
    return vector(sample(READY, "2"), *times, stats={"timings": {"execTotalTime": 0.125}})


async def test_what_the_server_says_of_age_and_cost() -> None:
    async with serve(_good) as origin:
        scraper = PrometheusScraper("west", PrometheusTarget(origin))
        before = time.monotonic()
        scrape = await scraper.scrape()
        after = time.monotonic()
        await scraper.aclose()
    assert before - 2.5 <= scrape.received_at <= after - 2.5
    assert (scrape.sampled_at, scrape.cost_s, scrape.observed_every) == (997.5, 0.125, 0.0)


async def test_a_sample_from_the_future_is_new_not_younger_than_now() -> None:
    async def handler(_: Request) -> Answer:
        return vector(sample(READY, "2"), sample(TIME, "1300"))

    async with serve(handler) as origin:
        scraper = PrometheusScraper("west", PrometheusTarget(origin))
        before = time.monotonic()
        scrape = await scraper.scrape()
        await scraper.aclose()
    assert before <= scrape.received_at <= time.monotonic()


async def test_a_server_without_statistics_or_times() -> None:
    async def handler(_: Request) -> Answer:
        await asyncio.sleep(0.05)
        return vector(sample(READY, "2"))

    async with serve(handler) as origin:
        scraper = PrometheusScraper("west", PrometheusTarget(origin))
        before = time.monotonic()
        scrape = await scraper.scrape()
        after = time.monotonic()
        await scraper.aclose()
    assert scrape.sampled_at is None
    assert scrape.received_at >= before
    assert 0.05 <= scrape.cost_s <= after - before


async def test_the_interval_is_asked_for_until_it_is_known() -> None:
    asked: list[bool] = []
    histories = [
        answer("oops", 500),
        vector(),
        vector({"metric": READY, "values": [[990, "2"], [995, "2"], [1000.5, "2"], [1005, "2"]]}),
    ]

    async def handler(request: Request) -> Answer:
        asked.append("%5B300s%5D" in request.target)
        return histories.pop(0) if asked[-1] else await _good(request)

    async with serve(handler) as origin:
        scraper = PrometheusScraper("west", PrometheusTarget(origin))
        known = []
        for round_ in range(5):
            if round_ == 1:
                assert asked == [False, True]
                scraper._interval_due = 0.0  # the half minute after a refusal is over
            known.append((await scraper.scrape()).observed_every)
        await scraper.aclose()
    assert known == [0.0, 0.0, 5.0, 5.0, 5.0]
    assert asked == [False, True, False, True, False, True, False, False]


async def test_a_slow_answer_about_the_interval_loses_no_signals() -> None:
    async def handler(request: Request) -> Answer:
        if "%5B300s%5D" in request.target:
            await asyncio.sleep(60)
        return await _good(request)

    async with serve(handler) as origin:
        scraper = PrometheusScraper("west", PrometheusTarget(origin), timeout=1.5)
        assert (await scraper.scrape()).reading.ready_endpoints == 2
        assert (await scraper.scrape()).reading.ready_endpoints == 2
        await scraper.aclose()


@pytest.mark.parametrize("label", ["", "a-b", "__name__", 'x="', "1a"])
def test_match_names_labels(label: str) -> None:
    with pytest.raises(ValueError, match="is not a label"):
        PrometheusScraper("west", PrometheusTarget("http://127.0.0.1:1", {label: "x"}))


async def test_closing_what_was_never_used() -> None:
    await PrometheusScraper("west", PrometheusTarget("http://127.0.0.1:1")).aclose()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_token_is_read_again_however_unchanged_its_file_looks(tmp_path: Path, status: int) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    before = path.stat()

    async def handler(request: Request) -> Answer:
        if request.headers.get("authorization") != "Bearer other":
            return answer("no", status)
        return vector(sample(READY, "2"), sample(TIME, "999"))

    async with serve(handler) as origin:
        scraper = PrometheusScraper("west", PrometheusTarget(origin, token_file=path), timeout=30)
        with pytest.raises(ScrapeError):
            await scraper.scrape()
        path.write_text("other")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (await scraper.scrape()).reading.ready_endpoints == 2
        await scraper.aclose()
