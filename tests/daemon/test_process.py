"""The process of ``grid run``: signals, exit codes, what it logs."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from grid.sim.pages import Failure
from tests.daemon.fleet import LATE, Fleet, Watcher, answer, page, serving
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.until import PATIENCE, until

pytestmark = pytest.mark.real_server

RUN = "import sys; from grid.daemon import main; sys.exit(main(__import__('pathlib').Path(sys.argv[1])))"
BLACK_HOLE = """
import socket, sys, time, pathlib
real = socket.getaddrinfo
def hanging(host, *more, **named):
    if "black-hole" in str(host):
        time.sleep(60)
    return real(host, *more, **named)
socket.getaddrinfo = hanging
from grid.daemon import main
sys.exit(main(pathlib.Path(sys.argv[1])))
"""

FROZEN = """
import gc, sys, pathlib
from grid.daemon import main
code = main(pathlib.Path(sys.argv[1]))
sys.exit(code or (0 if gc.get_freeze_count() > 10_000 else 9))
"""


@dataclass
class Process:
    handle: asyncio.subprocess.Process
    client: httpx.AsyncClient
    stderr: Path

    async def told(self, number: signal.Signals) -> int:
        """Send a signal; the exit code."""
        self.handle.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            return await self.handle.wait()

    async def log(self) -> list[dict[str, object]]:
        """What it logged, once it has ended."""
        return [json.loads(line) for line in (await asyncio.to_thread(self.stderr.read_text)).splitlines()]


@contextlib.asynccontextmanager
async def process(fleet: Fleet, program: str = RUN) -> AsyncIterator[Process]:
    port = free_port()
    path = await fleet.write(fleet.text().replace("127.0.0.1:0", f"127.0.0.1:{port}"))
    stderr = fleet.folder / f"{port}.log"
    with stderr.open("wb") as out:
        handle = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, str(path)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=out,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client:
            deadline = time.monotonic() + 45
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get("/readyz")).status_code == 200:
                        break
                if handle.returncode is not None or time.monotonic() > deadline:
                    raise AssertionError((await asyncio.to_thread(stderr.read_text))[-4000:])
                await asyncio.sleep(0.02)
            yield Process(handle, client, stderr)
    finally:
        if handle.returncode is None:
            handle.kill()
        await handle.wait()


def lease(redis: RedisServer) -> bytes | None:
    with redis.client() as plain:
        found: bytes | None = plain.hget("grid:{acme}:leader", "holder")
        return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_end_during_a_hung_scrape_it_ends_in_order(
    redis: RedisServer, tmp_path: Path, number: signal.Signals
) -> None:
    async with serving("east", "hung") as pages:
        pages.failures["hung"] = Failure.HANG
        fleet = Fleet(pages, redis.url, tmp_path, ("east", "hung"), state=True)
        async with process(fleet) as one:
            await answer(one.client, "/v1/overlays/edge", lambda got: got.status_code == 200)
            assert await asyncio.to_thread(lease, redis) is not None
            assert await one.told(number) == 0
            assert await asyncio.to_thread(lease, redis) is None
            log = await one.log()
            said = [line["event"] for line in log]
            assert said[-1] == "daemon stopped"
            assert "stopping" in said
            assert not [event for event in said if "did not end in time" in str(event)]
            assert not any("exception" in line or "Traceback" in json.dumps(line) for line in log)
            assert not [line for line in log if line["level"] == "error"]
            # What it knew is on disk, whole.
            assert (tmp_path / "state" / "state.json").exists()
            assert (tmp_path / "state" / "overlays" / "edge.json").exists()
            assert int((tmp_path / "state" / "epoch").read_text()) > 1_000_000_000


async def test_it_ends_in_time_though_a_name_look_up_hangs(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east") as pages:
        hole = "{site: east, cluster: hole, models: [llama], source: {epp: 'http://black-hole.test:9090/m'}}"
        fleet = Fleet(pages, redis.url, tmp_path, ("east",))
        text = fleet.text().replace("gateways:", f"  hole: {hole}\ngateways:")
        fleet.text = lambda: text  # type: ignore[method-assign]
        async with process(fleet, BLACK_HOLE) as one:
            assert await one.told(signal.SIGTERM) == 0
            assert (await one.log())[-1]["event"] == "daemon stopped"


async def test_it_ends_in_time_though_redis_is_frozen(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages, process(Fleet(pages, redis.url, tmp_path)) as one:
        await asyncio.to_thread(redis.freeze)
        try:
            assert await one.told(signal.SIGTERM) == 0
        finally:
            await asyncio.to_thread(redis.thaw)
        assert not any("Traceback" in json.dumps(line) for line in await one.log())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_second_signal_ends_it_at_once(
    redis: RedisServer, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    async with serving("east", "west") as pages, process(Fleet(pages, redis.url, tmp_path)) as one:
        # A frozen bus makes the orderly end take its time.
        await asyncio.to_thread(redis.freeze)
        try:
            one.handle.send_signal(signal.SIGTERM)
            ready = await answer(one.client, "/readyz?verbose", lambda got: got.status_code == 503)
            assert "shutdown" in ready.text or "bus" in ready.text
            assert await one.told(number) == code
        finally:
            await asyncio.to_thread(redis.thaw)


async def test_sighup_loads_the_configuration_again(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west", "north") as pages, Watcher(redis.url) as watcher:
        fleet = Fleet(pages, redis.url, tmp_path)
        async with process(fleet) as one:
            await until(lambda: watcher.documents)
            listen = f"127.0.0.1:{one.client.base_url.port}"
            fleet.names = ("east", "west", "north")
            await fleet.write(fleet.text().replace("127.0.0.1:0", listen))
            one.handle.send_signal(signal.SIGHUP)
            await until(lambda: "north-llama" in watcher.states())
            await fleet.write("network: [")
            one.handle.send_signal(signal.SIGHUP)
            await answer(one.client, "/readyz?verbose", lambda got: "[!]config warning" in got.text)
            await pages.put("north", page(0))
            await until(lambda: watcher.states()["north-llama"] == "none")
            assert await one.told(signal.SIGTERM) == 0
            assert not any("Traceback" in json.dumps(line) for line in await one.log())


async def test_a_killed_leader_is_replaced_within_the_life_of_its_lease(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages, Watcher(redis.url) as watcher:
        fleet = Fleet(pages, redis.url, tmp_path)
        async with process(fleet) as first:
            await answer(first.client, "/v1/leader", lambda got: got.json()["role"] == "leader")
            await until(lambda: watcher.documents)
            async with process(fleet) as second:
                await answer(second.client, "/v1/leader", lambda got: got.json()["role"] == "follower")
                first.handle.kill()
                killed = time.monotonic()
                await answer(second.client, "/v1/leader", lambda got: got.json()["role"] == "leader")
                assert time.monotonic() - killed <= 2.0 + 1.0 + LATE
                await pages.put("east", page(0))
                await until(lambda: watcher.states()["east-llama"] == "none")


async def test_the_log_holds_no_secret_and_one_sentence_per_change(redis: RedisServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    await asyncio.to_thread(token.write_text, "s3cret-token")
    async with serving("east", "west") as pages:
        pages.tokens["east"] = "another"
        fleet = Fleet(pages, redis.url, tmp_path)
        text = fleet.text().replace(f"'{pages.url('east')}'", f"'{pages.url('east')}', token_file: {token}")
        fleet.text = lambda: text  # type: ignore[method-assign]
        async with process(fleet) as one:
            await answer(one.client, "/v1/overlays/edge", lambda got: got.status_code == 200)
            shown = await answer(one.client, "/v1/providers/east-llama", lambda got: got.json()["last_error"])
            assert shown.json()["last_error"]["code"] == "credential_rejected"
            config = (await one.client.get("/v1/config")).text
            assert await one.told(signal.SIGTERM) == 0
            log = await one.log()
            assert "s3cret-token" not in json.dumps(log) + config + shown.text
            sentences = [line["event"] for line in log if "providers open" in str(line["event"])]
            published = [one for one in sentences if "published edge" in str(one)]
            assert published == sentences[-1:], "what changes nothing is not said at INFO"
            # Before it led it may have said so.
            assert all("nobody leads yet" in str(one) for one in sentences[:-1])


async def test_what_was_imported_is_kept_from_the_garbage_collector(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east") as pages, process(Fleet(pages, redis.url, tmp_path, ("east",)), FROZEN) as one:
        assert await one.told(signal.SIGTERM) == 0
