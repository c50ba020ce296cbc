"""One daemon in virtual time: production's schedule, sample store, policy, rendering and frames, without its waiting.

Passes and scrapes' bookkeeping cost no virtual time here, so nothing ever has to wait for its share of a core.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from grid.bus.order import NOWHERE, Position
from grid.bus.reports import Report
from grid.daemon.cycle import JOIN
from grid.daemon.frames import INTERVAL, Pace, build, lost
from grid.daemon.housekeeping import EVERY
from grid.daemon.keeper import MEMORY_EVERY
from grid.daemon.planner import Planned, Planner, previous_of
from grid.model import Network, Reading, Reason, ScrapeError
from grid.overlay import verify
from grid.policy import PolicyInput, PolicyMemory, PreviousCandidate, as_previous
from grid.signals.schedule import ScrapeSchedule
from grid.signals.scrape import Scrape
from grid.signals.store import SampleStore
from grid.sim.virtual.bus import LEASE, Bus, Stored
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.gauges import Epp

EPOCH_WALL: Final = 1_767_225_600.0
"""Wall clock at the beginning of a run (2026-01-01), for people only."""
_COST: Final = 0.001
"""s of its EPP's time that a scrape takes."""


class Daemon:
    """Reads pages and decides from the moment it is made; publishes and sends frames once it has been told to ``lead``.

    ``scrape``: s from asking for a page to having it, where one comes.
    """

    def __init__(
        self, clock: Clock, bus: Bus, network: Network, epps: Mapping[str, Epp], *, name: str, scrape: float
    ) -> None:
        self.name = name
        self.network = network
        self.epps = epps
        self.passes = 0
        self.planned: Planned | None = None
        self.epoch = 0
        """Of its newest term; 0 before the first."""
        self.leading = False
        self.round_complete = False
        """Whether every provider of the start has had one attempt. Once true it stays so."""
        self._clock = clock
        self._bus = bus
        self._scrape = scrape
        self._alive = True
        self._wanted: int | None = None
        self._lease_until = 0.0
        self._away = False
        self._schedule = ScrapeSchedule(epoch=clock.now)
        self._store = SampleStore(network.providers, wall_clock=lambda: EPOCH_WALL + clock.now)
        self._unread = set(network.providers)
        self._planner = Planner()
        self._memory = PolicyMemory()
        self._memory_urgent = False
        self._saved_at = clock.now
        self._previous: dict[str, tuple[PreviousCandidate, ...]] = {}
        self._reports: tuple[Report, ...] = ()
        self._asked = False
        self._pace = Pace(lambda: clock.now)
        self._sequence = 0
        self._sending = self._again = False
        self._wake_at = float("inf")
        self._follow_schedule()
        self._look_again(clock.now)
        clock.every(INTERVAL, self._ring, first=clock.now + INTERVAL)
        clock.every(EVERY, self._keep_house, first=clock.now)

    def lead(self, epoch: int) -> None:
        """Begin a term, at once or as soon as the bus answers."""
        self._wanted = epoch
        self._take_over()

    def die(self) -> None:
        """The process ends without a word."""
        self._alive = self.leading = False

    def configure(self, network: Network, epps: Mapping[str, Epp]) -> None:
        """Another configuration: providers come and go."""
        if not self.round_complete:
            known = self.network.providers.keys()
            self._unread = (self._unread & network.providers.keys()) | (network.providers.keys() - known)
        self.network, self.epps = network, epps
        self._store.sync(network.providers)
        self._follow_schedule()
        self._note_round()
        self.ask()

    def ask(self) -> None:
        """Ask for a pass."""
        if not self._asked:
            self._asked = True
            self._clock.after(JOIN, self._pass)

    # --- scrapes ------------------------------------------------------------------------------------------------------

    def _follow_schedule(self) -> None:
        providers = self.network.providers
        self._schedule.sync({name: one.interval for name, one in providers.items()}, self._clock.now)
        self._wake_at = float("inf")
        self._start_due()

    def _start_due(self) -> None:
        clock = self._clock
        for provider in self._schedule.due(clock.now):
            self._schedule.started(provider, clock.now)
            clock.after(self._scrape / 2, self._read, provider)
        due = self._schedule.next_due(clock.now)
        if due is not None and due != self._wake_at:
            self._wake_at = due
            clock.at(due, self._wake, due)

    def _wake(self, due: float) -> None:
        if self._alive and due == self._wake_at:
            self._start_due()

    def _read(self, provider: str) -> None:
        """The EPP writes its page; half of the exchange later it has arrived."""
        clock, epp = self._clock, self.epps.get(provider)
        if epp is None or provider not in self.network.providers:
            self._schedule.finished(provider, clock.now)
            return
        try:
            reading = epp.read()
        except ScrapeError as error:
            # Whoever gets no answer waits for it until the deadline.
            timeout = self.network.providers[provider].timeout
            left = timeout if error.reason is Reason.TIMEOUT else self._scrape
            clock.after(max(0.0, left - self._scrape / 2), self._failed, provider, error)
        else:
            clock.after(self._scrape / 2, self._arrived, provider, reading)

    def _arrived(self, provider: str, reading: Reading) -> None:
        now = self._clock.now
        self._schedule.finished(provider, now, cost=_COST)
        if provider in self._schedule:
            interval = self._schedule.interval(provider)
            self._store.apply(provider, Scrape(reading, received_at=now, cost_s=_COST), interval=interval)
        self._attempted(provider)
        self.ask()

    def _failed(self, provider: str, error: ScrapeError) -> None:
        self._schedule.finished(provider, self._clock.now)
        self._store.fail(provider, error)
        self._attempted(provider)

    def _attempted(self, provider: str) -> None:
        self._unread.discard(provider)
        self._note_round()

    def _note_round(self) -> None:
        if not self.round_complete and not self._unread:
            self.round_complete = True
            self.ask()

    # --- passes -------------------------------------------------------------------------------------------------------

    def _look_again(self, since: float) -> None:
        """Ask for a pass where there was none for a scrape interval."""
        interval = min((provider.interval for provider in self.network.providers.values()), default=1.0)
        self._cycled_at = since
        self._clock.at(since + interval, self._look, since)

    def _look(self, since: float) -> None:
        if self._alive and self._cycled_at == since:
            self.ask()

    def _pass(self) -> None:
        self._asked = False
        if not self._alive:
            return
        self.passes += 1
        clock, seen = self._clock, self._store.snapshot()
        wall = datetime.fromtimestamp(EPOCH_WALL + clock.now, UTC).isoformat(timespec="milliseconds")
        planned = self._planner.plan(
            PolicyInput(
                network=self.network,
                samples=seen.samples,
                memory=self._memory,
                now=clock.now,
                probes=seen.probes,
                drains=self._bus.drains,
                round_complete=self.round_complete,
                previous=self._previous,
            ),
            wall,
        )
        self._memory = planned.outcome.memory
        self._memory_urgent = self._memory_urgent or bool(planned.outcome.changes)
        before, self.planned = self.planned, planned
        self._look_again(clock.now)
        if self.round_complete and self.leading and self._bus.up:
            self._publish(planned, wall)
        if before is not None and lost(before.decisions, planned.decisions):
            self._ring()

    def _publish(self, planned: Planned, wall: str) -> None:
        """Bring the bus to these documents; the same revision keeps its version, whoever published it."""
        for name, document in planned.documents.items():
            held = self._bus.documents.get(name)
            if held is not None and held.revision == document.revision:
                continue
            position = Position(self.epoch, (NOWHERE if held is None else held.position).version + 1)
            body = document.published(
                position.version,
                position.epoch,
                leader=self.name,
                published_at=wall,
                previous_revision=None if held is None else held.revision,
            )
            self._bus.publish(name, Stored(position, document.revision, body))
            self._previous = {**self._previous, name: as_previous(planned.plans[name])}

    # --- frames -------------------------------------------------------------------------------------------------------

    def _ring(self) -> None:
        """A frame is due: once a second, and when a provider was lost; not much sooner than after the last."""
        if self._sending:
            self._again = True
        elif self._alive:
            self._sending = True
            self._clock.after(self._pace.wait(), self._send_frame)

    def _send_frame(self) -> None:
        clock, planned = self._clock, self.planned
        self._sending = False
        if planned is not None and self.leading and self._bus.up:
            self._sequence += 1
            self._pace.sent()
            frame = build(
                self.network,
                planned.decisions,
                self._store.snapshot().samples,
                self._reports,
                {name: held.position for name, held in self._bus.documents.items()},
                epoch=self.epoch,
                sequence=self._sequence,
                now=clock.now,
                wall=EPOCH_WALL + clock.now,
            )
            self._bus.send_frame(frame)
        if self._again:
            self._again = False
            self._ring()

    # --- once a second: the lease, reports, the memory ----------------------------------------------------------------

    def _keep_house(self) -> None:
        now = self._clock.now
        if not self._alive:
            return
        if not self._bus.up:
            self._away = True
            if self.leading and now >= self._lease_until:
                self.leading, self._wanted = False, self.epoch + 1
            return
        if self._away:
            self._away = False
            self.ask()
        self._take_over()
        self._reports = self._bus.reports()
        if not self.leading:
            return
        if now >= self._lease_until - LEASE * 2 / 3:
            self._lease_until = now + LEASE
        if self._memory_urgent or now - self._saved_at >= MEMORY_EVERY:
            self._saved_at, self._memory_urgent = now, False
            self._bus.memory = json.dumps(self._memory.to_json(now)), now

    def _take_over(self) -> None:
        """Begin the term that is wanted, with the documents and the memory that lie on the bus."""
        if self._wanted is None or not self._bus.up or not self._alive:
            return
        self.epoch, self._wanted, self.leading = self._wanted, None, True
        self._lease_until = self._clock.now + LEASE
        for name, held in self._bus.documents.items():
            envelope = verify(held.body).envelope
            if envelope is not None:
                self._previous[name] = previous_of(envelope)
        if self._bus.memory is not None:
            saved, saved_at = self._bus.memory
            self._memory = PolicyMemory.from_json(json.loads(saved), saved_at)
        self.ask()
