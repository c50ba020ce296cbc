"""Pieces that several tests of the daemon's parts share: values, scripted sources, a bus that is only pretended."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from grid.bus.keys import Keys
from grid.bus.lease import Leader
from grid.bus.order import Position
from grid.bus.publisher import Published
from grid.config import Config, parse
from grid.model import LeaseError, Problem, Reading, ReadySource, Reason
from grid.overlay import Document
from grid.signals.scrape import Scrape

CONFIG = """
network: acme
daemon: {scrape_interval: 2s, scrape_timeout: 1s}
sites: {east: {region: eu}, west: {region: us}}
providers:
  east-llama: {site: east, cluster: east-llama, models: [llama], max_running: 8, source: {epp: http://127.0.0.1:1/a}}
  west-llama: {site: west, cluster: west-llama, models: [llama], max_running: 8, source: {epp: http://127.0.0.1:1/b}}
gateways:
  edge-east: {site: east, picker: saturation}
  edge-west: {site: west}
"""


def config(text: str = CONFIG) -> Config:
    return parse(text)


def now() -> float:
    return asyncio.get_running_loop().time()


def gaps(moments: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(moments)]


def value(metric: MetricWrapperBase, name: str, **labels: str) -> float | None:
    """One sample of one metric, without the process metrics, which read files."""
    samples = [sample for family in metric.collect() for sample in family.samples]
    return next((one.value for one in samples if one.name == name and one.labels == labels), None)


def reading(ready: int | None = 2, in_flight: float = 3.0) -> Reading:
    return Reading(
        dialect="llm_d_epp", pool="p", ready=ready, ready_source=ReadySource.LIVE, ready_live=ready, in_flight=in_flight
    )


@dataclass
class ScriptedScraper:
    """Answers each scrape with the next step: a reading, an error to raise, or seconds to hang before the next one."""

    steps: Sequence[Reading | Exception | float] = (reading(),)
    cost: float = 0.001
    starts: list[float] = field(default_factory=list)
    cancelled: int = 0
    closed: int = 0
    at: int = 0
    problems: tuple[Problem, ...] = ()

    async def scrape(self) -> Scrape:
        self.starts.append(now())
        while True:
            step = self.steps[min(self.at, len(self.steps) - 1)]
            self.at += 1
            if isinstance(step, float):
                try:
                    await asyncio.sleep(step)
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
                continue
            if isinstance(step, Exception):
                raise step
            return Scrape(step, self.problems, now(), self.cost, 100)

    async def aclose(self) -> None:
        self.closed += 1


class PretendedLease:
    """A lease whose fate the test decides."""

    def __init__(self, clock: Callable[[], float] = now, ttl: float = 10.0) -> None:
        self.holder = "this"
        self.ttl = ttl
        self.epoch = 0
        self.deadline = float("-inf")
        self.other: Leader | None = None
        self.clock = clock
        self.fault: Exception | None = None
        self.calls: list[tuple[str, float]] = []

    def held(self, at: float | None = None) -> bool:
        return (self.clock() if at is None else at) < self.deadline

    @property
    def renew_at(self) -> float:
        return self.deadline - self.ttl * 2 / 3

    def lose(self) -> None:
        self.deadline = float("-inf")

    def observe(self, epoch: int) -> None:
        pass

    async def acquire(self) -> bool:
        self.calls.append(("acquire", self.clock()))
        if self.fault is not None:
            raise self.fault
        if self.other is not None:
            return False
        self.epoch += 1
        self.deadline = self.clock() + self.ttl
        return True

    async def renew(self) -> None:
        self.calls.append(("renew", self.clock()))
        if self.fault is not None:
            raise self.fault
        self.deadline = self.clock() + self.ttl

    async def release(self) -> None:
        self.lose()


class PretendedPublisher:
    """Keeps documents as the bus would; ``before`` is awaited first, and may raise."""

    def __init__(self, lease: PretendedLease) -> None:
        self.keys = Keys("acme")
        self.lease = lease
        self.stored: dict[str, str] = {}
        self.positions: dict[str, Position] = {}
        self.calls: list[list[str]] = []
        self.faults: dict[str, Exception] = {}
        self.before: Callable[[], Awaitable[None]] | None = None

    async def publish(self, document: Document, lease: Any, reason: str) -> Published:
        (found,) = await self.publish_all([document], lease, reason)
        return found

    async def publish_all(
        self, documents: Sequence[Document], lease: Any, reason: str | Mapping[str, str]
    ) -> list[Published]:
        self.calls.append([document.gateway for document in documents])
        if self.before is not None:
            await self.before()
        if not self.lease.held():
            raise LeaseError("not ours", reason=Reason.LEASE_LOST)
        done, failed = [], []
        for document in documents:
            if (fault := self.faults.get(document.gateway)) is not None:
                failed.append(fault)
                continue
            changed = self.stored.get(document.gateway) != document.revision
            self.stored[document.gateway] = document.revision
            at = self.positions.get(document.gateway, Position(self.lease.epoch, 0))
            self.positions[document.gateway] = Position(self.lease.epoch, at.version + changed)
            done.append(Published(document.gateway, *self.positions[document.gateway], document.revision, changed))
        if failed:
            raise failed[0]
        return done
