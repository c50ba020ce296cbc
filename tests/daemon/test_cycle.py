"""When cycles run, and what each says."""

import asyncio

import pytest
import structlog

from grid.daemon.board import Board
from grid.daemon.cycle import JOIN, Cycle
from grid.daemon.delivery import Delivery
from grid.daemon.events import EventLog
from grid.daemon.leadership import Leadership
from grid.daemon.link import Link
from grid.daemon.metrics import Metrics
from grid.daemon.shelf import Shelf
from grid.daemon.tasks import TaskGuard
from grid.model import BusError, Problem, Reason
from grid.signals.scrape import Scrape
from grid.signals.store import SampleStore
from tests.daemon.parts import CONFIG, PretendedLease, PretendedPublisher, config, gaps, now, reading, value

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class _Observed:
    def __init__(self, names: list[str]) -> None:
        self.store = SampleStore(names)
        self.round_complete = True


class Cycled:
    def __init__(self, text: str = CONFIG, *, dry_run: bool = False) -> None:
        loaded = config(text)
        self.board = Board(loaded, loaded.to_network())
        self.observed = _Observed(list(self.board.network.providers))
        self.lease = PretendedLease()
        self.publisher = PretendedPublisher(self.lease)
        self.link = Link(lambda _: None)
        self.events = EventLog()
        self.lost = 0
        self.guard = TaskGuard()
        self.leadership = Leadership(
            self.lease,  # type: ignore[arg-type]
            self.link,
            now,
            take_over=self.nothing,
            on_lead=lambda: None,
            on_follow=lambda _: None,
        )
        self.metrics = Metrics()
        self.delivery = Delivery(
            self.publisher,  # type: ignore[arg-type]
            leadership=self.leadership,
            link=self.link,
            clock=now,
            metrics=self.metrics,
            on_published=lambda _: None,
        )
        self.cycle = Cycle(
            self.board,
            observer=self.observed,  # type: ignore[arg-type]
            leadership=self.leadership,
            delivery=self.delivery,
            shelf=Shelf(),
            link=self.link,
            events=self.events,
            metrics=self.metrics,
            clock=now,
            on_lost=self.note_loss,
            dry_run=dry_run,
        )

    async def nothing(self) -> None:
        pass

    def note_loss(self) -> None:
        self.lost += 1

    def scraped(self, name: str, ready: int = 2) -> None:
        self.observed.store.apply(name, Scrape(reading(ready), (), now(), 0.001, 100), interval=2.0)

    async def lead(self) -> None:
        self.leadership.bell.ring()
        await self.leadership.step()
        self.guard.loop("publish", self.delivery.step)

    async def once(self, *, urgent: bool = False) -> str:
        self.cycle.ask(urgent=urgent)
        with structlog.testing.capture_logs() as logged:
            await self.cycle.step()
        assert len(logged) == 1, "one sentence per cycle"
        return f"{logged[0]['log_level']}: {logged[0]['event']}"

    def moments(self, cost: float = 0.0) -> list[float]:
        """Note when cycles run; each pretends to have cost ``cost`` s."""
        seen: list[float] = []
        real = self.cycle._plan

        def noted():  # type: ignore[no-untyped-def]
            seen.append(now())
            planned = real()
            self.cycle._not_before = now() + min(9 * cost, self.board.interval / 2)
            self.cycle._urgent_not_before = now() + min(cost, self.board.interval / 2)
            return planned

        self.cycle._plan = noted  # type: ignore[method-assign]
        return seen


async def test_a_cycle_runs_once_per_interval_without_any_news() -> None:
    it = Cycled()
    seen = it.moments()
    it.guard.loop("cycle", it.cycle.step)
    await asyncio.sleep(11)
    await it.guard.stop()
    apart = gaps(seen)
    assert apart == pytest.approx([2 + JOIN] * len(apart), abs=0.001)


async def test_news_is_answered_at_once_and_a_burst_by_one_cycle() -> None:
    it = Cycled()
    seen = it.moments()
    it.guard.loop("cycle", it.cycle.step)
    await asyncio.sleep(0.5)
    seen.clear()
    first = now()
    for _ in range(10):
        it.cycle.ask(sample=True)
        await asyncio.sleep(0.0015)
    await asyncio.sleep(0.3)
    assert seen == pytest.approx([first + JOIN], abs=0.001)
    await it.guard.stop()


async def test_where_passes_are_dear_ordinary_news_waits_and_a_loss_does_not() -> None:
    it = Cycled()
    seen = it.moments(cost=0.05)
    it.guard.loop("cycle", it.cycle.step)
    await asyncio.sleep(0.1)
    start = now()
    while now() < start + 9:
        it.cycle.ask(sample=True)
        await asyncio.sleep(0.01)
    assert len(seen) * 0.05 <= 0.11 * 9.1, "a tenth of a core, and not more"
    await asyncio.sleep(0.06)
    seen.clear()
    asked = now()
    it.cycle.ask(urgent=True)
    await asyncio.sleep(0.1)
    assert len(seen) == 1
    assert asked <= seen[0] <= asked + JOIN
    await it.guard.stop()


async def test_even_losses_leave_half_a_core_to_everything_else() -> None:
    it = Cycled()
    seen = it.moments(cost=0.1)
    it.guard.loop("cycle", it.cycle.step)
    await asyncio.sleep(0.1)
    start = now()
    while now() < start + 5:
        it.cycle.ask(urgent=True)
        await asyncio.sleep(0.01)
    await it.guard.stop()
    assert 40 <= len(seen) <= 51


async def test_however_dear_passes_are_news_waits_half_an_interval_at_most() -> None:
    it = Cycled()
    seen = it.moments(cost=5.0)
    it.guard.loop("cycle", it.cycle.step)
    await asyncio.sleep(2.1)
    start = now()
    while now() < start + 9:
        it.cycle.ask(sample=True)
        await asyncio.sleep(0.01)
    await it.guard.stop()
    apart = gaps(seen)
    assert max(apart[1:]) <= 1.0 + 2 * JOIN


async def test_the_sentence_says_what_was_decided_and_published() -> None:
    it = Cycled()
    await it.lead()
    it.scraped("east-llama")
    it.scraped("west-llama")
    said = await it.once()
    assert said.startswith("info: 2 of 2 providers open")
    assert "published edge-east 1.1" in said
    assert "edge-west 1.1" in said
    said = await it.once()
    assert said.startswith("debug: 2 of 2 providers open; nothing changed")
    assert [event.kind for event in it.events.history()] == ["cycle"]
    assert len(it.events.cycles()) == 2
    await it.guard.stop()


async def test_a_model_that_nobody_takes_new_work_for_is_a_warning_once() -> None:
    it = Cycled()
    await it.lead()
    it.scraped("east-llama")
    it.scraped("west-llama")
    assert (await it.once()).startswith("info: ")
    for _ in range(2):
        for name in ("east-llama", "west-llama"):
            it.scraped(name, ready=0)
        said = await it.once()
    assert said.startswith("warning: 0 of 2 providers open")
    assert "nobody takes new work for llama" in said
    assert (await it.once()).startswith("debug: ")
    for _ in range(2):
        for name in ("east-llama", "west-llama"):
            it.scraped(name)
        said = await it.once()
    assert said.startswith("info: 2 of 2 providers open")
    await it.guard.stop()


async def test_nothing_is_published_before_the_first_round_is_complete() -> None:
    it = Cycled()
    await it.lead()
    it.observed.round_complete = False
    it.scraped("east-llama")
    said = await it.once()
    assert "holding back until the first round is complete (1 of 2 tried)" in said
    assert it.publisher.calls == []
    it.observed.store.fail("west-llama", Problem(Reason.TIMEOUT, "hangs"))
    it.observed.round_complete = True
    assert "published" in await it.once()
    assert set(it.publisher.stored) == {"edge-east", "edge-west"}
    await it.guard.stop()


async def test_a_follower_decides_and_says_whom_it_follows() -> None:
    from grid.bus.lease import Leader

    it = Cycled()
    assert "nobody leads yet" in await it.once()
    it.lease.other = Leader("host-2", 7)
    assert "following host-2" in await it.once()
    assert it.board.planned is not None
    assert it.publisher.calls == []


async def test_while_the_bus_is_away_it_decides_and_says_so() -> None:
    it = Cycled()
    await it.lead()
    it.scraped("east-llama")
    it.scraped("west-llama")
    with pytest.raises(BusError), it.link.watch():
        raise BusError("no", reason=Reason.BUS_UNREACHABLE)
    it.lease.lose()
    assert "not published: the bus is away (bus_unreachable)" in await it.once()
    await it.guard.stop()


async def test_a_fault_of_the_bus_is_in_the_sentence() -> None:
    it = Cycled()
    await it.lead()
    it.publisher.faults["edge-west"] = BusError("WRONGTYPE", reason=Reason.BUS_REFUSED)
    said = await it.once()
    assert "published edge-east 1.1" in said
    assert "edge-west not published: WRONGTYPE" in said
    await it.guard.stop()


async def test_a_dry_run_says_what_it_would_publish() -> None:
    it = Cycled(dry_run=True)
    said = await it.once()
    assert "dry run: would publish edge-east, edge-west" in said
    assert it.publisher.calls == []


async def test_a_gateway_whose_document_cannot_be_made_does_not_stop_the_others() -> None:
    text = CONFIG.replace(
        "gateways:",
        "  south-llama: {site: west, cluster: x, models: [other], access: {sites: [west]}, "
        "source: {epp: http://127.0.0.1:1/c}}\ngateways:",
    ).replace("models: [llama],", "models: [llama], access: {sites: [west]},")
    it = Cycled(text)
    await it.lead()
    said = await it.once()
    assert "edge-east" in said
    assert "no candidate" in said
    assert set(it.publisher.stored) == {"edge-west"}
    assert it.board.planned is not None
    assert set(it.board.planned.faults) == {"edge-east"}
    assert (await it.once()).startswith("debug:"), "the same fault again is no news"
    await it.guard.stop()


async def test_a_lost_provider_is_told_at_once() -> None:
    it = Cycled()
    await it.lead()
    it.scraped("east-llama")
    it.scraped("west-llama")
    await it.once()
    await it.once()
    assert it.lost == 0
    it.scraped("east-llama", ready=0)
    said = await it.once(urgent=True)
    assert it.lost == 1
    assert "behind every ready provider" in said
    await it.guard.stop()


async def test_the_memory_of_a_pass_goes_into_the_next() -> None:
    it = Cycled()
    it.scraped("east-llama", ready=0)
    await it.once()
    memory = it.board.memory.providers["east-llama"]
    assert memory.hysteresis.zero == 1
    assert it.board.memory_urgent
    await it.once()
    assert it.board.memory.providers["east-llama"].hysteresis.zero == 1, "the same scrape counts once"


async def test_a_fault_in_a_pass_is_counted_and_does_not_stop_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Cycled()

    def broken(*_: object) -> None:
        raise RuntimeError("bug")

    with monkeypatch.context() as patch:
        patch.setattr(it.cycle._planner, "plan", broken)
        with structlog.testing.capture_logs():
            it.guard.loop("cycle", it.cycle.step)
            await asyncio.sleep(3)
        assert it.board.cycled_at > 0
    with structlog.testing.capture_logs():
        await asyncio.sleep(6)
        await it.guard.stop()
    assert it.board.planned is not None
    assert value(it.metrics.cycles, "grid_cycles_total", outcome="failed")
