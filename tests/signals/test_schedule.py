"""Beats of many providers: spread, budget, skipping, and nobody waiting for anybody."""

import asyncio
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grid.signals.schedule import ScrapeSchedule


def run(schedule: ScrapeSchedule, until: float, *, costs: dict[str, float] | None = None) -> list[tuple[float, str]]:
    """Play a loop that never oversleeps and scrapes in no time; returns (time, provider) of every scrape."""
    beats: list[tuple[float, str]] = []
    now = 0.0
    while (due := schedule.next_due(now)) is not None and due <= until:
        now = due
        for provider in schedule.due(now):
            schedule.started(provider, now)
            schedule.finished(provider, now, cost=(costs or {}).get(provider))
            beats.append((now, provider))
    return beats


def filled(count: int, interval: float, *, budget: float = 0.05) -> ScrapeSchedule:
    schedule = ScrapeSchedule(epoch=0.0, budget=budget)
    schedule.sync({f"p{index:04}": interval for index in range(count)}, 0.0)
    return schedule


@pytest.mark.parametrize("count", [2, 3, 10, 100, 1000])
def test_spread_over_the_interval(count: int) -> None:
    starts = sorted(time for time, _ in run(filled(count, 10.0), 9.999))
    assert len(starts) == count
    gaps = [after - before for before, after in zip(starts, [*starts[1:], starts[0] + 10.0], strict=True)]
    even = 10.0 / count
    assert max(gaps) < 2.7 * even
    assert min(gaps) > 0.35 * even
    # No tenth of the interval holds more than its share and two.
    for tenth in range(10):
        assert sum(tenth <= start < tenth + 1 for start in starts) <= count / 10 + 2


def test_a_restart_keeps_the_spread_and_the_phases() -> None:
    before = run(filled(100, 10.0), 60.0)
    again = ScrapeSchedule(epoch=5000.0)
    again.sync({f"p{index:04}": 10.0 for index in range(100)}, 5000.0)
    phases = {provider: again.beat(provider).next_due - 5000.0 for provider in again}
    assert {provider: pytest.approx(phases[provider]) for _, provider in before} == {
        provider: min(time for time, name in before if name == provider) for provider in phases
    }


def test_beats_do_not_drift() -> None:
    beats = run(filled(3, 0.1), 1000.0)
    last = {provider: time for time, provider in beats}
    for provider, time in last.items():
        first = next(at for at, name in beats if name == provider)
        periods = (time - first) / 0.1
        assert periods == pytest.approx(round(periods), abs=1e-6)
    assert len(beats) == pytest.approx(30_000, abs=3)


def test_late_calls_do_not_shift_the_grid() -> None:
    schedule = filled(1, 2.0)
    started = []
    for now in (0.3, 2.9, 4.2, 6.0):
        assert schedule.due(now) == ["p0000"]
        schedule.started("p0000", now)
        schedule.finished("p0000", now)
        started.append(schedule.next_due(now))
    assert started == [pytest.approx(value) for value in (2.0, 4.0, 6.0, 8.0)]


def test_due_is_a_question_until_the_scrape_is_started() -> None:
    schedule = filled(3, 2.0)
    assert schedule.due(0.0) == schedule.due(0.0) == ["p0000"]
    assert len(schedule.due(2.0)) == 3
    assert schedule.due(2.0)[0] == "p0000"  # the longest due comes first
    schedule.started("p0000", 2.0)
    assert "p0000" not in schedule.due(2.0)


def test_never_two_at_once_and_a_late_one_skips_its_beats() -> None:
    schedule = filled(1, 2.0)
    schedule.started("p0000", 0.0)
    with pytest.raises(RuntimeError, match=r"p0000.*1\.500 s"):
        schedule.started("p0000", 1.5)
    assert schedule.due(2.0) == []
    assert schedule.due(4.1) == []
    assert schedule.beat("p0000").skipped == 2
    schedule.finished("p0000", 4.5)
    assert schedule.due(5.9) == []
    assert schedule.next_due(5.9) == pytest.approx(6.0)
    assert schedule.due(6.0) == ["p0000"]


def test_a_scrape_longer_than_its_interval_is_not_followed_at_once() -> None:
    schedule = filled(1, 2.0)
    schedule.started("p0000", 0.0)
    schedule.finished("p0000", 3.0)  # nobody asked for due() in between
    assert schedule.due(3.0) == []
    assert schedule.beat("p0000").skipped == 1
    assert schedule.next_due(3.0) == pytest.approx(4.0)


def test_a_stalled_loop_skips_what_it_missed() -> None:
    schedule = filled(2, 1.0)
    assert sorted(schedule.due(60.5)) == ["p0000", "p0001"]
    for provider in schedule.due(60.5):
        schedule.started(provider, 60.5)
        schedule.finished(provider, 60.5)
    assert schedule.due(60.5) == []
    assert schedule.beat("p0000").skipped == 60  # beats 0 to 60, of which one is made up for
    assert schedule.next_due(60.5) == pytest.approx(60.618, abs=0.001)


def test_adding_and_removing_moves_nobody_else() -> None:
    schedule = filled(10, 10.0)
    before = {provider: schedule.beat(provider).next_due for provider in schedule}
    schedule.remove("p0003")
    schedule.add("fresh", 10.0, 0.0)
    assert schedule.beat("fresh").next_due == before.pop("p0003")  # it takes the free slot
    schedule.add("other", 10.0, 0.0)
    schedule.add("p0005", 4.0, 0.0)
    del before["p0005"]
    assert {provider: schedule.beat(provider).next_due for provider in before} == before
    assert len(schedule) == 11
    assert "p0003" not in schedule


def test_sync_takes_in_and_drops() -> None:
    schedule = filled(3, 10.0)
    before = schedule.beat("p0001")
    schedule.sync({"p0001": 10.0, "new": 5.0}, 100.0)
    assert sorted(schedule) == ["new", "p0001"]
    assert schedule.beat("p0001") == before
    assert 100.0 <= schedule.beat("new").next_due < 105.0


def test_a_changed_interval_keeps_slot_and_counts() -> None:
    schedule = filled(2, 10.0)
    schedule.started("p0001", 6.2)
    schedule.due(30.0)
    skipped = schedule.beat("p0001").skipped
    schedule.add("p0001", 2.0, 30.0)
    beat = schedule.beat("p0001")
    assert (beat.running_since, beat.skipped, beat.interval) == (6.2, skipped, 2.0)
    assert skipped == 2
    assert 30.0 <= beat.next_due < 32.0


def test_a_provider_that_returns_while_its_scrape_runs_waits_for_it() -> None:
    schedule = filled(1, 2.0)
    schedule.started("p0000", 0.0)
    schedule.remove("p0000")
    assert schedule.running == 1
    schedule.add("p0000", 1.0, 0.5)
    assert schedule.running == 1
    assert schedule.due(1.0) == []
    schedule.finished("p0000", 1.5)
    assert schedule.running == 0
    assert schedule.due(2.0) == ["p0000"]


def test_a_removed_provider_whose_scrape_ends_is_gone() -> None:
    schedule = filled(1, 2.0)
    schedule.started("p0000", 0.0)
    schedule.remove("p0000")
    schedule.finished("p0000", 1.0, cost=0.1)
    schedule.remove("p0000")
    schedule.finished("p0000", 1.0)
    assert (schedule.running, len(schedule), schedule.next_due(1.0)) == (0, 0, None)
    with pytest.raises(KeyError):
        schedule.beat("p0000")


def test_the_budget_stretches_a_dear_page_and_lets_go_of_a_cheap_one() -> None:
    schedule = filled(1, 2.0)
    costs = {"p0000": 0.4}
    times = [time for time, _ in run(schedule, 100.0, costs=costs)]
    # Two dear pages are needed before it is believed; from then on 20 times the cost.
    assert times[:4] == [pytest.approx(value) for value in (0.0, 2.0, 10.0, 18.0)]
    assert schedule.interval("p0000") == pytest.approx(8.0)
    assert schedule.beat("p0000").effective == pytest.approx(8.0)
    assert schedule.beat("p0000").interval == 2.0
    costs["p0000"] = 0.01
    start = schedule.next_due(0.0)
    assert start is not None
    later = [time for time, _ in run(schedule, start + 30.0, costs=costs)]
    assert later[1] - later[0] == pytest.approx(8.0)  # one cheap page is not believed
    assert later[2] - later[1] <= 3.0  # the way back onto the grid
    assert later[3] - later[2] == pytest.approx(2.0)
    assert later[-1] % 2.0 == pytest.approx(0.0, abs=1e-6)
    assert schedule.interval("p0000") == 2.0


def test_one_slow_page_stretches_nothing() -> None:
    schedule = filled(1, 2.0)
    for cost in (1.9, 0.01, 0.01, 1.9, 0.01):
        now = schedule.next_due(0.0)
        assert now is not None
        schedule.started("p0000", now)
        schedule.finished("p0000", now + cost, cost=cost)
        assert schedule.interval("p0000") == 2.0


def test_a_failed_scrape_leaves_the_cost_alone() -> None:
    schedule = filled(1, 2.0)
    for cost in (0.4, 0.4, None, None, None, math.nan):
        now = schedule.next_due(0.0)
        assert now is not None
        schedule.started("p0000", now)
        schedule.finished("p0000", now, cost=cost)
    assert schedule.beat("p0000").cost == 0.4


def test_a_stretch_counts_at_once() -> None:
    schedule = filled(1, 2.0)
    for now in (0.0, 2.0):
        schedule.started("p0000", now)
        assert schedule.beat("p0000").next_due == pytest.approx(now + 2.0)
        schedule.finished("p0000", now + 1.0, cost=1.0)
    assert schedule.next_due(3.0) == pytest.approx(2.0 + 20.0)


def test_starting_early_is_allowed_and_moves_no_beat() -> None:
    schedule = filled(2, 10.0)
    due = schedule.beat("p0001").next_due
    schedule.started("p0001", 1.0)
    schedule.finished("p0001", 1.2)
    assert schedule.beat("p0001").next_due == pytest.approx(due)
    assert schedule.beat("p0001").skipped == 0


@pytest.mark.parametrize("interval", [0.0, -1.0, math.nan, math.inf])
def test_an_interval_must_be_a_length_of_time(interval: float) -> None:
    with pytest.raises(ValueError, match="above 0 s"):
        ScrapeSchedule(epoch=0.0).add("p", interval, 0.0)


@pytest.mark.parametrize("budget", [0.0, -0.1, 1.1, math.nan])
def test_a_budget_must_be_a_share(budget: float) -> None:
    with pytest.raises(ValueError, match="share"):
        ScrapeSchedule(epoch=0.0, budget=budget)


@settings(max_examples=150, deadline=None)
@given(
    intervals=st.lists(st.sampled_from([0.5, 1.0, 2.0, 7.3]), min_size=1, max_size=8),
    steps=st.lists(
        st.tuples(
            st.floats(0.0, 5.0),
            st.lists(st.tuples(st.integers(0, 7), st.none() | st.floats(0.0, 1.0)), max_size=4),
        ),
        max_size=40,
    ),
)
def test_whatever_happens(intervals: list[float], steps: list[tuple[float, list[tuple[int, float | None]]]]) -> None:
    """Beats lie in the future once asked for, every beat is run or skipped, nobody runs twice, nobody is forgotten."""
    schedule = ScrapeSchedule(epoch=0.0)
    schedule.sync({f"p{index}": interval for index, interval in enumerate(intervals)}, 0.0)
    now = 0.0
    for wait, ends in steps:
        now += wait
        running = {provider for provider in schedule if schedule.beat(provider).running_since is not None}
        for index, cost in ends:
            schedule.finished(f"p{index}", now, cost=cost)
            running.discard(f"p{index}")
        due = schedule.due(now)
        assert len(set(due)) == len(due)
        assert not running & set(due)
        for provider in due:
            schedule.started(provider, now)
        assert schedule.due(now) == []
        for provider in schedule:
            beat = schedule.beat(provider)
            assert beat.next_due > now
            assert beat.next_due - now <= 1.5 * max(beat.effective, beat.interval) + 1e-6
        upcoming = schedule.next_due(now)
        assert upcoming == min(schedule.beat(provider).next_due for provider in schedule)


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_hanging_provider_delays_nobody() -> None:
    """A tick loop as the daemon runs one: twenty providers at 2 s, one of which never answers within 7 s."""
    loop = asyncio.get_running_loop()
    schedule = ScrapeSchedule(epoch=loop.time())
    begin = loop.time()
    schedule.sync({f"p{index:02}": 2.0 for index in range(20)}, begin)
    starts: dict[str, list[float]] = {provider: [] for provider in schedule}
    tasks: set[asyncio.Task[None]] = set()

    async def scrape(provider: str) -> None:
        await asyncio.sleep(7.0 if provider == "p07" else 0.05)
        schedule.finished(provider, loop.time(), cost=0.01)

    while loop.time() < begin + 20.0:
        now = loop.time()
        for provider in schedule.due(now):
            schedule.started(provider, now)
            starts[provider].append(now - begin)
            tasks.add(asyncio.create_task(scrape(provider)))
        upcoming = schedule.next_due(now)
        assert upcoming is not None
        await asyncio.sleep(upcoming - now)
    await asyncio.gather(*tasks)
    for provider, times in starts.items():
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert gaps == [pytest.approx(8.0 if provider == "p07" else 2.0, abs=0.01)] * len(gaps)
    assert len(starts["p06"]) == 10
    assert schedule.beat("p07").skipped == 3 * (len(starts["p07"]))
