import gzip
import signal
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from grid.sim.exposition import CONTENT_TYPE
from grid.sim.pages import Failure, PageServer, bomb, main

PAGE = b"# TYPE a gauge\na 1\n" * 200


@pytest.fixture
async def server() -> AsyncIterator[PageServer]:
    made = PageServer({"east": PAGE, "west": gzip.compress(PAGE)})
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as made:  # noqa: S501 - no TLS here
        yield made


@pytest.mark.parametrize("name", ["east", "west"])
@pytest.mark.parametrize("accepted", ["gzip", "identity"])
async def test_pages_come_back_as_they_are(
    server: PageServer, client: httpx.AsyncClient, name: str, accepted: str
) -> None:
    answer = await client.get(server.url(name), headers={"accept-encoding": accepted})
    assert (answer.status_code, answer.content) == (200, PAGE)
    assert answer.headers["content-type"] == CONTENT_TYPE
    assert answer.headers.get("content-encoding", "identity") == accepted
    assert server.requests[name] == 1


async def test_files_are_served_and_may_be_exchanged(tmp_path: Path, client: httpx.AsyncClient) -> None:
    file = tmp_path / "page.txt"
    file.write_bytes(PAGE)
    server = PageServer({"a": file})
    await server.start()
    try:
        assert (await client.get(server.url("a"))).content == PAGE
        await server.put("a", b"# EOF\n")
        answer = await client.get(server.url("a"))
        assert (answer.content, answer.headers["content-type"][:27]) == (b"# EOF\n", "application/openmetrics-tex")
        assert (await client.get(server.url("b"))).status_code == 404
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("failure", "status", "body"),
    [
        (Failure.UNAUTHORIZED, 401, b"Unauthorized"),
        (Failure.FORBIDDEN, 403, b"Authorization denied"),
        (Failure.REJECTED, 500, b"Authentication failed"),
        (Failure.GATHER, 500, b"An error has occurred while serving metrics:"),
        (Failure.HTML, 200, b"<!DOCTYPE html>"),
        (Failure.EMPTY, 200, b""),
        (Failure.REDIRECT, 302, b""),
    ],
)
async def test_failures_that_are_answers(
    server: PageServer, client: httpx.AsyncClient, failure: Failure, status: int, body: bytes
) -> None:
    server.failures["east"] = failure
    answer = await client.get(server.url("east"))
    assert answer.status_code == status
    assert answer.content.startswith(body)
    assert (await client.get(server.url("west"))).content == PAGE, "others are unharmed"
    del server.failures["east"]
    assert (await client.get(server.url("east"))).content == PAGE


async def test_a_hanging_page_hangs(server: PageServer, client: httpx.AsyncClient) -> None:
    server.failures["east"] = Failure.HANG
    with pytest.raises(httpx.ReadTimeout):
        await client.get(server.url("east"), timeout=httpx.Timeout(30, read=0.1))


async def test_a_cut_page_breaks_its_promise(server: PageServer, client: httpx.AsyncClient) -> None:
    server.failures["east"] = Failure.CUT
    with pytest.raises(httpx.RemoteProtocolError):
        await client.get(server.url("east"))


async def test_a_cut_gzip_stream_ends_early_in_a_whole_body(server: PageServer, client: httpx.AsyncClient) -> None:
    server.failures["east"] = Failure.CUT_GZIP
    async with client.stream("GET", server.url("east")) as answer:
        raw = b"".join([chunk async for chunk in answer.aiter_raw()])
    unpacker = zlib.decompressobj(31)
    unpacker.decompress(raw)
    assert not unpacker.eof


def test_the_bomb_is_valid_and_small() -> None:
    packed = bomb(32 * 1024 * 1024)
    assert len(packed) < 200_000
    plain = gzip.decompress(packed)
    assert len(plain) == 32 * 1024 * 1024
    assert plain.startswith(b"go_simulated_bomb_total 1\n")


async def test_tokens_are_judged_as_an_epp_judges_them(server: PageServer, client: httpx.AsyncClient) -> None:
    server.tokens["east"] = "right"
    statuses = [
        (await client.get(server.url("east"), headers=headers)).status_code
        for headers in ({}, {"authorization": "Basic x"}, {"authorization": "Bearer wrong"},
                        {"authorization": "Bearer right"})
    ]  # fmt: skip
    assert statuses == [401, 401, 500, 200]


async def test_refused_connections_and_the_same_port_afterwards(server: PageServer, client: httpx.AsyncClient) -> None:
    url = server.url("east")
    assert (await client.get(url)).status_code == 200
    await server.refuse()
    with pytest.raises(httpx.ConnectError):
        await client.get(url)
    await server.accept()
    assert (await client.get(url)).content == PAGE


async def test_a_delay_delays(server: PageServer, client: httpx.AsyncClient) -> None:
    server.delays["east"] = 30.0
    with pytest.raises(httpx.ReadTimeout):
        await client.get(server.url("east"), timeout=httpx.Timeout(30, read=0.1))
    assert (await client.get(server.url("west"), timeout=30)).content == PAGE


def test_it_serves_files_from_a_shell(tmp_path: Path) -> None:
    (tmp_path / "busy.txt").write_bytes(PAGE)
    command = [sys.executable, "-m", "grid.sim.pages", f"east={tmp_path / 'busy.txt'}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    output = process.stdout
    assert output is not None
    try:
        url = output.readline().strip()
        assert httpx.get(url, trust_env=False, timeout=30).content == PAGE
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    finally:
        process.kill()
        process.wait()
        output.close()


def test_it_says_what_is_wrong_with_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["east=/nowhere/page.txt"])
    assert caught.value.code == 2
    assert "is not NAME=FILE with a file that exists" in capsys.readouterr().err
