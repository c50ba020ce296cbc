"""Gateways in virtual time: production's router and admission core, and what a gateway does around them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from grid.bus.order import NOWHERE, Choice, Position, choose
from grid.bus.reports import Report
from grid.flow import AdmissionCore, AdmissionPolicy, State, pool_signals
from grid.flow.core import News
from grid.flow.tickets import Ticket
from grid.gateway import Router, Settings, Target
from grid.gateway.fleet import PERIOD
from grid.gateway.frames import OnEstimateError
from grid.model import Kind, RoutingError
from grid.overlay import Envelope, SignalFrame
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.site import Site
from grid.sim.virtual.work import Done, Outcome, Request

MODEL: Final = "sim-model"
REPORTS: Final = 3.0
"""s between what a gateway says of itself."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How a gateway is set up. ``skew``: s its clock is ahead; ``delay``: s until it hears what is sent."""

    settings: Settings | None = None
    admission: AdmissionPolicy | None = None
    skew: float = 0.0
    delay: float = 0.005


class SimGateway:
    """One gateway process, reached by ``send``.

    ``sites`` by name. ``offset`` in [0, 1) spreads reports and roundings over the gateways. What became of requests is
    told to whoever sent them; ``retried``, ``rescued`` and ``refused`` count what happened on the way.
    """

    def __init__(
        self,
        clock: Clock,
        sites: Mapping[str, Site],
        *,
        name: str,
        instance: int,
        rng: random.Random,
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
        self._clock = clock
        self._skew = habits.skew
        self.router = Router(
            name,
            settings=habits.settings,
            bits=random.Random(rng.getrandbits(64)).getrandbits,
            clock=self._time,
            on_estimate_error=on_error,
        )
        self._router = self.router
        self._position, self._revision = NOWHERE, ""
        self._on_left: Done = self._left
        self._reported: Mapping[str, int] = {}
        self.core = None if habits.admission is None else AdmissionCore(habits.admission, phase=offset)
        self._waiting: dict[Ticket, Request] = {}
        self._targets: dict[str, Target] = {}
        clock.every(PERIOD, self._tick, first=clock.now + PERIOD * offset)
        clock.every(REPORTS, self._report, first=clock.now + REPORTS * offset)
        self.on_report: Callable[[Report], None] | None = None

    def _time(self) -> float:
        return self._clock.now + self._skew

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(self, request: Request, done: Done) -> None:
        """A client's request; ``done`` hears how it ends."""
        request.born = self._clock.now
        request.done = done
        request.tried = ()
        request.rescued = False
        request.left = self._on_left
        self.sent += 1
        self._router.retries.request()
        if self.core is None:
            self._route(request)
            return
        ticket = request.ticket = self.core.arrive(self._clock.now, MODEL, request.band, tenant=request.tenant)
        self._waiting[ticket] = request
        self._deliver([ticket, *self.core.collect()])

    def _route(self, request: Request, allowed: Sequence[Target] | None = None) -> bool:
        """Pick and send; False where nobody takes it, and its sender has been told."""
        try:
            decision = self._router.pick(
                MODEL, session=request.session, tenant=request.tenant, tried=request.tried, allowed=allowed
            )
        except RoutingError:
            self.refused += 1
            self._finish(request, Outcome.REFUSED)
            return False
        request.decision = decision
        target = decision.place.target
        target.begin()
        self.sites[target.site].send(request)
        return True

    def _left(self, request: Request, outcome: Outcome) -> None:
        decision, router = request.decision, self._router
        target = decision.place.target
        target.end()
        if outcome is Outcome.ANSWERED:
            if target.health is not None:
                router.answered(decision, failed=False)
        elif outcome is Outcome.UNREACHABLE:
            router.connect_failed(decision)
            if router.retries.take(self._time()):
                self.retried += 1
                self._again(request)
                return
        elif outcome in {Outcome.FAILED, Outcome.BROKEN}:
            router.answered(decision, failed=True)
        self._finish(request, outcome)

    def _again(self, request: Request) -> None:
        request.tried = (*request.tried, request.decision)
        core = self.core
        if self._route(request) and core is not None:
            core.bind(self._clock.now, request.ticket, request.decision.place.target.key)
            self._deliver(core.collect())

    def _finish(self, request: Request, outcome: Outcome) -> None:
        if self.core is not None:
            self._deliver(self.core.finished(self._clock.now, request.ticket))
        request.done(request, outcome)

    # --- admission ----------------------------------------------------------------------------------------------------

    def _deliver(self, news: News) -> None:
        core = self.core
        if core is None:
            return
        for ticket in news:
            request = self._waiting.get(ticket)
            if request is None or ticket.state is State.QUEUED:
                continue
            del self._waiting[ticket]
            if ticket.reason is not None:
                self.refused += 1
                request.done(request, Outcome.REFUSED)
                continue
            now, targets = self._clock.now, self._targets
            allowed = [targets[key] for key in ticket.allowed if key in targets]
            if self._route(request, allowed or None) and ticket.state is State.GRANTED:
                core.bind(now, ticket, request.decision.place.target.key)
                core.started(now, ticket)

    def _reroute(self) -> None:
        snapshot = self._router.snapshot
        if self.core is None or snapshot is None:
            return
        self._targets = {target.key: target for target in snapshot.targets}
        routes = {
            name: [place.target.key for tier in served.tiers for place in tier]
            for (kind, name), served in snapshot.served.items()
            if kind is Kind.INFERENCE_MODEL
        }
        self._deliver(self.core.reroute(self._clock.now, routes))

    # --- what the bus says --------------------------------------------------------------------------------------------

    def document(self, envelope: Envelope) -> None:
        """A document has arrived."""
        publication = envelope.publication
        offered = NOWHERE if publication is None else Position(publication.epoch, publication.version)
        if choose(self._position, self._revision, offered, envelope.revision) is not Choice.APPLY:
            return
        self._position, self._revision = offered, envelope.revision or ""
        self._router.apply(envelope)
        self._reroute()

    def frame(self, frame: SignalFrame) -> None:
        """A signal frame has arrived."""
        self._router.observe(frame, self._time())
        if self.core is not None:
            signals = pool_signals(frame, own=self._reported)
            self._deliver(self.core.update(self._clock.now, signals, turn=frame.sequence))
            self._reroute()
        for signal in frame.providers.values():
            if signal.ready == 0:
                self._rescue(self.sites[signal.site])

    def _rescue(self, site: Site) -> None:
        """Requests of this gateway that wait at a site where nothing is ready go elsewhere, once."""
        for request in [one for one in site.queue if one.left is self._on_left and not one.rescued]:
            if site.withdraw(request):
                request.rescued = True
                self.rescued += 1
                request.decision.place.target.end()
                self._again(request)

    def _tick(self) -> None:
        self._router.tick(self._time())
        if self.core is not None:
            self._deliver(self.core.tick(self._clock.now))

    def _report(self) -> None:
        self._reported = self._router.in_flight
        if self.on_report is not None:
            self.on_report(self.report())

    def report(self) -> Report:
        """What this process says of itself."""
        return Report(
            self.name,
            self.instance,
            epoch=self._position.epoch,
            version=self._position.version,
            revision=self._revision,
            in_flight=self._router.in_flight,
        )
