"""The daemon as its HTTP side sees it: ``grid.debug.DaemonView`` over the daemon's parts."""

import asyncio
import difflib
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from grid.bus.publisher import Publisher
from grid.bus.reports import Report
from grid.bus.store import Stored
from grid.daemon.board import Board
from grid.daemon.config_file import ConfigFile
from grid.daemon.delivery import Delivery
from grid.daemon.events import EventLog
from grid.daemon.keeper import Keeper
from grid.daemon.leadership import Leadership
from grid.daemon.link import Link
from grid.daemon.metrics import GatewayRow, Metrics, ProviderRow
from grid.daemon.observe import Observer
from grid.daemon.shelf import Shelf
from grid.daemon.ticker import Ticker
from grid.debug import (
    Access,
    Check,
    DocumentView,
    DrainView,
    Event,
    EventFeed,
    GatewayView,
    InstanceView,
    LastError,
    LeaderView,
    ProviderView,
    ReloadResult,
    Which,
)
from grid.debug.render import behind, iso
from grid.model import BusError, DaemonError, Drain, Freshness, GatewayPlan, Provider, Reason
from grid.signals import store

STALLED = 5.0
"""S without a tick after which the loop counts as stalled."""


class _UnknownError(DaemonError):
    exit_code = 1
    status = 404


class View:
    """What may be asked of the daemon. Built from its parts, holds nothing of its own."""

    def __init__(
        self,
        board: Board,
        *,
        observer: Observer,
        leadership: Leadership,
        publisher: Publisher,
        delivery: Delivery,
        shelf: Shelf,
        link: Link,
        keeper: Keeper,
        events: EventLog,
        metrics: Metrics,
        ticker: Ticker,
        clock: Callable[[], float],
        on_drain: Callable[[str], None],
        reload: Callable[[], Awaitable[ReloadResult]],
        file: ConfigFile,
        dry_run: bool,
    ) -> None:
        self._board = board
        self._observer = observer
        self._leadership = leadership
        self._publisher = publisher
        self._delivery = delivery
        self._shelf = shelf
        self._link = link
        self._keeper = keeper
        self._events = events
        self._metrics = metrics
        self._ticker = ticker
        self._clock = clock
        self._on_drain = on_drain
        self._reload = reload
        self._file = file
        self._dry_run = dry_run

    # --- health -----------------------------------------------------------------------------------------------------

    @property
    def access(self) -> Access:
        """As configured now."""
        daemon = self._board.config.daemon
        return Access(daemon.listen.loopback, daemon.token_file)

    def alive(self) -> Check:
        """Ticks come, and cycles follow."""
        now = self._clock()
        tick = now - self._ticker.last_run("tick")
        cycle = now - self._board.cycled_at
        if tick > STALLED:
            return Check("loop", False, f"no tick for {tick:.1f} s")
        if cycle > STALLED + 3 * self._board.interval:
            return Check("loop", False, f"no cycle for {cycle:.1f} s")
        return Check("loop", True)

    def checks(self) -> Sequence[Check]:
        """First round, bus, lease; and what an operator should know beside."""
        board, observer = self._board, self._observer
        states = observer.store.snapshot().states
        tried = sum(1 for state in states.values() if state.attempts)
        checks = [
            self.alive(),
            Check("round", observer.round_complete, f"{tried} of {len(states)} providers tried"),
            self._bus_check(),
            self._lease_check(),
            Check("config", board.loaded.ok, board.loaded.detail or f"generation {board.network.generation}", False),
        ]
        if self._file.differs_since is not None:
            said = f"differs from what runs since {iso(self._file.differs_since)}; grid reload loads it"
            checks.append(Check("config file", False, said, False))
        planned = board.planned
        faults = planned.faults if planned is not None else {}
        checks += [Check(f"document {name}", False, error.message, False) for name, error in sorted(faults.items())]
        if board.stopping:
            checks.append(Check("shutdown", False, "the daemon is stopping"))
        return checks

    def _bus_check(self) -> Check:
        if self._link.fault is not None:
            return Check("bus", False, self._link.fault.message, not self._dry_run)
        if self._link.refusal is not None:
            return Check("bus", False, self._link.refusal.message, not self._dry_run)
        where = self._publisher.connection.where
        return Check("bus", self._link.up, where if self._link.up else f"no answer from {where} yet", not self._dry_run)

    def _lease_check(self) -> Check:
        if self._dry_run:
            return Check("lease", True, "dry run: asks for none")
        view = self.leader()
        if view.role == "leader":
            return Check("lease", True, f"leader with epoch {view.epoch}")
        if view.holder is None:
            return Check("lease", False, "nobody is known to lead")
        return Check("lease", True, f"follower of {view.holder}")

    # --- providers --------------------------------------------------------------------------------------------------

    def providers(self) -> Sequence[ProviderView]:
        """All of them, by id."""
        return [self._provider(one) for one in self._board.network.providers.values()]

    def provider(self, name: str) -> ProviderView | None:
        """One of them."""
        found = self._board.network.providers.get(name)
        return None if found is None else self._provider(found)

    def plans(self) -> Mapping[str, GatewayPlan]:
        """Of the newest cycle."""
        planned = self._board.planned
        return {} if planned is None else planned.plans

    def _provider(self, provider: Provider) -> ProviderView:
        name, planned, drains = provider.id, self._board.planned, self._board.drained()
        drain = drains.get(name) or drains.get(provider.site)
        state = self._observer.store.state(name)
        sample, error = state.sample, state.last_error
        return ProviderView(
            provider=provider,
            decision=None if planned is None else planned.decisions.get(name),
            last_error=None if error is None else _last_error(error),
            drain=None if drain is None else self._board.ends.shown(drain),
            interval=self._observer.schedule.interval(name),
            cost=None if sample is None else sample.cost,
            page_bytes=None if sample is None else sample.page_bytes,
            scrapes=state.successes,
            failures=sum(state.failures.values()),
            age=None if sample is None else max(0.0, self._clock() - sample.received_at),
            problems=() if sample is None else sample.problems,
        )

    # --- documents and gateways -------------------------------------------------------------------------------------

    def gateways(self) -> Sequence[GatewayView]:
        """All of them, by name."""
        since = self._clock() - self._board.reported_at
        by_gateway: dict[str, list[Report]] = {}
        for report in self._board.reports:
            by_gateway.setdefault(report.gateway, []).append(report)
        return [self._gateway(name, by_gateway.get(name, []), since) for name in self._board.network.gateways]

    def _gateway(self, name: str, reports: list[Report], since: float) -> GatewayView:
        held, planned = self._shelf.get(name), self._board.planned
        plan = None if planned is None else planned.plans.get(name)
        fault = None if planned is None else planned.faults.get(name)
        return GatewayView(
            name=name,
            site=self._board.network.gateways[name].site,
            epoch=None if held is None else held.epoch,
            version=None if held is None else held.version,
            revision=None if held is None else held.revision,
            published_at=None if held is None else held.published_at,
            candidates=None if plan is None else len(plan.candidates),
            instances=tuple(
                InstanceView(
                    one.instance,
                    one.epoch,
                    one.version,
                    one.revision,
                    one.applied_at,
                    (one.age_s or 0.0) + since,
                    one.in_flight,
                )
                for one in reports
            ),
            fault="" if fault is None else fault.message,
        )

    async def document(self, gateway: str) -> DocumentView | None:
        """As on the bus now; as last seen while the bus is away."""
        if self._link.up:
            try:
                with self._link.watch():
                    found = await self._publisher.read(gateway)
            except BusError:
                found = None
            if found is not None:
                self._shelf.put(found)
        held = self._shelf.get(gateway)
        return None if held is None else _document(held)

    async def past_documents(self, gateway: str, limit: int) -> Sequence[DocumentView]:
        """From the history on the bus."""
        with self._link.watch():
            return [_document(one) for one in await self._publisher.history(gateway, limit)]

    async def past_document(self, gateway: str, which: Which) -> DocumentView | None:
        """The newest one that is meant."""
        held = self._shelf.get(gateway)
        if held is not None and which.version in (None, held.version) and which.choose([held]) is not None:
            return _document(held)
        with self._link.watch():
            kept = await self._publisher.history(gateway, self._board.config.bus.history)
        found = which.choose(kept)
        return None if found is None else _document(found)

    # --- the rest of what is shown ----------------------------------------------------------------------------------

    def leader(self) -> LeaderView:
        """Who publishes, as far as it is known."""
        lease, board, now = self._leadership.lease, self._board, self._clock()
        ttl = board.config.bus.lease
        if self._leadership.leading:
            since = board.leader.since if board.leader is not None and board.leader.epoch == lease.epoch else ""
            left = lease.deadline - now
            return LeaderView("leader", lease.holder, lease.holder, lease.epoch, _wall(since), ttl, left)
        # Before the first look at the bus, what our own attempt at the lease found.
        seen = board.leader if board.leader_at else lease.other
        role = "dry_run" if self._dry_run else "follower"
        if seen is None or not self._link.up:
            return LeaderView(role, lease.holder, None, None, None, ttl, None)
        remaining = None if seen.remaining is None else max(0.0, seen.remaining - (now - board.leader_at))
        return LeaderView(role, lease.holder, seen.holder, seen.epoch, _wall(seen.since), ttl, remaining)

    def config(self) -> Mapping[str, object]:
        """In force, without secrets; and since when the file is another."""
        return {**self._board.config.redacted(), "differs_since": iso(self._file.differs_since)}

    def drains(self) -> Sequence[DrainView]:
        """In force now."""
        drains = self._board.drained()
        return [self._drain(drain) for _, drain in sorted(drains.items())]

    def history(self) -> Sequence[Event]:
        """What happened."""
        return self._events.history()

    def cycles(self) -> Sequence[Event]:
        """The newest cycles."""
        return self._events.cycles()

    def events(self, after: int | None) -> EventFeed:
        """What happens."""
        return self._events.feed(after)

    async def metrics(self) -> bytes:
        """The state of this moment, put into words in a thread."""
        self._metrics.show(
            [self._row(one) for one in self.providers()], [self._gateway_row(g) for g in self.gateways()]
        )
        self._metrics.drains.set(len(self._board.drained()))
        return await asyncio.to_thread(self._metrics.exposition)

    def _row(self, view: ProviderView) -> ProviderRow:
        name, decision = view.provider.id, view.decision
        load = None if decision is None else decision.load
        state, beat = self._observer.store.state(name), self._observer.schedule.beat(name)
        failures = {reason.value: count for reason, count in state.failures.items()}
        return ProviderRow(
            provider=name,
            site=view.provider.site,
            saturation=None if load is None else load.saturation,
            load=None if load is None else load.load,
            held=None if load is None else load.held,
            capacity=None if load is None else load.capacity,
            ready=None if load is None else load.ready,
            age=view.age,
            fresh=None if decision is None else decision.freshness is Freshness.FRESH,
            admission=None if decision is None else decision.admission.value,
            interval=beat.effective,
            skipped=beat.skipped,
            problems=frozenset(one.code.value for one in view.problems),
            scrapes={**failures, **({"ok": state.successes} if state.successes else {})},
        )

    def _gateway_row(self, view: GatewayView) -> GatewayRow:
        return GatewayRow(
            gateway=view.name,
            version=view.version,
            epoch=view.epoch,
            candidates=view.candidates,
            instances=len(view.instances),
            behind=max((behind(one, view) for one in view.instances), default=None),
            publications=self._delivery.publications[view.name],
            failures=self._delivery.failures.get(view.name, {}),
        )

    # --- what an operator may do ------------------------------------------------------------------------------------

    async def drain(self, target: str, *, for_s: float | None, reason: str) -> DrainView:
        """The bus first, so that the drain outlives this daemon; then the next cycle, which is now."""
        kind = self._kind(target)
        if not kind:
            network = self._board.network
            near = difflib.get_close_matches(target, [*network.providers, *network.sites], 1)
            raise _UnknownError(
                f"there is no provider or site {target!r}",
                reason=Reason.NOT_FOUND,
                hint=f"did you mean {near[0]}?" if near else "/v1/providers lists what there is",
            )
        until = None if for_s is None else time.time() + for_s
        with self._link.watch():
            drain, moved = await self._keeper.drain(target, until=until, reason=reason)
        if moved:
            self._on_drain(self._said(drain, kind))
        return self._drain(drain, moved)

    async def undrain(self, drain_id: str) -> None:
        """As ``drain``."""
        with self._link.watch():
            found = await self._keeper.undrain(drain_id)
        if not found:
            raise _UnknownError(
                f"nothing named {drain_id!r} is drained", reason=Reason.NOT_FOUND, hint="/v1/drains lists what is"
            )
        self._on_drain(f"{drain_id} is no longer drained")

    async def reload(self) -> ReloadResult:
        """As SIGHUP."""
        return await self._reload()

    def _drain(self, drain: Drain, moved: bool = True) -> DrainView:
        return DrainView(self._board.ends.shown(drain), self._kind(drain.target), moved)

    def _said(self, drain: Drain, kind: str) -> str:
        left = self._board.ends.left(drain)
        length = "until it is taken back" if math.isinf(left) else f"for {left:.0f} s"
        return f"{kind} {drain.target} is drained {length}" + (f": {drain.reason}" if drain.reason else "")

    def _kind(self, target: str) -> str:
        if target in self._board.network.providers:
            return "provider"
        return "site" if target in self._board.network.sites else ""


def _last_error(error: store.LastError) -> LastError:
    return LastError(error.problem.code, error.problem.detail, error.at, error.consecutive)


def _document(one: Stored) -> DocumentView:
    return DocumentView(one.gateway, one.epoch, one.version, one.revision, one.published_at, one.document, one.reason)


def _wall(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
