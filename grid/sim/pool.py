"""A pool of model servers behind an EPP, as a state machine without a clock of its own.

Every call says what time it is (monotonic s, real or virtual; it may never fall). A virtual-time simulator steps from
one ``next_event`` to the next; the simulated site does the same on the loop's clock.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from grid.sim.values import DETECTOR_FRESH, Engine, Flow, FlowCounts, saturation


class Outcome(StrEnum):
    """How a request ended: answered; its endpoint died; waited too long; never let in; given up by its client."""

    ANSWERED = "answered"
    LOST = "lost"
    EXPIRED = "expired"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class Health(StrEnum):
    """An endpoint answers, refuses connections, or hangs (keeps what it has and answers nothing)."""

    UP = "up"
    DEAD = "dead"
    HUNG = "hung"


@dataclass(slots=True, eq=False)
class Ticket:
    """One request on its way. ``service``: s an engine needs for it; times are None until they have come."""

    flow: Flow
    arrived: float
    service: float
    endpoint: str | None = None
    dispatched_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    outcome: Outcome | None = None
    due: float | None = None
    """When the engine will be done; None while it does not run."""


@dataclass(frozen=True, slots=True)
class PoolShape:
    """What a pool is made of.

    ``slots``: requests an endpoint runs at once. ``flow_control``: requests wait in the EPP while the pool is
    saturated, at most ``ttl`` s (None: for ever) and ``max_queued`` of them; without it they go to an engine at once,
    or are refused where none answers. ``kv_full``: KV-cache use of an endpoint whose slots are all taken.
    """

    endpoints: int = 2
    slots: int = 8
    flow_control: bool = True
    ttl: float | None = 60.0
    max_queued: int = 5000
    kv_full: float = 0.6

    @property
    def capacity(self) -> int:
        """Requests the whole pool runs at once."""
        return self.endpoints * self.slots


@dataclass(slots=True)
class _Endpoint:
    name: str
    slots: int
    health: Health = Health.UP
    running: dict[Ticket, None] = field(default_factory=dict)
    waiting: dict[Ticket, None] = field(default_factory=dict)
    remaining: dict[Ticket, float] = field(default_factory=dict)
    lost_at: float = 0.0
    last_seen: Engine | None = None


@dataclass(slots=True)
class _Counts:
    in_flight: int = 0
    queued: int = 0
    requests: int = 0
    answered: int = 0
    seconds: float = 0.0


def _ignore(_: Ticket) -> None:
    return None


class SimulatedPool:
    """Slots, engine queues and the EPP's queue in front of them.

    ``on_started`` and ``on_finished`` are called when an engine takes a request up and when a request ends, with the
    pool in a consistent state: they may call ``submit`` again.
    """

    def __init__(
        self,
        shape: PoolShape,
        *,
        rng: random.Random,
        on_started: Callable[[Ticket], None] = _ignore,
        on_finished: Callable[[Ticket], None] = _ignore,
        now: float = 0.0,
    ) -> None:
        self.shape = shape
        self.now = now
        self.lost_polls = 0
        self._rng = rng
        self._on_started = on_started
        self._on_finished = on_finished
        names = [f"vllm-{index}" for index in range(shape.endpoints)]
        self._endpoints = {name: _Endpoint(name, shape.slots) for name in names}
        self._queue: dict[Ticket, None] = {}
        self._flows: dict[Flow, _Counts] = {}
        self._due: list[tuple[float, int, Ticket]] = []
        self._order = itertools.count()
        self._news: list[tuple[Callable[[Ticket], None], Ticket]] = []

    # --- what it looks like -----------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Requests that came in and have not ended."""
        return sum(counts.in_flight + counts.queued for counts in self._flows.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The endpoints, whatever their health."""
        return tuple(self._endpoints)

    def engines(self) -> tuple[Engine, ...]:
        """Every endpoint as the EPP sees it now; one that is lost keeps its last numbers and grows older."""
        return tuple(self._seen(endpoint) for endpoint in self._endpoints.values())

    def flows(self) -> dict[Flow, FlowCounts]:
        """What each flow has in flight and in the queue, and had in all."""
        return {
            flow: FlowCounts(counts.in_flight, counts.queued, counts.requests, counts.answered, counts.seconds)
            for flow, counts in self._flows.items()
        }

    def next_event(self) -> float | None:
        """When something will happen by itself; None: never."""
        while self._due and self._due[0][2].due != self._due[0][0]:
            heapq.heappop(self._due)
        times = [self._due[0][0]] if self._due else []
        if self._queue and self.shape.ttl is not None:
            times.append(next(iter(self._queue)).arrived + self.shape.ttl)
        return min(times, default=None)

    # --- what happens to it -----------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Let time pass until ``now``, event by event."""
        while (at := self.next_event()) is not None and at <= now:
            self.now = max(self.now, at)
            if self._due and self._due[0][0] == at:
                ticket = heapq.heappop(self._due)[2]
                self._leave(ticket, Outcome.ANSWERED)
            else:
                self._leave(next(iter(self._queue)), Outcome.EXPIRED)
            self._dispatch()
            self._tell()
        self.now = max(self.now, now)

    def submit(self, flow: Flow, service: float, now: float) -> Ticket:
        """A request comes in. It may have ended already when this returns (refused, or sent to a dead endpoint)."""
        self.advance(now)
        ticket = Ticket(flow, self.now, service)
        counts = self._flows.setdefault(flow, _Counts())
        counts.queued += 1
        if self.shape.flow_control:
            self._queue[ticket] = None
            if len(self._queue) > self.shape.max_queued:
                self._leave(ticket, Outcome.REJECTED)
            self._dispatch()
        elif (endpoint := self._choose()) is None:
            self._leave(ticket, Outcome.REJECTED)
        else:
            self._assign(ticket, endpoint)
        self._tell()
        return ticket

    def cancel(self, ticket: Ticket, now: float) -> None:
        """The client has gone: the request leaves wherever it is, and its place is free at once."""
        self.advance(now)
        if ticket.outcome is None:
            self._leave(ticket, Outcome.CANCELLED)
            self._dispatch()
        self._tell()

    def kill(self, now: float, *names: str) -> None:
        """Endpoints (none named: all) die: what they hold is lost."""
        self.advance(now)
        for endpoint in self._chosen(names):
            self._mark_lost(endpoint, Health.DEAD)
            for ticket in [*endpoint.running, *endpoint.waiting]:
                self._leave(ticket, Outcome.LOST)
        self._tell()

    def hang(self, now: float, *names: str) -> None:
        """Endpoints (none named: all) stand still and keep what they hold."""
        self.advance(now)
        for endpoint in self._chosen(names):
            if endpoint.health is not Health.UP:
                continue
            self._mark_lost(endpoint, Health.HUNG)
            for ticket in endpoint.running:
                endpoint.remaining[ticket] = (ticket.due or self.now) - self.now
                ticket.due = None
        self._tell()

    def revive(self, now: float, *names: str) -> None:
        """Endpoints (none named: all) answer again; hung ones go on with what they hold."""
        self.advance(now)
        for endpoint in self._chosen(names):
            if endpoint.health is Health.UP:
                continue
            self.lost_polls += int((self.now - endpoint.lost_at) * 20)
            endpoint.health = Health.UP
            endpoint.last_seen = None
            for ticket, remaining in endpoint.remaining.items():
                self._schedule(ticket, self.now + remaining)
            endpoint.remaining.clear()
            self._fill(endpoint)
        self._dispatch()
        self._tell()

    def drop_all(self, now: float) -> None:
        """Everything held is lost and the counts begin anew, as when the EPP itself restarts."""
        self.advance(now)
        for ticket in list(self._held_tickets()):
            self._leave(ticket, Outcome.LOST)
        self._flows = {}
        self.lost_polls = 0
        self._tell()

    def poll_errors(self) -> int:
        """How often the EPP failed to read an endpoint so far: 20 times a second for each that does not answer."""
        lost = (
            self.now - endpoint.lost_at for endpoint in self._endpoints.values() if endpoint.health is not Health.UP
        )
        return self.lost_polls + sum(int(age * 20) for age in lost)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _chosen(self, names: tuple[str, ...]) -> list[_Endpoint]:
        return [self._endpoints[name] for name in names] if names else list(self._endpoints.values())

    def _held_tickets(self) -> Iterator[Ticket]:
        yield from self._queue
        for endpoint in self._endpoints.values():
            yield from endpoint.waiting
            yield from endpoint.running

    def _numbers(self, endpoint: _Endpoint) -> Engine:
        running = len(endpoint.running)
        kv = self.shape.kv_full * running / endpoint.slots
        return Engine(endpoint.name, running, len(endpoint.waiting), kv)

    def _seen(self, endpoint: _Endpoint) -> Engine:
        last = endpoint.last_seen
        if last is None:
            return self._numbers(endpoint)
        return Engine(last.name, last.running, last.waiting, last.kv, age=max(0.0, self.now - endpoint.lost_at))

    def _mark_lost(self, endpoint: _Endpoint, health: Health) -> None:
        if endpoint.health is Health.UP:
            endpoint.lost_at = self.now
            endpoint.last_seen = self._numbers(endpoint)
        endpoint.health = health

    def _choose(self) -> _Endpoint | None:
        """The least filled endpoint that the EPP believes in; it notices a dead one only after 0.2 s."""
        best: list[_Endpoint] = []
        least = float("inf")
        for endpoint in self._endpoints.values():
            seen = self._seen(endpoint)
            if seen.age > DETECTOR_FRESH:
                continue
            fill = (seen.running + seen.waiting) / endpoint.slots
            if fill < least:
                best, least = [endpoint], fill
            elif fill == least:
                best.append(endpoint)
        return self._rng.choice(best) if best else None

    def _dispatch(self) -> None:
        """Hand queued requests to engines while the pool is below its set point."""
        while self._queue and saturation(self.engines()) < 1.0:
            endpoint = self._choose()
            if endpoint is None:
                return
            self._assign(next(iter(self._queue)), endpoint)

    def _assign(self, ticket: Ticket, endpoint: _Endpoint) -> None:
        self._queue.pop(ticket, None)
        counts = self._flows[ticket.flow]
        counts.queued -= 1
        counts.in_flight += 1
        counts.requests += 1
        ticket.endpoint = endpoint.name
        ticket.dispatched_at = self.now
        endpoint.waiting[ticket] = None
        if endpoint.health is Health.DEAD:
            self._leave(ticket, Outcome.LOST)
        else:
            self._fill(endpoint)

    def _fill(self, endpoint: _Endpoint) -> None:
        """Start waiting requests while slots are free."""
        while endpoint.health is Health.UP and endpoint.waiting and len(endpoint.running) < endpoint.slots:
            ticket = next(iter(endpoint.waiting))
            del endpoint.waiting[ticket]
            endpoint.running[ticket] = None
            ticket.started_at = self.now
            self._schedule(ticket, self.now + ticket.service)
            self._news.append((self._on_started, ticket))

    def _schedule(self, ticket: Ticket, due: float) -> None:
        ticket.due = due
        heapq.heappush(self._due, (due, next(self._order), ticket))

    def _leave(self, ticket: Ticket, outcome: Outcome) -> None:
        """Take a request out of wherever it is."""
        ticket.outcome = outcome
        ticket.finished_at = self.now
        ticket.due = None
        counts = self._flows[ticket.flow]
        if ticket.endpoint is None:
            self._queue.pop(ticket, None)
            counts.queued -= 1
        else:
            endpoint = self._endpoints[ticket.endpoint]
            endpoint.running.pop(ticket, None)
            endpoint.waiting.pop(ticket, None)
            endpoint.remaining.pop(ticket, None)
            counts.in_flight -= 1
            if outcome is Outcome.ANSWERED:
                counts.answered += 1
                counts.seconds += self.now - ticket.arrived
            self._fill(endpoint)
        self._news.append((self._on_finished, ticket))

    def _tell(self) -> None:
        while self._news:
            callback, ticket = self._news.pop(0)
            callback(ticket)
