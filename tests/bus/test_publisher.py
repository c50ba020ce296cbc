"""Publishing: versions, revisions, epochs, all or nothing."""

import asyncio

import orjson
import pytest

from grid.bus import Connection, LeaderLease, Position, Publisher, Report
from grid.bus.holding import Announcement, read_announcement
from grid.bus.keys import INLINE_AT_ONCE, INLINE_LIMIT
from grid.bus.publisher import ATTEMPTS
from grid.bus.scripts import Script
from grid.model import BusError, Drain, LeaseError, Reason
from grid.overlay import Document, Outcome, Scope, signing, verify
from tests.bus.conftest import Connect
from tests.bus.documents import document, frame
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, RedisServers
from tests.support.until import PATIENCE


async def take_over(bus: Connection, lease: LeaderLease, **kwargs: object) -> LeaderLease:
    await lease.release()
    found = LeaderLease(bus, "daemon-2", **kwargs)  # type: ignore[arg-type]
    assert await found.acquire()
    return found


async def test_a_document_is_stored_kept_in_history_and_announced(
    bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    feed = await bus.subscribe(bus.keys.overlays)
    made = document(1)
    result = await publisher.publish(made, lease, "east lost its endpoints")
    assert (result.epoch, result.version, result.revision, result.changed) == (lease.epoch, 1, made.revision, True)

    stored = await publisher.read("edge")
    assert stored is not None
    assert (stored.position, stored.revision) == (result.position, made.revision)
    assert len(stored.document) == result.size
    verdict = verify(stored.document, scope=Scope("acme", "edge", "default", "east"))
    assert verdict.verdict is Outcome.ACCEPT
    assert verdict.envelope is not None
    assert verdict.envelope.publication is not None
    assert verdict.envelope.position == result.position
    assert verdict.envelope.publication.leader == "daemon-1"
    assert verdict.envelope.publication.published_at == stored.published_at

    (entry,) = await publisher.history("edge")
    assert (entry.position, entry.document, entry.reason) == (
        result.position,
        stored.document,
        "east lost its endpoints",
    )
    _, message = await asyncio.wait_for(feed.next(), PATIENCE)
    assert read_announcement(message) == Announcement("edge", result.position, made.revision, stored.document)
    assert message.startswith(b'{"gateway":"edge",')
    await feed.aclose()


async def test_versions_rise_and_name_the_revision_before(lease: LeaderLease, publisher: Publisher) -> None:
    results = [await publisher.publish(document(tag), lease, "test") for tag in (1, 2, 3)]
    assert [result.version for result in results] == [1, 2, 3]
    stored = await publisher.read("edge")
    assert stored is not None
    assert orjson.loads(stored.document)["publication"]["previous_revision"] == document(2).revision
    assert [entry.version for entry in await publisher.history("edge")] == [3, 2, 1]
    assert [entry.version for entry in await publisher.history("edge", 2)] == [3, 2]
    assert publisher.positions == {"edge": results[-1].position}


async def test_many_documents_at_once_are_announced_without_them(
    bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    names = ("a", "b", "c", "d")
    feed = await bus.subscribe(bus.keys.overlays)

    async def carried(*documents: Document, changed: int) -> list[bool]:
        await publisher.publish_all(documents, lease, "test")
        heard = [read_announcement((await asyncio.wait_for(feed.next(), PATIENCE))[1]) for _ in range(changed)]
        assert all(isinstance(one, Announcement) for one in heard)
        return [one.document is not None for one in heard if isinstance(one, Announcement)]

    large = [document(1, gateway=name, candidates=80) for name in names]
    assert len(large[0].body) < INLINE_LIMIT < INLINE_AT_ONCE < sum(len(one.body) for one in large)
    assert await carried(*large, changed=4) == [False] * 4
    assert await carried(*(document(2, gateway=name) for name in names), changed=4) == [True] * 4, "small ones"
    again = [document(3, gateway="a", candidates=80), *(document(2, gateway=name) for name in names[1:])]
    assert await carried(*again, changed=1) == [True], "only what changes is counted"
    await feed.aclose()


async def test_the_same_revision_costs_no_version(bus: Connection, lease: LeaderLease, publisher: Publisher) -> None:
    first = await publisher.publish(document(1), lease, "test")
    feed = await bus.subscribe(bus.keys.overlays)
    again = await publisher.publish(document(1), lease, "test")
    assert not again.changed
    assert again.position == first.position
    assert len(await publisher.history("edge")) == 1
    last = await publisher.publish(document(2), lease, "test")
    heard = read_announcement((await asyncio.wait_for(feed.next(), PATIENCE))[1])
    assert isinstance(heard, Announcement)
    assert heard.position == last.position
    await feed.aclose()


async def test_the_same_revision_keeps_its_place_under_a_new_leader(
    bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    first = await publisher.publish(document(1), lease, "test")
    successor = await take_over(bus, lease)
    other = Publisher(bus, "daemon-2")
    again = await other.publish(document(1), successor, "test")
    assert not again.changed
    assert again.position == first.position
    assert other.positions == {"edge": first.position}
    changed = await other.publish(document(2), successor, "test")
    assert changed.position == Position(successor.epoch, 2)


async def test_a_cycle_without_change_is_one_round_trip_without_documents(
    server: RedisServer, lease: LeaderLease, publisher: Publisher
) -> None:
    documents = [document(1, gateway=f"edge-{number}") for number in range(40)]
    results = await publisher.publish_all(documents, lease, "test")
    assert [result.gateway for result in results] == [f"edge-{number}" for number in range(40)]
    assert all(result.changed for result in results)
    with server.client() as client:
        client.execute_command("CONFIG", "RESETSTAT")
        again = await publisher.publish_all(documents, lease, "test")
        stats = client.info("commandstats")
        received = client.info("stats")["total_net_input_bytes"]
    assert not any(result.changed for result in again)
    assert stats["cmdstat_evalsha"]["calls"] == 1
    assert "cmdstat_eval" not in stats
    assert received < 8_000


async def test_only_the_changed_ones_are_sent(lease: LeaderLease, publisher: Publisher) -> None:
    await publisher.publish_all([document(1, gateway=name) for name in ("a", "b", "c")], lease, "test")
    results = await publisher.publish_all(
        [document(1, gateway="a"), document(2, gateway="b"), document(1, gateway="c")],
        lease,
        {"a": "-", "b": "b moved", "c": "-"},
    )
    assert [result.changed for result in results] == [False, True, False]
    assert (await publisher.history("b"))[0].reason == "b moved"
    assert await publisher.publish_all([], lease, "test") == []


async def test_a_redis_that_lost_everything_is_filled_again(
    server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    before = await publisher.publish(document(1), lease, "test")
    await asyncio.to_thread(server.restart)
    with pytest.raises(LeaseError) as caught:
        await publisher.publish(document(1), lease, "test")
    assert caught.value.reason is Reason.STALE_EPOCH
    assert await lease.acquire()
    after = await publisher.publish(document(1), lease, "test")
    assert after.changed
    assert after.position > before.position


async def test_a_document_that_vanished_gets_a_version_above_the_last(
    bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    for tag in range(5):
        await publisher.publish(document(tag), lease, "test")
    await bus.command("DEL", bus.keys.overlay("edge"))
    result = await publisher.publish(document(4), lease, "test")
    assert result.changed
    assert result.position == Position(lease.epoch, 6)


@pytest.mark.parametrize("damage", [["HDEL", "document"], ["HSET", "epoch", "x"], ["HSET", "version", "-1"]])
async def test_a_damaged_document_is_replaced(
    damage: list[str], bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    await publisher.publish(document(1), lease, "test")
    await bus.command(damage[0], bus.keys.overlay("edge"), *damage[1:])
    result = await publisher.publish(document(1), lease, "test")
    assert result.changed
    stored = await publisher.read("edge")
    assert stored is not None
    assert verify(stored.document).envelope is not None
    assert stored.position == result.position


async def test_two_writers_of_one_term_never_share_a_version(bus: Connection, lease: LeaderLease) -> None:
    publishers = [Publisher(bus, f"writer-{number}") for number in range(4)]
    results = await asyncio.gather(
        *(publisher.publish(document(f"{index}"), lease, "test") for index, publisher in enumerate(publishers)),
        return_exceptions=True,
    )
    versions = [result.version for result in results if not isinstance(result, BaseException)]
    assert len(versions) == len(set(versions)) >= 2
    assert sorted(versions) == list(range(1, len(versions) + 1))


async def test_a_writer_past_the_rules_is_given_up_on(
    bus: Connection, lease: LeaderLease, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publisher.publish(document(1), lease, "test")
    run, turns = bus.run, iter(range(100, 200))

    async def disturbed(script: Script, keys: list[str], args: list[object]) -> object:
        if script.name == "publish":
            await bus.command("HSET", keys[1], "version", next(turns))
        return await run(script, keys, args)

    monkeypatch.setattr(bus, "run", disturbed)
    with pytest.raises(BusError, match="another writer"):
        await publisher.publish(document(2), lease, "test")
    assert next(turns) == 100 + ATTEMPTS
    assert len(await publisher.history("edge")) == 1


async def test_a_document_of_a_higher_epoch_is_not_overwritten(
    bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    await publisher.publish(document(1), lease, "test")
    high = lease.epoch + 500
    await bus.command("HSET", bus.keys.overlay("edge"), "epoch", high)
    with pytest.raises(LeaseError) as caught:
        await publisher.publish(document(2), lease, "test")
    assert caught.value.reason is Reason.STALE_EPOCH
    stored = await publisher.read("edge")
    assert stored is not None
    assert stored.revision == document(1).revision
    assert await lease.acquire()
    assert lease.epoch > high
    assert (await publisher.publish(document(2), lease, "test")).epoch == lease.epoch


async def test_what_cannot_be_read_is_not_there(bus: Connection, publisher: Publisher) -> None:
    assert await publisher.read("edge") is None
    assert await publisher.leader() is None
    assert await publisher.history("edge") == []
    await bus.command("HSET", bus.keys.overlay("edge"), "epoch", "x", "version", 1, "revision", "a", "document", "{}")
    await bus.command("XADD", bus.keys.history("edge"), "*", "epoch", 1)
    assert await publisher.read("edge") is None
    assert await publisher.history("edge") == []


async def test_history_is_bounded(bus: Connection, lease: LeaderLease) -> None:
    publisher = Publisher(bus, "daemon-1", history=5)
    for tag in range(60):
        await publisher.publish(document(tag, candidates=40), lease, "test")
    kept = await publisher.history("edge", 100)
    assert 5 <= len(kept) < 30
    assert kept[0].version == 60


async def test_signatures_cover_the_place(bus: Connection, lease: LeaderLease) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    publisher = Publisher(bus, "daemon-1", sign=signing.signer(pem))
    for tag in (1, 2):
        await publisher.publish(document(tag), lease, "test")
    public = key.public_key().public_bytes_raw()
    for entry in await publisher.history("edge"):
        assert verify(entry.document, key=public).verdict is Outcome.ACCEPT
    moved = entry.document.replace(b'"version":1,"epoch"', b'"version":2,"epoch"')
    assert moved != entry.document
    assert verify(moved, key=public).reason is Reason.SIGNATURE_INVALID


async def test_a_master_that_becomes_a_replica_is_left(
    server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    await publisher.publish(document(1), lease, "test")
    with server.client() as client:
        client.replicaof("127.0.0.1", free_port())
        with pytest.raises(BusError) as caught:
            await publisher.publish(document(2), lease, "test")
        assert caught.value.reason is Reason.BUS_REFUSED
        assert "replica" in caught.value.hint
        with pytest.raises(BusError, match="is a replica"):
            await publisher.publish(document(2), lease, "test")
        client.replicaof("NO", "ONE")
    assert (await publisher.publish(document(2), lease, "test")).version == 2


class TestAllOrNothing:
    async def test_out_of_memory(
        self, server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher
    ) -> None:
        before = await publisher.publish(document(1), lease, "test")
        feed = await bus.subscribe(bus.keys.overlays)
        with server.client() as client:
            client.config_set("maxmemory", 1)
            with pytest.raises(BusError) as caught:
                await publisher.publish(document(2), lease, "test")
            assert caught.value.reason is Reason.BUS_REFUSED
            assert "memory" in caught.value.hint + str(caught.value)
            client.config_set("maxmemory", 0)
        await self.nothing_happened(publisher, before.position)
        after = await publisher.publish(document(2), lease, "test")
        heard = read_announcement((await asyncio.wait_for(feed.next(), PATIENCE))[1])
        assert isinstance(heard, Announcement)
        assert heard.position == after.position
        await feed.aclose()

    async def test_a_channel_the_user_may_not_use(self, servers: RedisServers, open_bus: Connect) -> None:
        server = servers.start("7", [("user", "mute", "on", ">x", "resetchannels", "~*", "+@all")])
        full, mute = await open_bus(server.url), await open_bus(server.url.replace("//", "//mute:x@"))
        lease = LeaderLease(full, "daemon-1")
        await lease.acquire()
        publisher = Publisher(full, "daemon-1")
        before = await publisher.publish(document(1), lease, "test")
        with pytest.raises(BusError) as caught:
            await Publisher(mute, "daemon-1").publish(document(2), lease, "test")
        assert caught.value.reason is Reason.BUS_REFUSED
        await self.nothing_happened(publisher, before.position)

    @pytest.mark.parametrize("key", ["overlay", "history"])
    async def test_a_key_of_another_type(
        self, key: str, bus: Connection, lease: LeaderLease, publisher: Publisher
    ) -> None:
        name = getattr(bus.keys, key)("edge")
        await bus.command("SET", name, "x")
        with pytest.raises(BusError) as caught:
            await publisher.publish(document(1), lease, "test")
        assert caught.value.reason is Reason.BUS_WRONG_TYPE
        assert await bus.command("GET", name) == b"x"
        other = bus.keys.history("edge") if key == "overlay" else bus.keys.overlay("edge")
        assert await bus.command("EXISTS", other) == 0

    async def test_one_bad_gateway_does_not_hold_the_others_back(
        self, bus: Connection, lease: LeaderLease, publisher: Publisher
    ) -> None:
        await bus.command("SET", bus.keys.history("b"), "x")
        with pytest.raises(BusError):
            await publisher.publish_all([document(1, gateway=name) for name in ("a", "b", "c")], lease, "test")
        assert set(publisher.positions) == {"a", "c"}
        for name in ("a", "c"):
            assert await publisher.read(name) is not None

    async def nothing_happened(self, publisher: Publisher, position: Position) -> None:
        stored = await publisher.read("edge")
        assert stored is not None
        assert stored.position == position
        assert [entry.position for entry in await publisher.history("edge")] == [position]


class TestGatewaysAhead:
    """Redis lost data that gateways already hold: they must not be left on it."""

    async def test_the_same_revision_is_placed_above_what_a_gateway_holds(
        self, bus: Connection, lease: LeaderLease, publisher: Publisher
    ) -> None:
        stored = await publisher.publish(document(1), lease, "test")
        publisher.observe([Report("edge", "i", lease.epoch, 40, document(9).revision)], lease)
        again = await publisher.publish(document(1), lease, "test")
        assert again.changed
        assert again.position == Position(lease.epoch, 41) > stored.position
        assert not (await publisher.publish(document(1), lease, "test")).changed

    async def test_a_gateway_with_another_revision_at_the_same_place(
        self, bus: Connection, lease: LeaderLease, publisher: Publisher
    ) -> None:
        stored = await publisher.publish(document(1), lease, "test")
        publisher.observe([Report("edge", "i", *stored.position, stored.revision)], lease)
        assert not (await publisher.publish(document(1), lease, "test")).changed
        other = Publisher(bus, "daemon-1")
        other.observe([Report("edge", "i", *stored.position, document(9).revision)], lease)
        again = await other.publish(document(1), lease, "test")
        assert again.changed
        assert again.position == Position(lease.epoch, 2)

    async def test_a_gateway_that_has_seen_a_higher_epoch_begins_a_new_term(
        self, bus: Connection, lease: LeaderLease, publisher: Publisher
    ) -> None:
        await publisher.publish(document(1), lease, "test")
        high = lease.epoch + 100
        publisher.observe([Report("edge", "i", high, 7, "abc", term=high)], lease)
        assert not (await publisher.publish(document(1), lease, "test")).changed
        await lease.renew()
        assert lease.epoch == high + 1
        again = await publisher.publish(document(1), lease, "test")
        assert again.changed
        assert again.epoch == high + 1

    async def test_a_senseless_version_is_not_followed(self, lease: LeaderLease, publisher: Publisher) -> None:
        stored = await publisher.publish(document(1), lease, "test")
        publisher.observe([Report("edge", "i", lease.epoch, 2**53, "abc")], lease)
        assert (await publisher.publish(document(1), lease, "test")).position == stored.position


async def test_a_frame_is_kept_for_three_intervals_and_announced(
    bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    feed = await bus.subscribe(bus.keys.signals)
    sent = frame(lease.epoch, 1, interval=20.0, documents={"edge": (lease.epoch, 3)})
    await publisher.send_frame(sent, lease)
    assert (await asyncio.wait_for(feed.next(), PATIENCE))[1] == sent.encode()
    assert await bus.command("GET", bus.keys.signal) == sent.encode()
    assert 40_000 < await bus.command("PTTL", bus.keys.signal) <= 60_000
    await feed.aclose()


async def test_memory_outlives_a_change_of_leader(bus: Connection, lease: LeaderLease, publisher: Publisher) -> None:
    assert await publisher.load_memory() is None
    await publisher.save_memory({"east": {"admission": "none"}}, lease)
    successor = await take_over(bus, lease)
    found = await Publisher(bus, "daemon-2").load_memory()
    assert found is not None
    assert found.memory == {"east": {"admission": "none"}}
    assert 0 <= found.age_s < 5
    await bus.command("HSET", bus.keys.memory, "policy", "{")
    assert await publisher.load_memory() is None
    assert successor.held()


async def test_drains_lie_on_the_bus_until_they_run_out(bus: Connection, publisher: Publisher) -> None:
    kept = Drain("d1", "east", "maintenance", 100.0, None)
    short = Drain("d2", "west-llama", "", 100.0, 160.0)
    for drain in (kept, short):
        await publisher.set_drain(drain)
    await bus.command("HSET", bus.keys.drains, "d3", "{}")
    assert await publisher.drains(now=159.0) == {"d1": kept, "d2": short}
    assert await publisher.drains(now=160.0) == {"d1": kept}
    assert await publisher.remove_drain("d1")
    assert not await publisher.remove_drain("d1")
    assert await publisher.drains(now=200.0) == {}


async def test_everything_in_a_cluster_of_one_shard(cluster: RedisServer, open_bus: Connect) -> None:
    bus = await open_bus(f"redis+cluster://127.0.0.1:{cluster.port}")
    lease = LeaderLease(bus, "daemon-1", gateways=["edge"])
    assert await lease.acquire()
    publisher = Publisher(bus, "daemon-1")
    feed = await bus.subscribe(bus.keys.overlays, bus.keys.signals)
    result = await publisher.publish(document(1), lease, "test")
    heard = read_announcement((await asyncio.wait_for(feed.next(), PATIENCE))[1])
    assert isinstance(heard, Announcement)
    assert heard.position == result.position
    await publisher.send_frame(frame(lease.epoch, 1), lease)
    assert (await asyncio.wait_for(feed.next(), PATIENCE))[0] == bus.keys.signals.encode()
    await publisher.save_memory({"a": 1}, lease)
    await lease.renew()
    await lease.release()
    await feed.aclose()
