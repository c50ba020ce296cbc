import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import pytest

from grid.signals.scan import read_page
from grid.sim.pool import Outcome, PoolShape
from grid.sim.site import SimulatedSite, SiteShape
from tests.bus.waiting import eventually
from tests.support.until import until

SHAPE = SiteShape("east", profile="v0.10", pool=PoolShape(endpoints=2, slots=4), service=0.02)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60, limits=limits) as made:  # noqa: S501
        yield made


@pytest.fixture
async def site() -> AsyncIterator[SimulatedSite]:
    made = SimulatedSite(SHAPE, rng=random.Random(5))
    await made.start()
    yield made
    await made.stop()


def ask(client: httpx.AsyncClient, site: SimulatedSite, **extra: object) -> "asyncio.Task[httpx.Response]":
    body = {"model": "sim-model", "messages": [], **extra}
    headers = {"x-llm-d-inference-fairness-id": "tenant-1"}
    return asyncio.ensure_future(client.post(f"{site.url}/v1/chat/completions", json=body, headers=headers))


async def test_requests_are_answered_and_counted(site: SimulatedSite, client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(ask(client, site) for _ in range(60)))
    assert Counter(answer.status_code for answer in answers) == {200: 60}
    assert answers[0].json()["choices"][0]["message"]["content"] == "answered at east"
    assert site.outcomes[Outcome.ANSWERED] == 60
    assert site.held == 0
    page = (await client.get(site.metrics_url)).content
    assert b'llm_d_epp_request_total{fairness_id="tenant-1"' in page
    assert read_page(page).reading.in_flight == 0


async def test_other_paths(site: SimulatedSite, client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{site.url}/health")).status_code == 200
    assert (await client.get(f"{site.url}/v1/models")).json()["data"][0]["id"] == "sim-model"
    assert (await client.get(f"{site.url}/nothing")).status_code == 404
    assert (await client.post(f"{site.url}/v1/completions", content=b"{")).status_code == 400
    assert (await client.post(f"{site.url}/v1/completions", json={"model": "x"})).status_code == 404
    assert (await client.get(site.metrics_url.removesuffix("metrics"))).status_code == 404


async def test_a_streamed_answer(site: SimulatedSite, client: httpx.AsyncClient) -> None:
    answer = await ask(client, site, stream=True)
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert answer.headers["content-type"] == "text/event-stream"
    assert (len(events), events[-1]) == (6, "[DONE]")
    assert site.held == 0


async def test_a_filled_site_shows_it(site: SimulatedSite, client: httpx.AsyncClient) -> None:
    site.fill(30)
    await until(lambda: site.held == 30)

    async def shown() -> bool:  # between an answer and the next request there are fewer for a moment
        return read_page((await client.get(site.metrics_url)).content).reading.held_live == 30

    await eventually(shown)
    await site.empty()
    assert site.held == 0
    assert site.outcomes[Outcome.ANSWERED] == 0, "its own clients are not counted"


async def test_a_client_that_hangs_up_leaves_nothing_behind(client: httpx.AsyncClient) -> None:
    site = SimulatedSite(SiteShape("slow", pool=PoolShape(1, 1), service=60.0))
    await site.start()
    try:
        first, second = ask(client, site), ask(client, site, stream=True)
        await until(lambda: site.held == 2)
        first.cancel()
        second.cancel()
        await until(lambda: site.held == 0)
        assert site.outcomes[Outcome.CANCELLED] == 2
    finally:
        await site.stop()


@pytest.mark.parametrize("stream", [False, True])
async def test_killed_engines_lose_requests_and_the_epp_holds_new_ones(client: httpx.AsyncClient, stream: bool) -> None:
    site = SimulatedSite(SiteShape("east", pool=PoolShape(1, 2), service=0.5), rng=random.Random(1))
    await site.start()
    try:
        lost = ask(client, site, stream=stream)
        await until(lambda: site.held == 1)
        await asyncio.sleep(0)
        site.kill()
        try:
            assert (await lost).status_code == 503
        except httpx.RemoteProtocolError:
            assert stream, "only a stream may break half-way"
        assert site.outcomes[Outcome.LOST] == 1
        await until(lambda: all(engine.stale for engine in site.epp.pool.engines()) or _advance(site))
        assert (await client.get(f"{site.url}/health")).status_code == 503
        held = ask(client, site, stream=stream)
        await until(lambda: site.held == 1)
        assert read_page((await client.get(site.metrics_url)).content).reading.ready == 0
        assert not held.done()
        await site.revive()
        assert (await held).status_code == 200
        assert read_page((await client.get(site.metrics_url)).content).reading.ready == 1
    finally:
        await site.stop()


def _advance(site: SimulatedSite) -> bool:
    site.epp.advance(asyncio.get_running_loop().time())
    return False


async def test_a_vanished_site_refuses_connections_and_returns_on_its_ports(
    site: SimulatedSite, client: httpx.AsyncClient
) -> None:
    urls = (site.url, site.metrics_url)
    assert (await ask(client, site)).status_code == 200
    await site.vanish()
    with pytest.raises(httpx.TransportError):
        await ask(client, site)
    with pytest.raises(httpx.ConnectError):
        await client.get(site.metrics_url)
    await site.revive()
    assert (site.url, site.metrics_url) == urls
    assert (await ask(client, site)).status_code == 200


async def test_a_draining_epp_refuses_scrapes_and_routes_on(site: SimulatedSite, client: httpx.AsyncClient) -> None:
    await site.refuse_scrapes()
    with pytest.raises(httpx.ConnectError):
        await client.get(site.metrics_url)
    assert (await ask(client, site)).status_code == 200
    await site.revive()
    assert (await client.get(site.metrics_url)).status_code == 200


async def test_without_flow_control_a_dead_site_says_503(client: httpx.AsyncClient) -> None:
    site = SimulatedSite(SiteShape("old", profile="gie-1.5", pool=PoolShape(1, 2, flow_control=False), service=0.02))
    await site.start()
    try:
        site.kill()
        await until(lambda: _advance(site) or all(engine.stale for engine in site.epp.pool.engines()))
        answer = await ask(client, site)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "rejected")
        assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"
    finally:
        await site.stop()


async def test_a_page_that_wants_a_token_and_one_that_is_slow(site: SimulatedSite, client: httpx.AsyncClient) -> None:
    site.token = "right"
    assert (await client.get(site.metrics_url)).status_code == 401
    right = {"authorization": "Bearer right"}
    assert (await client.get(site.metrics_url, headers=right)).status_code == 200
    site.page_delay = 30.0
    with pytest.raises(httpx.ReadTimeout):
        await client.get(site.metrics_url, headers=right, timeout=httpx.Timeout(30, read=0.1))


async def test_chaos_conserves_requests(client: httpx.AsyncClient) -> None:
    """Kills, hangs and returns under load: every request ends once, and none is left."""
    rng = random.Random(11)
    shape = SiteShape("east", pool=PoolShape(endpoints=2, slots=2), service=0.01)
    site = SimulatedSite(shape, rng=rng)
    await site.start()
    try:
        asked = [ask(client, site, stream=number % 3 == 0) for number in range(120)]
        for _ in range(15):
            await asyncio.sleep(0.01)
            rng.choice((site.kill, site.hang))()
            await asyncio.sleep(0.01)
            await site.revive()
        results = await asyncio.gather(*asked, return_exceptions=True)
        good = sum(isinstance(answer, httpx.Response) and answer.status_code == 200 for answer in results)
        assert all(isinstance(answer, httpx.Response | httpx.TransportError) for answer in results)
        assert site.held == 0
        assert sum(site.outcomes.values()) == 120
        assert site.outcomes[Outcome.ANSWERED] == good > 0
    finally:
        await site.stop()
