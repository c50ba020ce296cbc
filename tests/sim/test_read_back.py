"""The pages of a simulated EPP, read by the daemon's own scan, give the state that was simulated."""

import random

import pytest

from grid.model import Reason
from grid.signals.scan import ScanResult, read_page
from grid.sim.epp import MAX_TENANTS, SimulatedEpp
from grid.sim.epp_page import PROFILES
from grid.sim.pool import PoolShape, SimulatedPool
from grid.sim.values import Flow

READABLE = [name for name in PROFILES if name != "lwepp"]
LIVE_READY = ("v0.10", "main")


def make(profile: str, *, flow_control: bool | None = None, slots: int = 4) -> SimulatedEpp:
    chosen = PROFILES[profile].flow_control if flow_control is None else flow_control
    shape = PoolShape(endpoints=3, slots=slots, flow_control=chosen)
    return SimulatedEpp(profile, "llama", SimulatedPool(shape, rng=random.Random(3)), started_wall=1_795_983_082.0)


def read(epp: SimulatedEpp, now: float) -> ScanResult:
    return read_page(epp.page(now), pool="llama")


def codes(result: ScanResult) -> set[Reason]:
    return {problem.code for problem in result.problems}


@pytest.mark.parametrize("profile", READABLE)
@pytest.mark.parametrize("flow_control", [False, True])
def test_what_is_held_is_read_exactly(profile: str, flow_control: bool) -> None:
    epp = make(profile, flow_control=flow_control)
    for number in range(40):
        epp.submit(Flow(f"tenant-{number % 5}"), 30.0, now=1.0)
    result = read(epp, 6.0)
    counts = epp.pool.flows().values()
    assert result.unusable is None
    assert result.reading.in_flight == sum(row.in_flight for row in counts)
    shows_queue = flow_control and profile != "gie-1.0"
    assert result.reading.flow_control_queue == (sum(row.queued for row in counts) if shows_queue else None)
    if shows_queue or not flow_control:
        assert result.reading.held_live == epp.pool.held == 40
    assert result.reading.ready == 3


@pytest.mark.parametrize("profile", READABLE)
def test_the_dialect_is_the_newest_on_the_page(profile: str) -> None:
    reading = read(make(profile), 6.0).reading
    prefix = PROFILES[profile].prefix or "inference_pool"
    assert reading.dialect is not None
    assert reading.dialect.rstrip("_*") == prefix
    assert reading.started_at == pytest.approx(1_795_983_082.0)


@pytest.mark.parametrize("profile", READABLE)
def test_the_first_seconds_have_no_means(profile: str) -> None:
    epp = make(profile)
    reading = read(epp, 4.9).reading
    assert (reading.ready_endpoints, reading.average_queue_size, reading.kv_cache_utilization) == (None, None, None)
    assert reading.ready == (3 if profile in LIVE_READY else None)
    assert read(epp, 5.0).reading.ready_endpoints == 3


@pytest.mark.parametrize("profile", ["gie-1.5", "router-dev", "v0.9", "v0.10", "main"])
def test_engine_means_are_those_of_the_last_tick(profile: str) -> None:
    epp = make(profile, flow_control=False)
    for _ in range(30):
        epp.submit(Flow(), 100.0, now=1.0)
    reading = read(epp, 6.0).reading
    assert (reading.average_running_requests, reading.average_queue_size) == (4, 6)
    for _ in range(30):
        epp.submit(Flow(), 100.0, now=7.0)
    later = read(epp, 9.9).reading
    assert (later.average_queue_size, later.in_flight) == (6, 60)
    assert read(epp, 10.0).reading.average_queue_size == 16


@pytest.mark.parametrize("profile", READABLE)
def test_a_late_reader_sees_the_tick_as_it_was(profile: str) -> None:
    epp = make(profile, flow_control=False)
    for _ in range(30):
        epp.submit(Flow(), 4.5, now=4.0)
    assert read(epp, 9.9).reading.average_queue_size == 6, "at 5 s thirty were held, at 9.9 s eighteen"


@pytest.mark.parametrize("profile", READABLE)
def test_a_loss_and_a_return_show_when_the_release_shows_them(profile: str) -> None:
    epp = make(profile)
    epp.submit(Flow(), 1.0, now=1.0)
    epp.advance(10.5)
    epp.pool.kill(10.5)
    live = profile in LIVE_READY
    assert read(epp, 10.8).reading.ready == (0 if live else 3)
    frozen = PROFILES[profile].freezes_ready
    reading = read(epp, 15.0).reading
    assert reading.ready_endpoints == (3 if frozen else 0)
    assert (reading.average_queue_size is None) is not frozen
    epp.advance(17.0)
    epp.pool.revive(17.0)
    assert read(epp, 17.1).reading.ready == (3 if live or frozen else 0)
    assert read(epp, 20.0).reading.ready == 3


def test_one_dead_endpoint_of_three() -> None:
    epp = make("v0.10")
    epp.advance(6.0)
    epp.pool.kill(6.0, "vllm-1")
    result = read(epp, 7.0)
    assert result.reading.ready_live == 2
    assert result.reading.ready_endpoints == 3
    assert Reason.ENDPOINTS_STALE in codes(result)
    assert result.reading.poll_errors == pytest.approx(20, abs=1)


def test_frozen_means_and_deleted_pools_are_named() -> None:
    epp = make("v0.9")
    epp.submit(Flow(), 1.0, now=1.0)
    epp.advance(6.0)
    epp.pool.kill(6.0)
    assert Reason.NO_READY_ENDPOINTS in codes(read(epp, 15.0))
    epp.pool.revive(15.0)
    epp.delete_pool(21.0)
    assert Reason.POOL_DELETED in codes(read(epp, 26.0))


@pytest.mark.parametrize("profile", ["gie-1.0", "gie-1.2", "gie-1.4"])
def test_old_releases_are_named_as_such(profile: str) -> None:
    epp = make(profile)
    assert Reason.MEANS_FLOORED in codes(read(epp, 6.0))


def test_the_round_robin_epp_has_nothing_to_read() -> None:
    result = read(make("lwepp"), 6.0)
    assert Reason.METRIC_MISSING in codes(result)
    assert result.unusable is not None


def test_a_restart_begins_anew() -> None:
    epp = make("v0.10")
    epp.submit(Flow(), 100.0, now=1.0)
    before = read(epp, 6.0).reading
    epp.restart(8.0)
    after = read(epp, 9.0).reading
    assert before.started_at is not None
    assert after.started_at == pytest.approx(before.started_at + 8.0)
    assert (after.ready_endpoints, after.in_flight) == (None, None)
    assert read(epp, 13.0).reading.ready_endpoints == 3


def test_callers_past_the_limit_are_counted_together() -> None:
    epp = make("v0.10", slots=2000)
    for number in range(MAX_TENANTS + 50):
        epp.submit(Flow(f"tenant-{number}"), 100.0, now=1.0)
    flows = epp.pool.flows()
    assert len(flows) == MAX_TENANTS + 1
    assert flows[Flow("other")].in_flight == 50
    assert read(epp, 2.0).reading.in_flight == MAX_TENANTS + 50
