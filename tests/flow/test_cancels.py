"""A hundred thousand requests, each cancelled at a random moment: nothing may be left of them."""

import asyncio
import gc
import random

import pytest

from grid.flow import Admission, AdmissionPolicy, Band, PoolSignal, Slot
from tests.flow.build import MODEL, signal

BATCH = 5000


async def hold(admission: Admission, turns: int, band: str, tenant: str) -> None:
    async with admission.slot(MODEL, band=band, tenant=tenant):
        for _ in range(turns):
            await asyncio.sleep(0)


async def batch(admission: Admission, rng: random.Random) -> list[BaseException | None]:
    """Most wait for a slot when they are cancelled; some never ran, some hold one, some are being woken."""
    tasks = [
        asyncio.create_task(hold(admission, rng.randrange(4), rng.choice(("high", "low")), f"t{rng.randrange(200)}"))
        for _ in range(BATCH)
    ]
    for task in rng.sample(tasks, BATCH // 10):
        task.cancel()
    await asyncio.sleep(0)
    assert admission.waiting > BATCH // 2
    rng.shuffle(tasks)
    for number, task in enumerate(tasks):
        task.cancel()
        if number % 20 == 0:
            await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.timeout(600)
async def test_a_hundred_thousand_random_cancels_leave_nothing() -> None:
    rng = random.Random(13)
    admission = Admission(
        AdmissionPolicy(bands=(Band("high", 1.0), Band("low", 0.5)), max_queued=BATCH), tenant_key=b"test"
    )
    pools: list[PoolSignal] = [signal("east", slots=40), signal("west", slots=24)]
    admission.reroute({MODEL: ("east", "west")})
    admission.update(pools)
    before = len(asyncio.all_tasks())
    served = gone = 0
    for _ in range(20):
        ended = await batch(admission, rng)
        assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ended)
        served += ended.count(None)
        gone += len(ended) - ended.count(None)
    assert served + gone == 100_000
    assert served > 1000, "slots went on from one to the next all the while"
    core = admission._core
    assert core is not None
    assert (core.slots, core.waiting, admission.waiting) == (0, 0, 0)
    assert (len(core._leases), len(core._expiries)) == (0, 0)
    assert all(pool.used == pool.own == pool.leases == 0 for pool in core.pools.values())
    assert len(asyncio.all_tasks()) == before
    admission.close()
    del ended
    await asyncio.sleep(0)  # the loop itself holds on to the last errors until it turns
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, Slot)]
    assert admission.faults == 0
