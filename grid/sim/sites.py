"""Sites, a daemon and reference gateways on loopback, and clients in a closed loop.

Everything real but the engines: EPP pages are scraped, documents and frames go over an embedded bus, requests through
the gateways' sockets. By default the published set-up divided by eight: slots of 16, 16 and 8, 200 ms a request, and
four gateways.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import aiohttp
import yaml

from grid.config import Config, parse
from grid.daemon import Daemon
from grid.gateway import Status
from grid.proxy.gateway import Gateway
from grid.sim.pool import PoolShape
from grid.sim.site import SimulatedSite, SiteShape

MODEL: Final = "sim-model"
_READY_WITHIN: Final = 20.0
_TIMEOUT: Final = 30.0
_SPREAD: Final = 0.01
"""Part of the service time either way, or clients would march in step for ever."""


@dataclass(frozen=True, slots=True)
class Setup:
    """``slots`` by site, all in one region; the first is where gateways are. ``service``: s an engine needs.

    ``near_first``: the first site comes before the others, which is what its being at the gateways' place means.
    """

    slots: tuple[int, ...] = (16, 16, 8)
    gateways: int = 4
    service: float = 0.2
    near_first: bool = False
    scrape_interval: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The sites."""
        return tuple(f"site-{letter}" for letter in "abcdefghijkl"[: len(self.slots)])


@dataclass(slots=True)
class Outcomes:
    """What clients saw. ``served`` until the end of the load, by site; ``took`` in s, of all; ``failed`` by status."""

    served: Counter[str] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    took: list[float] = field(default_factory=list)

    def forget(self) -> None:
        """Begin anew."""
        self.served.clear()
        self.failed.clear()
        self.took.clear()

    def shares(self) -> dict[str, float]:
        """Fractions of the answered requests by site."""
        total = sum(self.served.values())
        return {site: count / total for site, count in sorted(self.served.items())} if total else {}

    def quantile(self, part: float) -> float:
        """Within how many s that part of the requests was answered."""
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


class Field:
    """The running set-up. ``sites`` by name."""

    def __init__(self, setup: Setup, sites: Mapping[str, SimulatedSite], gateways: Sequence[Gateway]) -> None:
        self.setup = setup
        self.sites = sites
        self.gateways = gateways

    async def load(self, clients: int, seconds: float, outcomes: Outcomes | None = None) -> Outcomes:
        """Let ``clients``, spread over the gateways, send one request after the other for so long."""
        found = outcomes if outcomes is not None else Outcomes()
        end = asyncio.get_running_loop().time() + seconds
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            urls = [gateway.url for gateway in self.gateways]
            await asyncio.gather(
                *(
                    # One after the other, or all would begin in the same instant.
                    self._client(session, urls[number % len(urls)], self.setup.service * number / clients, end, found)
                    for number in range(clients)
                )
            )
        return found

    async def _client(
        self, session: aiohttp.ClientSession, url: str, delay: float, end: float, outcomes: Outcomes
    ) -> None:
        await asyncio.sleep(delay)
        loop = asyncio.get_running_loop()
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Where am I?"}]}
        while loop.time() < end:
            began = perf_counter()
            try:
                async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                    await answer.read()
                    status, site = answer.status, answer.headers.get("x-grid-site", "")
            except (aiohttp.ClientError, TimeoutError):
                status, site = 0, ""
            if status == 200:
                outcomes.served[site] += loop.time() <= end
                outcomes.took.append(perf_counter() - began)
            else:
                outcomes.failed[status] += 1
                await asyncio.sleep(0.05)

    @property
    def met_full(self) -> int:
        """Requests that came to a site whose every slot was taken."""
        return sum(site.met_full for site in self.sites.values())


@asynccontextmanager
async def running(setup: Setup, folder: Path, rng: random.Random) -> AsyncIterator[Field]:
    """Everything begun, and every gateway with a document and a frame."""
    sites = {
        name: SimulatedSite(
            SiteShape(name, models=(MODEL,), pool=PoolShape(1, slots), service=setup.service, spread=_SPREAD),
            rng=random.Random(rng.getrandbits(64)),
            uptime=61.0,
        )
        for name, slots in zip(setup.names, setup.slots, strict=True)
    }
    async with AsyncExitStack() as stack:
        for site in sites.values():
            stack.push_async_callback(site.stop)
            await site.start()
        config = parse(yaml.safe_dump(configuration(setup, sites, folder)))
        daemon = Daemon(config)
        stack.push_async_callback(daemon.stop)
        await daemon.start()
        gateways = [await _gateway(stack, config, number, rng) for number in range(setup.gateways)]
        async with asyncio.timeout(_READY_WITHIN):
            while not all(_ready(gateway, len(sites)) for gateway in gateways):  # noqa: ASYNC110 - they are many
                await asyncio.sleep(0.02)
        yield Field(setup, sites, gateways)


async def _gateway(stack: AsyncExitStack, config: Config, number: int, rng: random.Random) -> Gateway:
    gateway = Gateway(config, f"edge-{number}", rng=random.Random(rng.getrandbits(64)))
    stack.push_async_callback(gateway.stop)
    await gateway.start()
    return gateway


def _ready(gateway: Gateway, sites: int) -> bool:
    known = [target for target in gateway.client.targets if target.known]
    return gateway.client.state.status is Status.SYNCED and len(known) == sites


def configuration(setup: Setup, sites: Mapping[str, SimulatedSite], folder: Path) -> dict[str, Any]:
    """The whole network's configuration, as its file would have it."""
    slots = dict(zip(setup.names, setup.slots, strict=True))
    return {
        "network": "sites",
        "daemon": {
            "listen": "127.0.0.1:0",
            "scrape_interval": f"{setup.scrape_interval:g}s",
            "state_dir": str(folder / "state"),
        },
        "bus": {"url": "embedded", "lease": "3s"},
        "sites": {name: {"region": "eu", "zone": "eu-1"} for name in sites}
        | {"edge": {"region": "eu", "zone": "eu-1"}},
        "providers": {
            name: {
                "site": name,
                "cluster": f"{name}-sim",
                "url": site.url,
                "models": [MODEL],
                "source": {"epp": site.metrics_url},
                "max_running": slots[name],
            }
            for name, site in sites.items()
        },
        "gateways": {
            f"edge-{number}": {
                "site": setup.names[0] if setup.near_first else "edge",
                "picker": "saturation",
                **setup.settings,
            }
            for number in range(setup.gateways)
        },
    }
