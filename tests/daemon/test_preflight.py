"""What ``grid check --live`` finds out about this machine."""

import asyncio
import os
from pathlib import Path

import pytest

from grid.config import parse
from grid.daemon import Daemon
from grid.daemon.preflight import Result, preflight
from tests.daemon.fleet import running
from tests.daemon.parts import CONFIG
from tests.support.http_server import Answer, Request, serve
from tests.support.ports import free_port

pytestmark = pytest.mark.real_server

NO_BUS = "\nbus: {url: 'redis://127.0.0.1:1/0'}\n"


async def found(name: str, daemon: str) -> Result | None:
    text = CONFIG.replace("scrape_timeout: 1s", f"scrape_timeout: 1s, {daemon}") + NO_BUS
    return next((one for one in await preflight(parse(text)) if one.name == name), None)


async def test_without_a_state_dir_nothing_is_said_of_it() -> None:
    assert await found("state_dir", "listen: '127.0.0.1:0'") is None


async def test_a_state_dir_that_is_there_or_can_be_made(tmp_path: Path) -> None:
    result = await found("state_dir", f"state_dir: '{tmp_path}'")
    assert result == Result("state_dir", True, f"{tmp_path}: writable")
    deep = tmp_path / "a" / "b"
    result = await found("state_dir", f"state_dir: '{deep}'")
    assert result == Result("state_dir", True, f"{deep}: will be made in {tmp_path}")
    assert await asyncio.to_thread(os.listdir, tmp_path) == [], "looking leaves nothing behind"


async def test_a_state_dir_that_can_not_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    await asyncio.to_thread(file.write_text, "x")
    for path in (file, file / "below"):
        result = await found("state_dir", f"state_dir: '{path}'")
        assert result is not None
        assert (result.ok, result.detail) == (False, f"{path}: {file} is no directory")
        assert result.hint


async def test_a_state_dir_where_nothing_can_be_written() -> None:
    """Not even root may write there."""
    result = await found("state_dir", "state_dir: '/proc/self/grid'")
    assert result is not None
    assert not result.ok
    assert result.detail.startswith("/proc/self/grid: /proc/self cannot be written to: ")


async def test_an_address_that_is_free() -> None:
    port = await asyncio.to_thread(free_port)
    result = await found("listen", f"listen: '127.0.0.1:{port}'")
    assert result == Result("listen", True, f"127.0.0.1:{port}: free")


@pytest.mark.parametrize("with_token", [False, True])
async def test_an_address_at_which_a_daemon_answers(tmp_path: Path, with_token: bool) -> None:
    token = tmp_path / "token"
    await asyncio.to_thread(token.write_text, "secret")
    more = f", token_file: '{token}'" if with_token else ""
    text = CONFIG.replace("scrape_timeout: 1s", f"scrape_timeout: 1s, listen: '127.0.0.1:0'{more}") + NO_BUS
    async with running(Daemon(parse(text))) as client:
        port = client.base_url.port
        result = await found("listen", f"listen: '127.0.0.1:{port}'")
    assert result == Result("listen", True, f"127.0.0.1:{port}: a grid daemon answers there already")


@pytest.mark.parametrize("body", [b"hello", b'{"version": "1"}', b"[]"])
async def test_an_address_at_which_something_else_answers(body: bytes) -> None:
    async def handler(_: Request) -> Answer:
        return Answer(200, body)

    async with serve(handler) as origin:
        port = int(origin.rpartition(":")[2])
        result = await found("listen", f"listen: '127.0.0.1:{port}'")
    assert result is not None
    assert not result.ok
    assert "Address already in use" in result.detail
    assert result.hint
