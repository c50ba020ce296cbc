"""Steady load on one gateway, and what became of it.

An open loop: when a request is due does not depend on how long others take, and it counts from then. One that could not
be sent in time is lost and not left out, or a gateway that stalls would look better than it is.
"""

import asyncio
import contextlib
import random
import ssl
from collections import Counter
from dataclasses import dataclass, field

import httpx

PATIENCE = 5.0
"""s after which a client has given up: what takes longer counts as lost."""

_WIND_UP = 3.0
_MOST_AT_ONCE = 512
_TOO_MANY = 429


@dataclass(slots=True)
class Tally:
    """What became of the requests to one gateway.

    ``answered`` and ``by_phase`` count by site (and by phase first). ``errors`` are those that were not answered well,
    in time, or could not even be sent in time; ``slowest``: s that the slowest good answer took since it was due.
    """

    requests: int = 0
    shed: int = 0
    errors: int = 0
    slowest: float = 0.0
    answered: Counter[str] = field(default_factory=Counter)
    by_phase: dict[str, Counter[str]] = field(default_factory=dict)

    def shares(self, phase: str | None = None) -> dict[str, float]:
        """Fraction of the answered requests by site, of one phase or of all."""
        counts = self.answered if phase is None else self.by_phase.get(phase, Counter())
        total = sum(counts.values())
        return {site: count / total for site, count in sorted(counts.items())} if total else {}


class SteadyLoad:
    """Sends evenly spaced requests to one gateway at ``url``, each in a task of its own.

    ``rate``: requests per second. Nothing is tried again here: that is the gateway's business.
    """

    def __init__(self, name: str, url: str, *, model: str, rate: float, rng: random.Random) -> None:
        self.name = name
        self.tally = Tally()
        self.phase = ""
        self.recent: Counter[str] = Counter()
        """Where answered requests went since ``take_recent``."""
        self._url = f"{url}/v1/chat/completions"
        self._body = {"model": model, "messages": [{"role": "user", "content": "Where am I?"}]}
        self._headers = {"x-llm-d-inference-fairness-id": name}
        self._rate = rate
        self._rng = rng
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, until: asyncio.Event) -> None:
        """Send until ``until`` is set, then wait a little for what is under way and give up the rest."""
        limits = httpx.Limits(max_connections=_MOST_AT_ONCE, max_keepalive_connections=64)
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, and building the default one reads files
        async with httpx.AsyncClient(trust_env=False, verify=bare, timeout=PATIENCE, limits=limits) as client:
            try:
                await self._send_steadily(client, until)
                if self._under_way:
                    await asyncio.wait(self._under_way, timeout=_WIND_UP)
            finally:
                await self._give_up()

    def take_recent(self) -> dict[str, float]:
        """Shares of the answered requests since the last call."""
        recent, self.recent = self.recent, Counter()
        total = sum(recent.values())
        return {site: count / total for site, count in recent.items()} if total else {}

    async def _send_steadily(self, client: httpx.AsyncClient, until: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        number = 0
        while True:
            due += self._rng.uniform(0.8, 1.2) / self._rate
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), due - loop.time())
            if until.is_set():
                return
            if len(self._under_way) >= _MOST_AT_ONCE or loop.time() - due > PATIENCE:
                self.tally.requests += 1
                self.tally.errors += 1
                continue
            number += 1
            task = loop.create_task(self._request(client, due), name=f"{self.name} request {number}")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _give_up(self) -> None:
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _request(self, client: httpx.AsyncClient, due: float) -> None:
        tally, phase = self.tally, self.phase
        tally.requests += 1
        try:
            async with asyncio.timeout_at(due + PATIENCE):
                answer = await client.post(self._url, json=self._body, headers=self._headers)
        except (httpx.TransportError, TimeoutError):
            tally.errors += 1
            return
        if answer.status_code == httpx.codes.OK:
            site = answer.headers.get("x-grid-site", "")
            tally.answered[site] += 1
            tally.by_phase.setdefault(phase, Counter())[site] += 1
            tally.slowest = max(tally.slowest, asyncio.get_running_loop().time() - due)
            self.recent[site] += 1
        elif answer.status_code == _TOO_MANY:
            tally.shed += 1
        else:
            tally.errors += 1
