"""What the HTTP side sees of the daemon's parts, where whole daemons do not show it."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from grid.bus.lease import Leader
from grid.daemon.board import Board, LoadedConfig
from grid.daemon.config_file import ConfigFile
from grid.daemon.events import EventLog
from grid.daemon.link import Link
from grid.daemon.metrics import Metrics
from grid.daemon.shelf import Shelf
from grid.daemon.view import STALLED, View
from grid.debug import DaemonView, ReloadResult
from grid.model import BusError, DaemonError, Drain, Problem, Reason
from grid.signals.schedule import ScrapeSchedule
from grid.signals.store import SampleStore
from tests.daemon.parts import PretendedLease, config


@dataclass
class Seen:
    """A view over parts that the test sets."""

    now: float = 100.0
    ticked_at: float = 100.0
    round_complete: bool = True
    leading: bool = True
    dry_run: bool = False
    said: list[str] = field(default_factory=list)
    undrained: bool = True

    def __post_init__(self) -> None:
        loaded = config()
        self.board = Board(loaded, loaded.to_network(), cycled_at=100.0)
        self.lease = PretendedLease(lambda: self.now)
        self.link = Link(lambda _: None)
        with self.link.watch():
            pass
        self.file = ConfigFile(None, lambda _: None)
        self.store = SampleStore(self.board.network.providers)
        self.schedule = ScrapeSchedule(epoch=0.0)
        self.schedule.sync(dict.fromkeys(self.board.network.providers, 2.0), 0.0)

    def view(self) -> View:
        async def reload() -> ReloadResult:
            return ReloadResult(2, ())

        async def drain(target: str, *, until: float | None, reason: str) -> tuple[Drain, bool]:
            return Drain(target, target, reason, 0.0, until), True

        async def undrain(_: str) -> bool:
            return self.undrained

        parts: dict[str, Any] = {
            "observer": SimpleNamespace(store=self.store, schedule=self.schedule, round_complete=self.round_complete),
            "leadership": SimpleNamespace(lease=self.lease, leading=self.leading),
            "publisher": SimpleNamespace(connection=SimpleNamespace(where="redis://bus")),
            "delivery": SimpleNamespace(publications={}, failures={}),
            "ticker": SimpleNamespace(last_run=lambda _: self.ticked_at),
            "keeper": SimpleNamespace(drain=drain, undrain=undrain),
        }
        return View(
            self.board,
            shelf=Shelf(),
            link=self.link,
            events=EventLog(),
            metrics=Metrics(),
            clock=lambda: self.now,
            on_drain=self.said.append,
            reload=reload,
            file=self.file,
            dry_run=self.dry_run,
            **parts,
        )

    def checks(self) -> dict[str, tuple[bool, bool]]:
        return {check.name: (check.ok, check.required) for check in self.view().checks()}


def test_it_is_the_protocol() -> None:
    view: DaemonView = Seen().view()
    assert view.access.loopback


def test_alive_means_that_ticks_and_cycles_go_on() -> None:
    assert Seen().view().alive().ok
    stalled = Seen(now=100 + STALLED + 1, ticked_at=100.0).view().alive()
    assert not stalled.ok
    assert "no tick for 6.0 s" in stalled.detail
    idle = Seen(now=150.0, ticked_at=150.0).view().alive()
    assert not idle.ok
    assert "no cycle for 50.0 s" in idle.detail


def test_ready_means_round_bus_and_lease() -> None:
    seen = Seen()
    assert all(ok for ok, _ in seen.checks().values())
    seen.round_complete = False
    assert seen.checks()["round"] == (False, True)
    seen.leading = False
    assert seen.checks()["lease"] == (False, True), "nobody is known to lead"
    seen.lease.other = Leader("host-2", 7)
    assert seen.checks()["lease"] == (True, True)
    # What lies on the bus goes before what our own attempt found once.
    seen.board.leader, seen.board.leader_at = None, 100.0
    assert seen.checks()["lease"] == (False, True)
    seen.board.leader = Leader("host-3", 8)
    assert seen.checks()["lease"] == (True, True)
    assert next(one.detail for one in seen.view().checks() if one.name == "lease") == "follower of host-3"
    with pytest.raises(BusError), seen.link.watch():
        raise BusError("frozen", reason=Reason.BUS_TIMEOUT)
    assert seen.checks()["bus"] == (False, True)


def test_a_stopping_daemon_is_not_ready() -> None:
    seen = Seen()
    seen.board.stopping = True
    assert seen.checks()["shutdown"] == (False, True)


def test_a_refused_reload_is_told_and_does_not_decide() -> None:
    seen = Seen()
    seen.board.loaded = LoadedConfig(ok=False, detail="line 3")
    assert seen.checks()["config"] == (False, False)


def test_a_dry_run_needs_neither_bus_nor_lease() -> None:
    seen = Seen(dry_run=True, leading=False)
    with pytest.raises(BusError), seen.link.watch():
        raise BusError("not there", reason=Reason.BUS_UNREACHABLE)
    checks = seen.checks()
    assert checks["lease"] == (True, True)
    assert checks["bus"] == (False, False)
    assert seen.view().leader().role == "dry_run"


def test_who_leads() -> None:
    seen = Seen()
    seen.lease.epoch, seen.lease.deadline = 7, 104.0
    seen.board.leader, seen.board.leader_at = Leader("this", 7, "2026-01-01T00:00:00+00:00", 5.0), 99.0
    found = seen.view().leader()
    assert (found.role, found.holder, found.epoch, found.since, found.lease_left) == (
        "leader",
        "this",
        7,
        1767225600.0,
        4.0,
    )
    seen.leading = False
    seen.board.leader = Leader("host-2", 9, "no time", 5.0)
    found = seen.view().leader()
    assert (found.role, found.holder, found.epoch, found.since, found.lease_left) == (
        "follower",
        "host-2",
        9,
        None,
        4.0,
    )
    with pytest.raises(BusError), seen.link.watch():
        raise BusError("away", reason=Reason.BUS_UNREACHABLE)
    assert seen.view().leader().holder is None, "nobody knows while the bus is away"


def test_a_provider_before_the_first_cycle() -> None:
    seen = Seen()
    seen.store.fail("east-llama", Problem(Reason.TIMEOUT, "hangs"))
    found = seen.view().provider("east-llama")
    assert found is not None
    assert found.decision is None
    assert found.last_error is not None
    assert found.last_error.code is Reason.TIMEOUT
    assert (found.scrapes, found.failures, found.age) == (0, 1, None)
    assert seen.view().provider("nobody") is None
    assert seen.view().plans() == {}


async def test_a_drain_of_nobody_names_the_nearest() -> None:
    seen = Seen()
    with pytest.raises(DaemonError) as caught:
        await seen.view().drain("east-lama", for_s=None, reason="")
    assert caught.value.status == 404
    assert caught.value.hint == "did you mean east-llama?"
    with pytest.raises(DaemonError) as caught:
        await seen.view().drain("zzz", for_s=None, reason="")
    assert "/v1/providers" in caught.value.hint
    assert seen.said == []


async def test_a_drain_is_said_with_its_length_and_reason() -> None:
    seen = Seen()
    assert (await seen.view().drain("east", for_s=60, reason="disk")).kind == "site"
    assert (await seen.view().drain("east-llama", for_s=None, reason="")).kind == "provider"
    await seen.view().undrain("east")
    assert seen.said == [
        "site east is drained for 60 s: disk",
        "provider east-llama is drained until it is taken back",
        "east is no longer drained",
    ]
    seen.undrained = False
    with pytest.raises(DaemonError) as caught:
        await seen.view().undrain("west")
    assert caught.value.reason is Reason.NOT_FOUND
