import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import structlog

from grid.daemon.metrics import Metrics
from grid.daemon.observe import MARGIN, Observer, Source
from grid.daemon.tasks import TaskGuard
from grid.daemon.troubles import HOLD
from grid.model import Problem, Provider, Reading, Reason, ScrapeError
from grid.policy.freshness import is_fresh
from grid.signals.readiness import ProbeResult
from tests.daemon.parts import ScriptedScraper, gaps, now, reading

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

INTERVAL, TIMEOUT = 2.0, 1.0


@dataclass
class Watched:
    guard: TaskGuard = field(default_factory=TaskGuard)
    news: list[tuple[float, bool]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    fields: list[Mapping[str, object]] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)

    def observer(self) -> Observer:
        def change(provider: str, sentence: str, fields: Mapping[str, object]) -> None:
            self.said.append(sentence)
            self.fields.append(fields)

        return Observer(
            self.guard,
            now,
            self.metrics,
            budget=0.05,
            on_news=lambda urgent: self.news.append((now(), urgent)),
            on_change=change,
        )


@dataclass
class ScriptedProbe:
    results: list[ProbeResult]
    delay: float = 0.0
    calls: int = 0
    closed: int = 0

    async def check(self) -> ProbeResult:
        self.calls += 1
        await asyncio.sleep(self.delay)
        return self.results[min(self.calls, len(self.results)) - 1]

    async def aclose(self) -> None:
        self.closed += 1


def source(scraper: ScriptedScraper, probe: ScriptedProbe | None = None) -> Source:
    return Source(scraper, INTERVAL, TIMEOUT, probe)  # type: ignore[arg-type]


def start(observer: Observer, scrapers: Mapping[str, ScriptedScraper]) -> dict[str, Source]:
    sources = {name: source(scraper) for name, scraper in scrapers.items()}
    observer.sync(sources, forget=frozenset(), budget=0.05)
    return sources


async def run(observer: Observer, seconds: float) -> None:
    end = now() + seconds
    while now() < end:
        observer.tick()
        await asyncio.sleep(0.025)


async def test_a_hang_delays_nobody_and_costs_only_its_own_beats() -> None:
    watched = Watched()
    observer = watched.observer()
    scrapers = {f"p{number}": ScriptedScraper() for number in range(9)}
    scrapers["hung"] = ScriptedScraper([1000.0])
    start(observer, scrapers)
    await run(observer, 20)
    for name, scraper in scrapers.items():
        apart = gaps(scraper.starts)
        assert apart == pytest.approx([INTERVAL] * len(apart), abs=0.05), name
    hung = observer.store.state("hung")
    assert hung.failures == {Reason.TIMEOUT: hung.attempts}
    assert scrapers["hung"].cancelled == hung.attempts > 5
    await observer.close()


async def test_a_source_slower_than_its_beat_is_never_read_twice_at_once() -> None:
    watched = Watched()
    observer = watched.observer()
    slow = ScriptedScraper([1000.0])
    observer.sync({"slow": Source(slow, 0.5, 1.0)}, forget=frozenset(), budget=0.05)
    await run(observer, 10)
    apart = gaps(slow.starts)
    assert min(apart) >= 1.0 + MARGIN
    assert observer.schedule.beat("slow").skipped > 5
    await observer.close()


async def test_starts_are_spread_over_the_interval() -> None:
    observer = Watched().observer()
    scrapers = {f"p{number}": ScriptedScraper() for number in range(40)}
    start(observer, scrapers)
    await run(observer, INTERVAL)
    starts = sorted(scraper.starts[0] for scraper in scrapers.values())
    tenths = {int(moment / INTERVAL * 10) for moment in starts}
    assert len(tenths) == 10
    await observer.close()


async def test_the_first_round_is_complete_when_everybody_was_tried_once() -> None:
    watched = Watched()
    observer = watched.observer()
    start(
        observer,
        {
            "good": ScriptedScraper(),
            "refused": ScriptedScraper([ScrapeError("no", reason=Reason.CONNECT_REFUSED)]),
            "hung": ScriptedScraper([1000.0]),
        },
    )
    finished: list[float] = []
    while not observer.round_complete:
        observer.tick()
        await asyncio.sleep(0.025)
        finished.append(now())
    assert finished[-1] <= INTERVAL + TIMEOUT + MARGIN + 0.05
    assert observer.store.snapshot().round_complete
    assert watched.news[-1][1], "that is urgent: now documents may go out"
    await observer.close()


async def test_without_providers_the_round_is_complete_at_once() -> None:
    observer = Watched().observer()
    start(observer, {})
    assert observer.round_complete


async def test_a_round_that_is_complete_stays_so_when_providers_join() -> None:
    observer = Watched().observer()
    sources = start(observer, {"a": ScriptedScraper()})
    await run(observer, 2.1)
    assert observer.round_complete
    observer.sync({**sources, "b": source(ScriptedScraper([1000.0]))}, forget=frozenset(), budget=0.05)
    assert observer.round_complete
    await observer.close()


async def test_a_provider_that_leaves_during_the_first_round_is_not_waited_for() -> None:
    observer = Watched().observer()
    sources = start(observer, {"a": ScriptedScraper(), "hung": ScriptedScraper([1000.0])})
    await run(observer, 2.05)
    before = observer.round_complete
    observer.sync({"a": sources["a"]}, forget=frozenset(), budget=0.05)
    assert (before, observer.round_complete) == (False, True)
    await observer.close()


async def test_the_loss_of_the_last_endpoint_is_urgent_twice() -> None:
    watched = Watched()
    observer = watched.observer()
    pages = [reading(2), reading(2), reading(0), reading(0), reading(0), reading(0), reading(2), reading(0)]
    start(observer, {"a": ScriptedScraper(pages)})
    await run(observer, 2.0 * len(pages))
    # The first of all completes the round; the others are told by what they bring.
    news = [urgent for _, urgent in watched.news][1:]
    assert news == [False, False, True, True, False, False, False, True]
    await observer.close()


async def test_what_a_source_does_is_said_when_it_changes() -> None:
    watched = Watched()
    observer = watched.observer()
    refused = ScrapeError("http://east refuses", reason=Reason.CONNECT_REFUSED)
    steps: list[Reading | Exception | float] = [
        refused,
        refused,
        ScrapeError("no token", reason=Reason.CREDENTIAL_MISSING),
        reading(),
        reading(),
        refused,
    ]
    start(observer, {"a": ScriptedScraper(steps)})
    await run(observer, 2.0 * len(steps))
    assert watched.said == [
        "a cannot be read: http://east refuses",
        "a cannot be read: no token",
        "a is read again after 3 failed scrapes",
        "a cannot be read: http://east refuses",
    ]
    await observer.close()


async def test_what_is_wrong_with_a_page_is_said_once_per_change_of_its_codes() -> None:
    watched = Watched()
    observer = watched.observer()
    scraper = ScriptedScraper()
    start(observer, {"a": scraper})
    await run(observer, 6)
    assert watched.said == []
    for value in ("NaN", "-3"):
        scraper.problems = (Problem(Reason.BAD_VALUE, value),)
        await run(observer, 4)
    scraper.problems = ()
    await run(observer, 20)
    scraper.problems = (Problem(Reason.BAD_VALUE, "abc"), Problem(Reason.LIVE_READY_HINT, "off"))
    await run(observer, 4)
    scraper.problems = (Problem(Reason.BAD_VALUE, "abc"),)
    await run(observer, HOLD + 4)
    scraper.problems = ()
    await run(observer, HOLD + 4)
    assert watched.said == [
        "the page of a: bad_value: NaN",
        "the page of a: live_ready_hint: off",
        "the page of a: no longer live_ready_hint",
        "the page of a: no longer bad_value; nothing is wrong with it any more",
    ]
    assert [fields.get("reason") for fields in watched.fields] == ["bad_value", None, None, None]
    assert watched.fields[1]["problems"] == ["bad_value", "live_ready_hint"]
    await observer.close()


@pytest.mark.parametrize("costs", [[0.4], [0.001, 0.001, 0.4], [0.4, 0.001, 0.4, 0.4, 0.001, 0.001, 0.001, 0.4]])
async def test_a_page_that_turns_out_dear_is_fresh_until_the_next_one(costs: list[float]) -> None:
    """The sample whose cost stretches the interval has the stretched one, so its bound covers the wait."""
    observer = Watched().observer()
    scraper = ScriptedScraper()
    start(observer, {"a": scraper})
    given = Provider("a", "east", "c", (), interval=INTERVAL, timeout=TIMEOUT)
    for tick in range(int(90 / 0.025)):
        scraper.cost = costs[min(len(scraper.starts), len(costs) - 1)]
        observer.tick()
        await asyncio.sleep(0.025)
        sample = observer.store.snapshot().samples.get("a")
        if sample is not None:
            assert is_fresh(given, sample, now()), f"stale {tick * 0.025:.1f} s after the start"
    assert observer.schedule.interval("a") == pytest.approx(8.0)
    await observer.close()


async def test_a_fault_of_ours_is_a_failed_scrape_and_a_fault_in_the_log() -> None:
    watched = Watched()
    observer = watched.observer()
    start(observer, {"a": ScriptedScraper([RuntimeError("bug"), reading()])})
    with structlog.testing.capture_logs() as logged:
        await run(observer, 4.0)
    state = observer.store.state("a")
    assert state.failures == {Reason.INTERNAL: 1}
    assert state.successes == 1
    assert [line["log_level"] for line in logged] == ["error"]
    await observer.close()


async def test_who_stays_keeps_beat_and_sample() -> None:
    observer = Watched().observer()
    stays, goes = ScriptedScraper(), ScriptedScraper()
    sources = start(observer, {"goes": goes, "stays": stays})
    await run(observer, 6.5)
    useless = observer.sync(
        {"stays": sources["stays"], "comes": source(ScriptedScraper())}, forget=frozenset(), budget=0.05
    )
    assert useless == [sources["goes"]]
    assert observer.store.state("stays").successes == len(stays.starts)
    await run(observer, 6.5)
    apart = gaps(stays.starts)
    assert apart == pytest.approx([INTERVAL] * len(apart), abs=0.05)
    await observer.close()
    assert stays.closed == 1


async def test_a_replaced_source_is_cut_off_and_its_answer_counts_no_more() -> None:
    observer = Watched().observer()
    old, new = ScriptedScraper([0.9, reading(7)]), ScriptedScraper([reading(3)])
    start(observer, {"a": old})
    while not old.starts:
        observer.tick()
        await asyncio.sleep(0.025)
    fresh = source(new)
    observer.sync({"a": fresh}, forget=frozenset({"a"}), budget=0.05)
    await run(observer, 2.1)
    assert old.cancelled == 1
    sample = observer.store.state("a").sample
    assert sample is not None
    assert sample.reading.ready == 3
    assert len(new.starts) == 1, "the beat is free for the new source"
    await observer.close()


async def test_forgetting_drops_the_sample_of_a_source_that_looks_elsewhere_now() -> None:
    observer = Watched().observer()
    start(observer, {"a": ScriptedScraper()})
    await run(observer, 2.1)
    assert observer.store.state("a").sample is not None
    observer.sync({"a": source(ScriptedScraper())}, forget=frozenset({"a"}), budget=0.05)
    assert observer.store.state("a").sample is None
    observer.sync({"a": source(ScriptedScraper())}, forget=frozenset(), budget=0.05)
    await observer.close()


async def test_another_budget_moves_no_beat_and_reads_nobody_twice() -> None:
    observer = Watched().observer()
    scraper = ScriptedScraper([0.9, reading()])
    sources = start(observer, {"a": scraper})
    while not scraper.starts:
        observer.tick()
        await asyncio.sleep(0.025)
    observer.sync(sources, forget=frozenset(), budget=0.5)
    await run(observer, 6)
    apart = gaps(scraper.starts)
    assert apart == pytest.approx([INTERVAL] * len(apart), abs=0.05)
    await observer.close()


async def test_a_probe_goes_beside_and_never_delays_the_page() -> None:
    watched = Watched()
    observer = watched.observer()
    scraper = ScriptedScraper()
    denied = ProbeResult(False, Problem(Reason.PROBE_DENIED, "status 503"))
    probe = ScriptedProbe([ProbeResult(True), ProbeResult(True), denied], delay=0.9)
    observer.sync({"a": source(scraper, probe)}, forget=frozenset(), budget=0.05)
    await run(observer, 8)
    assert len(scraper.starts) == probe.calls == 4
    assert observer.store.snapshot().probes == {"a": False}
    urgent = [moment for moment, one in watched.news if one]
    assert urgent[1:] == pytest.approx([scraper.starts[2] + 0.9], abs=0.05), "a denial is urgent, once"
    await observer.close()
    assert probe.closed == 1


async def test_a_probe_that_hangs_is_not_started_again() -> None:
    observer = Watched().observer()
    probe = ScriptedProbe([ProbeResult(True)], delay=1000)
    scraper = ScriptedScraper()
    observer.sync({"a": source(scraper, probe)}, forget=frozenset(), budget=0.05)
    await run(observer, 8)
    assert (probe.calls, len(scraper.starts)) == (1, 4)
    await observer.close()


async def test_closing_cuts_off_what_runs() -> None:
    observer = Watched().observer()
    hung = ScriptedScraper([1000.0])
    start(observer, {"a": hung})
    while not hung.starts:
        observer.tick()
        await asyncio.sleep(0.025)
    before = now()
    await observer.close()
    assert now() - before < 0.1
    assert (hung.cancelled, hung.closed) == (1, 1)
    observer.tick()
