"""What scraping costs the daemon: per provider and scrape, and for a thousand providers at once.

The pages come from a server in a process of its own on loopback, gzipped, over connections that stay open. The peer is
a bare httpx client of the same kind that fetches the same page and throws it away; ``ratio`` is its CPU time over ours,
so more is better, and what is missing to 1 is what the daemon adds: credentials, deadline, unpacking, the scan.

``load`` says how scrapes come. Of one provider, one after the other, a closed loop meant so: nothing is to wait. Of
many, each on its beat, which is fixed before and waits for nobody: an open loop, and ``p50_ms`` and ``p99_ms`` count
from the beat to the end of its scrape. The last row says how the CPU time of a round of scrapes grows with providers.
"""

import asyncio
import contextlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time
from typing import Any, Final

import httpx

from grid.model import ScrapeError
from grid.signals.credentials import plain_context
from grid.signals.epp import EppScraper, EppTarget
from grid.signals.schedule import ScrapeSchedule
from grid.sim.bench.growth import Better, grown
from grid.sim.bench.parse import simulated

TICK: Final = 0.01
"""s between two looks at the schedule."""

_TIMEOUT: Final = 5.0
_AT_ONCE: Final = 20
_GROWTH: Final = (20, 40, 80, 160)
_ROUNDS: Final = 5


def run(
    page: Path | None = None, *, scrapes: int = 400, providers: int = 1000, interval: float = 5.0, seconds: float = 15.0
) -> list[dict[str, Any]]:
    """Rows for one provider without and with a token file, one for ``providers`` every ``interval`` s, one of growth.

    Without ``providers`` the last two are left out. ``page``: a file to serve in place of the page of a simulated idle
    EPP. ``seconds``: how long many are measured, after one interval that opens the connections. ``cpu_ms`` is per
    scrape, ``cores`` a share of one.
    """
    with tempfile.TemporaryDirectory(prefix="grid-bench-") as folder:
        file, token = page or Path(folder) / "page.txt", Path(folder) / "token"
        if page is None:
            file.write_bytes(simulated(0))
        token.write_text("bench-token")
        # Each connection takes an open file here and one in the server.
        with _files_allowed(providers + 200), _page_server(file) as url:
            rows = asyncio.run(_single(url, token, scrapes))
            if providers:
                rows.append(asyncio.run(_Fleet(url, providers, interval).measured(seconds, rows[0]["peer_cpu_ms"])))
                rows.append(grown("a round of scrapes", "providers", asyncio.run(_rounds(url))))
            return rows


async def _single(url: str, token: Path, scrapes: int) -> list[dict[str, Any]]:
    peer_cpu = await _bare(url, scrapes)
    rows = []
    for case, token_file in (("one provider", None), ("one provider, token file", token)):
        scraper = EppScraper("bench", EppTarget(url, token_file=token_file), timeout=_TIMEOUT)
        try:
            size = (await scraper.scrape()).page_bytes
            cpu, p50 = await _repeated(scraper.scrape, scrapes)
        finally:
            await scraper.aclose()
        rows.append(
            {
                "case": case,
                "load": "closed loop, one after the other",
                "bytes": size,
                "scrapes": scrapes,
                "cpu_ms": round(cpu * 1e3, 3),
                "p50_ms": round(p50 * 1e3, 3),
                "peer": "httpx alone",
                "peer_cpu_ms": round(peer_cpu * 1e3, 3),
                "ratio": round(peer_cpu / cpu, 2),
                "better": Better.MORE,
            }
        )
    return rows


async def _rounds(url: str) -> dict[int, float]:
    """The least CPU s that a scrape of every provider took, by their number."""
    scrapers = [EppScraper(f"provider-{number}", EppTarget(url), timeout=_TIMEOUT) for number in range(max(_GROWTH))]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def scrape(scraper: EppScraper) -> None:
        async with gate:
            await scraper.scrape()

    async def once(number: int) -> float:
        began = process_time()
        await asyncio.gather(*map(scrape, scrapers[:number]))
        return process_time() - began

    try:
        await once(max(_GROWTH))  # opens the connections
        found = [{number: await once(number) for number in _GROWTH} for _ in range(_ROUNDS)]
    finally:
        await asyncio.gather(*(scraper.aclose() for scraper in scrapers))
    return {number: min(one[number] for one in found) for number in _GROWTH}


async def _repeated(work: Callable[[], Awaitable[object]], times: int) -> tuple[float, float]:
    """Mean CPU s of this process and median s per call."""
    await work()
    took = []
    began = process_time()
    for _ in range(times):
        started = perf_counter()
        await work()
        took.append(perf_counter() - started)
    return (process_time() - began) / times, median(took)


async def _bare(url: str, scrapes: int) -> float:
    """CPU s that it takes httpx to fetch the page once."""
    limits = httpx.Limits(max_connections=1)
    headers = {"accept-encoding": "gzip"}
    async with httpx.AsyncClient(verify=plain_context(), trust_env=False, limits=limits, headers=headers) as client:

        async def fetch() -> None:
            async with client.stream("GET", url) as response:
                async for _ in response.aiter_raw():
                    pass

        cpu, _ = await _repeated(fetch, scrapes)
        return cpu


@dataclass
class _Fleet:
    """Many providers on their beats, as the daemon keeps them."""

    url: str
    providers: int
    interval: float
    scrapers: dict[str, EppScraper] = field(default_factory=dict)
    running: set[asyncio.Task[None]] = field(default_factory=set)
    took: list[float] = field(default_factory=list)
    """s from the beat to the end, of each good scrape."""
    errors: int = 0

    async def measured(self, seconds: float, peer_cpu_ms: float) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        schedule = ScrapeSchedule(epoch=loop.time())
        for number in range(self.providers):
            name = f"provider-{number:04}"
            self.scrapers[name] = EppScraper(name, EppTarget(self.url), timeout=_TIMEOUT)
            schedule.add(name, self.interval, loop.time())
        try:
            await self.keep_beat(schedule, until=loop.time() + self.interval)
            self.took, self.errors = [], 0
            began, started = process_time(), loop.time()
            await self.keep_beat(schedule, until=started + seconds)
            spent, passed = process_time() - began, loop.time() - started
            resident = await asyncio.to_thread(_resident)
        finally:
            await asyncio.gather(*(scraper.aclose() for scraper in self.scrapers.values()))
        cpu_ms = spent / max(len(self.took), 1) * 1e3
        marks = quantiles(self.took or (0.0,) * 2, n=100, method="inclusive")
        return {
            "case": f"{self.providers} providers every {self.interval:g} s",
            "load": "open loop, each on its beat",
            "scrapes": len(self.took),
            "errors": self.errors,
            "skipped": sum(schedule.beat(name).skipped for name in self.scrapers),
            "seconds": round(passed, 1),
            "cores": round(spent / passed, 3),
            "cpu_ms": round(cpu_ms, 3),
            "p50_ms": round(marks[49] * 1e3, 1),
            "p99_ms": round(marks[98] * 1e3, 1),
            "rss_mb": round(resident / 1e6, 1),
            "peer": "httpx alone",
            "peer_cpu_ms": peer_cpu_ms,
            "ratio": round(peer_cpu_ms / cpu_ms, 2) if self.took else None,
            "better": Better.MORE,
        }

    async def keep_beat(self, schedule: ScrapeSchedule, *, until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            for name in schedule.due(loop.time()):
                due = schedule.beat(name).next_due
                schedule.started(name, loop.time())
                task = asyncio.create_task(self.scrape(schedule, name, due), name=f"scrape-{name}")
                self.running.add(task)
                task.add_done_callback(self.running.discard)
            await asyncio.sleep(TICK)
        await asyncio.gather(*self.running)

    async def scrape(self, schedule: ScrapeSchedule, name: str, due: float) -> None:
        try:
            await self.scrapers[name].scrape()
            self.took.append(asyncio.get_running_loop().time() - due)
        except ScrapeError:
            self.errors += 1
        finally:
            # Without its cost: here no interval is to be stretched.
            schedule.finished(name, asyncio.get_running_loop().time())


def _resident() -> int:
    """Bytes of memory that this process holds; the most it ever held where the system does not tell the present."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


@contextlib.contextmanager
def _files_allowed(number: int) -> Iterator[None]:
    """Let this process and those it starts hold ``number`` files open, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    short = soft != resource.RLIM_INFINITY and soft < wanted
    if short:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        if short:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def _page_server(file: Path) -> Iterator[str]:
    """A server of that page in another process; its URL. Raises RuntimeError where it does not start."""
    command = [sys.executable, "-m", "grid.sim.pages", f"metrics={file}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - a module of our own
        try:
            url = process.stdout.readline().strip() if process.stdout else ""
            if not url:
                raise RuntimeError(f"the page server ended with {process.wait(5)} before it served {file}")
            yield url
        finally:
            process.terminate()
