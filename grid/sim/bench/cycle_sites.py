"""A process of simulated EPPs that turn full and quiet at times fixed in advance, and note who reads what when.

Options: ``sites`` (names) and ``profile``. It says ``{"urls"}`` by site. ``{"changes": [[at, site], ...]}`` (monotonic
s) sets them off; anything else is answered with what happened: ``changes`` ``[[site, at], ...]`` as they came to pass,
and ``scrapes`` ``[[site, at, changes of this site before it], ...]``.

Both pages of a site are made before: what a simulator pays for a page is no part of what the daemon takes.
"""

import asyncio
import gzip
import random
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final

from grid.sim.bench.helpers import play, questions, say
from grid.sim.epp import SimulatedEpp
from grid.sim.exposition import CONTENT_TYPE
from grid.sim.loopback import Answer, LoopbackServer, Request
from grid.sim.pool import PoolShape, SimulatedPool
from grid.sim.values import Flow

SLOTS: Final = 8
_SHAPE: Final = PoolShape(endpoints=2, slots=SLOTS)
_QUIET, _FULL = 4, 20
"""Requests held, of 16 that run at once."""
_UPTIME: Final = 61.0
_FOREVER: Final = 1e6


def pages(profile: str, name: str) -> tuple[bytes, bytes]:
    """A site's page while it is quiet and while it is full, gzipped."""
    return _page(profile, name, _QUIET), _page(profile, name, _FULL)


def _page(profile: str, name: str, held: int) -> bytes:
    epp = SimulatedEpp(profile, name, SimulatedPool(_SHAPE, rng=random.Random(held)), started_wall=1_795_983_082.0)
    for _ in range(held):
        epp.submit(Flow("bench"), _FOREVER, now=1.0)
    return gzip.compress(epp.page(_UPTIME))


class _Sites:
    def __init__(self, names: Sequence[str], profile: str) -> None:
        self.changes: list[tuple[str, float]] = []
        self.scrapes: list[tuple[str, float, int]] = []
        self._pages = {name: pages(profile, name) for name in names}
        self._changed = dict.fromkeys(names, 0)
        self.server = LoopbackServer(self._serve)

    async def _serve(self, request: Request) -> Answer:
        name = request.path.strip("/")
        changed = self._changed[name]
        self.scrapes.append((name, monotonic(), changed))
        return Answer(200, self._pages[name][changed % 2], {"content-type": CONTENT_TYPE, "content-encoding": "gzip"})

    async def change(self, changes: Sequence[tuple[float, str]]) -> None:
        """Turn pages over when they are due."""
        for due, name in changes:
            await asyncio.sleep(max(0.0, due - monotonic()))
            self._changed[name] += 1
            self.changes.append((name, monotonic()))


async def _serve(options: dict[str, Any]) -> None:
    sites = _Sites(options["sites"], options["profile"])
    await sites.server.start()
    work: asyncio.Task[None] | None = None
    try:
        say({"urls": {name: f"{sites.server.url}/{name}" for name in options["sites"]}})
        async for asked in questions():
            if isinstance(asked, dict):
                work = asyncio.create_task(sites.change(asked["changes"]), name="changes")
                say("they will come")
            else:
                if work is not None:
                    await work
                say({"changes": sites.changes, "scrapes": sites.scrapes})
    finally:
        if work is not None:
            work.cancel()
        await sites.server.stop()


if __name__ == "__main__":
    play(_serve)
