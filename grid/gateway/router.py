"""Everything a gateway decides with: the document in use, the newest numbers, what it has under way itself.

No I/O and no loop: whoever follows the bus hands over documents and frames and lets :meth:`Router.tick` be called every
``fleet.PERIOD`` s. ``pick`` looks only at what lies ready. All of it belongs to one thread; ``SyncGridClient`` is the
door for several.
"""

import math
import random
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from grid.gateway import refusals
from grid.gateway.affinity import AffinityTable, Bound, bounded, ranking, session_key
from grid.gateway.decision import Case, Decision, SteeredDecision
from grid.gateway.draws import Bits
from grid.gateway.fleet import OwnCounts, scale_of
from grid.gateway.health import ObservedHealth
from grid.gateway.places import Place
from grid.gateway.retry import RetryBudget
from grid.gateway.saturation import SaturationRoute
from grid.gateway.shedding import retry_after
from grid.gateway.snapshot import Served, Snapshot, Targets, Tiers
from grid.gateway.target import Target
from grid.model import Kind
from grid.overlay import Envelope, ProviderSignal, SignalFrame


@dataclass(frozen=True, slots=True)
class Affinity:
    """How sessions are kept together.

    ``ttl`` in s, from the last use. ``hashed``: by the key alone, in all gateways alike; else in a table of this
    process. ``secret`` keys the hash that stands for a session's key: empty means a random one for the table, and the
    network's name where gateways have to agree.
    """

    ttl: float = 3600.0
    max_sessions: int = 100_000
    hashed: bool = False
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the configuration says of a gateway's choices. ``sheds`` False: admission control in front refuses."""

    spill: float = 1.0
    overflow: float = 1.25
    affinity: Affinity | None = None
    retry_share: float = 0.2
    retry_min_per_s: float = 3.0
    sheds: bool = True


class Route:
    """A request's way: ``with`` picks and counts it as in flight, and takes it back on every way out, once."""

    __slots__ = ("_allowed", "_kind", "_model", "_router", "_session", "_target", "_tenant", "_tried")

    def __init__(
        self,
        router: "Router",
        model: str,
        kind: Kind,
        session: str | None,
        tenant: str,
        tried: Sequence[Decision],
        allowed: Collection[Target] | None,
    ) -> None:
        self._router = router
        self._model = model
        self._kind = kind
        self._session = session
        self._tenant = tenant
        self._tried = tried
        self._allowed = allowed
        self._target: Target | None = None

    def __enter__(self) -> Decision:
        # Nothing waits between the two, so nobody picks on a count that is about to change.
        if self._session is None and not self._tried and self._allowed is None:
            decision = self._router.pick(self._model, self._kind)
        else:
            decision = self._router.pick(
                self._model,
                self._kind,
                session=self._session,
                tenant=self._tenant,
                tried=self._tried,
                allowed=self._allowed,
            )
        self._target = target = decision.place.target
        target.begin()
        return decision

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        target, self._target = self._target, None
        if target is not None:
            target.end()


class Router:
    """Picks a provider for each request of one gateway.

    ``gateway`` names it in errors. ``bits`` is like ``random.getrandbits``; ``clock`` gives monotonic s.
    ``on_estimate_error`` hears, for each new sample, how far off the estimate was (in load, 1 is full).
    """

    def __init__(
        self,
        gateway: str = "",
        *,
        settings: Settings | None = None,
        bits: Bits | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_estimate_error: Callable[[Target, float], None] | None = None,
    ) -> None:
        self.gateway = gateway
        self.settings = settings or Settings()
        self.retries = RetryBudget(self.settings.retry_share, self.settings.retry_min_per_s)
        affinity = self.settings.affinity
        self._affinity = affinity
        self._secret = (affinity.secret if affinity is not None else b"") or secrets.token_bytes(32)
        self._table = (
            None if affinity is None or affinity.hashed else AffinityTable(affinity.ttl, affinity.max_sessions)
        )
        self._bits: Bits = bits or random.Random().getrandbits
        self._clock = clock
        self._targets = Targets(spill=self.settings.spill, overflow=self.settings.overflow)
        self._own = OwnCounts()
        self._scale = 1.0
        self._snapshot: Snapshot | None = None
        self._frame: SignalFrame | None = None
        self._frame_at = 0.0
        self._on_estimate_error = on_estimate_error
        self.on_document: Callable[[], None] | None = None
        """Called after a document was taken over."""
        self.on_frame: Callable[[SignalFrame, float], None] | None = None
        """Called after a frame was taken over, with it and its monotonic time."""

    # --- picking -----------------------------------------------------------------------------------------------------

    def pick(
        self,
        model: str,
        kind: Kind = Kind.INFERENCE_MODEL,
        *,
        session: str | None = None,
        tenant: str = "",
        tried: Sequence[Decision] = (),
        allowed: Collection[Target] | None = None,
    ) -> Decision:
        """Where the next request for ``model`` goes: from memory, without waiting, at the same cost at any size.

        ``session`` (with ``tenant``) keeps to where the session's cache is, as the settings say. ``tried``: decisions
        whose providers failed this request already. ``allowed``: only these targets (admission control's word).
        Raises RoutingError: 400 ``bad_model``, 404 ``model_not_found``, 429 ``capacity_exhausted``, 503
        ``no_healthy_site`` or ``no_overlay``; all but the first two with ``retry_after``.
        """
        snapshot = self._snapshot
        if snapshot is None:
            raise refusals.no_document(self.gateway, kind, model, retry_after(self._bits))
        if session is None and not tried and allowed is None:
            try:
                route = snapshot.routes[kind][model]
            except (KeyError, TypeError):
                raise refusals.unknown(kind, model) from None
            return route.pick()
        return self._steered(snapshot, model, kind, session, tenant, tried, allowed)

    def route(
        self,
        model: str,
        kind: Kind = Kind.INFERENCE_MODEL,
        *,
        session: str | None = None,
        tenant: str = "",
        tried: Sequence[Decision] = (),
        allowed: Collection[Target] | None = None,
    ) -> Route:
        """A context manager that picks and counts the request as in flight until it is left, whatever way.

        ``with client.route("llama-3.1-70b") as decision:``; arguments as of :meth:`pick`.
        """
        return Route(self, model, kind, session, tenant, tried, allowed)

    def _steered(
        self,
        snapshot: Snapshot,
        model: str,
        kind: Kind,
        session: str | None,
        tenant: str,
        tried: Sequence[Decision],
        allowed: Collection[Target] | None,
    ) -> Decision:
        try:
            served = snapshot.served[kind, model]
        except (KeyError, TypeError):
            raise refusals.unknown(kind, model) from None
        attempt = len(tried) + 1
        failed = [decision.place.target for decision in tried]
        affinity, key, now = Bound.NONE, b"", 0.0
        if session is not None and self._affinity is not None:
            now = self._clock()
            key = session_key(self._secret, kind, model, session, tenant)
            if self._table is not None:
                stable_id = self._table.get(key, now)
                place = None if stable_id is None else served.bound(stable_id)
                if place is not None and place.target not in failed and (allowed is None or place.target in allowed):
                    return SteeredDecision(place, None, "bound", Bound.REUSED, attempt)
                affinity = Bound.CREATED if stable_id is None else Bound.FAILOVER
        taken, other, case = self._choice(snapshot, served, failed, allowed, key)
        if key:
            if self._table is not None:
                self._table.bind(key, taken.candidate.stable_id, now)
            else:
                affinity = Bound.REUSED
        return SteeredDecision(taken, other, case, affinity, attempt)

    def _choice(
        self,
        snapshot: Snapshot,
        served: Served,
        failed: Sequence[Target],
        allowed: Collection[Target] | None,
        key: bytes,
    ) -> tuple[Place, Place | None, Case]:
        route = snapshot.routes[served.kind][served.name]
        hashed = bool(key) and self._table is None
        if not failed and allowed is None and not hashed:
            decision = route.pick()
            return decision.place, decision.other, decision.case
        if not served.tiers or (isinstance(route, SaturationRoute) and route.refuses):
            route.pick()  # raises what holds for everybody
        tiers = _held_to(served.tiers, failed, allowed)
        if not tiers:
            raise refusals.no_healthy_site(served.kind, served.name, retry_after(self._bits))
        if hashed:
            tier = next((tier for tier in tiers if any(place.target.has_room for place in tier)), tiers[0])
            return tier[bounded(ranking(key, tier), tier)], None, "hashed"
        decision = snapshot.among(served, tiers)
        return decision.place, decision.other, decision.case

    # --- what the bus says -----------------------------------------------------------------------------------------

    def apply(self, envelope: Envelope) -> None:
        """Take over a document. Built aside and put in place as one reference."""
        built = Snapshot.build(
            envelope,
            self._bits,
            self._snapshot,
            targets=self._targets,
            sheds=self.settings.sheds,
        )
        named = built.targets
        self._targets.keep(named)
        self._own.follow(list(self._targets))
        self._snapshot = built
        if self._frame is not None:
            self._rebase(self._frame, self._frame_at)
        if self.on_document is not None:
            self.on_document()

    def observe(self, frame: SignalFrame, received_at: float) -> None:
        """Take over a signal frame; ``received_at`` is the monotonic time at which it was sent or later."""
        self._frame, self._frame_at = frame, received_at
        if self._snapshot is not None:
            self._rebase(frame, received_at)
        if self.on_frame is not None:
            self.on_frame(frame, received_at)

    def tick(self, now: float) -> None:
        """Keep the own counts by time; let go of samples past their bound, and of penalties that have ended."""
        self._own.record(now)
        changed = self._judge(now)
        for target in self._targets:
            if now > target.expires:
                target.forget(self._scale)
                changed = True
        if changed:
            self._refresh()

    def _rebase(self, frame: SignalFrame, received_at: float) -> None:
        before = [target.known for target in self._targets]
        self._scale, reliable = scale_of(
            sum(target.own for target in self._targets),
            sum(sum(gateway.in_flight.values()) for gateway in frame.gateways.values()),
            frame.instances,
        )
        now = max(self._clock(), received_at)
        signals = {(signal.site, signal.cluster): signal for signal in frame.providers.values()}
        usual = _usual_capacity(frame)
        for target in self._targets:
            signal = signals.get((target.site, target.cluster))
            target.dead = signal is not None and signal.ready == 0
            if signal is None:
                target.forget(self._scale)
            else:
                self._take(target, signal, received_at, now=now, reliable=reliable, usual=usual)
        changed = self._judge(now)
        if changed or before != [target.known for target in self._targets]:
            self._refresh()
        if self._snapshot is not None:
            self._snapshot.renumber()

    def _take(
        self, target: Target, signal: ProviderSignal, received_at: float, *, now: float, reliable: bool, usual: float
    ) -> None:
        capacity = signal.capacity or usual
        age = signal.age_s or 0.0
        expires = -math.inf if signal.bound_s is None else received_at + signal.bound_s - age
        if signal.load is None or now > expires:
            target.forget(self._scale, capacity)
            return
        own = self._own.at(target, received_at - age)
        held = signal.held if signal.held is not None else signal.load * capacity
        if self._on_estimate_error is not None and target.known:
            self._on_estimate_error(target, abs(target.at(own) - held / capacity))
        target.rebase(
            capacity=capacity,
            held=held,
            own_at_sample=own,
            scale=self._scale,
            kv_pressure=signal.kv / signal.kv_ceiling if signal.kv is not None and signal.kv_ceiling else 0.0,
            trusted=reliable,
            known=True,
            saturation=signal.saturation,
            queue=signal.queue,
            expires=expires,
        )

    # --- what the data plane says -------------------------------------------------------------------------------------

    def connect_failed(self, decision: Decision) -> None:
        """No connection could be made to the provider of ``decision``: it is used last for a while."""
        _health_of(decision.place.target).connect_failed(self._clock(), self._bits)
        self._health_changed()

    def answered(self, decision: Decision, *, failed: bool) -> None:
        """The provider of ``decision`` answered; ``failed`` where the answer is a fault of its own."""
        _health_of(decision.place.target).answered(self._clock(), self._bits, failed=failed)
        if failed:
            self._health_changed()

    def clusters_down(self, clusters: Collection[str]) -> None:
        """The clusters that an active source sees without a healthy endpoint; all others are well."""
        for target in self._targets:
            if target.cluster in clusters or target.health is not None:
                _health_of(target).reported_down = target.cluster in clusters
        self._health_changed()

    def _health_changed(self) -> None:
        if self._judge(self._clock()):
            self._refresh()

    def _judge(self, now: float) -> bool:
        changed = [target.judge(now) for target in self._targets]
        return any(changed)

    def _refresh(self) -> None:
        if self._snapshot is not None:
            self._snapshot.refresh()

    # --- what can be seen ---------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot | None:
        """The document in use, made ready; None before the first."""
        return self._snapshot

    @property
    def targets(self) -> list[Target]:
        """Every provider as this gateway sees it."""
        return list(self._targets)

    @property
    def scale(self) -> float:
        """How many times this gateway's own changes stand for the fleet's."""
        return self._scale

    @property
    def sessions(self) -> int:
        """Sessions bound in the table."""
        return 0 if self._table is None else len(self._table)

    @property
    def in_flight(self) -> dict[str, int]:
        """Requests that ``route`` has under way, by ``site/cluster``; providers without any are left out."""
        return {f"{target.site}/{target.cluster}": target.own for target in self._targets if target.own}


def _health_of(target: Target) -> ObservedHealth:
    if target.health is None:
        target.health = ObservedHealth()
    return target.health


def _usual_capacity(frame: SignalFrame) -> float:
    """What a provider of unknown capacity counts with: the mean of the known ones, or 1."""
    known = [signal.capacity for signal in frame.providers.values() if signal.capacity]
    return sum(known) / len(known) if known else 1.0


def _held_to(tiers: Tiers, failed: Sequence[Target], allowed: Collection[Target] | None) -> Tiers:
    kept = (
        tuple(p for p in tier if p.target not in failed and (allowed is None or p.target in allowed)) for tier in tiers
    )
    return tuple(tier for tier in kept if tier)
