"""Scrapes and probes on their beats: who is due gets a task of its own, with a hard deadline over everything.

Nobody waits for anybody: a source that hangs costs its own beat and no other's. What came goes to the store at once; a
cycle is asked for where it can matter, and urgently where a provider has lost its last endpoint.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from grid.daemon.metrics import Metrics
from grid.daemon.tasks import TaskGuard
from grid.daemon.troubles import Troubles
from grid.model import Problem, Reason, ScrapeError
from grid.signals.readiness import ProbeResult, ReadinessProbe
from grid.signals.recording import RecordingWriter
from grid.signals.schedule import ScrapeSchedule
from grid.signals.scrape import Scrape, Scraper
from grid.signals.store import SampleStore

MARGIN = 0.25
"""S beyond a source's own deadline after which its scrape is cut off, whatever it hangs in."""
_CLOSING = 2.0
_ZEROS_TOLD = 2
"""Readings of zero ready endpoints in a row that are urgent: the first demotes, the second takes out."""

_log = structlog.get_logger("grid.daemon")


@dataclass(frozen=True, slots=True)
class Source:
    """What one provider is read through. ``interval`` and ``timeout`` in s."""

    scraper: Scraper
    interval: float
    timeout: float
    probe: ReadinessProbe | None = None

    async def aclose(self) -> None:
        """Give back what it holds; a source that hangs even here is left behind."""
        try:
            async with asyncio.timeout(_CLOSING):
                await self.scraper.aclose()
                if self.probe is not None:
                    await self.probe.aclose()
        except TimeoutError:
            _log.debug("a source did not close in time")


class Observer:
    """Runs the scrapes of all providers.

    ``clock``: monotonic s. ``on_news(urgent)`` asks for a cycle. ``on_change(provider, sentence, fields)`` hears when a
    source begins to fail, fails in another way, or is well again, and when its page has other problems than before.
    """

    def __init__(
        self,
        guard: TaskGuard,
        clock: Callable[[], float],
        metrics: Metrics,
        *,
        budget: float,
        on_news: Callable[[bool], None],
        on_change: Callable[[str, str, Mapping[str, object]], None],
        recording: RecordingWriter | None = None,
    ) -> None:
        self.store = SampleStore()
        self._guard = guard
        self._clock = clock
        self._metrics = metrics
        self._on_news = on_news
        self._on_change = on_change
        self._recording = recording
        self._epoch = clock()
        self._budget = budget
        self.schedule = ScrapeSchedule(epoch=self._epoch, budget=budget)
        self._sources: dict[str, Source] = {}
        self._scraping: dict[str, asyncio.Task[None]] = {}
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._unread: set[str] = set()
        self._zeros: dict[str, int] = {}
        self._troubles = Troubles()
        self.round_complete = False
        """Whether every provider of the start has had one attempt that ended, well or not. Once true it stays so."""

    def sync(self, sources: Mapping[str, Source], *, forget: frozenset[str], budget: float) -> list[Source]:
        """Make ``sources`` the ones that are read; who is the same object goes on undisturbed.

        ``forget``: providers whose old samples say nothing about the new source. Returns the sources that are of no
        more use, for the caller to close.
        """
        now = self._clock()
        replaced = {name: old for name, old in self._sources.items() if sources.get(name) is not old}
        for name in replaced:
            for running in (self._scraping, self._probing):
                task = running.pop(name, None)
                if task is not None:
                    task.cancel()
            self.schedule.finished(name, now)
        if not self.round_complete:
            self._unread = (self._unread & sources.keys()) | (sources.keys() - self._sources.keys())
        self._sources = dict(sources)
        self._zeros = {name: zeros for name, zeros in self._zeros.items() if name in sources}
        self._troubles.keep(sources.keys() - forget)
        self.store.sync(sorted(sources))
        for name in forget & sources.keys():
            self.store.forget(name)
        self._reschedule(budget, now)
        self._note_round()
        return list(replaced.values())

    def tick(self) -> None:
        """Start what is due."""
        now = self._clock()
        for name in self.schedule.due(now):
            self.schedule.started(name, now)
            source = self._sources[name]
            self._scraping[name] = self._guard.errand(f"scrape {name}", partial(self._scrape, name, source))
            if source.probe is not None and name not in self._probing:
                self._probing[name] = self._guard.errand(f"probe {name}", partial(self._probe, name, source.probe))

    async def close(self) -> None:
        """Cut off what runs and close all sources."""
        await self._guard.stop({*self._scraping.values(), *self._probing.values()})
        sources, self._sources = self._sources, {}
        await asyncio.gather(*(source.aclose() for source in sources.values()))

    def _reschedule(self, budget: float, now: float) -> None:
        if budget != self._budget:
            # The grid depends on epoch and slots only, so the beats stay where they were.
            self._budget = budget
            self.schedule = ScrapeSchedule(epoch=self._epoch, budget=budget)
        self.schedule.sync({name: source.interval for name, source in self._sources.items()}, now)
        for name in self._scraping:
            if self.schedule.beat(name).running_since is None:
                self.schedule.started(name, now)

    async def _scrape(self, name: str, source: Source) -> None:
        started = self._clock()
        try:
            async with asyncio.timeout(source.timeout + MARGIN):
                scrape = await source.scraper.scrape()
        except ScrapeError as error:
            self._failed(name, Problem(error.reason, error.message))
        except TimeoutError:
            self._failed(name, Problem(Reason.TIMEOUT, f"cut off after {source.timeout + MARGIN:g} s"))
        except Exception as error:
            self._failed(name, Problem(Reason.INTERNAL, f"{type(error).__name__}: {error}"))
            raise
        else:
            self._read(name, scrape)
        finally:
            # After a reload the beat may belong to another task already.
            if self._scraping.get(name) is asyncio.current_task():
                del self._scraping[name]
                now = self._clock()
                self.schedule.finished(name, now)
                self._metrics.scrape_duration.observe(now - started)

    def _read(self, name: str, scrape: Scrape) -> None:
        if self._scraping.get(name) is not asyncio.current_task():
            return
        before = self.store.state(name)
        # The cost of this very page may stretch the interval until the next one, and its sample must last that long.
        self.schedule.finished(name, self._clock(), cost=scrape.cost_s)
        interval = self.schedule.interval(name)
        sample = self.store.apply(name, scrape, interval=interval)
        if self._recording is not None:
            self._recording.scrape(name, scrape, interval=interval, now=self._clock())
        if before.last_error is not None and before.last_error.consecutive:
            failures = before.last_error.consecutive
            self._on_change(name, f"{name} is read again after {failures} failed scrapes", {"failures": failures})
        found = self._troubles.note(name, sample.problems, self._clock()) if sample is not None else None
        if found is not None:
            self._on_change(name, found.sentence, found.fields)
        zeros = self._zeros.get(name, 0) + 1 if scrape.reading.ready == 0 else 0
        self._zeros[name] = zeros
        self._unread.discard(name)
        self._note_round()
        self._on_news(0 < zeros <= _ZEROS_TOLD)

    def _failed(self, name: str, problem: Problem) -> None:
        if self._scraping.get(name) is not asyncio.current_task():
            return
        before = self.store.state(name).last_error
        self.store.fail(name, problem)
        if self._recording is not None:
            self._recording.error(name, problem, now=self._clock())
        if before is None or not before.consecutive or before.problem.code is not problem.code:
            self._on_change(
                name,
                f"{name} cannot be read: {problem.detail or problem.code.meaning}",
                {"reason": problem.code.value, "hint": problem.code.hint},
            )
        self._unread.discard(name)
        if not self.round_complete:
            self._note_round()

    def _note_round(self) -> None:
        if not self.round_complete and not self._unread:
            self.round_complete = True
            self._on_news(True)

    async def _probe(self, name: str, probe: ReadinessProbe) -> None:
        try:
            result = await probe.check()
            if self._probing.get(name) is asyncio.current_task():
                self._probed(name, result)
        finally:
            if self._probing.get(name) is asyncio.current_task():
                del self._probing[name]

    def _probed(self, name: str, result: ProbeResult) -> None:
        before = self.store.state(name).probe
        self.store.probed(name, result)
        if self._recording is not None:
            self._recording.probe(name, result, now=self._clock())
        if before is None or before.healthy is not result.healthy:
            self._on_news(result.healthy is False)
