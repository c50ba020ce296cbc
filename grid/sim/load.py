"""Gateways of a demo: users of the client library that pick a site for each request and send it there."""

import asyncio
import contextlib
import random
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from grid.model import RoutingError

_TIMEOUT = 6.0
_PATIENCE = 3.0
_MOST_AT_ONCE = 512
_OTHER_DRAWS = 16
_NEWS_WITHIN = 2.5
_NEWS_POLL = 0.05
_TOO_MANY = 429


class Choice(Protocol):
    """What a pick is to this module."""

    @property
    def site(self) -> str: ...


class Router(Protocol):
    """What picks, and counts what is under way."""

    def route(self, model: str) -> AbstractContextManager[Choice]:
        """Entered, it gives a site for a request. Raises :class:`grid.model.RoutingError`."""
        ...


@dataclass(slots=True)
class Tally:
    """What became of one gateway's requests. ``answered`` and ``by_phase`` count by site (and by phase first)."""

    requests: int = 0
    shed: int = 0
    errors: int = 0
    retried: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    by_phase: dict[str, Counter[str]] = field(default_factory=dict)

    def shares(self, phase: str | None = None) -> dict[str, float]:
        """Fraction of the answered requests by site, of one phase or of all."""
        counts = self.answered if phase is None else self.by_phase.get(phase, Counter())
        total = sum(counts.values())
        return {site: count / total for site, count in sorted(counts.items())} if total else {}


class LoadGateway:
    """Sends steady load through one router: evenly spaced requests, each in a task of its own.

    ``urls``: where each site takes requests. ``rate``: requests per second. ``on_failure`` hears of every site that
    failed a request, in words. A request that fails is picked again once, elsewhere if the router offers another site
    within 2.5 s, and counted in ``retried``; one that fails again is an error.
    """

    def __init__(
        self,
        name: str,
        router: Router,
        urls: Mapping[str, str],
        *,
        model: str,
        rate: float,
        rng: random.Random,
        on_failure: Callable[[str, str], None] = lambda _site, _why: None,
    ) -> None:
        self.name = name
        self.tally = Tally()
        self.phase = ""
        self.recent: Counter[str] = Counter()
        """Where answered requests went since ``take_recent``."""
        self._router = router
        self._urls = urls
        self._body = {"model": model, "messages": [{"role": "user", "content": "Where am I?"}]}
        self._headers = {"x-llm-d-inference-fairness-id": name}
        self._model = model
        self._rate = rate
        self._rng = rng
        self._on_failure = on_failure
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, until: asyncio.Event) -> None:
        """Send until ``until`` is set, then wait a little for what is under way and give up the rest."""
        limits = httpx.Limits(max_connections=_MOST_AT_ONCE, max_keepalive_connections=64)
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, and building the default one reads files
        async with httpx.AsyncClient(trust_env=False, verify=bare, timeout=_TIMEOUT, limits=limits) as client:
            try:
                await self._send_steadily(client, until)
                if self._under_way:
                    await asyncio.wait(self._under_way, timeout=_PATIENCE)
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
            # Late by a second or more, it does not make up for the time lost.
            due = max(due + self._rng.uniform(0.8, 1.2) / self._rate, loop.time() - 1.0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), due - loop.time())
            if until.is_set():
                return
            if len(self._under_way) >= _MOST_AT_ONCE:
                continue
            number += 1
            task = loop.create_task(self._request(client), name=f"{self.name} request {number}")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _give_up(self) -> None:
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _request(self, client: httpx.AsyncClient) -> None:
        tally, phase = self.tally, self.phase
        tally.requests += 1
        failed: str | None = None
        for _ in range(2):
            try:
                site, why = await self._attempt(client, but=failed)
            except RoutingError as error:
                if error.status == _TOO_MANY:
                    tally.shed += 1
                else:
                    tally.errors += 1
                return
            if why is None:
                tally.answered[site] += 1
                tally.by_phase.setdefault(phase, Counter())[site] += 1
                self.recent[site] += 1
                return
            self._on_failure(site, why)
            if failed is None:
                tally.retried += 1
            failed = site
        tally.errors += 1

    async def _attempt(self, client: httpx.AsyncClient, *, but: str | None) -> tuple[str, str | None]:
        """Send the request to a site; to another one than ``but`` where the router offers one within reason.

        While all draws give ``but``, its loss has not come round yet: then a new document is waited for.
        """
        draws = 0
        deadline = asyncio.get_running_loop().time() + _NEWS_WITHIN
        while True:
            with self._router.route(self._model) as choice:
                if choice.site != but or asyncio.get_running_loop().time() >= deadline:
                    return choice.site, await self._send(client, choice.site)
            draws += 1
            if draws % _OTHER_DRAWS == 0:
                await asyncio.sleep(_NEWS_POLL)

    async def _send(self, client: httpx.AsyncClient, site: str) -> str | None:
        """None where it was answered, else why not."""
        url = f"{self._urls[site]}/v1/chat/completions"
        try:
            answer = await client.post(url, json=self._body, headers=self._headers)
        except httpx.TimeoutException:
            return f"no answer within {_TIMEOUT:g} s"
        except httpx.TransportError as error:
            return f"connection failed: {str(error) or type(error).__name__}"
        return None if answer.status_code == httpx.codes.OK else f"status {answer.status_code}"
