"""A process that has imported what a daemon imports, and of that does one ``part``.

A ``daemon`` over ``config`` for two scrape intervals of ``interval`` s after its first publication (where
it has ``providers``); ``clients``: so many bare httpx clients that have read ``url``; ``scraped``: one page read as the
daemon reads it, ``small`` before ``large``; ``unpacked``: ``file`` by ``gzip.decompress``. It says what it held before
and after; for pages the most it ever held.
"""

import asyncio
import gc
import gzip
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx

from grid.config import parse
from grid.daemon import Daemon
from grid.signals.credentials import plain_context
from grid.signals.epp import EppScraper, EppTarget
from grid.sim.bench.helpers import play
from grid.sim.bench.resident import allow_files, resident, tell

_WAIT: Final = 60.0
_LOOK: Final = 0.05


async def _daemon(options: dict[str, Any]) -> None:
    allow_files()
    before = resident()
    gc.freeze()  # as the process of ``grid run`` does
    daemon = Daemon(parse(options["config"]))
    try:
        await daemon.start()
        if options["providers"]:
            async with asyncio.timeout(_WAIT):
                while not any(event.kind == "published" for event in daemon.events.history()):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK)
        # So that every sample has taken the place of another.
        await asyncio.sleep(2 * options["interval"])
        tell(before)
    finally:
        await daemon.stop()


async def _clients(options: dict[str, Any]) -> None:
    allow_files()
    before = resident()
    limits = httpx.Limits(max_connections=1)
    clients = [
        httpx.AsyncClient(verify=plain_context(), trust_env=False, limits=limits) for _ in range(options["clients"])
    ]
    try:
        for client in clients:
            async with client.stream("GET", options["url"]) as response:
                async for _ in response.aiter_raw():
                    pass
        tell(before)
    finally:
        await asyncio.gather(*(client.aclose() for client in clients))


async def _scraped(options: dict[str, Any]) -> None:
    # The small page brings client and buffers before the large one comes.
    before = 0.0
    for page in ("small", "large"):
        scraper = EppScraper("bench", EppTarget(options[page]), timeout=_WAIT)
        before = resident(most=True)
        try:
            await scraper.scrape()
        finally:
            await scraper.aclose()
    tell(before, most=True)


async def _unpacked(options: dict[str, Any]) -> None:
    packed = await asyncio.to_thread(Path(options["file"]).read_bytes)
    before = resident(most=True)
    page = gzip.decompress(packed)
    tell(before, most=True, bytes=len(page))


_PARTS: Final[dict[str, Callable[[dict[str, Any]], Awaitable[None]]]] = {
    "daemon": _daemon,
    "clients": _clients,
    "scraped": _scraped,
    "unpacked": _unpacked,
}


async def _play(options: dict[str, Any]) -> None:
    await _PARTS[options["part"]](options)


if __name__ == "__main__":
    play(_play)
