"""How long it takes from a page's change to what a gateway holds: whole daemons on a real Redis."""

import time
from pathlib import Path

import httpx
import pytest

from grid.overlay import verify
from grid.sim.pages import Failure
from tests.daemon.fleet import (
    INTERVAL,
    LATE,
    SLACK,
    TIMEOUT,
    Fleet,
    Watcher,
    answer,
    page,
    running,
    serving,
    states_of,
)
from tests.support.redis_server import RedisServer
from tests.support.until import until

pytestmark = pytest.mark.real_server


async def test_a_first_overlay_comes_within_interval_and_timeout_though_one_site_is_a_black_hole(
    redis: RedisServer, tmp_path: Path
) -> None:
    names = ("east", "west", "north", "south", "hole")
    async with serving(*names) as pages, Watcher(redis.url) as watcher:
        pages.failures["hole"] = Failure.HANG
        daemon = Fleet(pages, redis.url, tmp_path, names).daemon()
        started = time.monotonic()
        async with running(daemon) as client:
            await until(lambda: watcher.documents)
            assert watcher.documents[0][0] - started <= INTERVAL + TIMEOUT + SLACK + 2 * LATE
            await answer(client, "/readyz", lambda got: got.status_code == 200)
            # Nobody is left out: the one that was never read stands behind the others.
            assert watcher.states() == {
                **{f"{name}-llama": "new_and_existing" for name in names[:-1]},
                "hole-llama": "behind",
            }
            hole = (await client.get("/v1/providers/hole-llama")).json()
            assert (hole["state"], hole["reason"]) == ("absent", "never_read")
            assert hole["last_error"]["code"] == "timeout"
            # The others keep their cadence.
            before = dict(pages.requests)
            began = time.monotonic()
            await until(lambda: pages.requests["east"] >= before["east"] + 4)
            assert time.monotonic() - began <= 4 * INTERVAL + LATE


async def newest(client: httpx.AsyncClient, number: int) -> list[dict[str, str]]:
    """States in the newest documents that were published, the newest first."""
    found = []
    for kept in (await client.get("/v1/overlays/edge/history")).json()["documents"][:number]:
        envelope = verify((await client.get(f"/v1/overlays/edge/{kept['version']}")).content).envelope
        assert envelope is not None
        found.append(states_of(envelope))
    return found


async def test_a_loss_is_a_demotion_within_one_interval_and_none_within_two(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        serving("east", "west") as pages,
        Watcher(redis.url) as watcher,
        running(Fleet(pages, redis.url, tmp_path).daemon()) as client,
    ):
        await until(lambda: watcher.states() == {"east-llama": "new_and_existing", "west-llama": "new_and_existing"})
        await until(lambda: len(watcher.frames) >= 2)
        frames, lost = len(watcher.frames), time.monotonic()
        await pages.put("east", page(0))
        await until(lambda: watcher.states()["east-llama"] == "none")
        worse = [at - lost for at, one in watcher.documents if states_of(one)["east-llama"] != "new_and_existing"]
        demoted, closed = worse[0], worse[-1]
        assert demoted <= INTERVAL + SLACK + LATE
        assert closed <= 2 * INTERVAL + SLACK + LATE
        # Both were published; a subscriber that is late is given the newest alone.
        assert [one["east-llama"] for one in await newest(client, 2)] == ["none", "behind"]
        assert watcher.order() == ["west-llama", "east-llama"]
        # A frame goes out with the loss, not up to a second later.
        await until(lambda: len(watcher.frames) > frames)
        told = next(moment for moment, frame in watcher.frames if frame.providers["east-llama"].ready == 0) - lost
        assert told <= INTERVAL + SLACK + LATE
        body = (await client.get("/v1/providers/east-llama")).json()
        assert (body["admission_state"], body["reason"], body["ready_endpoints"]) == ("none", "not_ready", 0)
        # And it comes back by itself.
        await pages.put("east", page(2))
        await until(lambda: watcher.states()["east-llama"] == "new_and_existing")


async def test_a_drain_reaches_a_subscriber_at_once_and_ends_by_itself(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        serving("east", "west") as pages,
        Watcher(redis.url) as watcher,
        running(Fleet(pages, redis.url, tmp_path).daemon()) as client,
    ):
        await until(lambda: watcher.documents)
        asked = time.monotonic()
        made = await client.post("/v1/drains", json={"target": "east", "for_s": 2.0, "reason": "kernel"})
        assert made.status_code == 201
        await until(lambda: watcher.states()["east-llama"] == "existing_only")
        assert watcher.documents[-1][0] - asked <= INTERVAL + SLACK + LATE
        # A longer one extends it, a shorter one changes nothing.
        assert (await client.post("/v1/drains", json={"target": "east", "for_s": 2.6})).json()["extended"]
        shorter = await client.post("/v1/drains", json={"target": "east", "for_s": 0.1})
        assert (shorter.status_code, shorter.json()["extended"]) == (200, False)
        assert (await client.get("/v1/providers/east-llama")).json()["drained"] is True
        await until(lambda: watcher.states()["east-llama"] == "new_and_existing")
        lasted = watcher.documents[-1][0] - asked
        assert 2.5 <= lasted <= 2.6 + INTERVAL + SLACK + LATE
        assert (await client.get("/v1/drains")).json() == {"drains": []}


async def test_a_new_load_order_reaches_a_subscriber_within_an_interval(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages, Watcher(redis.url) as watcher:
        for name, in_flight in (("east", 2), ("west", 12)):
            await pages.put(name, page(2, in_flight))
        fleet = Fleet(pages, redis.url, tmp_path, picker="")
        text = fleet.text().replace("edge: {site: east}", "edge: {site: east, order: scoreFirst}")
        from grid.config import parse
        from grid.daemon import Daemon

        async with running(Daemon(parse(text))):
            await until(lambda: watcher.order() == ["east-llama", "west-llama"])
            changed = time.monotonic()
            await pages.put("east", page(2, 15))
            await pages.put("west", page(2, 1))
            await until(lambda: watcher.order() == ["west-llama", "east-llama"])
            assert watcher.documents[-1][0] - changed <= INTERVAL + SLACK + LATE


async def test_three_of_four_with_a_wrong_token_are_offered_in_their_places(redis: RedisServer, tmp_path: Path) -> None:
    names = ("east", "west", "north", "south")
    async with serving(*names) as pages, Watcher(redis.url) as watcher:
        for name, failure in zip(names[1:], (Failure.UNAUTHORIZED, Failure.FORBIDDEN, Failure.REJECTED), strict=True):
            pages.failures[name] = failure
        async with running(Fleet(pages, redis.url, tmp_path, names).daemon()) as client:
            await until(lambda: watcher.documents)
            assert watcher.states() == {
                "east-llama": "new_and_existing",
                **{f"{name}-llama": "behind" for name in names[1:]},
            }
            listed = {one["id"]: one for one in (await client.get("/v1/providers")).json()["providers"]}
            assert {name: one["last_error"] and one["last_error"]["code"] for name, one in listed.items()} == {
                "east-llama": None,
                "west-llama": "credential_missing",
                "north-llama": "credential_denied",
                "south-llama": "credential_rejected",
            }
