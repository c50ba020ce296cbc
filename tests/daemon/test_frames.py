import asyncio
from dataclasses import replace

import pytest

from grid.bus.order import Position
from grid.bus.reports import Report
from grid.daemon.board import Board
from grid.daemon.frames import SHORTEST, FrameSender, Pace, build, lost
from grid.daemon.link import Link
from grid.daemon.metrics import Metrics
from grid.daemon.planner import Planner
from grid.daemon.tasks import TaskGuard
from grid.model import (
    AdmissionState,
    CapacitySource,
    Decision,
    Freshness,
    HeldSource,
    LeaseError,
    Load,
    LoadSource,
    Reason,
    Sample,
)
from grid.overlay import SignalFrame
from grid.policy import PolicyInput, PolicyMemory
from grid.signals.store import SampleStore
from tests.daemon.parts import config, gaps, now, reading

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


def decision(
    provider: str = "east-llama",
    admission: AdmissionState = AdmissionState.NEW_AND_EXISTING,
    freshness: Freshness = Freshness.FRESH,
    *,
    demoted: bool = False,
) -> Decision:
    load = Load(
        ready=2,
        held=6.0,
        held_source=HeldSource.LIVE,
        capacity=16.0,
        capacity_source=CapacitySource.DECLARED,
        saturation=0.375,
        load=0.5,
        load_source=LoadSource.KV,
        kv=0.45,
    )
    return Decision(provider, freshness, admission, Reason.ADMITTED, load, (), age=0.4, bound=5.0, demoted=demoted)


async def test_a_frame_says_what_is_known_with_ages_as_of_now() -> None:
    network = config().to_network()
    sample = Sample("east-llama", 3, 98.5, reading(), 2.0)
    frame = build(
        network,
        {
            "east-llama": decision(),
            "west-llama": replace(decision("west-llama"), load=Load()),
            "gone": decision("gone"),
        },
        {"east-llama": sample},
        [
            Report("edge-east", "pod-1", 7, 12, "r", in_flight={"east/east-llama": 3}),
            Report("edge-east", "pod-2", 7, 12, "r", in_flight={"east/east-llama": 2}),
            Report("removed", "pod-3"),
        ],
        {"edge-east": Position(7, 12), "removed": Position(7, 1)},
        epoch=7,
        sequence=4,
        now=100.0,
        wall=1_700_000_000.0,
    )
    assert SignalFrame.decode(frame.encode()) == frame
    assert (frame.network, frame.epoch, frame.sequence, frame.interval_s) == ("acme", 7, 4, 1.0)
    assert frame.documents == {"edge-east": (7, 12)}
    east, west = frame.providers["east-llama"], frame.providers["west-llama"]
    assert (east.site, east.held, east.capacity, east.load, east.load_source) == ("east", 6.0, 16.0, 0.5, "kv")
    assert (east.age_s, east.bound_s, east.queue_capacity, east.kv_ceiling) == (1.5, 5.0, 5.0, 0.9)
    assert (east.held_source, east.capacity_source) == ("live", "declared")
    assert (west.held, west.age_s, west.held_source, west.capacity_source) == (None, None, None, None)
    assert set(frame.providers) == {"east-llama", "west-llama"}
    assert frame.gateways["edge-east"].instances == 2
    assert frame.gateways["edge-east"].in_flight == {"east/east-llama": 5}
    assert set(frame.gateways) == {"edge-east"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (decision(), decision(), False),
        (decision(), decision(demoted=True), True),
        (decision(), decision(freshness=Freshness.STALE), True),
        (decision(), decision(admission=AdmissionState.EXISTING_ONLY), True),
        (decision(demoted=True), decision(admission=AdmissionState.NONE, demoted=True), True),
        (decision(demoted=True), decision(), False),
        (decision(admission=AdmissionState.NONE), decision(), False),
    ],
)
async def test_what_counts_as_a_loss(before: Decision, after: Decision, expected: bool) -> None:
    assert lost({"east-llama": before}, {"east-llama": after}) == (["east-llama"] if expected else [])


async def test_a_newcomer_is_no_loss() -> None:
    assert lost({}, {"east-llama": decision(demoted=True)}) == []


async def test_frames_keep_their_distance() -> None:
    pace = Pace(now)
    assert pace.wait() == 0
    pace.sent()
    await asyncio.sleep(0.03)
    assert pace.wait() == pytest.approx(SHORTEST - 0.03)
    await asyncio.sleep(1)
    assert pace.wait() == 0


class _Leads:
    leading = True
    refusals: list[LeaseError]

    def __init__(self) -> None:
        self.lease = self
        self.epoch = 7
        self.refusals = []

    def refused(self, error: LeaseError) -> None:
        self.refusals.append(error)
        self.leading = False


class _Sent:
    def __init__(self) -> None:
        self.frames: list[tuple[float, SignalFrame]] = []
        self.positions: dict[str, Position] = {}
        self.fault: Exception | None = None

    async def send_frame(self, frame: SignalFrame, _: object) -> None:
        if self.fault is not None:
            raise self.fault
        self.frames.append((now(), frame))


class _Observed:
    def __init__(self) -> None:
        self.store = SampleStore(["east-llama", "west-llama"])


def sender() -> tuple[FrameSender, _Sent, _Leads, Board]:
    loaded = config()
    board = Board(loaded, loaded.to_network())
    board.planned = Planner().plan(PolicyInput(board.network, {}, PolicyMemory(), 0.0), "2026-01-01T00:00:00Z")
    sent, leads = _Sent(), _Leads()
    made = FrameSender(
        board,
        sent,  # type: ignore[arg-type]
        observer=_Observed(),  # type: ignore[arg-type]
        leadership=leads,  # type: ignore[arg-type]
        link=Link(lambda _: None),
        metrics=Metrics(),
        clock=now,
    )
    return made, sent, leads, board


async def test_rings_send_frames_but_never_sooner_than_their_distance() -> None:
    made, sent, _, _ = sender()
    guard = TaskGuard()
    guard.loop("frames", made.step)
    for _ in range(100):
        made.bell.ring()
        await asyncio.sleep(0.01)
    await guard.stop()
    moments = [moment for moment, _ in sent.frames]
    apart = gaps(moments)
    assert min(apart) >= SHORTEST - 1e-6
    assert 9 <= len(moments) <= 11
    assert [frame.sequence for _, frame in sent.frames] == list(range(1, len(moments) + 1))


async def test_a_follower_sends_none_and_a_refusal_ends_leading() -> None:
    made, sent, leads, _ = sender()
    sent.fault = LeaseError("another leads", reason=Reason.STALE_EPOCH)
    made.bell.ring()
    await made.step()
    assert leads.refusals == [sent.fault]
    sent.fault = None
    made.bell.ring()
    await made.step()
    assert sent.frames == []
