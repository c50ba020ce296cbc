"""The daemon in virtual time: production's schedule, sample store, policy, rendering and frames, on virtual wires."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from grid.bus.order import Position
from grid.bus.reports import Report
from grid.daemon.cycle import JOIN
from grid.daemon.frames import INTERVAL, Pace, build, lost
from grid.daemon.planner import Planned, Planner, previous_of
from grid.model import Drain, Network, ScrapeError
from grid.overlay import Envelope, SignalFrame, verify
from grid.policy import PolicyInput, PolicyMemory, PreviousCandidate
from grid.signals.schedule import ScrapeSchedule
from grid.signals.scrape import Scrape
from grid.signals.store import SampleStore
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.gauges import Epp

EPOCH_WALL = 1_767_225_600.0
"""Wall clock at the beginning of a run (2026-01-01), for people only."""


@dataclass(frozen=True, slots=True)
class Follower:
    """A gateway as the bus sees it: what it wants to hear, and what it says of itself. ``delay`` in s."""

    gateway: str
    document: Callable[[Envelope], None]
    frame: Callable[[SignalFrame], None]
    report: Callable[[], Report]
    delay: float = 0.005


class Plane:
    """One network's control plane. Scrapes begin, passes run and frames go out by themselves once it is made.

    ``scrape``: s a scrape takes. A leader that dies takes its scrapes with it; the next one has its own samples, taken
    all along, and the memory that the old one saved.
    """

    def __init__(
        self, clock: Clock, network: Network, epps: Mapping[str, Epp], *, scrape: float = 0.02, leader: str = "a"
    ) -> None:
        self.network = network
        self.epps = dict(epps)
        self.followers: list[Follower] = []
        self._listeners: list[Callable[[SignalFrame], None]] = []
        self.passes = 0
        self.published: list[tuple[float, str, Position]] = []
        """Every publication: when, for which gateway, as which version."""
        self.planned: Planned | None = None
        self.reports: dict[tuple[str, str], Report] = {}
        self._clock = clock
        self._scrape = scrape
        self._leader = leader
        self._epoch = 1
        self._sequence = 0
        self._leading = True
        self._cut_until = 0.0
        self._schedule = ScrapeSchedule(epoch=clock.now)
        self._store = SampleStore(network.providers, wall_clock=lambda: EPOCH_WALL + clock.now)
        self._planner = Planner()
        self._memory = PolicyMemory()
        self._drains: dict[str, Drain] = {}
        self._shelf: dict[str, tuple[Position, str, bytes]] = {}
        self._previous: dict[str, tuple[PreviousCandidate, ...]] = {}
        self._asked = False
        self._pace = Pace(lambda: clock.now)
        self._schedule.sync({name: provider.interval for name, provider in network.providers.items()}, clock.now)
        self._wake_at = float("inf")
        self._wake()
        shortest = min((provider.interval for provider in network.providers.values()), default=1.0)
        clock.every(shortest, self._ask, first=clock.now)
        clock.every(INTERVAL, self._send_frame, first=clock.now + INTERVAL)

    # --- what may be done to it ---------------------------------------------------------------------------------------

    def follow(self, follower: Follower) -> None:
        """A gateway appears: it gets the newest document, and every one after that."""
        self.followers.append(follower)
        held = self._shelf.get(follower.gateway)
        if held is not None:
            self._deliver(follower, held[2])

    def listen(self, frame: Callable[[SignalFrame], None]) -> None:
        """Somebody who only wants to hear frames, as soon as they are sent."""
        self._listeners.append(frame)

    def heard(self, report: Report) -> None:
        """A gateway has reported."""
        self.reports[report.gateway, report.instance] = report

    def drain(self, target: str) -> None:
        """No new work for a provider or a site."""
        self._drains[target] = Drain(id=f"drain-{target}", target=target)
        self._ask()

    def undrain(self, target: str) -> None:
        """The end of that."""
        self._drains.pop(target, None)
        self._ask()

    def configure(self, network: Network, epps: Mapping[str, Epp]) -> None:
        """Another configuration: providers come and go."""
        self.network, self.epps = replace(network, generation=self.network.generation + 1), dict(epps)
        self._store.sync(network.providers)
        self._schedule.sync({name: one.interval for name, one in network.providers.items()}, self._clock.now)
        self._wake()
        self._ask()

    def cut_off(self, seconds: float) -> None:
        """The bus is away: nothing that is sent in the next ``seconds`` arrives."""
        self._cut_until = self._clock.now + seconds

        def back() -> None:
            for follower in self.followers:  # whoever reconnects reads the document again
                held = self._shelf.get(follower.gateway)
                if held is not None:
                    self._deliver(follower, held[2])

        self._clock.after(seconds, back)

    def change_leader(self, *, gap: float = 10.0) -> None:
        """The leader dies; ``gap`` s later (the life of a lease) a follower has taken over."""
        self._leading = False
        saved, died_at = json.dumps(self._memory.to_json(self._clock.now)), self._clock.now

        def take_over() -> None:
            self._epoch += 1
            self._sequence = 0
            self._leader += "'"
            self._planner = Planner()
            self._memory = PolicyMemory.from_json(json.loads(saved), died_at)
            self._leading = True
            self._ask()

        self._clock.after(gap, take_over)

    # --- scrapes ------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        clock = self._clock
        for provider in self._schedule.due(clock.now):
            self._schedule.started(provider, clock.now)
            clock.after(self._scrape / 2, lambda provider=provider: self._read(provider))  # type: ignore[misc]
        due = self._schedule.next_due(clock.now)
        if due is not None:
            self._wake_at = due
            clock.at(due, lambda: self._wake() if self._wake_at <= clock.now else None)

    def _read(self, provider: str) -> None:
        """The EPP renders its page; half of the exchange later it has arrived."""
        clock, epp = self._clock, self.epps.get(provider)
        if epp is None:
            self._schedule.finished(provider, clock.now)
            return
        try:
            reading = epp.read()
        except ScrapeError as error:
            self._store.fail(provider, error)
            self._schedule.finished(provider, clock.now)
            self._ask()
            return

        def arrived() -> None:
            interval = self.network.providers[provider].interval if provider in self.network.providers else 1.0
            self._store.apply(provider, Scrape(reading, received_at=clock.now, cost_s=0.001), interval=interval)
            self._schedule.finished(provider, clock.now, cost=0.001)
            self._ask()

        clock.after(self._scrape / 2, arrived)

    # --- passes -------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._clock.after(JOIN, self._pass)

    def _pass(self) -> None:
        self._asked = False
        if not self._leading:
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
                drains=self._drains,
                round_complete=seen.round_complete,
                previous=self._previous,
            ),
            wall,
        )
        self._memory = planned.outcome.memory
        before, self.planned = self.planned, planned
        if seen.round_complete:
            self._publish(planned, wall)
        if before is not None and lost(before.decisions, planned.decisions):
            clock.after(self._pace.wait(), self._send_frame)

    def _publish(self, planned: Planned, wall: str) -> None:
        for name, document in planned.documents.items():
            position, revision, _ = self._shelf.get(name, (Position(0, 0), "", b""))
            if document.revision == revision:
                continue
            position = Position(self._epoch, position.version + 1)
            body = document.published(
                position.version, position.epoch, leader=self._leader, published_at=wall, previous_revision=revision
            )
            self._shelf[name] = (position, document.revision, body)
            self.published.append((self._clock.now, name, position))
            envelope = verify(body).envelope
            if envelope is not None:
                self._previous[name] = previous_of(envelope)
            for follower in self.followers:
                if follower.gateway == name:
                    self._deliver(follower, body)

    def _deliver(self, follower: Follower, body: bytes) -> None:
        if self._clock.now < self._cut_until:
            return
        envelope = verify(body).envelope
        if envelope is None:
            raise RuntimeError("a document that was just rendered does not verify")
        self._clock.after(follower.delay, lambda: follower.document(envelope))

    # --- frames -------------------------------------------------------------------------------------------------------

    def _send_frame(self) -> None:
        clock, planned = self._clock, self.planned
        if planned is None or not self._leading or clock.now < self._cut_until:
            return
        self._sequence += 1
        self._pace.sent()
        frame = build(
            self.network,
            planned.decisions,
            self._store.snapshot().samples,
            self.reports.values(),
            {name: position for name, (position, _, _) in self._shelf.items()},
            epoch=self._epoch,
            sequence=self._sequence,
            now=clock.now,
            wall=EPOCH_WALL + clock.now,
        )
        for listener in self._listeners:
            listener(frame)
        for follower in self.followers:
            clock.after(follower.delay, lambda follower=follower: follower.frame(frame))  # type: ignore[misc]
