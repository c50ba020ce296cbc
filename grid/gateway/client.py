"""The client library: keeps one gateway's document current in the background and picks from memory.

    async with GridClient(network="acme", gateway="edge-east", bus_url="redis://10.0.0.5") as client:
        with client.route("llama-3.1-70b") as decision:
            print(decision.site, decision.cluster)

Redis, the daemon and the network may all be away: the last good document stays in use, and one that was saved is in use
before anything is asked of the network. ``state`` says what holds now.
"""

import asyncio
import contextlib
import random
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from grid.bus import BusSettings, Connection, Delivery, FrameDelivery, Report, Subscriber, SubscriberState, connect
from grid.gateway.decision import Decision
from grid.gateway.fleet import PERIOD
from grid.gateway.frames import OnEstimateError
from grid.gateway.router import Router, Settings
from grid.gateway.target import Target
from grid.model import Problem
from grid.overlay import Scope, signing

log = structlog.get_logger(__name__)


class Status(StrEnum):
    """How sure a client is of its document."""

    SYNCED = "synced"
    STALE = "stale"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class ClientState:
    """A look at a client.

    ``status``: ``synced`` while the daemon's frames confirm the document, ``stale`` once they stay out (since
    ``stale_since``, wall clock s; the document stays in use), ``never`` before the first document. ``epoch``,
    ``version`` and ``revision`` are the document's (0, 0, None before the first). ``problem`` is the newest thing that
    was wrong with the bus or a document, also when it is over.
    """

    status: Status
    epoch: int = 0
    version: int = 0
    revision: str | None = None
    stale_since: float | None = None
    connected: bool = False
    problem: Problem | None = None


class GridClient(Router):
    """Picks a provider for each request, for one gateway of one network.

    ``bus_url`` is what ``bus.url`` is in the configuration; ``bus`` gives login and TLS beside it
    (``BusSettings.from_config``) and takes its place. ``state_dir`` is where the daemon's embedded server is found.
    ``save_to`` names a file for the last good document. ``namespace`` and ``local_site`` narrow what documents are
    accepted; ``key`` is the Ed25519 public key that they must be signed with. ``instance`` tells this process from
    others of the same gateway. ``settings``: bounds, affinity, retries. ``wait``: s that entering waits for the first
    document; without one it goes on all the same, and picks raise RoutingError until there is one. Raises ConfigError
    for an address or key that is none. Everything belongs to the event loop that the client was started on.
    """

    def __init__(
        self,
        *,
        network: str,
        gateway: str,
        bus_url: str = "embedded",
        bus: BusSettings | None = None,
        state_dir: Path | str | None = None,
        save_to: Path | str | None = None,
        namespace: str | None = None,
        local_site: str | None = None,
        key: bytes | None = None,
        instance: str | None = None,
        settings: Settings | None = None,
        wait: float = 5.0,
        rng: random.Random | None = None,
        on_estimate_error: OnEstimateError | None = None,
    ) -> None:
        super().__init__(
            gateway,
            settings=_shared_secret(settings, network),
            bits=(rng or random.Random()).getrandbits,
            on_estimate_error=on_estimate_error,
        )
        self.network = network
        self.instance = instance or f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._settings = bus or BusSettings.from_url(bus_url)
        self._state_dir = state_dir
        self._wait = wait
        self._rates = _Rates()
        self._first_bytes = _FirstBytes()
        self.complete_report: Callable[[Report], Report] | None = None
        """Sees every report before it is written, and may add what only the gateway around this client knows."""
        self._ticker: asyncio.Task[None] | None = None
        self._subscriber = Subscriber(
            self._connect,
            network,
            gateway,
            self._on_document,
            self._on_frame,
            save_to=Path(save_to) if save_to is not None else None,
            scope=Scope(network, gateway, namespace, local_site),
            key=signing.public_key(key) if key is not None else None,
            report=self._report,
        )

    @property
    def state(self) -> ClientState:
        """What holds now."""
        found = self._subscriber.state
        if self.snapshot is None:
            return ClientState(Status.NEVER, connected=found.connected, problem=found.problem)
        return ClientState(
            Status.SYNCED if found.stale_since is None else Status.STALE,
            found.position.epoch,
            found.position.version,
            self.snapshot.revision,
            found.stale_since,
            found.connected,
            found.problem,
        )

    def first_byte(self, decision: Decision, seconds: float) -> None:
        """The first byte of an answer came after ``seconds``. Shown by the daemon; nothing is chosen by it."""
        self._first_bytes.add(decision.place.target, seconds)

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Keep the document current in the background until ``close()``. Needs a running event loop."""
        if self._ticker is None:
            self._subscriber.start()
            self._ticker = asyncio.create_task(self._tick(), name=f"grid-client-tick-{self.gateway}")

    async def first_document(self, timeout: float) -> bool:  # noqa: ASYNC109 - a wait that may end without success
        """Wait up to ``timeout`` s for a document; whether there is one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._subscriber.first_document()
        return self.snapshot is not None

    async def close(self) -> None:
        """Stop following the bus; the last document stays in use."""
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)
        await self._subscriber.close()

    async def __aenter__(self) -> Self:
        self.start()
        try:
            if not await self.first_document(self._wait):
                log.warning("no document yet", gateway=self.gateway, problem=self._subscriber.state.problem)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # --- the bus -----------------------------------------------------------------------------------------------------

    async def _connect(self) -> Connection:
        return await connect(self._settings, self.network, self._state_dir)

    async def _tick(self) -> None:
        while True:
            self.tick(time.monotonic())
            await asyncio.sleep(PERIOD)

    def _on_document(self, delivery: Delivery) -> None:
        # No word of it: a program that has not set up its logs would find it on its stdout.
        self.apply(delivery.envelope)

    def _on_frame(self, delivery: FrameDelivery) -> None:
        self.observe(delivery.frame, delivery.received_at)

    def _report(self, state: SubscriberState) -> Report:
        report = Report(
            self.gateway,
            self.instance,
            epoch=state.position.epoch,
            version=state.position.version,
            revision=state.revision or "",
            term=state.term,
            in_flight=self.in_flight,
            rate=self._rates.take(self.targets, time.monotonic()),
            first_byte_s=self._first_bytes.take(),
            applied_at=state.applied_at,
            at=time.time(),
        )
        return report if self.complete_report is None else self.complete_report(report)


class _FirstBytes:
    """Mean s to the first byte per target between two reports."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def add(self, target: Target, seconds: float) -> None:
        number, total = self._seen.get(target.key, (0, 0.0))
        self._seen[target.key] = (number + 1, total + seconds)

    def take(self) -> dict[str, float]:
        seen, self._seen = self._seen, {}
        return {key: total / number for key, (number, total) in seen.items()}


class _Rates:
    """Requests/s begun per target between two reports."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._at: float | None = None

    def take(self, targets: Sequence[Target], now: float) -> dict[str, float]:
        begun = {target.key: target.begun for target in targets}
        elapsed = 0.0 if self._at is None else now - self._at
        rates = {
            place: (number - self._told.get(place, 0)) / elapsed
            for place, number in begun.items()
            if elapsed > 0 and number > self._told.get(place, 0)
        }
        self._told, self._at = begun, now
        return rates


def _shared_secret(settings: Settings | None, network: str) -> Settings | None:
    """Hashed affinity only agrees between gateways under one key: the network's name, where none is given."""
    if settings is None or settings.affinity is None or not settings.affinity.hashed or settings.affinity.secret:
        return settings
    return replace(settings, affinity=replace(settings.affinity, secret=network.encode()))
