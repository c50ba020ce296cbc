import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from grid.config import parse
from grid.model import Picker
from grid.sim.demo_stage import MOST_SITES, World, as_text, configuration, make_sites, start_sites, write_token
from grid.sim.site import SimulatedSite
from tests.support.until import until


class Nobody:
    """An operator who only notes what is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def restart_bus(self) -> None:
        self.asked.append("restart_bus")

    async def drain(self, provider: str) -> None:
        self.asked.append(f"drain {provider}")

    async def undrain(self, provider: str) -> None:
        self.asked.append(f"undrain {provider}")


def _stale(site: SimulatedSite) -> bool:
    site.epp.advance(asyncio.get_running_loop().time())
    return all(engine.stale for engine in site.epp.pool.engines())


@pytest.fixture
async def sites() -> AsyncIterator[dict[str, SimulatedSite]]:
    made = make_sites(2, random.Random(1))
    await start_sites(made)
    yield made
    for site in made.values():
        await site.stop()


@pytest.mark.parametrize("count", [2, 3, MOST_SITES])
async def test_the_configuration_is_a_good_one(count: int, tmp_path: Path) -> None:
    sites = make_sites(count, random.Random(1))
    try:
        await start_sites(sites)
        config = parse(as_text(configuration(sites, tmp_path)))
    finally:
        for site in sites.values():
            await site.stop()
    network = config.to_network()
    assert set(network.providers) == set(network.sites) == set(sites)
    assert len(network.gateways) == 2
    assert {gateway.picker for gateway in network.gateways.values()} == {Picker.SATURATION}
    assert len({site.shape.profile for site in sites.values()}) == min(count, 6), "different dialects"


async def test_what_scenarios_do_to_a_site(sites: dict[str, SimulatedSite], tmp_path: Path) -> None:
    await asyncio.to_thread(write_token, tmp_path)
    token = {"authorization": f"Bearer {(tmp_path / 'epp.token').read_text()}"}
    operator = Nobody()
    world = World(sites, operator)
    east = sites["east"]
    assert world.victim == "east"
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as client:  # noqa: S501

        async def status() -> int:
            return (await client.get(east.metrics_url, headers=token)).status_code

        assert await status() == 200
        await world.spoil_token()
        assert await status() == 500
        await world.renew_token()
        assert await status() == 200
        await world.slow_page()
        with pytest.raises(httpx.ReadTimeout):
            await client.get(east.metrics_url, headers=token, timeout=httpx.Timeout(30, read=0.1))
        await world.quick_page()
        assert await status() == 200
    await world.fill()
    await until(lambda: east.held > east.shape.pool.capacity)
    await world.empty()
    assert east.held == 0
    await world.kill()
    await until(lambda: _stale(east))
    await world.revive()
    assert not _stale(east)
    for act in (world.restart_bus, world.drain, world.undrain):
        await act()
    assert operator.asked == ["restart_bus", "drain east", "undrain east"]
