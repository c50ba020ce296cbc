"""The reading side on real servers: outages, lost messages, lies, files."""

import asyncio
import functools
import operator
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from grid.bus import (
    BusSettings,
    Connection,
    Delivery,
    FrameDelivery,
    LeaderLease,
    Position,
    Publisher,
    Report,
    Source,
    Subscriber,
    SubscriberState,
    connect,
)
from grid.bus.publisher import announcement
from grid.model import BusError, Reason
from grid.overlay import SignalFrame
from tests.bus.conftest import Connect
from tests.bus.documents import document, frame, published
from tests.bus.waiting import eventually
from tests.support.redis_server import RedisServer, RedisServers
from tests.support.until import PATIENCE, until


class Watched:
    """A subscriber with what it delivered."""

    def __init__(
        self, url: str | Callable[[], str], gateway: str = "edge", *, timeout: float = 5.0, **kwargs: Any
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.frames: list[FrameDelivery] = []

        async def connecting() -> Connection:
            where = url if isinstance(url, str) else url()
            return await connect(BusSettings.from_url(where, timeout=timeout), "acme")

        self.subscriber = Subscriber(
            connecting, "acme", gateway, self.deliveries.append, self.frames.append, rng=random.Random(1), **kwargs
        )

    @property
    def state(self) -> SubscriberState:
        return self.subscriber.state

    @property
    def position(self) -> Position:
        return self.state.position

    def in_order(self) -> bool:
        places = [delivery.position for delivery in self.deliveries]
        return places == sorted(set(places))


@pytest.fixture
async def watch() -> AsyncIterator[Callable[..., Watched]]:
    """Starts subscribers; closes them."""
    started: list[Watched] = []

    def watching(url: str | Callable[[], str], **kwargs: Any) -> Watched:
        watched = Watched(url, **kwargs)
        started.append(watched)
        watched.subscriber.start()
        return watched

    yield watching
    for watched in started:
        begun = time.monotonic()
        await watched.subscriber.close()
        assert time.monotonic() - begun < 10


HIGH = Position(9_000_000_000, 9)


def announced(revision: str, data: bytes) -> bytes:
    """An announcement of ``data`` at a place above all others."""
    return announcement("edge", HIGH, revision, previous="", document=data)


async def leading(server: RedisServer, open_bus: Connect) -> tuple[Connection, LeaderLease, Publisher]:
    """What it takes to publish on ``server``."""
    bus = await open_bus(server.url)
    lease = LeaderLease(bus, "daemon-1")
    assert await lease.acquire()
    return bus, lease, Publisher(bus, "daemon-1")


async def arrived(watched: Watched, position: Position) -> None:
    """The subscriber holds ``position``."""
    await until(lambda: watched.position == position)


async def beat(publisher: Publisher, lease: LeaderLease, sequence: int, *, interval: float = 1.0) -> SignalFrame:
    """Send a frame that names what the publisher knows."""
    sent = frame(lease.epoch, sequence, interval=interval, documents=dict(publisher.positions))
    await publisher.send_frame(sent, lease)
    return sent


async def drop_feeds(bus: Connection) -> None:
    """Cut every subscribed connection."""
    await bus.command("CLIENT", "KILL", "TYPE", "pubsub")


async def subscribers(bus: Connection) -> int:
    command = "SHARDNUMSUB" if bus.sharded else "NUMSUB"
    return int((await bus.command("PUBSUB", command, bus.keys.overlays))[1])


async def listening(bus: Connection, count: int = 1) -> None:
    async def there() -> bool:
        return await subscribers(bus) == count

    await eventually(there)


async def test_what_is_stored_and_then_what_is_announced(
    server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher, watch: Callable[..., Watched]
) -> None:
    await publisher.publish(document(1), lease, "test")
    watched = watch(server.url)
    first = await asyncio.wait_for(watched.subscriber.first_document(), PATIENCE)
    assert (first.source, first.position) == (Source.READ, Position(lease.epoch, 1))
    second = await publisher.publish(document(2), lease, "test")
    await until(lambda: watched.position == second.position)
    last = watched.deliveries[-1]
    assert last.source is Source.MESSAGE
    stored = await publisher.read("edge")
    assert stored is not None
    assert last.document == stored.document
    assert last.envelope.candidates[0].name == "model-2"
    assert watched.state.connected
    assert watched.state.where == server.url


async def test_a_big_document_is_announced_and_read(
    server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher, watch: Callable[..., Watched]
) -> None:
    watched = watch(server.url)
    await listening(bus)
    result = await publisher.publish(document(1, candidates=1000), lease, "test")
    assert result.size > 200_000
    await until(lambda: watched.position == result.position)
    assert watched.deliveries[-1].source is Source.READ


async def test_documents_of_others_are_not_taken(
    server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher, watch: Callable[..., Watched]
) -> None:
    watched = watch(server.url)
    await listening(bus)
    await publisher.publish_all([document(1, gateway="edge-2"), document(1, gateway="other")], lease, "test")
    await bus.command(
        bus.publish_command, bus.keys.overlays, b'{"epoch":9,"gateway":"other","version":1,"revision":"a"}'
    )
    result = await publisher.publish(document(1), lease, "test")
    await until(lambda: watched.position == result.position)
    assert [delivery.envelope.scope.gateway for delivery in watched.deliveries] == ["edge"]
    assert watched.state.counts.rejected == 0


async def test_the_same_revision_under_a_new_epoch_says_so(
    server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher, watch: Callable[..., Watched]
) -> None:
    watched = watch(server.url)
    await publisher.publish(document(1), lease, "test")
    await until(lambda: watched.deliveries)
    await asyncio.to_thread(server.restart)
    await lease.acquire()
    again = await publisher.publish(document(1), lease, "test")
    await until(lambda: watched.position == again.position)
    assert [delivery.same_revision for delivery in watched.deliveries] == [False, True]


class TestLostMessages:
    async def test_cut_off_while_versions_are_published(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        watched = watch(server.url)
        await listening(bus)
        for tag in range(60):
            if tag % 12 == 5:
                await drop_feeds(bus)
            await publisher.publish(document(tag), lease, "test")
        await until(lambda: watched.position == publisher.positions["edge"])
        assert watched.in_order()
        assert watched.state.counts.sessions >= 2

    async def test_a_gap_leads_to_a_look(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        await publisher.publish(document(1), lease, "test")
        watched = watch(server.url)
        await listening(bus)
        await publisher.publish(document(2), lease, "test")
        await until(lambda: watched.position.version == 2)
        reads = watched.state.counts.reads
        # 5 is announced without 3 and 4, and without its document; what is stored is still 2.
        await bus.command(
            bus.publish_command,
            bus.keys.overlays,
            announcement("edge", Position(lease.epoch, 5), "abc", previous="", document=b"x" * 40_000),
        )
        await until(lambda: watched.state.counts.gaps == 1 and watched.state.counts.reads > reads)
        assert watched.position.version == 2

    async def test_a_frame_that_names_another_version(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        watched = watch(server.url)
        await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.deliveries)
        # The announcement of version 2 is lost: it is stored behind the back of the subscriber.
        await self.store_silently(bus, lease, 2)
        publisher.positions["edge"] = Position(lease.epoch, 2)
        await beat(publisher, lease, 1)
        await until(lambda: watched.position.version == 2)
        reads = watched.state.counts.reads
        for sequence in (2, 3):
            await beat(publisher, lease, sequence)
        await until(lambda: len(watched.frames) == 3)
        assert watched.state.counts.reads == reads

    async def test_the_timer_finds_it_in_the_end(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        await beat(publisher, lease, 1, interval=30.0)
        watched = watch(server.url, reread=0.2)
        await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.deliveries)
        await self.store_silently(bus, lease, 2)
        await until(lambda: watched.position.version == 2)
        assert watched.state.counts.sessions == 1

    async def test_a_look_finds_a_clash(
        self, server7: RedisServer, open_bus: Connect, watch: Callable[..., Watched]
    ) -> None:
        bus, lease, publisher = await leading(server7, open_bus)
        watched = watch(server7.url, reread=0.1)
        await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.deliveries)
        await self.store_silently(bus, lease, 1, tag=9)
        await until(lambda: watched.state.counts.clashes)
        await bus.command("DEL", bus.keys.overlay("edge"))
        reads = watched.state.counts.reads
        await until(lambda: watched.state.counts.reads > reads + 1)
        assert watched.state.revision == document(1).revision
        assert len(watched.deliveries) == 1

    async def store_silently(self, bus: Connection, lease: LeaderLease, version: int, tag: int | None = None) -> None:
        made = document(version if tag is None else tag)
        data = made.published(version, lease.epoch, leader="x", published_at="2026-01-02T00:00:00Z")
        await bus.command(
            *("HSET", bus.keys.overlay("edge"), "epoch", lease.epoch, "version", version),
            *("revision", made.revision, "document", data),
        )


class TestReordering:
    async def send(self, bus: Connection, epoch: int, version: int, tag: int | None = None) -> None:
        made = document(version if tag is None else tag)
        data = made.published(version, epoch, leader="x", published_at="2026-01-02T00:00:00Z")
        message = announcement("edge", Position(epoch, version), made.revision, previous="", document=data)
        await bus.command(bus.publish_command, bus.keys.overlays, message)

    async def test_12_11_12_13_and_a_clash(
        self, server: RedisServer, bus: Connection, watch: Callable[..., Watched]
    ) -> None:
        watched = watch(server.url)
        await listening(bus)
        for version in (12, 11, 12, 13):
            await self.send(bus, 7, version)
        await until(lambda: watched.position == Position(7, 13))
        assert watched.in_order()
        await self.send(bus, 7, 13, tag=99)
        await until(lambda: watched.state.counts.clashes == 1)
        assert watched.state.problem is not None
        assert watched.state.problem.code is Reason.VERSION_CLASH
        assert watched.state.revision == document(13).revision
        await self.send(bus, 8, 1)
        await until(lambda: watched.position == Position(8, 1))
        assert watched.in_order()

    async def test_a_burst_costs_one_delivery_of_the_newest(
        self, server: RedisServer, bus: Connection, watch: Callable[..., Watched]
    ) -> None:
        watched = watch(server.url)
        await listening(bus)
        commands = []
        for version in [*range(1, 40), 20, 10, 39]:
            made = document(version)
            data = made.published(version, 7, leader="x", published_at="2026-01-02T00:00:00Z")
            message = announcement("edge", Position(7, version), made.revision, previous="", document=data)
            commands.append((bus.publish_command, bus.keys.overlays, message))
        await bus.many(commands)
        await until(lambda: watched.position == Position(7, 39))
        assert watched.in_order()
        assert len(watched.deliveries) < 20


class TestBadDocuments:
    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            (b"{}", Reason.MALFORMED_STRUCTURE),
            (b'{"gateway":"edge",', Reason.MALFORMED_STRUCTURE),
            (announced("abc", published(3, *HIGH)), Reason.PUBLICATION_MISMATCH),
            (announced(document(3).revision, published(3, *HIGH)[:-9]), Reason.MALFORMED_STRUCTURE),
            (
                announced(document(3).revision, published(3, *HIGH).replace(b"model-3", b"model-4")),
                Reason.DIGEST_MISMATCH,
            ),
        ],
    )
    async def test_a_bad_message_is_named_and_the_last_good_one_stays(
        self, message: bytes, reason: Reason, server7: RedisServer, open_bus: Connect, watch: Callable[..., Watched]
    ) -> None:
        bus, lease, publisher = await leading(server7, open_bus)
        watched = watch(server7.url)
        good = await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.position == good.position)
        await bus.command(bus.publish_command, bus.keys.overlays, message)
        await until(lambda: watched.state.counts.rejected == 1)
        assert watched.state.problem is not None
        assert watched.state.problem.code is reason
        assert watched.position == good.position
        better = await publisher.publish(document(2), lease, "test")
        await until(lambda: watched.position == better.position)

    async def test_a_bad_stored_document_is_replaced_by_the_next(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        await publisher.publish(document(1), lease, "test")
        await bus.command("HSET", bus.keys.overlay("edge"), "document", "{}")
        watched = watch(server.url)
        await until(lambda: watched.state.counts.rejected)
        assert watched.subscriber.held is None
        good = await publisher.publish(document(2), lease, "test")
        await until(lambda: watched.position == good.position)

    async def test_unsigned_where_a_key_is_given(
        self, server: RedisServer, lease: LeaderLease, publisher: Publisher, watch: Callable[..., Watched]
    ) -> None:
        watched = watch(server.url, key=bytes(32))
        await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.state.problem)
        assert watched.state.problem is not None
        assert watched.state.problem.code is Reason.SIGNATURE_MISSING

    async def test_a_bad_frame_is_named(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        await bus.command("SET", bus.keys.signal, b"{}", "PX", 5000)
        watched = watch(server.url)
        await until(lambda: watched.state.counts.rejected == 1)
        await listening(bus)
        await bus.command(bus.publish_command, bus.keys.signals, b"[]")
        await until(lambda: watched.state.counts.rejected == 2)
        await beat(publisher, lease, 1)
        await until(lambda: watched.frames)

    @pytest.mark.may_block  # a traceback in the log reads the source
    async def test_a_listener_that_fails_misses_nothing(
        self, server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher
    ) -> None:
        seen: list[Position] = []

        def failing(delivery: Delivery) -> None:
            seen.append(delivery.position)
            raise RuntimeError("listener")

        async def connecting() -> Connection:
            return await connect(BusSettings.from_url(server.url), "acme")

        await beat(publisher, lease, 1, interval=30.0)
        subscriber = Subscriber(connecting, "acme", "edge", failing)
        subscriber.start()
        try:
            for tag in (1, 2):
                result = await publisher.publish(document(tag), lease, "test")
                await until(functools.partial(operator.contains, seen, result.position))
            assert subscriber.state.counts.sessions == 1
        finally:
            await subscriber.close()


class TestFrames:
    async def test_frames_come_in_order_and_confirm_what_is_held(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        await publisher.publish(document(1), lease, "test")
        watched = watch(server.url)
        await until(lambda: watched.deliveries)
        before = watched.state
        assert before.stale_since is not None
        sent = [await beat(publisher, lease, sequence) for sequence in (3, 2, 4)]
        await bus.command(bus.publish_command, bus.keys.signals, frame(lease.epoch - 1, 9).encode())
        other = SignalFrame("other", lease.epoch + 9, 1, 1.0, 0.0)
        await bus.command(bus.publish_command, bus.keys.signals, other.encode())
        last = await beat(publisher, lease, 5)
        await until(lambda: watched.frames and watched.frames[-1].frame == last)
        assert [delivery.frame for delivery in watched.frames] == [sent[0], sent[2], last]
        assert watched.state.stale_since is None
        assert watched.state.term == lease.epoch

    async def test_a_stored_frame_is_as_old_as_it_is(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        await beat(publisher, lease, 1, interval=4.0)
        await bus.command("PEXPIRE", bus.keys.signal, 5_000)  # of 12 s, so 7 s have gone by
        watched = watch(server.url)
        await until(lambda: watched.frames)
        assert time.monotonic() - watched.frames[0].received_at == pytest.approx(7.0, abs=3.0)

    async def test_silence_means_a_dead_link(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        watched = watch(server.url)
        await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.deliveries)
        await beat(publisher, lease, 1, interval=0.1)
        await until(lambda: watched.state.problem)
        assert watched.state.problem is not None
        assert watched.state.problem.code is Reason.HEARTBEAT_MISSED
        assert watched.state.counts.missed_heartbeats >= 1
        assert watched.state.stale_since is not None
        assert len(watched.deliveries) == 1
        await until(lambda: watched.state.connected)
        await beat(publisher, lease, 2)
        await until(lambda: watched.state.stale_since is None)

    async def test_a_server_that_lives_but_was_replaced_is_left(
        self, server7: RedisServer, servers: RedisServers, open_bus: Connect, watch: Callable[..., Watched]
    ) -> None:
        """The leader moved to another server; the old one still answers, and says nothing."""
        successor = servers.start("7")
        urls = [server7.url]
        watched = watch(lambda: urls[-1])
        old = await open_bus(server7.url)
        lease = LeaderLease(old, "daemon-1")
        await lease.acquire()
        publisher = Publisher(old, "daemon-1")
        await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.deliveries)
        await beat(publisher, lease, 1, interval=0.1)
        await until(lambda: watched.frames)
        urls.append(successor.url)
        moved = await open_bus(successor.url)
        after = LeaderLease(moved, "daemon-1")
        after.observe(lease.epoch)
        await after.acquire()
        publisher = Publisher(moved, "daemon-1")
        result = await publisher.publish(document(2), after, "test")
        await until(lambda: watched.position == result.position)


class TestOutages:
    async def test_killed_and_back_empty(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        watched = watch(server.url)
        before = await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.deliveries)
        server.kill()
        await until(lambda: not watched.state.connected)
        assert watched.position == before.position
        assert watched.subscriber.held is not None
        await until(lambda: watched.state.problem and watched.state.problem.code is Reason.BUS_UNREACHABLE)
        await asyncio.to_thread(server.start)
        assert await lease.acquire()
        after = await publisher.publish(document(2), lease, "test")
        await until(lambda: watched.position == after.position)
        assert after.version == 1
        assert after.position > before.position

    async def test_frozen(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        watched = watch(server.url, timeout=0.5)
        before = await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.deliveries)
        await beat(publisher, lease, 1, interval=0.1)
        await until(lambda: watched.frames)
        server.freeze()
        await until(lambda: not watched.state.connected)
        assert watched.position == before.position
        server.thaw()
        await lease.acquire()
        after = await publisher.publish(document(2), lease, "test")
        await until(lambda: watched.position == after.position)

    async def test_closing_is_prompt_while_frozen(
        self, server: RedisServer, lease: LeaderLease, publisher: Publisher, watch: Callable[..., Watched]
    ) -> None:
        watched = watch(server.url, timeout=60.0)
        await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.deliveries)
        server.freeze()
        # The fixture closes it and measures.

    async def test_nothing_there_from_the_start(self, servers: RedisServers, watch: Callable[..., Watched]) -> None:
        server = servers.start("7")
        server.kill()
        watched = watch(server.url)
        await until(lambda: watched.state.problem)
        assert watched.state.stale_since is None
        assert watched.state.counts.sessions == 0

    async def test_an_older_copy_of_the_data_never_takes_it_back(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        watched = watch(
            server.url,
            report=lambda state: Report(
                "edge", "i", state.position.epoch, state.position.version, state.revision or "", term=state.term
            ),
        )
        await publisher.publish(document(1), lease, "test")
        server.save()
        newer = await publisher.publish(document(2), lease, "test")
        await until(lambda: watched.position == newer.position)
        await asyncio.to_thread(server.restart)
        await until(lambda: watched.state.counts.sessions >= 2)
        assert watched.position == newer.position
        # A leader that wants what the older copy says cannot leave the gateway on the lost document.
        assert await lease.acquire() or lease.other
        await bus.command("DEL", bus.keys.leader)
        assert await lease.acquire()
        fresh = Publisher(bus, "daemon-1")
        assert not (await fresh.publish(document(1), lease, "test")).changed

        async def reported() -> bool:
            fresh.observe(await fresh.reports(), lease)
            return (await fresh.publish(document(1), lease, "test")).changed

        await eventually(reported)
        await until(lambda: watched.state.revision == document(1).revision)
        assert watched.in_order()


class TestSavedDocument:
    async def test_it_is_there_before_the_network_and_says_since_when_it_is_old(
        self, servers: RedisServers, tmp_path: Path, watch: Callable[..., Watched]
    ) -> None:
        file = tmp_path / "edge.json"
        file.write_bytes(published(1, 7, 12))
        os.utime(file, (1_700_000_000, 1_700_000_000))
        dead = servers.start("7")
        dead.kill()
        watched = watch(dead.url, save_to=file)
        first = await asyncio.wait_for(watched.subscriber.first_document(), PATIENCE)
        assert (first.source, first.position) == (Source.SAVED, Position(7, 12))
        assert watched.state.stale_since == 1_700_000_000
        assert not watched.state.connected

    async def test_the_newest_is_saved_and_loaded_again(
        self, server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher, tmp_path: Path
    ) -> None:
        file = tmp_path / "state" / "edge.json"
        watched = Watched(server.url, save_to=file)
        watched.subscriber.start()
        for tag in range(20):
            await publisher.publish(document(tag), lease, "test")
        await until(lambda: watched.position.version == 20)
        await watched.subscriber.close()
        stored = await publisher.read("edge")
        assert stored is not None
        assert file.read_bytes() == stored.document
        assert [path.name for path in file.parent.iterdir()] == ["edge.json"]

    async def test_an_older_stored_document_does_not_replace_it(
        self,
        server: RedisServer,
        lease: LeaderLease,
        publisher: Publisher,
        tmp_path: Path,
        watch: Callable[..., Watched],
    ) -> None:
        file = tmp_path / "edge.json"
        newest = published(9, lease.epoch, 40)
        file.write_bytes(newest)
        watched = watch(server.url, save_to=file, reread=0.1)
        await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.state.counts.older + watched.state.counts.reads >= 2)
        assert watched.position == Position(lease.epoch, 40)
        assert file.read_bytes() == newest

    async def test_a_newer_file_of_another_process_is_left(
        self, server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher, tmp_path: Path
    ) -> None:
        file = tmp_path / "edge.json"
        watched = Watched(server.url, save_to=file)
        watched.subscriber.start()
        await listening(bus)
        newest = published(9, lease.epoch, 40)
        file.write_bytes(newest)
        await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.deliveries)
        await watched.subscriber.close()
        assert file.read_bytes() == newest

    @pytest.mark.parametrize("content", [b"", b"{}", published(1, 7, 12)[:-20], published(1, 7, 12, gateway="other")])
    async def test_a_bad_file_is_no_file(
        self,
        content: bytes,
        server7: RedisServer,
        open_bus: Connect,
        tmp_path: Path,
        watch: Callable[..., Watched],
    ) -> None:
        file = tmp_path / "edge.json"
        file.write_bytes(content)
        bus = await open_bus(server7.url)
        lease = LeaderLease(bus, "daemon-1")
        await lease.acquire()
        watched = watch(server7.url, save_to=file)
        await until(lambda: watched.state.counts.rejected == 1)
        assert watched.state.stale_since is None
        await Publisher(bus, "daemon-1").publish(document(1), lease, "test")
        await until(lambda: watched.deliveries)
        await until(lambda: file.read_bytes() == watched.deliveries[-1].document)

    async def test_a_place_that_cannot_be_written_costs_only_the_file(
        self, server7: RedisServer, open_bus: Connect, tmp_path: Path, watch: Callable[..., Watched]
    ) -> None:
        (tmp_path / "file").write_text("")
        bus = await open_bus(server7.url)
        lease = LeaderLease(bus, "daemon-1")
        await lease.acquire()
        watched = watch(server7.url, save_to=tmp_path / "file" / "edge.json")
        publisher = Publisher(bus, "daemon-1")
        for tag in (1, 2):
            result = await publisher.publish(document(tag), lease, "test")
            await arrived(watched, result.position)


class TestReports:
    async def test_the_daemon_sees_who_runs_what(
        self,
        server: RedisServer,
        bus: Connection,
        lease: LeaderLease,
        publisher: Publisher,
        watch: Callable[..., Watched],
    ) -> None:
        result = await publisher.publish(document(1), lease, "test")
        await beat(publisher, lease, 1)

        def report(state: SubscriberState) -> Report:
            return Report(
                "edge", "host:1", *state.position, state.revision or "", term=state.term, in_flight={"east/c": 2}
            )

        watch(server.url, report=report)

        async def seen() -> bool:
            return bool(await publisher.reports())

        await eventually(seen)
        (found,) = await publisher.reports()
        assert found.in_flight == {"east/c": 2}
        assert found.position in (result.position, Position(0, 0))

    async def test_a_user_that_may_only_read_still_gets_documents(
        self, servers: RedisServers, open_bus: Connect, watch: Callable[..., Watched]
    ) -> None:
        server = servers.start(
            "7",
            [
                (
                    *("user", "edge", "on", ">x", "resetchannels", "%R~grid:{acme}:*", "&grid:{acme}:*", "-@all"),
                    *("+hello", "+ping", "+command|info", "+hmget", "+get", "+pttl", "+subscribe", "+ssubscribe"),
                )
            ],
        )
        bus = await open_bus(server.url)
        lease = LeaderLease(bus, "daemon-1")
        await lease.acquire()
        publisher = Publisher(bus, "daemon-1")
        await beat(publisher, lease, 1, interval=30.0)
        watched = watch(server.url.replace("//", "//edge:x@"), report=lambda state: Report("edge", "i"))
        result = await publisher.publish(document(1), lease, "test")
        await until(lambda: watched.position == result.position)
        await until(lambda: watched.state.problem)
        assert watched.state.problem is not None
        assert watched.state.problem.code is Reason.BUS_REFUSED
        assert watched.state.connected
        assert watched.state.counts.sessions == 1


async def test_a_cluster_delivers_too(cluster: RedisServer, open_bus: Connect, watch: Callable[..., Watched]) -> None:
    url = f"redis+cluster://127.0.0.1:{cluster.port}"
    bus = await open_bus(url)
    lease = LeaderLease(bus, "daemon-1")
    await lease.acquire()
    publisher = Publisher(bus, "daemon-1")
    watched = watch(url)
    await listening(bus)
    for tag in (1, 2):
        result = await publisher.publish(document(tag), lease, "test")
        await arrived(watched, result.position)
    await drop_feeds(bus)
    result = await publisher.publish(document(3), lease, "test")
    await until(lambda: watched.position == result.position)


def move_slot(giver: RedisServer, taker: RedisServer, slot: int) -> None:
    """Move a slot with all its keys from one Cluster node to the other, as redis-cli does."""
    with giver.client() as one, taker.client() as two:
        giver_id, taker_id = one.cluster("MYID").decode(), two.cluster("MYID").decode()
        two.cluster("SETSLOT", slot, "IMPORTING", giver_id)
        one.cluster("SETSLOT", slot, "MIGRATING", taker_id)
        keys = one.cluster("GETKEYSINSLOT", slot, 1000)
        one.migrate("127.0.0.1", taker.port, keys, 0, 2000)
        two.cluster("SETSLOT", slot, "NODE", taker_id)
        one.cluster("SETSLOT", slot, "NODE", taker_id)


async def test_a_slot_that_moves_is_followed(
    servers: RedisServers, open_bus: Connect, watch: Callable[..., Watched]
) -> None:
    giver = servers.start_cluster()
    taker = servers.start("7", [("cluster-enabled", "yes")])
    with giver.client() as one, taker.client() as two:
        two.cluster("MEET", "127.0.0.1", giver.port)
        for client in (one, two):
            await until(lambda client=client: client.cluster("INFO")["cluster_known_nodes"] == "2")  # type: ignore[misc]
        await until(lambda: two.cluster("INFO")["cluster_state"] == "ok")
    url = f"redis+cluster://127.0.0.1:{giver.port}"
    bus = await open_bus(url)
    lease = LeaderLease(bus, "daemon-1")
    await lease.acquire()
    publisher = Publisher(bus, "daemon-1")
    watched = watch(url)
    before = await publisher.publish(document(1), lease, "test")
    await arrived(watched, before.position)
    await asyncio.to_thread(move_slot, giver, taker, key_slot(bus.keys.prefix.encode()))
    with pytest.raises(BusError) as caught:
        await publisher.publish(document(2), lease, "test")
    assert "moved" in caught.value.hint
    after = await publisher.publish(document(2), lease, "test")
    assert (after.epoch, after.version) == (before.epoch, 2)
    await arrived(watched, after.position)
    assert str(taker.port) in bus.where
    await until(lambda: str(taker.port) in watched.state.where)


async def test_reconnects_of_many_are_spread(servers: RedisServers) -> None:
    server = servers.start("7")
    attempts: list[float] = []

    async def connecting() -> Connection:
        attempts.append(time.monotonic())
        raise BusError("down", reason=Reason.BUS_UNREACHABLE)

    found = [Subscriber(connecting, "acme", "edge", lambda _: None, rng=random.Random(number)) for number in range(30)]
    for subscriber in found:
        subscriber.start()
    await until(lambda: len(attempts) >= 150)
    for subscriber in found:
        await subscriber.close()
    later = sorted(attempts)[30:]
    slots = {round((moment - later[0]) / 0.02) for moment in later}
    assert len(slots) >= 8
    assert server.process is not None
