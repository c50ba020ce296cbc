"""The leader lease: one leader at a time, an epoch that never falls, a deadline we keep ourselves."""

import asyncio
import time
from pathlib import Path

import pytest

from grid.bus import Connection, LeaderLease, Publisher
from grid.bus.keys import Keys
from grid.model import BusError, LeaseError, Reason
from tests.bus.conftest import Connect
from tests.bus.documents import document, frame
from tests.bus.waiting import eventually
from tests.support.redis_server import RedisServer
from tests.support.until import until

LEADER = Keys("acme").leader


async def gone(bus: Connection) -> bool:
    return not await bus.command("EXISTS", LEADER)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def test_one_of_two_leads_and_the_other_knows_who(bus: Connection) -> None:
    first, second = LeaderLease(bus, "daemon-1"), LeaderLease(bus, "daemon-2")
    assert await first.acquire()
    assert first.held()
    assert not await second.acquire()
    assert not second.held()
    assert second.other is not None
    assert (second.other.holder, second.other.epoch) == ("daemon-1", first.epoch)
    assert second.other.remaining == pytest.approx(10.0, abs=4.0)
    leader = await Publisher(bus, "daemon-2").leader()
    assert leader is not None
    assert (leader.holder, leader.epoch) == ("daemon-1", first.epoch)
    assert leader.since.startswith("20")


async def test_of_many_at_once_one_leads(bus: Connection) -> None:
    leases = [LeaderLease(bus, f"daemon-{number}") for number in range(8)]
    won = await asyncio.gather(*(lease.acquire() for lease in leases))
    assert sum(won) == 1


async def test_release_lets_the_next_in_with_a_higher_epoch(bus: Connection) -> None:
    first, second = LeaderLease(bus, "daemon-1"), LeaderLease(bus, "daemon-2")
    await first.acquire()
    await first.release()
    assert not first.held()
    assert await second.acquire()
    assert second.epoch > first.epoch
    assert await Publisher(bus, "x").leader() is not None


async def test_release_takes_only_what_is_ours(bus: Connection) -> None:
    first, second = LeaderLease(bus, "daemon-1"), LeaderLease(bus, "daemon-2")
    await first.acquire()
    await bus.command("DEL", LEADER)
    await second.acquire()
    await first.release()
    leader = await Publisher(bus, "x").leader()
    assert leader is not None
    assert leader.holder == "daemon-2"


async def test_the_same_holder_after_a_restart_is_another(bus: Connection) -> None:
    before, after = LeaderLease(bus, "daemon-1"), LeaderLease(bus, "daemon-1")
    await before.acquire()
    assert not await after.acquire()


async def test_an_answer_lost_on_the_way_does_not_lock_us_out(bus: Connection) -> None:
    lease = LeaderLease(bus, "daemon-1")
    await lease.acquire()
    epoch = lease.epoch
    lease.lose()  # as if the answer had never come
    assert await lease.acquire()
    assert lease.epoch > epoch


async def test_the_deadline_counts_from_before_the_call(server: RedisServer, bus: Connection) -> None:
    clock = Clock(100.0)
    lease = LeaderLease(bus, "daemon-1", ttl=9.0, monotonic=clock)
    await lease.acquire()
    assert lease.deadline == 109.0
    assert lease.renew_at == 103.0
    assert lease.held(108.9)
    assert not lease.held(109.0)
    clock.now = 103.0
    await lease.renew()
    assert lease.deadline == 112.0


async def test_a_slow_answer_does_not_move_the_deadline(server: RedisServer, bus: Connection) -> None:
    lease = LeaderLease(bus, "daemon-1", ttl=30.0)
    await lease.acquire()
    server.freeze()
    started = time.monotonic()
    renewing = asyncio.create_task(lease.renew())
    await asyncio.sleep(0.2)
    server.thaw()
    await renewing
    assert lease.deadline <= started + 30.0 + 0.05


async def test_a_frozen_redis_ends_the_lease_on_our_clock(server: RedisServer, open_bus: Connect) -> None:
    lease = LeaderLease(await open_bus(server.url, timeout=0.5), "daemon-1", ttl=2.0)
    await lease.acquire()
    server.freeze()
    with pytest.raises(BusError) as caught:
        await lease.renew()
    assert caught.value.reason is Reason.BUS_TIMEOUT
    await until(lambda: not lease.held())
    with pytest.raises(LeaseError) as lost:
        await lease.renew()
    assert lost.value.reason is Reason.LEASE_LOST


async def test_an_expired_lease_is_lost_even_where_nobody_took_it(bus: Connection) -> None:
    clock = Clock(100.0)
    lease = LeaderLease(bus, "daemon-1", ttl=9.0, monotonic=clock)
    await lease.acquire()
    await bus.command("DEL", LEADER)
    clock.now = 103.0
    with pytest.raises(LeaseError) as caught:
        await lease.renew()
    assert caught.value.reason is Reason.LEASE_LOST
    assert caught.value.exit_code == 4
    assert not lease.held()


async def test_a_lease_taken_over_names_the_new_leader(bus: Connection) -> None:
    first, second = LeaderLease(bus, "daemon-1"), LeaderLease(bus, "daemon-2")
    await first.acquire()
    await bus.command("DEL", LEADER)
    await second.acquire()
    with pytest.raises(LeaseError, match="daemon-2 leads"):
        await first.renew()
    assert first.epoch < second.epoch


class TestEpoch:
    async def test_it_is_above_the_wall_clock(self, bus: Connection) -> None:
        lease = LeaderLease(bus, "daemon-1", wall=Clock(2_000_000_000.7))
        await lease.acquire()
        assert lease.epoch == 2_000_000_001

    async def test_it_rises_with_every_term_though_the_clock_is_behind(self, bus: Connection) -> None:
        epochs = []
        for wall in (2_000_000_000, 1_000, 1_000):
            lease = LeaderLease(bus, "daemon-1", wall=Clock(wall))
            await lease.acquire()
            await lease.release()
            epochs.append(lease.epoch)
        assert epochs == [2_000_000_001, 2_000_000_002, 2_000_000_003]

    async def test_it_is_above_the_documents_found(self, bus: Connection) -> None:
        await bus.command("HSET", bus.keys.overlay("edge"), "epoch", 3_000_000_000)
        lease = LeaderLease(bus, "daemon-1", gateways=["other", "edge"], wall=Clock(5))
        await lease.acquire()
        assert lease.epoch == 3_000_000_001

    async def test_a_wiped_redis_does_not_lower_it(self, server: RedisServer, bus: Connection) -> None:
        lease = LeaderLease(bus, "daemon-1", wall=Clock(2_000_000_000))
        await lease.acquire()
        later = LeaderLease(bus, "daemon-2", wall=Clock(5))
        assert not await later.acquire()
        await asyncio.to_thread(server.restart)
        assert await later.acquire()
        assert later.epoch > lease.epoch

    async def test_an_older_copy_of_the_data_does_not_lower_it(self, server: RedisServer, bus: Connection) -> None:
        lease = LeaderLease(bus, "daemon-1", wall=Clock(2_000_000_000))
        await lease.acquire()
        await lease.release()
        server.save()
        await lease.acquire()
        newest = lease.epoch
        await asyncio.to_thread(server.restart)
        assert await lease.acquire()
        assert lease.epoch > newest

    async def test_it_is_remembered_on_disk(self, server: RedisServer, bus: Connection, tmp_path: Path) -> None:
        file = tmp_path / "state" / "epoch"
        lease = LeaderLease(bus, "daemon-1", epoch_file=file, wall=Clock(2_000_000_000))
        await lease.acquire()
        assert file.read_text() == "2000000001\n"
        await asyncio.to_thread(server.restart)
        after = LeaderLease(bus, "daemon-1", epoch_file=file, wall=Clock(5))
        await after.acquire()
        assert after.epoch == 2_000_000_002

    async def test_an_unreadable_file_does_not_stop_it(self, bus: Connection, tmp_path: Path) -> None:
        file = tmp_path / "epoch"
        file.write_text("many")
        lease = LeaderLease(bus, "daemon-1", epoch_file=file, wall=Clock(2_000_000_000))
        assert await lease.acquire()
        unwritable = LeaderLease(bus, "daemon-1", epoch_file=tmp_path / "epoch" / "below")
        await lease.release()
        assert await unwritable.acquire()

    async def test_a_higher_one_seen_anywhere_begins_a_new_term(self, bus: Connection) -> None:
        lease = LeaderLease(bus, "daemon-1")
        await lease.acquire()
        seen = lease.epoch + 1000
        lease.observe(seen)
        await lease.renew()
        assert lease.epoch == seen + 1
        assert lease.held()
        lease.observe(2**60)  # nobody sane wrote this
        await lease.renew()
        assert lease.epoch == seen + 1

    async def test_a_new_term_may_come_too_late(self, bus: Connection) -> None:
        first, second = LeaderLease(bus, "daemon-1"), LeaderLease(bus, "daemon-2")
        await first.acquire()
        await bus.command("DEL", LEADER)
        await second.acquire()
        first.observe(second.epoch + 5)
        with pytest.raises(LeaseError):
            await first.renew()

    async def test_garbage_in_redis_counts_as_nothing(self, bus: Connection) -> None:
        await bus.command("HSET", bus.keys.memory, "epoch", "x")
        await bus.command("HSET", bus.keys.overlay("edge"), "epoch", "9" * 30)
        lease = LeaderLease(bus, "daemon-1", gateways=["edge"], wall=Clock(2_000_000_000))
        await lease.acquire()
        assert lease.epoch == 2_000_000_001


class TestLateLeader:
    """Who lost the lease without knowing it writes nothing."""

    @pytest.fixture(params=["deleted", "taken over", "expired"])
    async def late(self, request: pytest.FixtureRequest, bus: Connection) -> LeaderLease:
        lease = LeaderLease(bus, "daemon-1")
        await lease.acquire()
        if request.param == "expired":
            await bus.command("PEXPIRE", LEADER, 1)
            await eventually(lambda: gone(bus))
        else:
            await bus.command("DEL", LEADER)
        if request.param == "taken over":
            assert await LeaderLease(bus, "daemon-2").acquire()
        assert lease.held()
        return lease

    async def test_its_document_is_refused(self, late: LeaderLease, publisher: Publisher) -> None:
        with pytest.raises(LeaseError) as caught:
            await publisher.publish(document(1), late, "test")
        assert caught.value.reason is Reason.STALE_EPOCH
        assert not late.held()
        assert await publisher.read("edge") is None
        assert await publisher.history("edge") == []

    async def test_its_frame_is_refused(self, late: LeaderLease, publisher: Publisher, bus: Connection) -> None:
        with pytest.raises(LeaseError):
            await publisher.send_frame(frame(late.epoch, 1), late)
        assert await bus.command("GET", bus.keys.signal) is None

    async def test_its_memory_is_refused(self, late: LeaderLease, publisher: Publisher) -> None:
        with pytest.raises(LeaseError):
            await publisher.save_memory({"a": 1}, late)
        assert await publisher.load_memory() is None

    async def test_it_is_told_before_anything_is_sent_again(
        self, late: LeaderLease, publisher: Publisher, open_bus: Connect
    ) -> None:
        with pytest.raises(LeaseError):
            await publisher.publish(document(1), late, "test")
        with pytest.raises(LeaseError) as caught:
            await publisher.publish(document(1), late, "test")
        assert caught.value.reason is Reason.LEASE_LOST
