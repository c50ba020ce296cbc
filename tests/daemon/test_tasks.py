import asyncio
from itertools import pairwise

import pytest
import structlog

from grid.daemon.tasks import Bell, TaskGuard

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_a_loop_goes_on_after_a_fault_with_growing_pauses() -> None:
    faults: list[str] = []
    runs: list[float] = []
    guard = TaskGuard(faults.append)

    async def step() -> None:
        runs.append(asyncio.get_running_loop().time())
        if len(runs) <= 7:
            raise ValueError("broken")
        await asyncio.sleep(5)

    with structlog.testing.capture_logs() as logged:
        guard.loop("cycle", step)
        await asyncio.sleep(110)
    await guard.stop()
    gaps = [later - earlier for earlier, later in pairwise(runs)]
    assert gaps[:8] == pytest.approx([1, 2, 4, 8, 16, 30, 30, 5], abs=0.01)
    assert faults == ["cycle"] * 7
    assert {(line["log_level"], line["task"]) for line in logged} == {("error", "cycle")}


async def test_a_success_makes_the_next_pause_short_again() -> None:
    runs: list[float] = []
    guard = TaskGuard()

    async def step() -> None:
        runs.append(asyncio.get_running_loop().time())
        if len(runs) != 3:
            raise ValueError("broken")

    with structlog.testing.capture_logs():
        guard.loop("x", step)
        await asyncio.sleep(5.5)
    await guard.stop()
    assert runs == pytest.approx([0, 1, 3, 3, 4], abs=0.01)


async def test_an_errand_that_fails_is_told() -> None:
    faults: list[str] = []
    guard = TaskGuard(faults.append)

    async def work() -> None:
        raise OSError("no disk")

    with structlog.testing.capture_logs() as logged:
        task = guard.errand("scrape east", work)
        await asyncio.wait([task])
    assert faults == ["scrape east"]
    assert logged[0]["exc_info"]
    await asyncio.sleep(0)
    assert len(guard) == 0


async def test_tasks_carry_their_names() -> None:
    guard = TaskGuard()
    task = guard.errand("scrape east", lambda: asyncio.sleep(1))
    assert task.get_name() == "scrape east"
    await guard.stop()


async def test_stop_waits_for_one_that_resists() -> None:
    guard = TaskGuard()
    seen: list[str] = []

    async def stubborn() -> None:
        for _ in range(2):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("no")
        await asyncio.sleep(60)

    guard.errand("stubborn", stubborn)
    other = guard.errand("other", lambda: asyncio.sleep(60))
    await asyncio.sleep(0)
    await guard.stop()
    assert seen == ["no", "no"]
    assert other.cancelled()
    assert len(guard) == 0


async def test_stop_of_some_leaves_the_others() -> None:
    guard = TaskGuard()
    one = guard.errand("one", lambda: asyncio.sleep(60))
    two = guard.errand("two", lambda: asyncio.sleep(60))
    await guard.stop({one})
    assert one.cancelled()
    assert not two.done()
    await guard.stop()


async def test_rings_are_joined() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert await bell.wait(1)
    assert not await bell.wait(1)
    asyncio.get_running_loop().call_later(3, bell.ring)
    assert await bell.wait()
    assert asyncio.get_running_loop().time() == pytest.approx(4, abs=0.01)
