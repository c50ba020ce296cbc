"""The whole chain on loopback: simulated sites, the daemon, an embedded bus, reference gateways, clients in a loop."""

import asyncio
import random
import time
from pathlib import Path
from statistics import mean

import pytest

from grid.sim.bench.sites import lost, shared
from grid.sim.sites import Outcomes, Setup, running
from tests.support.until import until

pytestmark = [pytest.mark.real_server, pytest.mark.timeout(300)]


def test_sites_of_unequal_size_are_shared_by_four_gateways() -> None:
    """A shorter and slower run of the bench, with bounds for a busy machine: there it is .03, 3 % and 95 %.

    Turns would give every site a third: .13 too much for the small one, of whose requests a quarter would find it full.
    """
    row = shared(Setup(service=0.4), 32, 6.0, random.Random(1), warm_up=4.0)
    assert row["shares"] == pytest.approx(row["ideal"], abs=0.11)
    assert row["met_full"] <= 0.2
    assert row["done_ratio"] >= 0.2
    assert row["failed"] == 0


def test_a_site_that_dies_under_load_loses_no_request() -> None:
    before, after = lost(Setup(gateways=2, service=0.5), 4.0, random.Random(2), warm_up=2.0)
    assert before["failed"] == after["failed"] == 0
    assert after["shares"].get("site-b", 0.0) <= 0.2, "at most what it had answered as it died; .4 while it lived"
    assert after["done_per_s"] >= before["done_per_s"] / 4, "20 clients are left of 36"
    assert after["slowest_ms"] < 15_000, "rescued or tried again: a request that stays there is lost after 30 s"


async def test_far_takes_only_what_near_cannot_hold(tmp_path: Path) -> None:
    setup = Setup(slots=(16, 16), gateways=1, service=0.4, near_first=True)
    async with running(setup, tmp_path, random.Random(3)) as field:
        near, far = field.sites["site-a"], field.sites["site-b"]

        async def held(clients: int, seconds: float) -> tuple[list[int], Outcomes]:
            found = Outcomes()
            load = asyncio.create_task(field.load(clients, seconds, found))
            await asyncio.sleep(seconds / 3)
            found.forget()
            seen: list[int] = []
            while not load.done() and len(seen) < 100 * seconds / 2:
                seen.append(near.held)
                await asyncio.sleep(0.01)
            await load
            return seen, found

        _, few = await held(10, 2.0)
        assert few.shares()["site-a"] > 0.75, "while near has room nothing goes farther"
        near_held, many = await held(26, 5.0)
        assert mean(near_held) >= 12, "near stays full"
        assert many.shares() == pytest.approx({"site-a": 16 / 26, "site-b": 10 / 26}, abs=0.12)
        assert (many.failed, few.failed) == ({}, {})
        assert far.met_full == 0
        _, again = await held(10, 2.0)
        assert again.shares()["site-a"] > 0.75, "and it takes them back"


async def test_a_filled_site_loses_new_traffic_within_a_scrape(tmp_path: Path) -> None:
    setup = Setup(slots=(16, 16), gateways=1, near_first=True, scrape_interval=0.5)
    async with running(setup, tmp_path, random.Random(4)) as field:
        near, far = field.sites["site-a"], field.sites["site-b"]
        outcomes = Outcomes()
        load = asyncio.create_task(field.load(4, 120.0, outcomes))
        await asyncio.sleep(1.5)
        assert far.held == 0
        near.fill(32)
        filled = time.monotonic()
        await until(lambda: far.held == 4)
        # One scrape interval, the frame that brings it (one a second), the request that was under way, and what a busy
        # machine adds.
        assert time.monotonic() - filled < 0.5 + 1.0 + 0.5 + 10.0
        assert outcomes.failed == {}
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
