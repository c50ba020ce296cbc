"""A small fleet on loopback for whole daemons: EPP pages that a test changes, a real Redis, daemons, a subscriber."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from grid.bus.connect import BusSettings, connect
from grid.bus.holding import Delivery
from grid.bus.subscriber import FrameDelivery, Subscriber
from grid.config import parse
from grid.daemon import Daemon
from grid.overlay import Envelope
from grid.sim.pages import PageServer
from tests.support.until import PATIENCE

INTERVAL, TIMEOUT = 0.5, 1.5
SLACK = 0.05
"""S that delivery may take beyond an interval."""
LATE = 5.0
"""S that a busy machine may add in tests; never part of a figure that is published."""


def page(ready: int = 2, in_flight: int = 3, pool: str = "llama") -> bytes:
    """A page as an EPP of llm-d writes it, with ``ready`` endpoints and requests ``in_flight``."""
    name = f'name="{pool}"'
    running = in_flight / ready if ready else 0
    lines = [
        f"llm_d_epp_ready_endpoints{{{name}}} {ready}",
        f"llm_d_epp_average_queue_size{{{name}}} 0",
        f"llm_d_epp_average_running_requests{{{name}}} {running:.2f}",
        f"llm_d_epp_average_kv_cache_utilization{{{name}}} 0.1",
        'llm_d_epp_flow_control_stale_endpoints{detector="utilization-detector"} 0',
        f'llm_d_epp_request_running{{model_name="m",target_model_name="m"}} {in_flight}',
        "process_start_time_seconds 1.7e9",
    ]
    lines += [f'llm_d_epp_per_endpoint_queue_size{{{name},model_server_endpoint="e{n}"}} 0' for n in range(ready)]
    return "\n".join(sorted(lines)).encode() + b"\n"


@dataclass
class Fleet:
    """Pages by provider; one provider per site, all serving the model ``llama``."""

    pages: PageServer
    bus: str
    folder: Path
    names: tuple[str, ...] = ("east", "west")
    picker: str = "saturation"
    more: str = ""
    lease: str = "2s"
    freshness: str = "20s"
    """Far above the usual, or a pause of a busy machine would be news of its own."""
    state: bool = False
    interval: float = INTERVAL
    timeout: float = TIMEOUT
    provider_lines: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        picker = f", picker: {self.picker}" if self.picker else ""
        lines = [
            "network: acme",
            "daemon:",
            "  listen: 127.0.0.1:0",
            f"  scrape_interval: {round(self.interval * 1000)}ms",
            f"  scrape_timeout: {round(self.timeout * 1000)}ms",
            f"  freshness: {self.freshness}",
            *([f"  state_dir: {self.folder / 'state'}"] if self.state else []),
            f"bus: {{url: '{self.bus}', lease: {self.lease}}}",
            "sites:",
            *(f"  {name}: {{region: {name}}}" for name in self.names),
            "providers:",
        ]
        for name in self.names:
            lines += [
                f"  {name}-llama:",
                f"    site: {name}",
                f"    cluster: {name}-llama",
                "    models: [llama]",
                "    max_running: 8",
                f"    source: {{epp: '{self.pages.url(name)}'}}",
                *([f"    {self.provider_lines[name]}"] if name in self.provider_lines else []),
            ]
        lines += ["gateways:", f"  edge: {{site: {self.names[0]}{picker}}}"]
        return "\n".join(lines) + "\n" + self.more

    async def write(self, text: str | None = None) -> Path:
        """Put the configuration into a file."""
        path = self.folder / "grid.yaml"
        await asyncio.to_thread(path.write_text, self.text() if text is None else text)
        return path

    def daemon(self, **more: Any) -> Daemon:
        return Daemon(parse(self.text()), **more)


@contextlib.asynccontextmanager
async def serving(*names: str, ready: int = 2) -> AsyncIterator[PageServer]:
    """Pages for ``names``."""
    pages = PageServer({name: page(ready) for name in names})
    await pages.start()
    try:
        yield pages
    finally:
        await pages.stop()


@contextlib.asynccontextmanager
async def running(daemon: Daemon) -> AsyncIterator[httpx.AsyncClient]:
    """A daemon at work, and a client for its HTTP side."""
    try:
        await daemon.start()
        async with httpx.AsyncClient(base_url=daemon.url, trust_env=False, timeout=30) as client:
            yield client
    finally:
        await daemon.stop()


def states_of(envelope: Envelope) -> dict[str, str]:
    """Admission state by cluster, ``behind`` where it stands among the not fresh."""
    return {
        one.cluster: str(one.admission_state) if one.fresh or one.admission_state != "new_and_existing" else "behind"
        for one in envelope.candidates
    }


class Watcher:
    """What a gateway gets: documents and frames, with the moment they came (monotonic s)."""

    def __init__(self, bus: str, gateway: str = "edge") -> None:
        self.documents: list[tuple[float, Envelope]] = []
        self.frames: list[tuple[float, Any]] = []
        settings = BusSettings.from_url(bus)
        self._subscriber = Subscriber(lambda: connect(settings, "acme"), "acme", gateway, self._document, self._frame)

    def _document(self, delivery: Delivery) -> None:
        self.documents.append((time.monotonic(), delivery.envelope))

    def _frame(self, delivery: FrameDelivery) -> None:
        self.frames.append((time.monotonic(), delivery.frame))

    def states(self) -> dict[str, str]:
        """:func:`states_of` the newest document."""
        return states_of(self.documents[-1][1]) if self.documents else {}

    def epoch(self) -> int:
        """Epoch of the newest document, 0 before the first."""
        publication = self.documents[-1][1].publication if self.documents else None
        return 0 if publication is None else publication.epoch

    def order(self) -> list[str]:
        """Clusters in the order of the newest document."""
        return [one.cluster for one in self.documents[-1][1].candidates] if self.documents else []

    async def __aenter__(self) -> Self:
        self._subscriber.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._subscriber.close()


async def answer(
    client: httpx.AsyncClient, path: str, check: Callable[[httpx.Response], object], within: float = PATIENCE
) -> httpx.Response:
    """Ask until the answer is as wanted."""
    deadline = time.monotonic() + within
    while True:
        got = await client.get(path)
        if check(got):
            return got
        if time.monotonic() > deadline:
            raise AssertionError(f"{path}: not so within {within:g} s: {got.status_code} {got.text[:2000]}")
        await asyncio.sleep(0.01)
