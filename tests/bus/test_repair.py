"""Keys that something else wrote as another type: refused, removed, named."""

import pytest

from grid.bus import Connection, LeaderLease, Publisher, Report
from grid.bus.faults import RefusedError
from grid.bus.repair import repair
from grid.bus.reports import write_report
from grid.model import Drain, LeaseError, Reason
from tests.bus.documents import document


async def test_nothing_of_ours_is_removed(bus: Connection, lease: LeaderLease, publisher: Publisher) -> None:
    await publisher.publish(document(1), lease, "test")
    await publisher.save_memory({"a": 1}, lease)
    await publisher.set_drain(Drain("east", "east"))
    await write_report(bus, Report("edge", "pod-1"))
    assert await repair(bus, ["edge", "absent"]) == []
    assert await publisher.read("edge") is not None
    assert await publisher.drains() != {}
    assert len(await publisher.reports()) == 1
    await lease.renew()


async def test_a_command_on_such_a_key_is_refused_with_a_reason_of_its_own(
    bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    await bus.command("SET", bus.keys.overlay("edge"), "garbage")
    for refused in (publisher.read("edge"), publisher.publish(document(1), lease, "test")):
        with pytest.raises(RefusedError) as caught:
            await refused
        assert caught.value.reason is Reason.BUS_WRONG_TYPE


async def test_each_is_removed_with_its_type_and_works_again(
    bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    keys = bus.keys
    for key in (keys.overlay("edge"), keys.history("edge"), keys.memory, keys.drains):
        await bus.command("SET", key, "garbage")
    await bus.command("SADD", keys.signal, "garbage")
    await bus.command("HSET", keys.gateways, "garbage", "1")
    assert set(await repair(bus, ["edge"])) == {
        (keys.overlay("edge"), "string"),
        (keys.history("edge"), "string"),
        (keys.memory, "string"),
        (keys.drains, "string"),
        (keys.signal, "set"),
        (keys.gateways, "hash"),
    }
    assert (await publisher.publish(document(1), lease, "again")).changed
    await publisher.save_memory({"a": 1}, lease)
    await publisher.set_drain(Drain("east", "east"))
    await write_report(bus, Report("edge", "pod-1"))
    assert [len(await publisher.history("edge")), len(await publisher.reports())] == [1, 1]


async def test_a_report_and_the_lease_are_mended_too(bus: Connection, lease: LeaderLease, publisher: Publisher) -> None:
    await write_report(bus, Report("edge", "pod-1"))
    await write_report(bus, Report("edge", "pod-2"))
    await bus.command("SET", bus.keys.report("edge", "pod-1"), "garbage")
    await bus.command("SET", bus.keys.leader, "garbage")
    with pytest.raises(RefusedError):
        await publisher.reports()
    assert await repair(bus, []) == [(bus.keys.leader, "string"), (bus.keys.report("edge", "pod-1"), "string")]
    assert [report.instance for report in await publisher.reports()] == ["pod-2"]
    with pytest.raises(LeaseError):
        await lease.renew()
    assert await lease.acquire()
