"""The bus in virtual time: what lies on it, who listens, and what becomes of both while it is away."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from grid.bus.backoff import Backoff
from grid.bus.order import Position
from grid.bus.reports import REPORT_EXPIRY, Report
from grid.model import Drain
from grid.overlay import SignalFrame
from grid.sim.virtual.clock import Clock

LEASE: Final = 10.0
"""s that a leader's lease lives unless it is renewed."""


@dataclass(frozen=True, slots=True)
class Follower:
    """A gateway as the bus sees it: what it wants to hear, and what it says of itself. ``delay`` in s."""

    gateway: str
    document: Callable[[bytes], None]
    frame: Callable[[SignalFrame], None]
    report: Callable[[], Report]
    delay: float = 0.005


@dataclass(frozen=True, slots=True)
class Stored:
    """A gateway's document in force."""

    position: Position
    revision: str
    body: bytes


@dataclass(slots=True)
class _Link:
    """A follower's connection; broken until ``back_at``."""

    follower: Follower
    back_at: float = 0.0


class Bus:
    """What lies on the bus: documents, drains, reports, and the policy's memory.

    ``published``: every publication: when, for which gateway, as which version. ``memory``: as the leader saved it
    last, and when.
    """

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self.documents: dict[str, Stored] = {}
        self.published: list[tuple[float, str, Position]] = []
        self.memory: tuple[str, float] | None = None
        self.drains: dict[str, Drain] = {}
        self._clock = clock
        self._rng = rng
        self._links: list[_Link] = []
        self._listeners: list[Callable[[SignalFrame], None]] = []
        self._reports: dict[tuple[str, str], tuple[float, Report]] = {}
        self._back_at = 0.0

    @property
    def up(self) -> bool:
        """Whether it answers."""
        return self._clock.now >= self._back_at

    # --- who listens --------------------------------------------------------------------------------------------------

    def follow(self, follower: Follower) -> None:
        """A gateway appears: it gets the newest document, and every one after that."""
        link = _Link(follower)
        self._links.append(link)
        self._connect(link, link.back_at)

    def listen(self, frame: Callable[[SignalFrame], None]) -> None:
        """Somebody who only wants to hear frames, as soon as they are sent."""
        self._listeners.append(frame)

    def heard(self, report: Report) -> None:
        """A gateway has reported."""
        if self.up:
            self._reports[report.gateway, report.instance] = self._clock.now, report

    def reports(self) -> tuple[Report, ...]:
        """What gateways say of themselves that are not silent for too long."""
        now = self._clock.now
        return tuple(report for at, report in self._reports.values() if now - at < REPORT_EXPIRY)

    # --- what is said -------------------------------------------------------------------------------------------------

    def publish(self, gateway: str, document: Stored) -> None:
        """Put a document in force and tell its gateways."""
        self.documents[gateway] = document
        self.published.append((self._clock.now, gateway, document.position))
        for link in self._links:
            if link.follower.gateway == gateway:
                self._deliver(link, document.body)

    def send_frame(self, frame: SignalFrame) -> None:
        """Send a signal frame to everybody, as it is on the wire."""
        found, now = SignalFrame.decode(frame.encode()), self._clock.now
        for listener in self._listeners:
            listener(found)
        for link in self._links:
            if now >= link.back_at:
                self._clock.after(link.follower.delay, link.follower.frame, found)

    def cut_off(self, seconds: float) -> None:
        """It is away for ``seconds``: connections break, and are made again as subscribers try to."""
        clock = self._clock
        self._back_at = max(self._back_at, clock.now + seconds)
        for link in self._links:
            pauses, at = Backoff(rng=self._rng), clock.now
            while (at := at + pauses.next()) < self._back_at:
                pass
            link.back_at = at
            clock.at(at, self._connect, link, at)

    def _connect(self, link: _Link, at: float) -> None:
        if link.back_at != at:
            return
        held = self.documents.get(link.follower.gateway)
        if held is not None:
            self._deliver(link, held.body)
        self.heard(link.follower.report())

    def _deliver(self, link: _Link, body: bytes) -> None:
        if self._clock.now >= link.back_at:
            self._clock.after(link.follower.delay, link.follower.document, body)
