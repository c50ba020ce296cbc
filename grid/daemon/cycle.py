"""The cycle: as soon as a scrape brought something, and at least once per scrape interval.

What arrives within 20 ms is answered by one cycle. Beyond that cycles may take a tenth of a core at most: where passes
are dear (a thousand providers), ordinary news waits up to nine times what the last pass cost, though never more than
half an interval. The loss of a provider, a drain or a reload does not wait.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import structlog

from grid.daemon.board import Board
from grid.daemon.delivery import Delivery, Order
from grid.daemon.events import EventLog
from grid.daemon.frames import lost
from grid.daemon.leadership import Leadership
from grid.daemon.link import Link
from grid.daemon.metrics import Metrics
from grid.daemon.observe import Observer
from grid.daemon.planner import Planned, Planner, reasons
from grid.daemon.shelf import Shelf
from grid.daemon.tasks import Bell
from grid.policy import PolicyInput

JOIN = 0.02
"""S within which news is joined."""
SHARE = 0.1
"""Of one core, for ordinary cycles."""
URGENT_SHARE = 0.5
"""Of one core, whatever happens: when a thousand providers fall at once, scrapes and the lease must go on."""

_log = structlog.get_logger("grid.daemon")


class Cycle:
    """Runs passes and hands their documents over. ``on_lost()`` is called when a provider has been lost."""

    def __init__(
        self,
        board: Board,
        *,
        observer: Observer,
        leadership: Leadership,
        delivery: Delivery,
        shelf: Shelf,
        link: Link,
        events: EventLog,
        metrics: Metrics,
        clock: Callable[[], float],
        on_lost: Callable[[], None],
        dry_run: bool = False,
    ) -> None:
        self._board = board
        self._observer = observer
        self._leadership = leadership
        self._delivery = delivery
        self._shelf = shelf
        self._link = link
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._on_lost = on_lost
        self._dry_run = dry_run
        self._planner = Planner()
        self._news = Bell()
        self._urgent = Bell()
        self._news_at: float | None = None
        self._not_before = 0.0
        self._urgent_not_before = 0.0
        self._said_faults: Mapping[str, str] = {}
        self._said_dark: frozenset[str] = frozenset()

    def ask(self, *, urgent: bool = False, sample: bool = False) -> None:
        """Ask for a cycle. ``sample``: a scrape has brought something just now."""
        if sample and self._news_at is None:
            self._news_at = self._clock()
        if urgent:
            self._urgent.ring()
        self._news.ring()

    async def step(self) -> None:
        """Wait until a cycle is due and run it."""
        await self._due()
        news_at, self._news_at = self._news_at, None
        planned = self._plan()
        before, self._board.planned = self._board.planned, planned
        fallen = lost(before.decisions, planned.decisions) if before is not None else []
        order, tail = await self._deliver(planned, news_at)
        if fallen:
            self._on_lost()
        self._tell(planned, order, tail)

    async def _due(self) -> None:
        board = self._board
        await self._news.wait(max(0.0, board.cycled_at + board.interval - self._clock()))
        # Whatever comes from here on is part of this cycle.
        soonest = max(self._clock() + JOIN, self._urgent_not_before)
        await self._urgent.wait(max(JOIN, self._not_before - self._clock()))
        await asyncio.sleep(max(0.0, soonest - self._clock()))
        self._news.clear()
        self._urgent.clear()

    def _plan(self) -> Planned:
        board, now, wall = self._board, self._clock(), time.time()
        seen = self._observer.store.snapshot()
        started = time.perf_counter()
        try:
            planned = self._planner.plan(
                PolicyInput(
                    network=board.network,
                    samples=seen.samples,
                    memory=board.memory,
                    now=now,
                    probes=seen.probes,
                    drains=board.drained(),
                    round_complete=self._observer.round_complete,
                    previous=board.previous,
                ),
                datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds"),
            )
        except Exception:
            self._metrics.cycles.labels("failed").inc()
            raise
        finally:
            cost = time.perf_counter() - started
            board.cycled_at = now
            self._not_before = self._clock() + min(cost * (1 / SHARE - 1), board.interval / 2)
            self._urgent_not_before = self._clock() + min(cost * (1 / URGENT_SHARE - 1), board.interval / 2)
        self._metrics.cycle_duration.observe(cost)
        board.memory = planned.outcome.memory
        board.memory_urgent = board.memory_urgent or bool(planned.outcome.changes)
        return planned

    async def _deliver(self, planned: Planned, news_at: float | None) -> tuple[Order | None, str]:
        """Hand the documents over where that is ours to do; the second value says how it went."""
        if not self._observer.round_complete:
            read = sum(1 for state in self._observer.store.snapshot().states.values() if state.attempts)
            return None, f"holding back until the first round is complete ({read} of {len(planned.decisions)} tried)"
        changed = {
            name: self._shelf.envelope(name)
            for name, document in planned.documents.items()
            if (held := self._shelf.get(name)) is None or held.revision != document.revision
        }
        if self._dry_run:
            return None, f"dry run: would publish {', '.join(sorted(changed))}" if changed else "dry run"
        if not self._leadership.leading:
            return None, self._why_not()
        if not self._delivery.due(planned.documents, self._board.interval):
            return None, ""
        order = Order(planned.documents, planned.plans, reasons(planned, changed), news_at if changed else None)
        finished = await self._delivery.deliver(order)
        said = [f"published {one.gateway} {one.epoch}.{one.version} ({one.revision[:8]})" for one in order.published]
        said += [f"{name} not published: {error.message}" for name, error in sorted(order.faults.items())]
        if not finished and not order.faults:
            said.append("publishing is under way")
        return order, "; ".join(said)

    def _why_not(self) -> str:
        if self._link.fault is not None:
            return f"not published: the bus is away ({self._link.fault.reason})"
        other = self._leadership.lease.other
        return f"following {other.holder}" if other is not None else "not published: nobody leads yet"

    def _tell(self, planned: Planned, order: Order | None, tail: str) -> None:
        faults = {name: error.message for name, error in planned.faults.items()}
        sentence = "; ".join(
            part for part in (planned.outcome.sentence, tail, *(faults[name] for name in sorted(faults))) if part
        )
        published = [] if order is None else [one.gateway for one in order.published]
        changed = bool(planned.outcome.changes or published or faults != self._said_faults)
        # While the first round goes on, every cycle decides something new and nothing comes of it.
        changed = changed and self._observer.round_complete
        self._said_faults = faults
        self._metrics.cycles.labels("changed" if changed else "unchanged").inc()
        self._events.add_cycle(sentence, {"published": published, "changed": changed}, changed=changed)
        dark = frozenset(planned.outcome.dark) if self._observer.round_complete else self._said_dark
        newly, self._said_dark = dark - self._said_dark, dark
        if newly:
            _log.warning(sentence, models=sorted(newly))
        elif changed:
            _log.info(sentence)
        else:
            _log.debug(sentence)
