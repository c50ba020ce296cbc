"""Admission control on an event loop: a thin shell around the core.

    async with admission.slot("llama-3.1-70b", band="gold", tenant="acme") as slot:
        pool = pick(among=slot.allowed)
        slot.bind(pool)
        ...

The core decides in the same call in which something happens; the shell keeps the clock, one timer for everything, and
one future per waiting request, which it completes when the core says so. It wakes exactly those who may go. All of it
belongs to one event loop.

Fail-safe: an error in here must not stop traffic. It is counted, logged once a minute, and the requests it met are let
through without a slot, ``hard_limit`` at a time at most. The core is then made anew from what was last known, so one
bad moment does not last; slots of before end with the core that gave them.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

import structlog
from prometheus_client import CollectorRegistry

from grid.flow.callers import TenantKeys
from grid.flow.core import AdmissionCore, News
from grid.flow.metrics import FlowMetrics
from grid.flow.pools import PoolSignal
from grid.flow.settings import AdmissionPolicy
from grid.flow.tickets import State, Ticket
from grid.flow.view import describe
from grid.model import AdmissionError, Reason

log = structlog.get_logger(__name__)

LOG_INTERVAL: Final = 60.0
"""s between two log lines about errors in here."""

BYPASSED: Final = "bypassed"
_RETRY_AFTER_FAULT: Final = 5
_HAS_SLOT: Final = (State.GRANTED, State.LAPSED)
_NOT_STARTED: Final = (State.QUEUED, State.GRANTED)


class Slot:
    """One request's way through admission; entered, it holds a slot until it is left.

    Made by :meth:`Admission.slot`. Where ``async with`` does not fit: :meth:`open`, then :meth:`wait` if that said
    False, and :meth:`close` in any case.
    """

    __slots__ = (
        "_admission",
        "arrived",
        "band",
        "bypassed",
        "core",
        "cost",
        "deadline",
        "model",
        "spent_cost",
        "tenant",
        "ticket",
    )

    def __init__(
        self, admission: "Admission", model: str, *, band: str, tenant: str, cost: int, deadline: float | None
    ) -> None:
        self._admission = admission
        self.model = model
        self.band = band
        self.tenant = tenant
        self.cost = cost
        self.deadline = deadline
        self.spent_cost: int | None = None
        self.bypassed = False
        self.arrived = 0.0
        self.ticket: Ticket | None = None
        self.core: AdmissionCore | None = None

    async def __aenter__(self) -> Self:
        if not self.open():
            await self.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- getting in ---------------------------------------------------------------------------------------------------

    def open(self) -> bool:
        """Come to the door: True with a slot, False where the request has to wait. Raises AdmissionError if refused."""
        return self._admission.open(self)

    async def wait(self) -> None:
        """Wait for the slot. Raises AdmissionError when it waited too long or was pushed out.

        Cancelled or left, the request leaves the queue at once and holds nothing.
        """
        future = self.future
        if future is not None:
            try:
                await future
            except asyncio.CancelledError:
                self.leave()
                raise
        self._admission.woken(self)

    def leave(self) -> None:
        """The caller is gone: out of the queue, and whatever was granted goes to the next."""
        self._admission.end(self, gone=True)

    def close(self) -> None:
        """The request has ended."""
        self._admission.end(self, gone=False)

    # --- what a slot is for -------------------------------------------------------------------------------------------

    @property
    def future(self) -> asyncio.Future[None] | None:
        """Done when the wait is over; None where there is no wait."""
        return None if self.ticket is None else self.ticket.owner

    @property
    def waited(self) -> float:
        """How long it waited, s."""
        waited = None if self.ticket is None else self.ticket.waited
        return 0.0 if waited is None else waited

    @property
    def allowed(self) -> tuple[str, ...]:
        """Pools that it may go to, as of now; empty where admission has no say, so the pick is free."""
        return () if self.ticket is None else self.ticket.allowed

    @property
    def pool(self) -> str | None:
        """The pool that it counts against: the one bound, until then the one with the most room when it was granted."""
        return None if self.ticket is None else self.ticket.pool_key

    def bind(self, pool: str) -> bool:
        """The request goes to ``pool``. Whether that pool had room for it: always so for one of ``allowed``."""
        return self._admission.bind(self, pool)

    def spent(self, cost: int) -> None:
        """What it cost in the end (tokens); its tenant's turns are corrected by it when the slot is left."""
        self.spent_cost = cost


class Admission:
    """Admission control of one process, on one event loop.

    ``phase``: see :class:`grid.flow.core.AdmissionCore`. ``registry`` takes the metrics. ``tenant_key`` keys the hash
    of tenants' names (at most 64 bytes; random where None, so hashes differ between processes). ``hard_limit``:
    requests let through at a time while admission itself fails.
    """

    def __init__(
        self,
        policy: AdmissionPolicy | None = None,
        *,
        phase: float = 0.0,
        registry: CollectorRegistry | None = None,
        tenant_key: bytes | None = None,
        hard_limit: int = 1000,
    ) -> None:
        self.policy = policy or AdmissionPolicy()
        self.faults = 0
        self._bands = frozenset(band.name for band in self.policy.bands)
        self._lowest = self.policy.bands[-1].name
        self._phase = phase
        self._closed = False
        self._hard_limit = hard_limit
        self._bypassing = 0
        self._keys = TenantKeys(secrets.token_bytes(16) if tenant_key is None else tenant_key)
        self._core: AdmissionCore | None = AdmissionCore(self.policy, phase=phase)
        self._metrics = FlowMetrics(registry or CollectorRegistry(), self._keys, lambda: self._core)
        self._routes: Mapping[str, Sequence[str]] = {}
        self._signals: tuple[PoolSignal, ...] = ()
        self._turn = 0
        self._told_at = 0.0
        self._waiting: dict[Ticket, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._logged_at: float | None = None
        self._unlogged = 0

    # --- for those who call -------------------------------------------------------------------------------------------

    def slot(
        self,
        model: str,
        *,
        band: str | None = None,
        tenant: str = "",
        cost: int = 1,
        deadline: float | None = None,
    ) -> Slot:
        """A slot for one request, to be entered with ``async with``.

        ``band`` by name, the lowest where it is unknown; ``tenant`` in the caller's words; ``cost``: expected tokens;
        ``deadline``: s from now by which it must have its slot. Entering raises AdmissionError with ``reason``
        ``queue_full`` or ``admission_refused`` (503) or ``queue_timeout`` (504), and ``retry_after`` in whole s.
        """
        name = band if band in self._bands else self._lowest
        return Slot(self, model, band=name, tenant=self._keys.of(tenant), cost=cost, deadline=deadline)

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def describe(self) -> dict[str, Any]:
        """The state for people and ``/v1/admission``; see :func:`grid.flow.view.describe`."""
        shown: dict[str, Any] = {"faults": self.faults, BYPASSED: self._bypassing}
        if self._core is not None:
            shown |= describe(self._core, _now())
        return shown

    # --- the world ----------------------------------------------------------------------------------------------------

    def update(self, signals: Iterable[PoolSignal], turn: int = 0) -> None:
        """What is known of the pools now; see :meth:`grid.flow.core.AdmissionCore.update`."""
        self._signals, self._turn, self._told_at = tuple(signals), turn, _now()
        self._tell("update", lambda core: core.update(_now(), self._signals, turn))

    def reroute(self, routes: Mapping[str, Sequence[str]]) -> None:
        """Which pools may take new work, by model; see :meth:`grid.flow.core.AdmissionCore.reroute`."""
        self._routes = {model: tuple(keys) for model, keys in routes.items()}
        self._tell("reroute", lambda core: core.reroute(_now(), self._routes))

    def close(self) -> None:
        """The process ends: whoever waits, and whoever still comes, is refused. Slots in use may be left as ever."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for ticket in self._waiting:
            _wake(ticket)

    # --- for Slot -----------------------------------------------------------------------------------------------------

    def open(self, slot: Slot) -> bool:
        """See :meth:`Slot.open`."""
        slot.arrived = now = _now()
        core = self._core
        if self._closed:
            raise self._closing(slot)
        if core is None:
            self._bypass(slot)
            return True
        deadline = None if slot.deadline is None else now + slot.deadline
        try:
            ticket = core.arrive(now, slot.model, slot.band, tenant=slot.tenant, cost=slot.cost, deadline=deadline)
            _deliver(core.collect())
        except Exception as error:  # noqa: BLE001 - whatever it is, traffic goes on
            self._fault(core, "arrive", error)
            self._bypass(slot)
            return True
        slot.core, slot.ticket = core, ticket
        if ticket.state is State.QUEUED:
            ticket.owner = asyncio.get_running_loop().create_future()
            self._waiting[ticket] = None
            self._arm(ticket.expires_at)
            return False
        self.woken(slot)
        return True

    def woken(self, slot: Slot) -> None:
        """The wait is over, or there was none: take the slot, or raise what became of the request."""
        core, ticket = slot.core, slot.ticket
        if core is None or ticket is None:
            return
        self._waiting.pop(ticket, None)
        ticket.owner = None
        if ticket.state in _HAS_SLOT:
            try:
                _deliver(core.started(_now(), ticket))
            except Exception as error:  # noqa: BLE001 - whatever it is, traffic goes on
                self._fault(core, "start", error)
            self._count(slot, State.GRANTED, ticket.waited or 0.0)
        elif ticket.reason is not None:
            self._count(slot, ticket.reason, _now() - slot.arrived)
            raise self._refusal(slot, ticket, ticket.reason)
        elif self._closed:
            self.end(slot, gone=True)
            raise self._closing(slot)
        else:
            self._bypass(slot)

    def bind(self, slot: Slot, pool: str) -> bool:
        """See :meth:`Slot.bind`."""
        core, ticket = slot.core, slot.ticket
        if core is None or ticket is None or ticket.pool is None:
            return True
        try:
            fits = core.bind(_now(), ticket, pool)
            _deliver(core.collect())
        except Exception as error:  # noqa: BLE001 - whatever it is, traffic goes on
            self._fault(core, "bind", error)
            return True
        return fits

    def end(self, slot: Slot, *, gone: bool) -> None:
        """The slot is left, or its request is gone."""
        core, ticket = slot.core, slot.ticket
        if slot.bypassed:
            slot.bypassed = False
            self._bypassing -= 1
        if core is None or ticket is None:
            return
        before = ticket.state
        try:
            _deliver(core.cancelled(_now(), ticket) if gone else core.finished(_now(), ticket, slot.spent_cost))
        except Exception as error:  # noqa: BLE001 - whatever it is, traffic goes on
            self._fault(core, "end", error)
        self._waiting.pop(ticket, None)
        ticket.owner = None
        if before in _NOT_STARTED:
            self._count(slot, State.CANCELLED, _now() - slot.arrived)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _tell(self, what: str, step: Callable[[AdmissionCore], News]) -> None:
        """Let the core do ``step``; one that is made anew here has heard it already."""
        core = self._core
        if core is None:
            self._renew()
            return
        try:
            _deliver(step(core))
            due = core.next_deadline()
        except Exception as error:  # noqa: BLE001 - whatever it is, traffic goes on
            self._fault(core, what, error)
        else:
            self._arm(due)

    def _arm(self, due: float | None) -> None:
        if due is None or self._closed:
            return
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        # The loop may run a timer a hair early, and nothing would be due then.
        self._timer = None
        self._tell("tick", lambda core: core.tick(max(due, _now())))

    def _bypass(self, slot: Slot) -> None:
        """Let a request through without a slot, up to the hard limit."""
        slot.core = slot.ticket = None
        if self._bypassing >= self._hard_limit:
            self._count(slot, Reason.ADMISSION_REFUSED, _now() - slot.arrived)
            raise AdmissionError(
                f"admission control fails, and {self._bypassing} requests are let through without it already",
                reason=Reason.ADMISSION_REFUSED,
                status=503,
                retry_after=_RETRY_AFTER_FAULT,
                hint="look for the error in the log",
            )
        self._bypassing += 1
        slot.bypassed = True
        self._count(slot, BYPASSED, _now() - slot.arrived)

    def _fault(self, core: AdmissionCore, what: str, error: Exception) -> None:
        """An error in here: counted, told now and then, and the core that made it is replaced."""
        self.faults += 1
        self._metrics.fault()
        now = _now()
        if self._logged_at is None or now - self._logged_at >= LOG_INTERVAL:
            log.error(
                "admission control failed and lets requests through",
                step=what,
                error=str(error),
                unlogged=self._unlogged,
                exc_info=error,
            )
            self._logged_at, self._unlogged = now, 0
        else:
            self._unlogged += 1
        if core is self._core:
            self._renew()

    def _renew(self) -> None:
        """A core from what was last said. Whoever waits in the old one is woken, and let through."""
        now = _now()
        self._core = None
        core = AdmissionCore(self.policy, phase=self._phase)
        passed = now - self._told_at
        try:
            core.reroute(now, self._routes)
            core.update(now, [replace(signal, age=signal.age + passed) for signal in self._signals], self._turn)
            due = core.next_deadline()
        except Exception as error:  # noqa: BLE001 - whatever it is, traffic goes on
            self._fault(core, "renew", error)
        else:
            self._core = core
            self._arm(due)
        for ticket in self._waiting:
            _wake(ticket)

    def _count(self, slot: Slot, outcome: str, waited: float) -> None:
        self._metrics.ended(slot.band, slot.model, slot.tenant, outcome, waited)

    def _refusal(self, slot: Slot, ticket: Ticket, reason: Reason) -> AdmissionError:
        waited = f"after {_now() - slot.arrived:.3g} s in the queue"
        said = {
            Reason.QUEUE_FULL: f"the queue of band {slot.band} is full ({self.policy.max_queued} requests wait)",
            Reason.QUEUE_TIMEOUT: f"no slot came free for band {slot.band} {waited}",
            Reason.ADMISSION_REFUSED: f"no slot of band {slot.band} can come free within {slot.deadline} s",
        }
        return AdmissionError(
            f"model {slot.model!r}: {said[reason]}",
            reason=reason,
            status=ticket.status or 503,
            retry_after=ticket.retry_after,
        )

    def _closing(self, slot: Slot) -> AdmissionError:
        self._count(slot, Reason.ADMISSION_REFUSED, _now() - slot.arrived)
        return AdmissionError(
            "this gateway is shutting down",
            reason=Reason.ADMISSION_REFUSED,
            status=503,
            retry_after=1,
            hint="send the request again, to another gateway",
        )


def _now() -> float:
    return asyncio.get_running_loop().time()


def _deliver(news: News) -> None:
    for ticket in news:
        _wake(ticket)


def _wake(ticket: Ticket) -> None:
    future = ticket.owner
    if future is not None and not future.done():
        future.set_result(None)
