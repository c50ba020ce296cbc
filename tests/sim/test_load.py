import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from itertools import count, cycle

import pytest

from grid.sim import load as load_module
from grid.sim.load import SteadyLoad
from tests.support.http_server import Answer, Handler, Request, serve
from tests.support.until import until


async def run(handler: Handler, enough: Callable[[SteadyLoad], bool], phase: str = "one") -> SteadyLoad:
    async with serve(handler) as url:
        load = SteadyLoad("edge", url, model="sim-model", rate=400.0, rng=random.Random(2))
        load.phase = phase
        end = asyncio.Event()
        task = asyncio.create_task(load.run(end))
        await until(lambda: enough(load))
        end.set()
        await task
        return load


def turns(*answers: Answer) -> Callable[[Request], Awaitable[Answer]]:
    order = cycle(answers)

    async def handler(request: Request) -> Answer:
        assert (request.method, request.target) == ("POST", "/v1/chat/completions")
        assert b'"model":"sim-model"' in request.body.replace(b" ", b"")
        return next(order)

    return handler


def good(site: str) -> Answer:
    return Answer(200, b"{}", {"x-grid-site": site})


async def test_steady_load_is_counted_by_where_it_was_answered() -> None:
    load = await run(turns(good("east"), good("west"), good("west")), lambda load: load.tally.requests >= 90)
    tally = load.tally
    assert (tally.errors, tally.shed) == (0, 0)
    assert sum(tally.answered.values()) == tally.requests
    assert tally.shares() == tally.shares("one") == {"east": pytest.approx(1 / 3, abs=0.02),
                                                     "west": pytest.approx(2 / 3, abs=0.02)}  # fmt: skip
    assert tally.shares("two") == {}
    assert 0 < tally.slowest < 30
    assert load.take_recent() == pytest.approx(tally.shares())
    assert load.take_recent() == {}


async def test_what_is_refused_for_load_is_shed_and_the_rest_is_lost() -> None:
    load = await run(turns(good("east"), Answer(429), Answer(503), Answer(500)), lambda load: load.tally.requests >= 80)
    tally = load.tally
    assert tally.shed == pytest.approx(tally.requests / 4, abs=2)
    assert tally.errors == pytest.approx(tally.requests / 2, abs=2)
    assert sum(tally.answered.values()) + tally.shed + tally.errors == tally.requests


async def test_an_answer_that_comes_too_late_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "PATIENCE", 0.5)
    numbers = count()

    async def handler(_: Request) -> Answer | None:
        number = next(numbers)
        if number == 3:
            await asyncio.sleep(60)
        return None if number == 4 else good("east")

    load = await run(handler, lambda load: load.tally.errors >= 2)
    assert load.tally.errors >= 2, "on a busy machine others may be late as well"
    assert load.tally.slowest < 5


@pytest.mark.may_block
async def test_a_stalled_client_sends_what_was_due_and_counts_it_from_then() -> None:
    stalled = asyncio.Event()

    async def handler(_: Request) -> Answer:
        if not stalled.is_set():
            stalled.set()
            time.sleep(0.5)  # noqa: ASYNC251 - the stall, of server and clients alike
        return good("east")

    load = await run(handler, lambda load: load.tally.requests >= 250)
    assert load.tally.errors == 0
    assert load.tally.slowest >= 0.5, "those that were due meanwhile have waited"


async def test_what_cannot_be_sent_in_time_is_lost_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "_MOST_AT_ONCE", 2)
    monkeypatch.setattr(load_module, "_WIND_UP", 0.0)
    held = asyncio.Event()

    async def handler(_: Request) -> Answer:
        await held.wait()
        return good("east")

    load = await run(handler, lambda load: load.tally.requests >= 40)
    held.set()
    assert load.tally.errors >= 38
    assert not load.tally.answered
