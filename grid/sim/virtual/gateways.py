"""Gateways in virtual time: production's router and admission core, and what a gateway does around them."""

import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from grid.bus.holding import Delivery, Holding, Source
from grid.bus.reports import Report
from grid.bus.subscriber import REPORT_INTERVAL
from grid.flow import AdmissionCore, AdmissionPolicy, PoolSignal, State, pool_signals
from grid.flow.core import News
from grid.flow.tickets import Ticket
from grid.gateway import Decision, Router, Settings, Target
from grid.gateway.fleet import PERIOD
from grid.gateway.frames import OnEstimateError
from grid.model import Kind, RoutingError
from grid.overlay import Scope, SignalFrame
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.site import Site
from grid.sim.virtual.work import Done, Outcome, Request

MODEL: Final = "sim-model"
NETWORK: Final = "simulated"

_RETRIED: Final = (Outcome.UNREACHABLE, Outcome.UNAVAILABLE, Outcome.SATURATED)
"""No connection, 503 and 429: what gateways try again elsewhere unless they are told otherwise."""
_FAULTY: Final = (Outcome.UNAVAILABLE, Outcome.FAILED, Outcome.BROKEN)


@dataclass(frozen=True, slots=True)
class Habits:
    """How a gateway is set up. ``skew``: s its clock is ahead; ``delay``: s until it hears what is sent.

    ``admission``: the policy of admission control in front of the choice; None: there is none, and gateways shed.
    """

    settings: Settings | None = None
    admission: AdmissionPolicy | None = None
    skew: float = 0.0
    delay: float = 0.005

    @property
    def chosen(self) -> Settings:
        """The router's settings, as the reference gateway would make them."""
        settings = self.settings or Settings()
        affinity = settings.affinity
        if affinity is not None and affinity.hashed and not affinity.secret:
            # All gateways of a network hash alike.
            affinity = replace(affinity, secret=NETWORK.encode())
        return replace(settings, affinity=affinity, sheds=settings.sheds and self.admission is None)


class SimGateway:
    """One gateway process, reached by ``send``.

    ``sites`` by name; ``declared``: ``max_running`` of those that have one, by ``site/cluster``, with None for others.
    ``offset`` in [0, 1) spreads ticks and roundings over the gateways. What became of requests is told to whoever sent
    them; ``retried``, ``rescued`` and ``refused`` count what happened on the way.
    """

    def __init__(
        self,
        clock: Clock,
        sites: Mapping[str, Site],
        *,
        name: str,
        instance: int,
        rng: random.Random,
        declared: Mapping[str, float | None] | None = None,
        offset: float = 0.0,
        habits: Habits | None = None,
        on_error: OnEstimateError | None = None,
    ) -> None:
        habits = habits or Habits()
        self.name = name
        self.instance = str(instance)
        self.habits = habits
        self.sites = sites
        self.retried = self.rescued = self.refused = self.sent = 0
        self.on_report: Callable[[Report], None] | None = None
        self._clock = clock
        self._rng = rng
        self._skew = habits.skew
        self.router = self._router = Router(
            name,
            settings=habits.chosen,
            bits=random.Random(rng.getrandbits(64)).getrandbits,
            clock=self._time,
            on_estimate_error=on_error,
        )
        self._holding = Holding(Scope(network=NETWORK, gateway=name))
        self._frame = (0, 0)
        self._on_left: Done = self._left
        self._reported: Mapping[str, int] = {}
        self.core = None if habits.admission is None else AdmissionCore(habits.admission, phase=offset)
        self._declared = declared or {}
        self._framed = False
        self._waiting: dict[Ticket, Request] = {}
        self._targets: dict[str, Target] = {}
        self._news: deque[Ticket] = deque()
        self._delivering = False
        self._due = math.inf
        clock.every(PERIOD, self._tick, first=clock.now + PERIOD * offset)
        self._report_later()

    def _time(self) -> float:
        return self._clock.now + self._skew

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(self, request: Request, done: Done) -> None:
        """A client's request; ``done`` hears how it ends."""
        request.born = self._clock.now
        request.done = done
        request.decision = None
        request.tried = ()
        request.rescued = False
        request.left = self._on_left
        self.sent += 1
        core = self.core
        if core is None:
            self._forward(request)
            return
        ticket = request.ticket = core.arrive(self._clock.now, MODEL, request.band, tenant=request.tenant)
        self._waiting[ticket] = request
        news = core.collect()
        if ticket.state is State.QUEUED:
            self._arm(ticket.expires_at)
        else:
            news = [ticket, *news]
        if news:
            self._deliver(news)

    def cancel(self, request: Request) -> None:
        """The client of a request has gone, wherever it is; nothing happens where it has ended."""
        core, decision = self.core, request.decision
        if decision is not None:
            site = self.sites[decision.place.target.site]
            site.cancel(request)
            decision.place.target.end()
            self._finish(request, Outcome.CANCELLED)
        elif core is not None and self._waiting.pop(request.ticket, None) is not None:
            self._deliver(core.cancelled(self._clock.now, request.ticket))
            request.done(request, Outcome.CANCELLED)

    def _forward(self, request: Request) -> None:
        """Pick and send; where nobody takes it, its sender is told."""
        try:
            if self.core is None and request.session is None:
                decision = self._router.pick(MODEL)
            else:
                decision = self._pick(request, ())
        except RoutingError:
            self.refused += 1
            self._finish(request, Outcome.REFUSED)
            return
        self._router.retries.request()
        decision.place.target.begin()
        self._send_to(request, decision)

    def _pick(self, request: Request, tried: tuple[Decision, ...]) -> Decision:
        allowed = None
        if self.core is not None:
            targets = self._targets
            keys = request.ticket.allowed
            allowed = [targets[key] for key in keys if key in targets] if keys else None
        return self._router.pick(MODEL, session=request.session, tenant=request.tenant, tried=tried, allowed=allowed)

    def _send_to(self, request: Request, decision: Decision) -> None:
        """Send to a provider at which it is counted already."""
        request.decision = decision
        target = decision.place.target
        core = self.core
        if core is not None:
            core.bind(self._clock.now, request.ticket, target.key)
            news = core.collect()
            if news:
                self._deliver(news)
        self.sites[target.site].send(request)

    def _left(self, request: Request, outcome: Outcome) -> None:
        """A site is done with a request."""
        decision = request.decision
        if decision is None:
            return
        target = decision.place.target
        target.end()
        if outcome is Outcome.ANSWERED:
            if target.health is not None:
                self._judge(decision, outcome)
        else:
            self._judge(decision, outcome)
            if outcome in _RETRIED and self._retry(request, decision):
                return
        self._finish(request, outcome)

    def _judge(self, decision: Decision, outcome: Outcome) -> None:
        """What an answer, or none, says of the provider's health."""
        target = decision.place.target
        was = target.set_back
        if outcome is Outcome.UNREACHABLE:
            self._router.connect_failed(decision)
        else:
            self._router.answered(decision, failed=outcome in _FAULTY)
        if target.set_back is not was:
            self._reroute()

    def _retry(self, request: Request, failed: Decision) -> bool:
        """Try elsewhere, on the newest snapshot; False where nobody is left or the budget is spent."""
        request.tried = (*request.tried, failed)
        try:
            decision = self._pick(request, request.tried)
        except RoutingError:
            return False
        if not self._router.retries.take(self._time()):
            return False
        self.retried += 1
        decision.place.target.begin()
        self._send_to(request, decision)
        return True

    def _finish(self, request: Request, outcome: Outcome) -> None:
        request.decision = None
        if self.core is not None:
            news = self.core.finished(self._clock.now, request.ticket)
            if news:
                self._deliver(news)
        request.done(request, outcome)

    # --- admission ----------------------------------------------------------------------------------------------------

    def _deliver(self, news: News) -> None:
        """Hand on what the core has decided, one after the other: what one does may be news of others."""
        self._news.extend(news)
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._news:
                self._settle(self._news.popleft())
        finally:
            self._delivering = False

    def _settle(self, ticket: Ticket) -> None:
        core, request = self.core, self._waiting.pop(ticket, None)
        if core is None or request is None:
            return
        if ticket.reason is not None:
            self.refused += 1
            request.done(request, Outcome.REFUSED)
            return
        self._news.extend(core.started(self._clock.now, ticket))
        self._forward(request)

    def _reroute(self) -> None:
        snapshot, core = self._router.snapshot, self.core
        if core is None or snapshot is None:
            return
        now = self._clock.now
        self._targets = {target.key: target for target in snapshot.targets}
        if not self._framed:
            # Nothing is known of the pools but what the configuration declares.
            signals = [PoolSignal(key, max_running=most) for key, most in self._declared.items()]
            self._deliver(core.update(now, signals))
        routes = {
            name: [place.target.key for tier in served.tiers for place in tier]
            for (kind, name), served in snapshot.served.items()
            if kind is Kind.INFERENCE_MODEL
        }
        self._deliver(core.reroute(now, routes))
        self._arm(core.next_deadline())

    def _arm(self, due: float | None) -> None:
        if due is not None and due < self._due:
            self._due = due
            self._clock.at(due, self._expire, due)

    def _expire(self, due: float) -> None:
        core = self.core
        if due != self._due or core is None:
            return
        self._due = math.inf
        self._deliver(core.tick(self._clock.now))
        self._arm(core.next_deadline())

    # --- what the bus says --------------------------------------------------------------------------------------------

    def document(self, body: bytes) -> None:
        """A document has arrived."""
        found = self._holding.offer(body, Source.READ)
        if isinstance(found, Delivery):
            self._router.apply(found.envelope)
            self._reroute()
        elif found is not None:
            raise RuntimeError(f"a document of the simulated daemon is refused: {found}")

    def frame(self, frame: SignalFrame) -> None:
        """A signal frame has arrived."""
        order = (frame.epoch, frame.sequence)
        if order <= self._frame:
            return
        self._frame = order
        self._router.observe(frame, self._time())
        if self.core is not None:
            self._framed = True
            signals = pool_signals(frame, own=self._reported)
            self._deliver(self.core.update(self._clock.now, signals, turn=frame.sequence))
            self._reroute()
        for target in self._router.targets:
            if target.dead:
                self._rescue(target)

    def _rescue(self, target: Target) -> None:
        """What waits for its first byte where nothing is ready goes elsewhere, once, if there is an elsewhere."""
        site, now = self.sites[target.site], self._clock.now
        for request in (*site.running, *site.queue):
            decision = request.decision if request.left is self._on_left else None
            if decision is None or request.rescued or (request.started is not None and now >= request.first_at):
                continue
            tried = (*request.tried, decision)
            try:
                following = self._pick(request, tried)
            except RoutingError:
                continue
            if following.place.target.dead:
                continue
            following.place.target.begin()
            site.cancel(request)
            target.end()
            request.tried, request.rescued = tried, True
            self.rescued += 1
            self._send_to(request, following)

    def _tick(self) -> None:
        self._router.tick(self._time())

    # --- what it says of itself ---------------------------------------------------------------------------------------

    def _report_later(self) -> None:
        self._clock.after(REPORT_INTERVAL * self._rng.uniform(0.8, 1.2), self._report)

    def _report(self) -> None:
        if self.on_report is not None:
            self.on_report(self.report())
        self._report_later()

    def report(self) -> Report:
        """What this process says of itself."""
        held = self._holding.position
        self._reported = in_flight = self._router.in_flight
        return Report(
            self.name,
            self.instance,
            epoch=held.epoch,
            version=held.version,
            revision=self._holding.revision or "",
            term=max(held.epoch, self._frame[0]),
            in_flight=in_flight,
        )
