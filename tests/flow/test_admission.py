"""The shell: waits, cancellations at every point, faults; on a loop whose time is virtual."""

import asyncio
import contextlib
import random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from grid.flow import Admission, AdmissionCore, AdmissionPolicy, Band, PoolSignal
from grid.model import AdmissionError, Reason
from tests.flow.build import MODEL, signal

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


def admission(*pools: PoolSignal, bands: tuple[Band, ...] = (Band("only", 0.0),), **more: Any) -> Admission:
    policy = {key: more.pop(key) for key in ("max_queued", "max_wait", "by_cost", "quantum", "lease") if key in more}
    made = Admission(AdmissionPolicy(bands=bands, **policy), tenant_key=b"test", **more)
    known = pools or (signal(slots=1),)
    made.reroute({MODEL: tuple(pool.key for pool in known)})
    made.update(known)
    return made


def core_of(made: Admission) -> AdmissionCore:
    assert made._core is not None
    return made._core


async def hold(made: Admission, seconds: float, log: list[str] | None = None, name: str = "", **more: Any) -> None:
    async with made.slot(MODEL, **more):
        if log is not None:
            log.append(name)
        await asyncio.sleep(seconds)


async def turn() -> None:
    await asyncio.sleep(0)


def outcome(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(
        "grid_flow_requests_total", {"band": "only", "model": MODEL, "tenant_class": "none", "outcome": name} | labels
    )


async def test_a_slot_is_given_at_the_door_and_waited_for_when_taken() -> None:
    made = admission()
    start = asyncio.get_running_loop().time()
    log: list[str] = []
    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(hold(made, 2.0, log, name))
    assert log == ["a", "b", "c"]
    assert asyncio.get_running_loop().time() - start == pytest.approx(6.0)
    assert (core_of(made).slots, made.waiting) == (0, 0)


async def test_the_slot_says_what_it_is() -> None:
    made = admission(signal("east", held=8), signal("west", held=2), bands=(Band("gold", 0.0), Band("bronze", 0.0)))
    async with made.slot(MODEL, band="gold") as slot:
        assert (slot.band, slot.waited, slot.allowed, slot.pool) == ("gold", 0.0, ("west",), "west")
        assert slot.bind("west")
        assert not slot.bind("east")
        assert slot.pool == "east"
    async with made.slot(MODEL, band="nonesuch") as slot:
        assert slot.band == "bronze"
    async with made.slot("nonesuch") as slot:
        assert (slot.allowed, slot.pool, slot.future) == ((), None, None)
        assert slot.bind("anywhere")


async def test_exactly_those_who_may_go_are_woken() -> None:
    made = admission(signal(slots=2))
    running = [asyncio.create_task(hold(made, 10.0)) for _ in range(2)]
    waiting = [made.slot(MODEL) for _ in range(10)]
    await turn()
    assert [slot.open() for slot in waiting] == [False] * 10
    await asyncio.gather(*running)
    futures = [slot.future for slot in waiting]
    assert [future is not None and future.done() for future in futures] == [True] * 2 + [False] * 8
    for slot in waiting:
        slot.close()
    assert core_of(made).slots == 0


async def test_waiting_takes_no_task_and_one_timer() -> None:
    made = admission(max_wait=30.0)
    await turn()
    tasks = len(asyncio.all_tasks())
    slots = [made.slot(MODEL) for _ in range(500)]
    for slot in slots:
        slot.open()
    assert len(asyncio.all_tasks()) == tasks
    timers = [handle for handle in asyncio.get_running_loop()._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
    assert len(timers) == 1
    for slot in slots:
        slot.close()
    made.close()


async def test_waiting_too_long_is_an_error_that_says_so() -> None:
    registry = CollectorRegistry()
    made = admission(max_wait=3.0, registry=registry)
    holder = asyncio.create_task(hold(made, 10.0))
    await turn()
    start = asyncio.get_running_loop().time()
    with pytest.raises(AdmissionError) as caught:
        await hold(made, 1.0)
    assert asyncio.get_running_loop().time() - start == pytest.approx(3.0)
    error = caught.value
    assert (error.reason, error.status) == (Reason.QUEUE_TIMEOUT, 504)
    assert error.retry_after in range(1, 61)
    assert "after 3 s" in error.message
    await holder
    assert outcome(registry, "queue_timeout") == 1
    assert outcome(registry, "granted") == 1


async def test_the_timer_follows_the_nearest_deadline() -> None:
    made = admission(max_wait=30.0)
    holder = asyncio.create_task(hold(made, 60.0))
    await turn()
    late = asyncio.create_task(hold(made, 1.0))
    await asyncio.sleep(1.0)
    start = asyncio.get_running_loop().time()
    with pytest.raises(AdmissionError):
        await hold(made, 1.0, deadline=2.0)
    assert asyncio.get_running_loop().time() - start == pytest.approx(2.0)
    with pytest.raises(AdmissionError):
        await late
    assert asyncio.get_running_loop().time() - start == pytest.approx(29.0)
    await holder


async def test_a_full_queue_is_an_error_at_once() -> None:
    made = admission(max_queued=1)
    first, second = made.slot(MODEL), made.slot(MODEL)
    assert first.open()
    assert not second.open()
    with pytest.raises(AdmissionError) as caught:
        await hold(made, 1.0)
    assert (caught.value.reason, caught.value.status) == (Reason.QUEUE_FULL, 503)
    second.close()
    first.close()


async def test_who_is_pushed_out_by_another_tenant_hears_of_it() -> None:
    made = admission(max_queued=2)
    holder = asyncio.create_task(hold(made, 10.0))
    await turn()
    loud = [asyncio.create_task(hold(made, 1.0, tenant="loud")) for _ in range(2)]
    await turn()
    quiet = asyncio.create_task(hold(made, 1.0, tenant="quiet"))
    with pytest.raises(AdmissionError) as caught:
        await loud[1]
    assert caught.value.reason is Reason.QUEUE_FULL
    await asyncio.gather(holder, loud[0], quiet)


async def test_a_deadline_that_cannot_be_kept_is_refused() -> None:
    made = admission()
    async with made.slot(MODEL):
        with pytest.raises(AdmissionError) as caught:
            await hold(made, 1.0, deadline=0.0)
    assert (caught.value.reason, caught.value.status) == (Reason.ADMISSION_REFUSED, 503)


# --- cancellation ---------------------------------------------------------------------------------------------------


async def test_cancelled_while_waiting_it_leaves_nothing() -> None:
    registry = CollectorRegistry()
    made = admission(registry=registry)
    holder = asyncio.create_task(hold(made, 10.0))
    waiting = asyncio.create_task(hold(made, 1.0))
    await turn()
    await turn()
    assert made.waiting == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (made.waiting, core_of(made).waiting) == (0, 0)
    await holder
    assert core_of(made).slots == 0
    assert outcome(registry, "cancelled") == 1


async def test_the_slot_goes_on_when_head_waiter_and_holder_go_in_the_same_turn() -> None:
    made = admission()
    holder, head = made.slot(MODEL), asyncio.create_task(hold(made, 5.0))
    assert holder.open()
    nxt = asyncio.create_task(hold(made, 1.0))
    await turn()
    holder.close()  # the slot is the head's now
    head.cancel()  # and it is gone before it could run
    with pytest.raises(asyncio.CancelledError):
        await head
    await asyncio.wait_for(nxt, 2.0)
    assert core_of(made).slots == 0


async def test_the_slot_goes_on_when_the_head_is_cancelled_before_the_holder_goes() -> None:
    made = admission()
    holder, head = made.slot(MODEL), asyncio.create_task(hold(made, 5.0))
    assert holder.open()
    nxt = asyncio.create_task(hold(made, 1.0))
    await turn()
    head.cancel()
    holder.close()
    with pytest.raises(asyncio.CancelledError):
        await head
    await asyncio.wait_for(nxt, 2.0)
    assert core_of(made).slots == 0


async def test_cancelled_while_it_holds_the_slot_it_gives_it_back() -> None:
    made = admission()
    holder = asyncio.create_task(hold(made, 100.0))
    await turn()
    nxt = asyncio.create_task(hold(made, 1.0))
    await turn()
    holder.cancel()
    await asyncio.wait_for(nxt, 2.0)
    assert core_of(made).slots == 0


async def test_an_error_in_the_body_gives_the_slot_back() -> None:
    made = admission()
    with pytest.raises(RuntimeError):
        async with made.slot(MODEL):
            raise RuntimeError("no")
    assert core_of(made).slots == 0


async def test_a_thousand_waits_cancelled_at_random_leave_ten_free_slots() -> None:
    rng = random.Random(7)
    made = admission(signal(slots=10), max_queued=2000)
    tasks = [asyncio.create_task(hold(made, rng.random())) for _ in range(1000)]
    for task in rng.sample(tasks, 900):
        asyncio.get_running_loop().call_later(rng.random() * 5, task.cancel)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (core_of(made).slots, made.waiting) == (0, 0)
    slots = [made.slot(MODEL) for _ in range(11)]
    assert [slot.open() for slot in slots] == [True] * 10 + [False]
    for slot in slots:
        slot.close()


async def test_leaving_from_outside_ends_a_wait() -> None:
    made = admission()
    holder, slot = made.slot(MODEL), made.slot(MODEL)
    assert holder.open()
    assert not slot.open()
    slot.leave()
    assert (made.waiting, slot.future) == (0, None)
    holder.close()
    assert core_of(made).slots == 0


# --- the world ------------------------------------------------------------------------------------------------------


async def test_room_that_a_sample_brings_wakes_who_waits() -> None:
    made = admission(signal(slots=1, held=1))
    waiting = asyncio.create_task(hold(made, 1.0))
    await asyncio.sleep(1.0)
    made.update([signal(slots=2, held=1)])
    await asyncio.wait_for(waiting, 1.5)


async def test_a_sample_that_grows_too_old_opens_the_pool_by_own_count() -> None:
    made = admission(signal(slots=1, held=1, bound=5.0))
    start = asyncio.get_running_loop().time()
    await hold(made, 0.0)
    assert asyncio.get_running_loop().time() - start == pytest.approx(5.0)
    assert made.describe()["pools"][0]["state"] == "stale"


async def test_a_new_route_wakes_who_waits() -> None:
    made = admission(signal("east", held=8))
    waiting = asyncio.create_task(hold(made, 1.0))
    await turn()
    made.reroute({})
    await asyncio.wait_for(waiting, 1.5)


async def test_the_cost_in_the_end_corrects_the_turns() -> None:
    made = admission(by_cost=True, quantum=10)
    log: list[str] = []
    holder = made.slot(MODEL)
    holder.open()

    async def spend(tenant: str) -> None:
        async with made.slot(MODEL, tenant=tenant, cost=10) as slot:
            log.append(tenant)
            await asyncio.sleep(1.0)
            slot.spent(40 if tenant == "a" else 10)

    async with asyncio.TaskGroup() as group:
        for name in "aaabbb":
            group.create_task(spend(name))
        await turn()
        holder.close()
    assert "".join(log) == "abbbaa"


async def test_shutting_down_refuses_who_waits_and_who_comes() -> None:
    made = admission()
    holder = asyncio.create_task(hold(made, 10.0))
    waiting = asyncio.create_task(hold(made, 1.0))
    await turn()
    await turn()
    made.close()
    for task in (waiting, asyncio.create_task(hold(made, 1.0))):
        with pytest.raises(AdmissionError) as caught:
            await task
        assert (caught.value.reason, caught.value.status) == (Reason.ADMISSION_REFUSED, 503)
    await holder
    assert core_of(made).slots == 0


# --- faults ---------------------------------------------------------------------------------------------------------


def breaking(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    for name in names:
        monkeypatch.setattr(AdmissionCore, name, fail)


async def test_a_fault_at_the_door_lets_the_request_through_and_is_counted_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = CollectorRegistry()
    made = admission(registry=registry)
    with capture_logs() as logs:
        with monkeypatch.context() as patch:
            breaking(patch, "arrive")
            for _ in range(5):
                await hold(made, 1.0)
            await asyncio.sleep(60.0)
            await hold(made, 1.0)
        await hold(made, 1.0)
    assert made.faults == 6
    assert [entry["unlogged"] for entry in logs] == [0, 4], "once a minute"
    assert registry.get_sample_value("grid_flow_faults_total") == 6
    assert outcome(registry, "bypassed") == 6
    assert outcome(registry, "granted") == 1
    assert made.describe()["bypassed"] == 0


async def test_requests_let_through_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = admission(hard_limit=3)
    breaking(monkeypatch, "arrive")
    with capture_logs():
        slots = [made.slot(MODEL) for _ in range(4)]
        assert [slot.open() for slot in slots[:3]] == [True] * 3
        with pytest.raises(AdmissionError) as caught:
            slots[3].open()
        assert (caught.value.reason, caught.value.status) == (Reason.ADMISSION_REFUSED, 503)
        assert slots[0].bind("anywhere")
        slots[0].close()
        slots[0].close()
        assert slots[3].open()
    assert made.describe()["bypassed"] == 3


async def test_who_waits_when_it_breaks_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    made = admission()
    holder = made.slot(MODEL)
    holder.open()
    waiting = [asyncio.create_task(hold(made, 1.0)) for _ in range(3)]
    await turn()
    with monkeypatch.context() as patch, capture_logs():
        breaking(patch, "finished")
        holder.close()
    await asyncio.wait_for(asyncio.gather(*waiting), 1.5)
    assert made.faults == 1
    assert core_of(made).pools["east"].signal.max_running == 1, "the new core knows what the old one was told"
    assert core_of(made).slots == 0


async def test_a_fault_of_a_core_that_is_gone_breaks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = admission(signal(slots=2))
    old = made.slot(MODEL)
    old.open()
    with monkeypatch.context() as patch, capture_logs():
        breaking(patch, "arrive")
        made.slot(MODEL).open()
    renewed = core_of(made)
    with monkeypatch.context() as patch, capture_logs():
        breaking(patch, "finished")
        old.close()
    assert core_of(made) is renewed
    assert made.faults == 2


async def test_a_fault_in_start_or_bind_costs_nobody_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    made = admission()
    with monkeypatch.context() as patch, capture_logs():
        breaking(patch, "started", "bind")
        async with made.slot(MODEL) as slot:
            assert slot.bind("east")
    assert made.faults == 2


async def test_what_cannot_even_be_made_anew_lets_all_through_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    made = admission(hard_limit=2)
    with monkeypatch.context() as patch, capture_logs():
        breaking(patch, "update", "reroute")
        made.update([signal(slots=1)])
        assert "pools" not in made.describe()
        await hold(made, 1.0)
        made.reroute({MODEL: ("east",)})
    made.update([signal(slots=1)])
    first, second = made.slot(MODEL), made.slot(MODEL)
    assert [first.open(), second.open()] == [True, False]
    second.close()
    first.close()


async def test_a_fault_of_the_timer_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    made = admission(max_wait=2.0)
    holder = asyncio.create_task(hold(made, 10.0))
    await turn()
    with monkeypatch.context() as patch, capture_logs():
        breaking(patch, "tick")
        await asyncio.wait_for(hold(made, 0.5), 3.0)
    assert made.faults == 1
    await holder


async def test_ages_count_on_when_a_core_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made = admission(signal(slots=4, held=4, age=1.0, bound=20.0))
    await asyncio.sleep(5.0)
    with monkeypatch.context() as patch, capture_logs():
        breaking(patch, "arrive")
        await hold(made, 0.0)
    pool = core_of(made).pools["east"]
    assert pool.stale_at - asyncio.get_running_loop().time() == pytest.approx(14.0)


async def test_leaving_is_possible_at_any_time() -> None:
    made = admission()
    slot = made.slot(MODEL)
    slot.leave()
    slot.close()
    with contextlib.suppress(AdmissionError):
        await slot.wait()
    async with made.slot(MODEL):
        pass
    assert core_of(made).slots == 0
