"""What lasts, on a real Redis and a real disk."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
import structlog

from grid.bus.connect import BusSettings, connect
from grid.bus.lease import Leader, LeaderLease
from grid.bus.publisher import Publisher
from grid.daemon.board import Board
from grid.daemon.keeper import Keeper
from grid.daemon.link import Link
from grid.daemon.planner import Planner
from grid.daemon.shelf import Shelf
from grid.daemon.state_dir import StateDir
from grid.model import AdmissionState, Drain, Sample
from grid.policy import PolicyInput
from tests.daemon.parts import config, reading
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.real_server


@dataclass
class Kept:
    board: Board
    publisher: Publisher
    lease: LeaderLease
    shelf: Shelf
    keeper: Keeper

    def decide(self, ready: int = 2, sequence: int = 1) -> None:
        """One pass on the memory held."""
        now = time.monotonic()
        samples = {name: Sample(name, sequence, now, reading(ready), 2.0) for name in self.board.network.providers}
        given = PolicyInput(self.board.network, samples, self.board.memory, now, previous=self.board.previous)
        self.board.planned = Planner().plan(given, "2026-01-01T00:00:00Z")
        self.board.memory = self.board.planned.outcome.memory

    async def publish(self) -> None:
        assert self.board.planned is not None
        documents = list(self.board.planned.documents.values())
        await self.publisher.publish_all(documents, self.lease, "test")
        self.keeper.published([document.gateway for document in documents])
        await self.keeper.keep_documents()


@contextlib.asynccontextmanager
async def keeping(redis: RedisServer, holder: str, folder: Path | None = None) -> AsyncIterator[Kept]:
    loaded = config()
    connection = await connect(BusSettings.from_url(redis.url), "acme")
    board, shelf = Board(loaded, loaded.to_network()), Shelf()
    publisher = Publisher(connection, holder)
    lease = LeaderLease(connection, holder, 10)
    link = Link(lambda _: None)
    disk = None if folder is None else StateDir(folder)
    keeper = Keeper(board, publisher, lease=lease, shelf=shelf, link=link, state_dir=disk, clock=time.monotonic)
    try:
        yield Kept(board, publisher, lease, shelf, keeper)
    finally:
        await connection.aclose()


def admission(kept: Kept, provider: str = "east-llama") -> AdmissionState | None:
    return kept.board.memory.providers[provider].admission


async def test_a_new_leader_takes_the_memory_and_documents_of_the_one_before(redis: RedisServer) -> None:
    async with keeping(redis, "first") as first, keeping(redis, "second") as second:
        assert await first.lease.acquire()
        await first.keeper.take_over()
        for sequence in (1, 2):
            first.decide(ready=0, sequence=sequence)
        assert admission(first) is AdmissionState.NONE
        await first.publish()
        await first.keeper.drain("west", until=None, reason="disk")
        await first.keeper.save(force=True)
        await first.lease.release()

        second.decide()
        assert admission(second) is AdmissionState.NEW_AND_EXISTING
        assert await second.lease.acquire()
        await second.keeper.take_over()
        assert admission(second) is AdmissionState.NONE
        assert set(second.shelf.documents()) == {"edge-east", "edge-west"}
        assert {one.admission_state for one in second.board.previous["edge-east"]} == {AdmissionState.NONE}
        assert second.board.drains["west"].reason == "disk"


async def test_who_led_last_keeps_its_own_memory(redis: RedisServer) -> None:
    async with keeping(redis, "first") as first:
        await first.lease.acquire()
        await first.keeper.take_over()
        first.decide()
        await first.keeper.save(force=True)
        for sequence in (2, 3):
            first.decide(ready=0, sequence=sequence)
        await first.keeper.take_over()
        assert admission(first) is AdmissionState.NONE, "what the bus holds is older"
        first.keeper.follow()
        await first.keeper.take_over()
        assert admission(first) is AdmissionState.NEW_AND_EXISTING, "another may have led meanwhile"


async def test_the_later_end_of_a_drain_holds_whoever_was_told(redis: RedisServer) -> None:
    async with keeping(redis, "first") as first, keeping(redis, "second") as second:
        now = time.time()
        long, moved = await first.keeper.drain("east", until=now + 60, reason="long")
        assert moved
        held, moved = await second.keeper.drain("east", until=now + 10, reason="short")
        assert (held, moved) == (long, False)
        held, moved = await second.keeper.drain("east", until=None, reason="")
        assert (held.until, held.reason, moved) == (None, "long", True)
        assert second.board.drains == {"east": held}


async def test_drains_of_others_are_taken_up_while_somebody_leads(redis: RedisServer) -> None:
    async with keeping(redis, "first") as first, keeping(redis, "second") as second:
        await first.keeper.drain("east", until=None, reason="")
        assert not await second.keeper.refresh_drains(), "nobody leads, so the bus may have been wiped"
        second.board.leader = Leader("first", 7)
        assert await second.keeper.refresh_drains()
        assert set(second.board.drains) == {"east"}
        assert not await second.keeper.refresh_drains()
        assert await first.keeper.undrain("east")
        assert await second.keeper.refresh_drains()
        assert second.board.drains == {}
        assert not await first.keeper.undrain("east")


async def test_a_drain_that_has_ended_cannot_be_taken_back(redis: RedisServer) -> None:
    async with keeping(redis, "first") as first:
        await first.keeper.drain("east", until=time.time() + 0.05, reason="")
        await asyncio.sleep(0.1)
        assert not await first.keeper.undrain("east")


async def test_the_disk_stands_in_for_an_empty_bus(redis: RedisServer, tmp_path: Path) -> None:
    async with keeping(redis, "first", tmp_path) as first:
        await first.lease.acquire()
        await first.keeper.take_over()
        for sequence in (1, 2):
            first.decide(ready=0, sequence=sequence)
        await first.publish()
        await first.keeper.drain("west", until=None, reason="disk")
        await first.keeper.save(force=True)
    await asyncio.to_thread(redis.restart)
    async with keeping(redis, "second", tmp_path) as second:
        await second.keeper.restore()
        assert admission(second) is AdmissionState.NONE
        assert set(second.board.previous) == {"edge-east", "edge-west"}
        await second.lease.acquire()
        with structlog.testing.capture_logs() as logged:
            await second.keeper.take_over()
        assert admission(second) is AdmissionState.NONE
        assert set(await second.publisher.drains()) == {"west"}
        assert [line["target"] for line in logged] == ["west"]


async def test_garbage_on_disk_harms_nothing(redis: RedisServer, tmp_path: Path) -> None:
    state = {
        "saved_at": "yesterday",
        "memory": [1],
        "drains": [{"id": "x"}, {"no": 1}, 7, {"id": "a", "target": "east"}],
    }

    def write() -> None:
        (tmp_path / "state.json").write_bytes(orjson.dumps(state))
        (tmp_path / "overlays").mkdir()
        (tmp_path / "overlays" / "edge-east.json").write_bytes(b"{}")

    await asyncio.to_thread(write)
    async with keeping(redis, "first", tmp_path) as first:
        with structlog.testing.capture_logs() as logged:
            await first.keeper.restore()
        assert first.board.drains == {"east": Drain("a", "east")}
        assert first.board.previous == {}
        assert len(logged) == 3


async def test_the_memory_is_saved_now_and_then_and_at_once_when_it_matters(redis: RedisServer) -> None:
    async with keeping(redis, "first") as first:
        await first.lease.acquire()
        await first.keeper.take_over()
        first.decide()
        await first.keeper.save()
        assert await first.publisher.load_memory() is None, "not due yet"
        first.board.memory_urgent = True
        await first.keeper.save()
        assert await first.publisher.load_memory() is not None


async def test_the_shelf_reads_only_what_is_newer(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with keeping(redis, "first") as first, keeping(redis, "second") as second:
        assert not await second.shelf.refresh(second.publisher, [])
        assert not await second.shelf.refresh(second.publisher, ["edge-east", "edge-west"])
        await first.lease.acquire()
        await first.keeper.take_over()
        first.decide()
        await first.publish()
        reads: list[str] = []
        real = second.publisher.read

        async def noted(gateway: str) -> object:
            reads.append(gateway)
            return await real(gateway)

        monkeypatch.setattr(second.publisher, "read", noted)
        names = ["edge-east", "edge-west"]
        assert await second.shelf.refresh(second.publisher, names)
        assert await second.shelf.refresh(second.publisher, names)
        assert reads == names
        for sequence in (2, 3):
            first.decide(ready=0, sequence=sequence)
        await first.publish()
        await second.shelf.refresh(second.publisher, names)
        assert reads == names * 2
        envelope = second.shelf.envelope("edge-east")
        assert envelope is not None
        assert second.shelf.envelope("edge-east") is envelope
        second.shelf.keep(["edge-west"])
        assert "edge-east" not in second.shelf
        assert second.shelf.envelope("edge-east") is None
