"""The jobs and the wall clock. Time is virtual; the wall clock is a second one that tests set at will."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import apscheduler.executors.base
import apscheduler.schedulers.base
import pytest
import structlog

from grid.daemon.daemon import TICK
from grid.daemon.metrics import Metrics
from grid.daemon.observe import Observer, Source
from grid.daemon.tasks import TaskGuard
from grid.daemon.ticker import MonotonicTrigger, Ticker
from tests.daemon.parts import ScriptedScraper, gaps

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

START = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class WallClock:
    """Runs on with the loop's time, from wherever it was set to."""

    offset: float = 0.0

    def now(self, tz: tzinfo | None = None) -> datetime:
        return (START + timedelta(seconds=asyncio.get_running_loop().time() + self.offset)).astimezone(tz or UTC)

    def utc(self) -> datetime:
        return self.now(UTC)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()

    class Patched(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return clock.now(tz)

    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Patched)
    monkeypatch.setattr(apscheduler.executors.base, "datetime", Patched)
    return clock


def now() -> float:
    return asyncio.get_running_loop().time()


def started(wall: WallClock, period: float, kicks: list[str]) -> tuple[Ticker, list[float]]:
    runs: list[float] = []
    ticker = Ticker(now, wall=wall.utc, on_kick=kicks.append)
    ticker.every(period, "tick", lambda: runs.append(now()))
    ticker.start()
    return ticker, runs


async def test_a_job_runs_on_its_grid(wall: WallClock) -> None:
    kicks: list[str] = []
    ticker, runs = started(wall, 0.5, kicks)
    await asyncio.sleep(10.1)
    ticker.stop()
    assert len(runs) == 20
    assert max(gaps(runs)) == pytest.approx(0.5, abs=0.01)
    assert kicks == []


async def test_it_stops(wall: WallClock) -> None:
    ticker, runs = started(wall, 0.5, [])
    await asyncio.sleep(1.1)
    ticker.stop()
    before = len(runs)
    await asyncio.sleep(5)
    assert len(runs) == before
    ticker.stop()


@pytest.mark.parametrize("step", [-3600.0, -1.0, -0.3, 0.3, 1.0, 3600.0, 86_400.0])
async def test_a_step_of_the_wall_clock_delays_no_run_by_more_than_one_period(wall: WallClock, step: float) -> None:
    period = 0.5
    ticker, runs = started(wall, period, [])
    for moment in (3.0, 7.3, 7.4, 11.77):
        await asyncio.sleep(moment - now())
        wall.offset += step
    await asyncio.sleep(20 - now())
    ticker.stop()
    assert max(gaps(runs)) <= 2 * period + 0.05
    # What did not happen is not caught up with: a step forward adds no run of its own but the one it makes due.
    assert len(runs) <= 20 / period + 4 + 1


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
async def test_a_step_of_the_wall_clock_delays_no_scrape(wall: WallClock, step: float) -> None:
    interval = 0.5
    observer = Observer(TaskGuard(), now, Metrics(), budget=0.05, on_news=lambda _: None, on_change=lambda *_: None)
    scrapers = {f"p{number}": ScriptedScraper() for number in range(10)}
    observer.sync({name: Source(one, interval, 1.0) for name, one in scrapers.items()}, forget=frozenset(), budget=0.05)
    ticker = Ticker(now, wall=wall.utc)
    ticker.every(TICK, "tick", observer.tick)
    ticker.start()
    for _ in range(6):
        await asyncio.sleep(1.7)
        wall.offset += step
    await asyncio.sleep(2)
    ticker.stop()
    await observer.close()
    for scraper in scrapers.values():
        assert max(gaps(scraper.starts)) <= interval + 0.2
        assert len(scraper.starts) >= 22


async def test_a_step_is_said_once(wall: WallClock) -> None:
    kicks: list[str] = []
    ticker, _ = started(wall, 0.2, kicks)
    await asyncio.sleep(2)
    with structlog.testing.capture_logs() as logged:
        wall.offset -= 3600
        await asyncio.sleep(5)
    ticker.stop()
    assert [line["by_s"] for line in logged] == [pytest.approx(-3600, abs=0.1)]
    assert kicks == ["tick"]


async def test_several_jobs_survive_a_step_together(wall: WallClock) -> None:
    ticker, runs = started(wall, 0.1, [])
    slow: list[float] = []
    ticker.every(1.0, "slow", lambda: slow.append(now()))
    await asyncio.sleep(3.05)
    wall.offset -= 7200
    await asyncio.sleep(6.5)
    ticker.stop()
    assert max(gaps(runs)) <= 0.3
    assert max(gaps(slow)) <= 2.2


async def test_a_job_can_be_given_another_period(wall: WallClock) -> None:
    ticker, runs = started(wall, 1.0, [])
    await asyncio.sleep(2.5)
    ticker.every(0.25, "tick", lambda: runs.append(now()))
    runs.clear()
    await asyncio.sleep(2.05)
    ticker.stop()
    assert len(runs) == 8


async def test_when_a_job_ran_last(wall: WallClock) -> None:
    ticker, runs = started(wall, 0.5, [])
    await asyncio.sleep(1.2)
    assert ticker.last_run("tick") == runs[-1] == pytest.approx(1.0, abs=0.01)
    ticker.stop()


async def test_the_trigger_gives_the_next_beat_as_the_wall_clock_shows_it() -> None:
    moment = 100.0
    trigger = MonotonicTrigger(2.0, lambda: moment)
    wall_now = datetime(1999, 1, 1, tzinfo=UTC)
    moment = 103.5
    assert trigger.get_next_fire_time(None, wall_now) - wall_now == timedelta(seconds=0.5)
    # Asked a hair early, as timers may fire, it does not give the beat that is being served.
    moment = 103.99
    assert (trigger.get_next_fire_time(None, wall_now) - wall_now).total_seconds() == pytest.approx(2.01)
