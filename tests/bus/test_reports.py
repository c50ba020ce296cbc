"""What gateways say of themselves."""

import time
from dataclasses import replace

from grid.bus import Connection, Report, Store, gateway_signals
from grid.bus.reports import write_report
from grid.overlay import GatewaySignal
from tests.bus.waiting import eventually


async def test_a_report_comes_back_as_it_was_written(bus: Connection) -> None:
    now = time.time()
    report = Report(
        "edge",
        "host-1:4711",
        epoch=7,
        version=12,
        revision="abc",
        term=8,
        in_flight={"east/east-llama": 3},
        rate={"east/east-llama": 1.5},
        first_byte_s={"east/east-llama": 0.25},
        applied_at=1_700_000_000.125,
        at=1_700_000_001.0,
    )
    await write_report(bus, report)
    (found,) = await Store(bus).reports()
    assert found.age_s is not None
    assert 0 <= found.age_s < time.time() - now + 0.1
    assert replace(found, age_s=None) == report
    assert 5_000 < await bus.command("PTTL", bus.keys.report("edge", "host-1:4711")) <= 15_000


async def test_who_falls_silent_is_gone(bus: Connection) -> None:
    await write_report(bus, Report("edge", "short"), expiry=0.03)
    await write_report(bus, Report("edge", "long"))

    async def only_the_other_is_left() -> bool:
        return [report.instance for report in await Store(bus).reports()] == ["long"]

    await eventually(only_the_other_is_left)


async def test_the_index_forgets_the_long_silent(bus: Connection) -> None:
    await bus.command("ZADD", bus.keys.gateways, 1, "edge:ancient")
    await write_report(bus, Report("edge", "new"))
    assert await bus.command("ZRANGE", bus.keys.gateways, 0, -1) == [b"edge:new"]


async def test_unreadable_reports_are_left_out(bus: Connection) -> None:
    assert await Store(bus).reports() == []
    await write_report(bus, Report("edge", "good"))
    for name, fields in {
        "bad": {"epoch": "x"},
        "worse": {"epoch": "1", "version": "1", "revision": "", "in_flight": "7"},
    }.items():
        await bus.command("HSET", bus.keys.report("edge", name), *(part for item in fields.items() for part in item))
        await bus.command("ZADD", bus.keys.gateways, int(time.time()), f"edge:{name}")
    await bus.command("ZADD", bus.keys.gateways, int(time.time()), "nonsense")
    assert [report.instance for report in await Store(bus).reports()] == ["good"]


def test_a_frame_says_instances_and_the_sum_in_flight() -> None:
    reports = [
        Report("edge", "a", in_flight={"east/c": 2, "west/c": 1}),
        Report("edge", "b", in_flight={"east/c": 3}),
        Report("core", "a"),
    ]
    assert gateway_signals(reports) == {
        "edge": GatewaySignal(2, {"east/c": 5, "west/c": 1}),
        "core": GatewaySignal(1, {}),
    }
