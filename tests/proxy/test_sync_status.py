"""How a delivery stands, judged from what is known."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from grid.bus import Position, SubscriberState
from grid.bus.subscriber import Counts
from grid.model import DeliveryError, Problem, Reason
from grid.proxy.delivery import Held
from grid.proxy.envoy_admin import Running
from grid.proxy.sync_status import Facts, State, StatusFile, judge, refusal, to_json

HELD = Held(Position(1, 7), "a" * 64)
SYNCED = SubscriberState(
    connected=True, where="redis://x", position=HELD.position, applied_at=100.0, counts=Counts(reads=1)
)
GOOD = Facts(bus=SYNCED, held=HELD, written_at=100.0, observed=HELD, observed_at=100.0)


def bus(**changes: Any) -> SubscriberState:
    return dataclasses.replace(SYNCED, **changes)


def facts(**changes: Any) -> Facts:
    return dataclasses.replace(GOOD, **changes)


def test_all_is_well() -> None:
    assert judge(GOOD) == (State.READY, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bus": bus(connected=False)}, Reason.BUS_UNREACHABLE),
        ({"bus": bus(connected=False, problem=Problem(Reason.BUS_AUTH))}, Reason.BUS_AUTH),
        ({"bus": bus(stale_since=90.0, problem=Problem(Reason.HEARTBEAT_MISSED))}, Reason.HEARTBEAT_MISSED),
        ({"observed": None}, Reason.NO_OVERLAY),
        ({"file": Problem(Reason.FILE_UNWRITABLE)}, Reason.FILE_UNWRITABLE),
        ({"content": (Problem(Reason.ADDRESS_UNKNOWN), Problem(Reason.ADDRESS_SHARED))}, Reason.ADDRESS_UNKNOWN),
        ({"envoy": Problem(Reason.NOT_APPLIED)}, Reason.NOT_APPLIED),
        ({"bus": bus(problem=Problem(Reason.DIGEST_MISMATCH), problem_at=101.0)}, Reason.DIGEST_MISMATCH),
    ],
)
def test_each_fault_degrades_and_without_a_document_it_is_cold(changes: dict[str, Any], reason: Reason) -> None:
    for held, state in ((HELD, State.READY_DEGRADED), (None, State.COLD)):
        found, why = judge(facts(held=held, **changes))
        assert found is state
        assert why is not None
        assert why.code is reason


def test_cold_without_a_reason_says_so() -> None:
    assert judge(facts(held=None)) == (State.COLD, Problem(Reason.NO_OVERLAY, "no document has come yet"))


@pytest.mark.parametrize(
    "over",
    [
        bus(problem=Problem(Reason.BUS_UNREACHABLE), problem_at=200.0),
        bus(problem=Problem(Reason.HEARTBEAT_MISSED), problem_at=200.0),
        bus(stale_since=90.0),
        bus(problem=Problem(Reason.DIGEST_MISMATCH), problem_at=99.0),
    ],
)
def test_what_is_over_degrades_nothing(over: SubscriberState) -> None:
    assert judge(facts(bus=over)) == (State.READY, None)


class TestRefusal:
    REFUSED = bus(problem=Problem(Reason.SCOPE_MISMATCH, "x"), problem_at=101.0)

    def test_it_stands_until_something_newer_is_applied(self) -> None:
        assert refusal(facts(bus=self.REFUSED)) == Problem(Reason.SCOPE_MISMATCH, "x")
        assert refusal(facts(bus=dataclasses.replace(self.REFUSED, applied_at=102.0))) is None

    def test_or_until_the_leader_names_what_is_held(self) -> None:
        assert refusal(facts(bus=self.REFUSED, named=HELD.position, named_at=100.5)) is not None
        assert refusal(facts(bus=self.REFUSED, named=Position(1, 8), named_at=102.0)) is not None
        assert refusal(facts(bus=self.REFUSED, named=HELD.position, named_at=102.0)) is None

    def test_a_clash_stands_whatever_place_is_named(self) -> None:
        clash = bus(problem=Problem(Reason.VERSION_CLASH, "x"), problem_at=101.0)
        assert refusal(facts(bus=clash, named=HELD.position, named_at=102.0)) is not None

    @pytest.mark.parametrize("code", [Reason.BUS_REFUSED, Reason.HEARTBEAT_MISSED])
    def test_a_fault_of_the_bus_is_none(self, code: Reason) -> None:
        assert refusal(facts(bus=bus(problem=Problem(code), problem_at=101.0))) is None

    def test_it_is_graver_than_the_rest(self) -> None:
        lost = dataclasses.replace(self.REFUSED, connected=False)
        found = judge(facts(bus=lost, file=Problem(Reason.FILE_UNWRITABLE)))
        assert found == (State.READY_DEGRADED, Problem(Reason.SCOPE_MISMATCH, "x"))


def test_before_anything_is_known() -> None:
    said = to_json(Facts(bus=SubscriberState()), now=0.0, gateway="edge")
    assert said["state"] == "cold"
    assert said["gateway"] == "edge"
    assert (
        said["written_overlay_revision"] is said["observed_epoch"] is said["last_written_at"] is said["envoy"] is None
    )
    assert said["updated_at"] == "1970-01-01T00:00:00.000+00:00"


def test_an_envoy_that_has_read_nothing_yet() -> None:
    said = to_json(facts(running=Running()), now=0.0)
    assert said["envoy"] == {
        "epoch": None,
        "version": None,
        "revision": None,
        "clusters": {},
        "rejected": 0,
        "in_flight": {},
    }


class TestStatusFile:
    async def test_it_is_written_on_change_and_as_a_beat(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "status.json"
        status = StatusFile(file, network="acme")

        async def written(now: Facts) -> bool:
            before = file.stat().st_ino if file.exists() else None
            await status.show(now)
            return file.stat().st_ino != before

        assert await written(GOOD)
        assert not await written(GOOD)
        assert await written(facts(envoy=Problem(Reason.NOT_APPLIED)))
        assert await written(GOOD)
        monkeypatch.setattr("grid.proxy.sync_status.BEAT", 0.0)
        assert await written(GOOD)

    async def test_a_fault_is_told_once_and_does_not_stop_anything(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").write_bytes(b"")
        status = StatusFile(tmp_path / "file" / "status.json")
        for number in range(3):
            await status.show(facts(envoy=Problem(Reason.NOT_APPLIED, str(number))))
        assert capsys.readouterr().out.count("the status cannot be written") == 1
        with pytest.raises(DeliveryError) as caught:
            await status.write(GOOD)
        assert caught.value.reason is Reason.FILE_UNWRITABLE
