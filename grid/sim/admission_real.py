"""``grid simulate admission --real``: the same question over loopback HTTP, where everything but the engines is real.

Two simulated sites of eight slots, the daemon, an embedded bus and reference gateways. Batch clients form a closed
loop, interactive requests arrive steadily in an open one and wait from when they are due, both through one gateway, and
engines need equally long for either:

- **idle**: interactive requests alone, admission control in front;
- **on**: batch beside them;
- **off**: batch beside them through a gateway without admission control that sheds nothing either, so that what has no
  slot queues at the sites.
"""

import asyncio
import logging
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import structlog
import yaml

from grid.config import Config, parse
from grid.daemon import Daemon
from grid.gateway import Status
from grid.proxy.gateway import Gateway
from grid.sim.pool import PoolShape
from grid.sim.site import SimulatedSite, SiteShape
from grid.sim.sites import MODEL, Setup, configuration

_ON: Final = "edge-0"
_OFF: Final = "edge-1"
_BAND: Final = "x-priority"
_INTERACTIVE: Final = "interactive"
_BATCH: Final = "batch"
_CEILING: Final = 0.1
"""Of the five requests an endpoint may have queued: none, so every slot may be filled and nothing waits at a site."""

_READY_WITHIN: Final = 20.0
_TIMEOUT: Final = 30.0
_SHEDS_NOTHING: Final = "roundRobin"
"""A picker that forwards whatever comes; the sites are alike, so that turns are fair to them."""


@dataclass(frozen=True, slots=True)
class Scale:
    """``slots`` by site; engines need ``service`` s, give or take a fifth. ``rate``: interactive requests/s.

    Interactive requests that arrive in the ``seconds`` after ``warm_up`` are measured.
    """

    slots: tuple[int, ...] = (8, 8)
    batch_clients: int = 200
    service: float = 0.3
    rate: float = 10.0
    seconds: float = 8.0
    warm_up: float = 2.0


def run(scale: Scale | None = None, *, seed: int = 1) -> dict[str, Any]:
    """99th percentiles of interactive answers in ms, and their ratios to the idle one; about 40 s.

    A request that is not answered well counts as the 30 s after which its client gives up. Raises GridError where
    something cannot start, TimeoutError where a gateway has no document and numbers within 20 s.
    """
    with tempfile.TemporaryDirectory(prefix="grid-admission-") as folder, _warnings_only():
        idle, on, off = asyncio.run(_cases(scale or Scale(), Path(folder), seed))
    return {
        "idle_p99_ms": round(idle * 1e3, 1),
        "on_p99_ms": round(on * 1e3, 1),
        "off_p99_ms": round(off * 1e3, 1),
        "ratio_on": round(on / idle, 3),
        "ratio_off": round(off / idle, 1),
    }


@contextmanager
def _warnings_only() -> Iterator[None]:
    """What the daemon and the gateways say of every cycle would bury the figures; warnings go to stderr."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.configure(**before)


async def _cases(scale: Scale, folder: Path, seed: int) -> tuple[float, float, float]:
    async with _network(scale, folder, seed) as config:
        async with _gateway(config, _ON, len(scale.slots)) as url:
            idle = await _p99(url, scale, seed, batch=False)
            on = await _p99(url, scale, seed, batch=True)
        async with _gateway(config, _OFF, len(scale.slots)) as url:
            off = await _p99(url, scale, seed, batch=True)
    return idle, on, off


# --- the servers ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _network(scale: Scale, folder: Path, seed: int) -> AsyncIterator[Config]:
    """Sites and the daemon; what the gateways are started with."""
    setup = Setup(slots=scale.slots, gateways=2, service=scale.service)
    async with AsyncExitStack() as stack:
        sites: dict[str, SimulatedSite] = {}
        for name, slots in zip(setup.names, scale.slots, strict=True):
            # KV pressure would close bands with low ceilings; here slots are what counts.
            pool = PoolShape(endpoints=1, slots=slots, kv_full=0.0)
            shape = SiteShape(name, models=(MODEL,), pool=pool, service=scale.service)
            site = sites[name] = SimulatedSite(shape, rng=random.Random(f"{seed} {name}"), uptime=61.0)
            stack.push_async_callback(site.stop)
            await site.start()
        config = parse(yaml.safe_dump(_settings(setup, sites, folder)))
        daemon = Daemon(config)
        stack.push_async_callback(daemon.stop)
        await daemon.start()
        yield config


def _settings(setup: Setup, sites: Mapping[str, SimulatedSite], folder: Path) -> dict[str, Any]:
    settings = configuration(setup, sites, folder)
    settings["admission"] = {
        "bands": {
            "bands": [
                {"name": _INTERACTIVE, "match": {"header": _BAND, "value": _INTERACTIVE}, "ceiling": _CEILING},
                {"name": _BATCH, "ceiling": _CEILING},
            ]
        }
    }
    settings["gateways"][_ON] |= {"admission": "bands", "trusted_proxies": ["127.0.0.0/8"]}
    settings["gateways"][_OFF] |= {"picker": _SHEDS_NOTHING}
    return settings


@asynccontextmanager
async def _gateway(config: Config, name: str, sites: int) -> AsyncIterator[str]:
    """The URL of a gateway that has a document and numbers of every site."""
    gateway = Gateway(config, name, rng=random.Random(name))
    try:
        await gateway.start()
        async with asyncio.timeout(_READY_WITHIN):
            while not _ready(gateway, sites):  # noqa: ASYNC110 - documents and numbers come by different ways
                await asyncio.sleep(0.02)
        yield gateway.url
    finally:
        await gateway.stop()


def _ready(gateway: Gateway, sites: int) -> bool:
    known = sum(target.known for target in gateway.client.targets)
    return gateway.client.state.status is Status.SYNCED and known == sites


# --- the clients ------------------------------------------------------------------------------------------------------


async def _p99(url: str, scale: Scale, seed: int, *, batch: bool) -> float:
    """99th percentile of the interactive answers, s."""
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    async with (
        aiohttp.ClientSession(url, timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session,
        asyncio.TaskGroup() as crowd,
    ):
        clients = [
            crowd.create_task(_batch_client(session, scale, number), name=f"batch client {number}")
            for number in range(scale.batch_clients if batch else 0)
        ]
        try:
            took = sorted(await _interactive(session, scale, random.Random(f"{seed} interactive")))
        finally:
            for client in clients:
                client.cancel()
    return took[min(len(took) - 1, int(len(took) * 0.99))]


async def _interactive(session: aiohttp.ClientSession, scale: Scale, rng: random.Random) -> list[float]:
    loop = asyncio.get_running_loop()
    began = due = loop.time()
    tasks: list[asyncio.Task[float]] = []
    warm = 0
    async with asyncio.TaskGroup() as group:
        while (due := due + rng.uniform(0.5, 1.5) / scale.rate) < began + scale.warm_up + scale.seconds:
            await asyncio.sleep(due - loop.time())
            warm += due < began + scale.warm_up
            tasks.append(group.create_task(_ask(session, _INTERACTIVE, due), name=f"interactive request {len(tasks)}"))
    return [task.result() for task in tasks[warm:]]


async def _batch_client(session: aiohttp.ClientSession, scale: Scale, number: int) -> None:
    """One request after the other, at most as many as could be answered in the whole run; then it is ended."""
    # The first take the slots evenly over one service time: begun together, they would also come free together, and who
    # comes in between would wait for a whole service time. The rest follow.
    await asyncio.sleep(scale.service * min(number / sum(scale.slots), 1 + number / scale.batch_clients))
    for _ in range(round((scale.warm_up + scale.seconds + _TIMEOUT) / scale.service)):
        if await _ask(session, _BATCH, asyncio.get_running_loop().time()) >= _TIMEOUT:
            await asyncio.sleep(scale.service)


async def _ask(session: aiohttp.ClientSession, band: str, due: float) -> float:
    """How many s after it was due the answer was there; the whole time-out where it was none."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Where am I?"}]}
    try:
        async with session.post("/v1/chat/completions", json=body, headers={_BAND: band}) as answer:
            await answer.read()
            return asyncio.get_running_loop().time() - due if answer.status == 200 else _TIMEOUT
    except (aiohttp.ClientError, TimeoutError):
        return _TIMEOUT
