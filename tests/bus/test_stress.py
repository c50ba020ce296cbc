"""A publisher at full speed and eight readers: what they hold is never torn and never older than before."""

import asyncio
import random
import time

import pytest

from grid.bus import BusSettings, Connection, Delivery, LeaderLease, Position, Publisher, Subscriber, connect
from grid.overlay import verify
from tests.bus.documents import document, frame
from tests.support.redis_server import RedisServer
from tests.support.until import until

SECONDS = 2.5
TURNS = 90
"""Publications at least, however busy the machine is."""


class Reader:
    """Checks digest and order of every document it is given."""

    def __init__(self, url: str, known: set[str], number: int) -> None:
        self.seen: list[Position] = []
        self.faults: list[str] = []
        self._known = known

        async def connecting() -> Connection:
            return await connect(BusSettings.from_url(url), "acme")

        self.subscriber = Subscriber(
            connecting, "acme", "edge", self._check, lambda _: None, reread=0.05, rng=random.Random(number)
        )

    def _check(self, delivery: Delivery) -> None:
        verdict = verify(delivery.document)
        if verdict.computed is None or not verdict.computed == verdict.revision == delivery.revision:
            self.faults.append(f"torn at {delivery.position}")
        elif delivery.revision not in self._known:
            self.faults.append(f"never published: {delivery.revision}")
        if verdict.envelope is None or verdict.envelope.position != delivery.position:
            self.faults.append(f"misplaced at {delivery.position}")
        if self.seen and delivery.position <= self.seen[-1]:
            self.faults.append(f"back from {self.seen[-1]} to {delivery.position}")
        self.seen.append(delivery.position)


@pytest.mark.parametrize("candidates", [5, 300], ids=["in the message", "read"])
async def test_no_reader_ever_holds_a_torn_or_older_document(
    candidates: int, server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    documents = [document(tag, candidates=candidates) for tag in range(12)]
    assert (len(documents[0].body) > 32 * 1024) == (candidates == 300)
    final = document("last", candidates=candidates)
    known = {made.revision for made in (*documents, final)}
    readers = [Reader(server.url, known, number) for number in range(8)]
    for reader in readers:
        reader.subscriber.start()
    turn = 0
    started = time.monotonic()
    while (spent := time.monotonic() - started) < SECONDS or (turn < TURNS and spent < 10 * SECONDS):
        result = await publisher.publish(documents[turn % len(documents)], lease, "stress")
        if turn % 10 == 0:
            await publisher.send_frame(frame(lease.epoch, turn + 1, documents={"edge": result.position}), lease)
        if turn in {30, 80}:
            await bus.command("CLIENT", "KILL", "TYPE", "pubsub")
        if turn % 60 == 50:
            # A change of leader in the middle: the next epoch begins with a version of its own.
            await lease.release()
            assert await lease.acquire()
            await bus.command("DEL", bus.keys.overlay("edge"))
        turn += 1
    last = await publisher.publish(final, lease, "stress")
    await until(lambda: all(reader.subscriber.state.position == last.position for reader in readers))
    for reader in readers:
        await reader.subscriber.close()
    assert [reader.faults for reader in readers] == [[]] * 8
    assert turn >= TURNS
    assert min(len(reader.seen) for reader in readers) > 5
    assert all(reader.subscriber.state.counts.rejected == 0 for reader in readers)
    assert sum(reader.subscriber.state.counts.sessions for reader in readers) > 8


async def test_readers_of_redis_itself_see_whole_documents(
    server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    """The stored hash, read without any subscriber, is one publication and never parts of two."""
    documents = [document(tag, candidates=50 + tag) for tag in range(7)]
    stop = asyncio.Event()
    checked = 0

    async def look() -> None:
        nonlocal checked
        last = Position(0, 0)
        while not stop.is_set():
            stored = await publisher.read("edge")
            if stored is None:
                continue
            verdict = verify(stored.document)
            assert verdict.computed == stored.revision
            assert verdict.envelope is not None
            assert verdict.envelope.position == stored.position >= last
            last = stored.position
            checked += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(look())
        for turn in range(200):
            await publisher.publish(documents[turn % 7], lease, "stress")
        stop.set()
    assert checked > 50
