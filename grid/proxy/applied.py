"""Follows what an Envoy has applied of the file that is written for it."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final

from grid.bus import Position
from grid.model import DeliveryError, Problem, Reason
from grid.proxy.eds import Place, Version
from grid.proxy.envoy_admin import EnvoyAdmin, Running

ASK: Final = 2.0
"""s between questions."""
ASK_SOON: Final = 0.1
"""s between questions while it has not applied what was just written."""
GRACE: Final = 5.0
"""s that it has to apply what was written; also how long its last answer counts while it gives none."""

Places = Callable[[], Mapping[str, Mapping[tuple[str, int], Place]]]


class Applied:
    """What Envoy runs, as last heard. ``places``: which provider an address in the file stands for."""

    def __init__(self, admin: EnvoyAdmin, places: Places) -> None:
        self.running: Running | None = None
        """None while it gives no answer."""
        self.version: Version | None = None
        """Of the cluster that is farthest behind; None where none has read a file of this gateway."""
        self.at: float | None = None
        """Wall clock s of when that version was first seen."""
        self.problem: Problem | None = None
        self._admin = admin
        self._places = places
        self._written: tuple[Position, float] | None = None
        self._news = asyncio.Event()
        self._heard = 0.0

    def expect(self, position: Position) -> None:
        """A file with the document of this place has just been written."""
        self._written = position, time.monotonic()
        self._news.set()

    async def keep_asking(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_SOON if self._lags and not self._late else ASK):
                    await self._news.wait()

    async def ask(self) -> None:
        """Ask once; raises nothing."""
        try:
            found = await self._admin.read(self._places())
        except DeliveryError as error:
            self.problem = Problem(error.reason, error.message)
            if time.monotonic() - self._heard > GRACE:
                self.running = self.version = self.at = None
            return
        self.running, self._heard = found, time.monotonic()
        if found.oldest != self.version:
            self.version, self.at = found.oldest, None if found.oldest is None else time.time()
        self.problem = Problem(Reason.NOT_APPLIED, self._lag(found)) if self._lags and self._late else None

    async def aclose(self) -> None:
        """Give the connection back."""
        await self._admin.aclose()

    @property
    def _lags(self) -> bool:
        if self._written is None:
            return False
        return self.version is None or self.version.position != self._written[0]

    @property
    def _late(self) -> bool:
        return self._written is None or time.monotonic() - self._written[1] > GRACE

    def _lag(self, found: Running) -> str:
        if self.version is None:
            return f"no cluster of the Envoy at {self._admin.url} reads a file of this gateway"
        behind = sorted(name for name, one in found.versions.items() if one.position == self.version.position)
        refused = f"; it refused {found.rejected} updates" if found.rejected else ""
        return f"cluster {behind[0]} at {self._admin.url} runs {self.version.position}{refused}"
