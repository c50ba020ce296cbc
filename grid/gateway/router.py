"""Everything a gateway decides with: the document in use, the newest numbers, what it has under way itself.

No I/O and no loop: whoever follows the bus hands over documents and frames and lets :meth:`Router.tick` be called every
``fleet.PERIOD`` s. ``pick`` looks only at what lies ready. All of it belongs to one thread; ``SyncGridClient`` is the
door for several.
"""

import random
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from grid.gateway import refusals
from grid.gateway.affinity import AffinityTable, Bound, bounded, ranking, session_key
from grid.gateway.decision import Decision, decided, steered
from grid.gateway.draws import Bits
from grid.gateway.fleet import OwnCounts, proven_of, scale_of
from grid.gateway.frames import FrameReader, OnEstimateError, Sight
from grid.gateway.health import ObservedHealth
from grid.gateway.retry import RetryBudget
from grid.gateway.shedding import retry_after
from grid.gateway.snapshot import Fits, Picks, Served, Snapshot, Targets
from grid.gateway.target import Target
from grid.model import Kind, Picker
from grid.overlay import Envelope, SignalFrame

_MODEL: Final = Kind.INFERENCE_MODEL


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

    # No __init__, which would cost as much as counting: whoever makes one sets every slot.
    __slots__ = ("_model", "_router", "_target")

    _router: "Router"
    _model: str
    _target: Target | None

    def __enter__(self) -> Decision:
        # Nothing waits between the two, so nobody picks on a count that is about to change.
        router = self._router
        try:
            picks = router._models[self._model]
        except (KeyError, TypeError):
            decision = router.pick(self._model)  # which says what is wrong with it
        else:
            decision = picks.pick()
        self._target = target = decision.place.target
        target.begin()
        return decision

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        target = self._target
        if target is not None:
            self._target = None
            target.end()


class SteeredRoute(Route):
    """The same for a request that says more than its model."""

    __slots__ = ("_pick",)

    _pick: Callable[[], Decision]

    def __enter__(self) -> Decision:
        decision = self._pick()
        self._target = target = decision.place.target
        target.begin()
        return decision


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
        on_estimate_error: OnEstimateError | None = None,
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
        self._reader = FrameReader(self._own, on_estimate_error)
        self._scale = 1.0
        self._snapshot: Snapshot | None = None
        self._models: dict[str, Picks] = {}
        self._frame: SignalFrame | None = None
        self._frame_at = 0.0
        self._down: frozenset[str] | None = None
        self.on_document: Callable[[], None] | None = None
        """Called after a document was taken over."""
        self.on_frame: Callable[[SignalFrame, float], None] | None = None
        """Called after a frame was taken over, with it and its monotonic time."""

    # --- picking -----------------------------------------------------------------------------------------------------

    def pick(
        self,
        model: str,
        kind: Kind = _MODEL,
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
        if kind is _MODEL and not session and not tried and allowed is None:
            try:
                route = self._models[model]
            except (KeyError, TypeError):
                pass
            else:
                return route.pick()
        return self._steered(model, kind, session, tenant, tried, allowed)

    def route(
        self,
        model: str,
        kind: Kind = _MODEL,
        session: str | None = None,
        tenant: str = "",
        tried: Sequence[Decision] = (),
        allowed: Collection[Target] | None = None,
    ) -> Route:
        """A context manager that picks and counts the request as in flight until it is left, whatever way.

        ``with client.route("llama-3.1-70b") as decision:``; arguments as of :meth:`pick`. Errors come on entering.
        """
        if kind is _MODEL and not session and not tried and allowed is None:
            plain = Route()
            plain._router = self
            plain._model = model
            plain._target = None
            return plain
        route = SteeredRoute()
        route._pick = lambda: self.pick(model, kind, session, tenant, tried, allowed)
        route._target = None
        return route

    def _steered(
        self,
        model: str,
        kind: Kind,
        session: str | None,
        tenant: str,
        tried: Sequence[Decision],
        allowed: Collection[Target] | None,
    ) -> Decision:
        snapshot = self._snapshot
        if snapshot is None:
            raise refusals.no_document(self.gateway, kind, model, retry_after(self._bits))
        try:
            served = snapshot.served[kind, model]
        except (KeyError, TypeError):
            raise refusals.unknown(kind, model) from None
        if allowed is not None and served.targets <= (allowed := frozenset(allowed)):
            allowed = None  # nobody is left out, so the pick costs what it always does
        failed = frozenset(decision.place.target.key for decision in tried)
        fits = _held_to(failed, allowed)
        affinity, key, now = Bound.NONE, b"", 0.0
        if session and self._affinity is not None:
            now = self._clock()
            key = session_key(self._secret, kind, model, session, tenant)
        if key and self._table is not None:
            stable_id = self._table.get(key, now)
            place = None if stable_id is None else served.bound(stable_id)
            if place is not None and (fits is None or fits(place)):
                return steered(decided(place, None, "bound"), Bound.REUSED, len(tried) + 1, failed, allowed)
            affinity = Bound.CREATED if stable_id is None else Bound.FAILOVER
        decision = self._choice(snapshot, served, key, fits, again=bool(tried))
        if key and self._table is not None:
            self._table.bind(key, decision.stable_id, now)
        elif key:
            affinity = Bound.REUSED
        if affinity is Bound.NONE and fits is None:
            return decision
        return steered(decision, affinity, len(tried) + 1, failed, allowed)

    def _choice(self, snapshot: Snapshot, served: Served, key: bytes, fits: Fits | None, *, again: bool) -> Decision:
        route = snapshot.routes[served.kind][served.name]
        hashed = bool(key) and self._table is None and served.picker is not Picker.DETERMINISTIC
        # A request that was let in is not refused for load because its first provider failed it.
        refusal = route.refusal() if not again or not served.tiers else None
        if refusal is not None:
            raise refusal
        if hashed:
            found = _hashed(served, key, fits)
        elif fits is None:
            found = route.pick()
        else:
            found = snapshot.among(served, fits)
        if found is None:
            raise refusals.no_healthy_site(served.kind, served.name, retry_after(self._bits))
        return found

    # --- what the bus says -----------------------------------------------------------------------------------------

    def apply(self, envelope: Envelope) -> None:
        """Take over a document. Built aside and put in place as one reference."""
        built = Snapshot(envelope, self._bits, self._snapshot, self._targets, sheds=self.settings.sheds)
        self._targets.keep(built.targets)
        self._own.follow(list(self._targets))
        # The frame in force has been read for the same targets already; what else is new in a document changes no load.
        if self._frame is not None and not (self._snapshot is not None and built.has_targets_of(self._snapshot)):
            self._read(built, self._frame, max(self._clock(), self._frame_at))
        self._put_down()
        self._judge(self._clock())
        built.put_in_use(self._snapshot)
        built.rise(self._clock())
        self._snapshot = built
        self._models = built.routes[_MODEL]
        if self.on_document is not None:
            self.on_document()

    def observe(self, frame: SignalFrame, received_at: float) -> None:
        """Take over a signal frame; ``received_at`` is the monotonic time at which it was sent or later."""
        self._frame, self._frame_at = frame, received_at
        if self._snapshot is not None:
            self._take_over(self._snapshot, frame, max(self._clock(), received_at))
        if self.on_frame is not None:
            self.on_frame(frame, received_at)

    def _take_over(self, snapshot: Snapshot, frame: SignalFrame, now: float) -> None:
        self._own.record(now)  # also for a program that never ticks
        before = [target.known for target in self._targets]
        self._read(snapshot, frame, now)
        if self._judge(now) or before != [target.known for target in self._targets]:
            snapshot.refresh()
        else:
            snapshot.renumber()
        snapshot.rise(now)

    def tick(self, now: float) -> None:
        """Keep the own counts by time; let go of samples past their bound, and of penalties that have ended."""
        self._own.record(now)
        self.retries.turn(now)
        late = [target for target in self._targets if now > target.expires]
        for target in late:
            # What the last frame said of it is no longer known, so neither is that it was dead.
            target.forget(self._scale, target.capacity if target.sized else None)
            target.dead = False
        if self._snapshot is not None:
            if self._judge(now) or late:
                self._snapshot.refresh()
            self._snapshot.rise(now)

    def _read(self, snapshot: Snapshot, frame: SignalFrame, now: float) -> None:
        fleet = sum(sum(gateway.in_flight.values()) for gateway in frame.gateways.values())
        own = self._own.total(now)
        self._scale, reliable = scale_of(own, fleet, frame.instances)
        # The mean lags behind a sudden rise, which reports show at once: taken for everybody else's, it would refuse.
        proven = proven_of(max(own, sum(target.own for target in self._targets)), fleet, self._scale)
        turnover = None if reliable else self._own.turnover(now)
        sight = Sight(
            frame, self._frame_at, now, self._scale, proven, reliable, snapshot.peers, snapshot.takers, turnover
        )
        self._reader.read(sight, list(self._targets))

    # --- what the data plane says -------------------------------------------------------------------------------------

    def connect_failed(self, decision: Decision) -> None:
        """No connection could be made to the provider of ``decision``: it is used last for a while."""
        _health_of(decision.place.target).connect_failed(self._clock(), self._bits)
        self._health_changed()

    def answered(self, decision: Decision, *, failed: bool) -> None:
        """The provider of ``decision`` answered; ``failed`` where the answer is a fault of its own."""
        target = decision.place.target
        if failed or target.health is not None:
            _health_of(target).answered(self._clock(), self._bits, failed=failed)
        if failed:
            self._health_changed()

    def clusters_down(self, clusters: Collection[str]) -> None:
        """The clusters that an active source sees without a healthy endpoint; all others are well."""
        self._down = frozenset(clusters)
        self._put_down()
        self._health_changed()

    def _put_down(self) -> None:
        if self._down is not None:
            for target in self._targets:
                if target.cluster in self._down or target.health is not None:
                    _health_of(target).reported_down = target.cluster in self._down

    def _health_changed(self) -> None:
        if self._judge(self._clock()) and self._snapshot is not None:
            self._snapshot.refresh()
            self._snapshot.rise(self._clock())

    def _judge(self, now: float) -> bool:
        changed = [target.judge(now) for target in self._targets]
        return any(changed)

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
        return {target.key: target.own for target in self._targets if target.own}


def _health_of(target: Target) -> ObservedHealth:
    if target.health is None:
        target.health = ObservedHealth()
    return target.health


def _held_to(failed: Collection[str], allowed: Collection[Target] | None) -> Fits | None:
    """Who may still be chosen; None: everybody. Those that failed go by name: a document may have made them anew."""
    if not failed and allowed is None:
        return None
    return lambda place: place.target.key not in failed and (allowed is None or place.target in allowed)


def _hashed(served: Served, key: bytes, fits: Fits | None) -> Decision | None:
    """Whom the session's hash prefers in the first group with room (picker ``saturation``), else in the first."""
    tiers = served.tiers if fits is None else served.held_to(fits)
    if not tiers:
        return None
    tier = tiers[0]
    if served.picker is Picker.SATURATION:
        tier = next((tier for tier in tiers if any(place.target.has_room for place in tier)), tier)
    return decided(tier[bounded(ranking(key, tier), tier)], None, "hashed")
