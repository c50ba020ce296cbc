"""The daemon's jobs on APScheduler, with due times on the monotonic clock.

APScheduler reads the wall clock to see what is due. Two things keep a step of that clock from mattering:

- the trigger counts on the monotonic clock and only hands APScheduler the next due time *as the wall clock would show
  it now*. A step forward makes every job due once, at once, and never a backlog of the hour that did not happen;
- a watchdog on the event loop's own timers looks whether each job has run in time. After a step backward APScheduler
  would sleep until the wall clock is there again; the watchdog sees the job overdue and has it due now. A job is late
  by at most its own period and two looks of the watchdog.

Jobs only ring bells and look at clocks: they return at once, so that none can hang, be skipped for "too many
instances", or be cut short by the scheduler's shutdown (which cancels and does not wait).
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

_log = structlog.get_logger("grid.daemon")

_SHORTEST_LOOK = 0.05
_A_STEP = 1.0
"""S by which the wall clock must leave the monotonic one to be called set."""
_INSTANCES = 8
"""Runs of one job at once: each takes no time, but after a stall several may be due before the first has begun."""
_SAME_BEAT = 0.1
"""A beat nearer than this share of the period is the one that just ran."""


class MonotonicTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Every ``period`` s of ``clock``, on a fixed grid."""

    __slots__ = ("_clock", "_origin", "_period")

    def __init__(self, period: float, clock: Callable[[], float]) -> None:
        self._period = period
        self._clock = clock
        self._origin = clock()

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Return the next beat as the wall clock would show it if it ran on evenly from ``now``."""
        del previous_fire_time
        beats = (self._clock() - self._origin) / self._period
        wait = (math.floor(beats) + 1 - beats) * self._period
        if wait < _SAME_BEAT * self._period:
            wait += self._period
        return now + timedelta(seconds=wait)


@dataclass(slots=True)
class _Job:
    name: str
    period: float
    action: Callable[[], None]
    handle: Any
    ran_at: float


class Ticker:
    """Calls actions at their periods.

    ``clock`` is monotonic s, ``wall`` the clock that APScheduler reads; ``on_kick`` hears of each job that the watchdog
    had to wake.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_kick: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._on_kick = on_kick
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": _INSTANCES}
        )
        self._jobs: dict[str, _Job] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._offset = 0.0
        self._stopped = False

    def every(self, period: float, name: str, action: Callable[[], None]) -> None:
        """Call ``action`` every ``period`` s from :meth:`start` on; a job of the same name is replaced."""

        async def run() -> None:
            if not self._stopped:
                job = self._jobs[name]
                job.ran_at = self._clock()
                job.action()

        handle = self._scheduler.add_job(
            run, MonotonicTrigger(period, self._clock), id=name, name=name, replace_existing=True
        )
        self._jobs[name] = _Job(name, period, action, handle, self._clock())

    def last_run(self, name: str) -> float:
        """When the job ran last (monotonic s); when it was made, before its first run."""
        return self._jobs[name].ran_at

    def start(self) -> None:
        """Begin. Needs a running event loop."""
        now = self._clock()
        for job in self._jobs.values():
            job.ran_at = now
        self._offset = self._wall_offset()
        self._scheduler.start()
        self._look_later()

    def stop(self) -> None:
        """End; nothing is called any more. Safe to call twice."""
        self._stopped = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def _look_later(self) -> None:
        look = max(_SHORTEST_LOOK, min(job.period for job in self._jobs.values()))
        self._watch = asyncio.get_running_loop().call_later(look, self._look)

    def _look(self) -> None:
        now, offset = self._clock(), self._wall_offset()
        if abs(offset - self._offset) > _A_STEP:
            _log.warning("the wall clock was set; nothing is delayed", by_s=round(offset - self._offset, 3))
            self._offset = offset
        for job in self._jobs.values():
            if now - job.ran_at > 1.5 * job.period:
                job.ran_at = now
                job.handle.modify(next_run_time=self._wall())
                self._on_kick(job.name)
        self._look_later()

    def _wall_offset(self) -> float:
        return self._wall().timestamp() - self._clock()
