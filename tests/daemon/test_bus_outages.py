"""The bus goes away, freezes, is wiped; leaders change. Whole daemons on a real Redis."""

import asyncio
import contextlib
import statistics
import time
from pathlib import Path

import httpx
import pytest

from tests.daemon.fleet import INTERVAL, LATE, Fleet, Watcher, answer, page, running, serving
from tests.support.redis_server import RedisServer
from tests.support.until import PATIENCE, until

pytestmark = pytest.mark.real_server


async def scrapes(client: httpx.AsyncClient) -> int:
    return sum(one["scrapes"] for one in [(await client.get("/v1/providers/east-llama")).json()])


async def test_while_redis_is_away_it_scrapes_decides_and_says_so_then_publishes_again(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with (
        serving("east", "west") as pages,
        Watcher(redis.url) as watcher,
        running(Fleet(pages, redis.url, tmp_path).daemon()) as client,
    ):
        await until(lambda: watcher.documents)
        epoch = watcher.epoch()
        await answer(client, "/v1/overlays/edge", lambda got: got.status_code == 200)
        await asyncio.to_thread(redis.kill)
        ready = await answer(client, "/readyz?verbose", lambda got: got.status_code == 503)
        assert "[-]bus failed" in ready.text
        assert (await client.get("/livez")).status_code == 200
        before = await scrapes(client)
        await pages.put("east", page(0))
        await answer(client, "/v1/providers/east-llama", lambda got: got.json()["admission_state"] == "none")
        await answer(client, "/v1/providers/east-llama", lambda got: got.json()["scrapes"] >= before + 4)
        # The last known document is still shown, and the metrics answer.
        assert (await client.get("/v1/overlays/edge")).status_code == 200
        assert "grid_bus_up 0.0" in (await client.get("/metrics")).text
        refused = await client.post("/v1/drains", json={"target": "west"})
        assert refused.status_code == 503
        await asyncio.to_thread(redis.start)
        await until(lambda: watcher.states().get("east-llama") == "none")
        assert watcher.epoch() >= epoch
        await answer(client, "/readyz", lambda got: got.status_code == 200)


async def test_a_wiped_redis_has_documents_and_drains_again_soon(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        serving("east", "west") as pages,
        Watcher(redis.url) as watcher,
        running(Fleet(pages, redis.url, tmp_path).daemon()) as client,
    ):
        await until(lambda: watcher.documents)
        await client.post("/v1/drains", json={"target": "west"})
        await until(lambda: watcher.states()["west-llama"] == "existing_only")
        epoch = watcher.epoch()

        def look() -> tuple[bool, bool]:
            with redis.client() as plain:
                return (
                    bool(plain.exists("grid:{acme}:overlay:edge")),
                    bool(plain.hexists("grid:{acme}:drains", "west")),
                )

        def wipe() -> None:
            with redis.client() as plain:
                plain.flushall()

        await asyncio.to_thread(wipe)
        wiped = time.monotonic()
        while await asyncio.to_thread(look) != (True, True):
            assert time.monotonic() - wiped < PATIENCE
            await asyncio.sleep(0.02)
        assert time.monotonic() - wiped <= max(1.0, INTERVAL) + 1.0 + LATE
        await until(lambda: watcher.epoch() > epoch)
        assert watcher.states()["west-llama"] == "existing_only"
        assert [one["id"] for one in (await client.get("/v1/drains")).json()["drains"]] == ["west"]


async def test_a_frozen_redis_slows_no_answer_and_stops_no_scrape(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        serving("east", "west") as pages,
        Watcher(redis.url) as watcher,
        running(Fleet(pages, redis.url, tmp_path).daemon()) as client,
    ):
        await until(lambda: watcher.documents)
        await asyncio.to_thread(redis.freeze)
        try:
            before = pages.requests["east"]
            took: list[float] = []
            began = time.monotonic()
            while pages.requests["east"] < before + 4:
                asked = time.monotonic()
                for path in ("/livez", "/readyz", "/v1/providers"):
                    await client.get(path)
                took.append(time.monotonic() - asked)
                assert time.monotonic() - began < PATIENCE
                await asyncio.sleep(0.02)
            assert statistics.median(took) < 0.5, "who waits for it waits for seconds"
            await answer(client, "/readyz?verbose", lambda got: "[-]bus failed" in got.text)
        finally:
            await asyncio.to_thread(redis.thaw)
        await answer(client, "/readyz", lambda got: got.status_code == 200)


async def test_a_follower_takes_over_when_the_leader_ends(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages, Watcher(redis.url) as watcher:
        fleet = Fleet(pages, redis.url, tmp_path, lease="30s")
        async with contextlib.AsyncExitStack() as stack:
            second = await stack.enter_async_context(contextlib.AsyncExitStack())
            async with running(fleet.daemon(holder="first")) as leader:
                await answer(leader, "/v1/leader", lambda got: got.json()["role"] == "leader")
                follower = await second.enter_async_context(running(fleet.daemon(holder="second")))
                found = await answer(follower, "/v1/leader", lambda got: got.json()["holder"] == "first")
                assert found.json()["role"] == "follower"
                await until(lambda: watcher.documents)
                # A follower is ready, scrapes, decides, and shows what the leader has published.
                await answer(follower, "/readyz", lambda got: got.status_code == 200)
                await answer(follower, "/v1/overlays/edge", lambda got: got.status_code == 200)
                for name in ("east-llama", "west-llama"):  # what it has never read would be news when it leads
                    await answer(follower, f"/v1/providers/{name}", lambda got: got.json()["scrapes"] > 0)
                verbose = (await follower.get("/readyz?verbose")).text
                assert "[+]lease ok: follower of first" in verbose
                # What a follower is told, the leader does.
                asked = time.monotonic()
                await follower.post("/v1/drains", json={"target": "west"})
                await until(lambda: watcher.states()["west-llama"] == "existing_only")
                assert watcher.documents[-1][0] - asked <= 1.0 + INTERVAL + LATE
                epoch, count = watcher.epoch(), len(watcher.documents)
            ended = time.monotonic()
            await answer(follower, "/v1/leader", lambda got: got.json()["role"] == "leader")
            assert time.monotonic() - ended < 15, "the lease was let go, so nobody waits for its end"
            assert (await follower.get("/v1/leader")).json()["epoch"] > epoch
            # Nothing has changed in meaning, so nothing is published again.
            await until(lambda: watcher.frames and watcher.frames[-1][1].epoch > epoch)
            assert len(watcher.documents) == count
            await pages.put("east", page(0))
            await until(lambda: watcher.states()["east-llama"] in {"behind", "none"})
            assert watcher.epoch() > epoch


async def test_a_leader_whose_lease_is_taken_stops_at_once_and_stands_by(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        serving("east", "west") as pages,
        Watcher(redis.url) as watcher,
        running(Fleet(pages, redis.url, tmp_path).daemon()) as client,
    ):
        await until(lambda: watcher.documents)

        def usurp() -> int:
            with redis.client() as plain:
                key = "grid:{acme}:leader"
                epoch = int(plain.hget(key, "epoch")) + 5
                plain.hset(key, mapping={"holder": "other", "token": "other", "epoch": epoch})
                plain.pexpire(key, 5000)
                return epoch

        epoch = await asyncio.to_thread(usurp)
        count = len(watcher.documents)
        await pages.put("east", page(0))
        found = await answer(client, "/v1/leader", lambda got: got.json()["role"] == "follower")
        assert found.json()["holder"] in {"other", None}
        await answer(client, "/v1/providers/east-llama", lambda got: got.json()["admission_state"] == "none")
        assert len(watcher.documents) == count, "nothing is published without the lease"
        # When the other is gone it leads again, above it.
        await answer(client, "/v1/leader", lambda got: got.json()["role"] == "leader")
        await until(lambda: watcher.states()["east-llama"] == "none")
        assert watcher.epoch() > epoch


async def test_nothing_is_removed_by_a_restart_before_the_first_round(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages, Watcher(redis.url) as watcher:
        fleet = Fleet(pages, redis.url, tmp_path, timeout=10.0)
        async with running(fleet.daemon()):
            await until(lambda: watcher.documents and watcher.frames)
        count, epoch = len(watcher.documents), watcher.frames[-1][1].epoch
        before = watcher.states()
        pages.delays |= {"east": 0.3, "west": 0.3}
        async with running(fleet.daemon()) as client:
            await answer(client, "/v1/leader", lambda got: got.json()["role"] == "leader")
            await answer(client, "/readyz", lambda got: got.status_code == 200)
            await until(lambda: watcher.frames[-1][1].epoch > epoch)
            assert watcher.states() == before
            assert len(watcher.documents) == count


async def test_what_an_operator_and_the_pages_have_taught_survives_a_restart_on_an_empty_bus(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with serving("east", "west") as pages, Watcher(redis.url) as watcher:
        fleet = Fleet(pages, redis.url, tmp_path, state=True)
        async with running(fleet.daemon()) as client:
            await until(lambda: watcher.documents)
            await client.post("/v1/drains", json={"target": "west-llama", "reason": "disk"})
            await pages.put("east", page(0))
            await until(lambda: watcher.states().get("east-llama") == "none")
            epoch = watcher.epoch()
        await asyncio.to_thread(redis.restart)
        await pages.put("east", page(2))
        async with running(fleet.daemon()) as client:
            await until(lambda: watcher.epoch() > epoch)
            # One good reading lifts nothing yet: the memory knows that it was closed.
            first = next(one for _, one in watcher.documents if one.publication and one.publication.epoch > epoch)
            assert {one.cluster: str(one.admission_state) for one in first.candidates} == {
                "east-llama": "none",
                "west-llama": "existing_only",
            }
            assert (await client.get("/v1/drains")).json()["drains"][0]["reason"] == "disk"


async def test_keys_that_something_else_wrote_are_removed_named_once_and_written_anew(
    redis: RedisServer, tmp_path: Path
) -> None:
    keys = {
        name: f"grid:{{acme}}:{name}"
        for name in ("overlay:edge", "history:edge", "memory", "drains", "signal", "leader")
    }

    def spoil(*names: str) -> None:
        with redis.client() as plain:
            for name in names:
                plain.execute_command("DEL", keys[name])
                plain.execute_command("SADD", keys[name], "garbage")

    def types() -> dict[str, str]:
        with redis.client() as plain:
            return {name: plain.type(key).decode() for name, key in keys.items()}

    async with (
        serving("east", "west") as pages,
        Watcher(redis.url) as watcher,
        running(Fleet(pages, redis.url, tmp_path).daemon()) as client,
    ):
        await until(lambda: watcher.documents)
        await client.post("/v1/drains", json={"target": "west"})
        await until(lambda: watcher.states()["west-llama"] == "existing_only")
        wanted = {
            "overlay:edge": "hash",
            "history:edge": "stream",
            "memory": "hash",
            "drains": "hash",
            "signal": "string",
            "leader": "hash",
        }
        for names in ([name for name in keys if name != "leader"], ["leader"], ["overlay:edge"]):
            await asyncio.to_thread(spoil, *names)
            # What is refused is found at the next use; for the history that is the next publication.
            if "history:edge" in names:
                await pages.put("east", page(0))
            deadline = time.monotonic() + PATIENCE
            while await asyncio.to_thread(types) != wanted:
                assert time.monotonic() < deadline, await asyncio.to_thread(types)
                await asyncio.sleep(0.05)
        await until(lambda: watcher.states() == {"east-llama": "none", "west-llama": "existing_only"})
        await answer(client, "/readyz", lambda got: got.status_code == 200)
        events = (await client.get("/v1/history", params={"kind": "bus"})).json()["events"]
        said = [one["sentence"] for one in events]
        assert not [one for one in said if "away" in one], "a refused command is an answer"
        assert len([one for one in said if "answers" in one]) == 1
        # A frame replaces whatever lies there, so its key was never refused.
        named = [key for name, key in keys.items() if name != "signal"]
        for key in named:
            assert len([one for one in said if f"the key {key} was a set" in one]) == 1, said
        assert len(said) - len([one for one in said if keys["signal"] in one]) == 1 + len(named), said
