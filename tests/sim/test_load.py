import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle

import pytest

from grid.model import Reason, RoutingError
from grid.sim.load import LoadGateway
from grid.sim.pool import Outcome, PoolShape
from grid.sim.site import SimulatedSite, SiteShape
from tests.support.until import until


@dataclass(frozen=True)
class Picked:
    site: str


class Turns:
    """Takes sites in turn; raises what it is given in place of a site."""

    def __init__(self, *turns: str | RoutingError) -> None:
        self._turns: Iterator[str | RoutingError] = cycle(turns)
        self.under_way = 0

    @contextmanager
    def route(self, model: str) -> Iterator[Picked]:
        assert model == "sim-model"
        turn = next(self._turns)
        if isinstance(turn, RoutingError):
            raise turn
        self.under_way += 1
        try:
            yield Picked(turn)
        finally:
            self.under_way -= 1


@pytest.fixture
async def sites() -> AsyncIterator[dict[str, SimulatedSite]]:
    made = {name: SimulatedSite(SiteShape(name, pool=PoolShape(2, 8), service=0.01)) for name in ("east", "west")}
    for site in made.values():
        await site.start()
    yield made
    for site in made.values():
        await site.stop()


async def run(
    router: Turns, sites: dict[str, SimulatedSite], enough: Callable[[LoadGateway], bool], failures: list[str]
) -> LoadGateway:
    gateway = LoadGateway(
        "edge", router, {name: site.url for name, site in sites.items()}, model="sim-model", rate=400.0,
        rng=random.Random(2), on_failure=lambda site, why: failures.append(f"{site}: {why}"),
    )  # fmt: skip
    gateway.phase = "one"
    end = asyncio.Event()
    task = asyncio.create_task(gateway.run(end))
    await until(lambda: enough(gateway))
    end.set()
    await task
    assert router.under_way == 0
    return gateway


async def test_steady_load_is_answered_and_shared_as_picked(sites: dict[str, SimulatedSite]) -> None:
    failures: list[str] = []
    gateway = await run(Turns("east", "west", "west"), sites, lambda g: g.tally.requests >= 90, failures)
    tally = gateway.tally
    assert (tally.errors, tally.shed, tally.retried, failures) == (0, 0, 0, [])
    assert sum(tally.answered.values()) == tally.requests
    assert tally.shares() == tally.shares("one") == {"east": pytest.approx(1 / 3, abs=0.02),
                                                     "west": pytest.approx(2 / 3, abs=0.02)}  # fmt: skip
    assert tally.shares("two") == {}
    assert gateway.take_recent() == pytest.approx(tally.shares())
    assert gateway.take_recent() == {}
    assert {name: site.outcomes[Outcome.ANSWERED] for name, site in sites.items()} == dict(tally.answered)


async def test_a_site_that_refuses_is_left_for_another_once(sites: dict[str, SimulatedSite]) -> None:
    await sites["east"].vanish()
    failures: list[str] = []
    gateway = await run(Turns("east", "east", "west"), sites, lambda g: g.tally.requests >= 60, failures)
    tally = gateway.tally
    assert tally.errors == 0
    assert tally.retried == len(failures) > 20
    assert set(tally.answered) == {"west"}
    assert all(failure.startswith("east: connection failed") for failure in failures)


async def test_a_request_that_fails_twice_is_an_error(sites: dict[str, SimulatedSite]) -> None:
    for site in sites.values():
        await site.vanish()
    gateway = await run(Turns("east", "west"), sites, lambda g: g.tally.errors >= 10, [])
    assert gateway.tally.errors == gateway.tally.retried == gateway.tally.requests


async def test_refusals_of_the_router_are_shed_or_errors(sites: dict[str, SimulatedSite]) -> None:
    full = RoutingError("full", reason=Reason.CAPACITY_EXHAUSTED, status=429, retry_after=3)
    none = RoutingError("none", reason=Reason.NO_HEALTHY_SITE, status=503, retry_after=3)
    gateway = await run(Turns("east", full, none), sites, lambda g: g.tally.requests >= 60, [])
    tally = gateway.tally
    assert tally.shed >= 19
    assert tally.errors >= 19
    assert tally.shed + tally.errors + sum(tally.answered.values()) == tally.requests
