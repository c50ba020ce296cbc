"""The simulated world of a demo: sites in several dialects, their configuration, and what is done to them."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

from grid.sim.epp_page import PROFILES
from grid.sim.pool import PoolShape
from grid.sim.site import SimulatedSite, SiteShape

NETWORK = "demo"
MODEL = "sim-model"
GATEWAY_PREFIX = "edge"

SLOTS = 8
ENDPOINTS = 2
SERVICE = 0.4
GATEWAY_LOAD = 0.4
"""Load of one gateway, as a part of what one site can do: with two gateways one site may fail and the others hold."""
FILLED = 1.3
"""Requests that a filled site holds from clients of its own, as a part of its slots."""
SCRAPE_INTERVAL = 1.0
SCRAPE_TIMEOUT = 1.0

_NAMES = ("east", "west", "north", "south", "alpha", "bravo", "coral", "delta", "ember", "fjord", "grove", "haven")
_REGIONS = (
    ("eu-west", "eu-west-1a"),
    ("eu-west", "eu-west-1b"),
    ("us-east", "us-east-1a"),
    ("ap-south", "ap-south-1a"),
)
_DIALECTS = ("v0.10", "v0.9", "gie-1.5", "main", "gie-1.4", "router-dev")
_UPTIME = 61.0
"""s for which the EPPs have run already, so that their means are there."""
_TOKEN = "demo-token"  # noqa: S105 - it guards a simulation on loopback

MOST_SITES = len(_NAMES)


def make_sites(count: int, rng: random.Random) -> dict[str, SimulatedSite]:
    """``count`` sites by name; the first is the one that scenarios act upon."""
    sites = {}
    for index, name in enumerate(_NAMES[:count]):
        profile = _DIALECTS[index % len(_DIALECTS)]
        pool = PoolShape(ENDPOINTS, SLOTS, flow_control=PROFILES[profile].flow_control)
        shape = SiteShape(name, profile=profile, models=(MODEL,), pool=pool, service=SERVICE)
        sites[name] = SimulatedSite(shape, rng=random.Random(rng.getrandbits(64)), uptime=_UPTIME)
    return sites


def configuration(sites: Mapping[str, SimulatedSite], folder: Path) -> dict[str, Any]:
    """The configuration of the whole network, as its file would have it; the token file is in ``folder``.

    Two gateways with different ideas: one keeps to the nearest site while that has room, the other spreads over all.
    Both choose by load, so what a site can take shows in signal frames, and documents change when a site is lost.
    """
    near, other, *_ = sites
    return {
        "network": NETWORK,
        "daemon": {
            "listen": "127.0.0.1:0",
            "scrape_interval": f"{SCRAPE_INTERVAL:g}s",
            "scrape_timeout": f"{SCRAPE_TIMEOUT:g}s",
            "state_dir": str(folder / "state"),
        },
        "bus": {"url": "embedded", "lease": "3s", "history": 1000},
        "sites": {
            name: {"region": _REGIONS[index % len(_REGIONS)][0], "zone": _REGIONS[index % len(_REGIONS)][1]}
            for index, name in enumerate(sites)
        },
        "providers": {
            name: {
                "site": name,
                "cluster": f"{name}-{MODEL}",
                "url": site.url,
                "models": [MODEL],
                "source": {"epp": site.metrics_url, "token_file": str(folder / "epp.token")},
                "max_running": SLOTS,
            }
            for name, site in sites.items()
        },
        "gateways": {
            f"{GATEWAY_PREFIX}-{near}": {"site": near, "order": "geographyFirst", "picker": "saturation"},
            f"{GATEWAY_PREFIX}-{other}": {"site": other, "order": "scoreFirst", "picker": "saturation"},
        },
    }


def as_text(settings: Mapping[str, Any]) -> str:
    """The configuration file."""
    return yaml.safe_dump(dict(settings), sort_keys=False)


def write_token(folder: Path) -> None:
    """Put the token that all simulated EPPs want where the configuration says it is."""
    file = folder / "epp.token"
    file.touch(mode=0o600)
    file.write_text(_TOKEN)


async def start_sites(sites: Mapping[str, SimulatedSite]) -> None:
    """All come to life, and their EPPs want the token."""
    for site in sites.values():
        site.token = _TOKEN
        await site.start()


class Operator(Protocol):
    """What somebody may do to the daemon and its bus."""

    async def restart_bus(self) -> None:
        """End Redis; whoever embeds it starts it again, empty."""
        ...

    async def drain(self, provider: str) -> None:
        """Drain a provider."""
        ...

    async def undrain(self, provider: str) -> None:
        """Take that back."""
        ...


class World:
    """What scenarios act upon; it is done to the first of ``sites``."""

    def __init__(self, sites: Mapping[str, SimulatedSite], operator: Operator) -> None:
        self.victim = next(iter(sites))
        self._site = sites[self.victim]
        self._operator = operator

    async def fill(self) -> None:
        """Its own clients take all slots and more."""
        self._site.fill(round(self._site.shape.pool.capacity * FILLED))

    async def empty(self) -> None:
        """They go home."""
        await self._site.empty()

    async def kill(self) -> None:
        """All engines die."""
        self._site.kill()

    async def revive(self) -> None:
        """They are back."""
        await self._site.revive()

    async def spoil_token(self) -> None:
        """The EPP wants another token."""
        self._site.token = f"not-{_TOKEN}"

    async def renew_token(self) -> None:
        """It wants the daemon's again."""
        self._site.token = _TOKEN

    async def slow_page(self) -> None:
        """Scrapes take longer than the daemon waits."""
        self._site.page_delay = 2.5 * SCRAPE_TIMEOUT

    async def quick_page(self) -> None:
        """They are answered at once."""
        self._site.page_delay = 0.0

    async def restart_bus(self) -> None:
        """Redis ends and is started again."""
        await self._operator.restart_bus()

    async def drain(self) -> None:
        """An operator's hand."""
        await self._operator.drain(self.victim)

    async def undrain(self) -> None:
        """Taken back."""
        await self._operator.undrain(self.victim)
