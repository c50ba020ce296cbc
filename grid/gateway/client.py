"""The client library: keeps one gateway's document current in the background and picks from memory.

    async with GridClient(network="acme", gateway="edge-east", bus_url="redis://10.0.0.5") as client:
        pick = client.pick("llama-3.1-70b")
        print(pick.site, pick.cluster)

Redis, the daemon and the network may all be away: the last good document stays in use, and one that was saved is in use
before anything is asked of the network. ``state`` says what holds now.
"""

import asyncio
import contextlib
import random
import secrets
import socket
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from grid.bus import BusSettings, Connection, Delivery, Report, Subscriber, SubscriberState, connect
from grid.gateway import refusals
from grid.gateway.flights import Flights, Route
from grid.gateway.pick import Pick
from grid.gateway.shedding import retry_after
from grid.gateway.snapshot import Snapshot
from grid.model import Kind, Problem
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


class GridClient:
    """Picks a provider for each request, for one gateway of one network.

    ``bus_url`` is what ``bus.url`` is in the configuration; ``bus`` gives login and TLS beside it
    (``BusSettings.from_config``) and takes its place. ``state_dir`` is where the daemon's embedded server is found.
    ``save_to`` names a file for the last good document. ``namespace`` and ``local_site`` narrow what documents are
    accepted; ``key`` is the Ed25519 public key that they must be signed with. ``instance`` tells this process from
    others of the same gateway. ``wait``: s that entering waits for the first document; without one it goes on all the
    same, and picks raise RoutingError until there is one. Raises ConfigError for an address or key that is none.

    ``pick`` may be called from any thread; everything else belongs to the event loop that the client was started on.
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
        wait: float = 5.0,
        rng: random.Random | None = None,
    ) -> None:
        self.network = network
        self.gateway = gateway
        self.instance = instance or f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._settings = bus or BusSettings.from_url(bus_url)
        self._state_dir = state_dir
        self._wait = wait
        self._bits = (rng or random.Random()).getrandbits
        self._snapshot: Snapshot | None = None
        self._flights = Flights()
        self._subscriber = Subscriber(
            self._connect,
            network,
            gateway,
            self._apply,
            save_to=Path(save_to) if save_to is not None else None,
            scope=Scope(network, gateway, namespace, local_site),
            key=signing.public_key(key) if key is not None else None,
            report=self._report,
        )

    # --- picking -----------------------------------------------------------------------------------------------------

    def pick(self, model: str, kind: Kind = Kind.INFERENCE_MODEL) -> Pick:
        """Where the next request for ``model`` goes: from memory, without waiting, at the same cost at any size.

        Raises RoutingError: 400 ``bad_model``, 404 ``model_not_found``, 429 ``capacity_exhausted`` (every provider is
        held back), 503 ``no_healthy_site``, 503 ``no_overlay`` (no document yet); the last three with ``retry_after``.
        """
        snapshot = self._snapshot
        if snapshot is None:
            raise refusals.no_document(self.gateway, kind, model, retry_after(self._bits))
        return snapshot.pick(model, kind)

    def route(self, model: str, kind: Kind = Kind.INFERENCE_MODEL) -> Route:
        """A context manager that picks and counts the request as in flight until it is left, whatever way.

        ``with client.route("llama-3.1-70b") as pick:`` - the counts are reported to the daemon.
        """
        return Route(self, self._flights, model, kind)

    @property
    def in_flight(self) -> dict[str, int]:
        """Requests that ``route`` has under way, by ``site/cluster``."""
        return self._flights.in_flight

    @property
    def snapshot(self) -> Snapshot | None:
        """The document in use, made ready; None before the first."""
        return self._snapshot

    @property
    def state(self) -> ClientState:
        """What holds now."""
        found = self._subscriber.state
        if self._snapshot is None:
            return ClientState(Status.NEVER, connected=found.connected, problem=found.problem)
        return ClientState(
            Status.SYNCED if found.stale_since is None else Status.STALE,
            found.position.epoch,
            found.position.version,
            self._snapshot.revision,
            found.stale_since,
            found.connected,
            found.problem,
        )

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Keep the document current in the background until ``close()``. Needs a running event loop."""
        self._subscriber.start()

    async def first_document(self, timeout: float) -> bool:  # noqa: ASYNC109 - a wait that may end without success
        """Wait up to ``timeout`` s for a document; whether there is one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._subscriber.first_document()
        return self._snapshot is not None

    async def close(self) -> None:
        """Stop following the bus; the last document stays in use."""
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

    def _apply(self, delivery: Delivery) -> None:
        # Built aside and put in place as one reference: a pick sees the old document or the new one.
        self._snapshot = Snapshot.build(delivery.envelope, self._bits, self._snapshot)

    def _report(self, state: SubscriberState) -> Report:
        return Report(
            self.gateway,
            self.instance,
            epoch=state.position.epoch,
            version=state.position.version,
            revision=state.revision or "",
            term=state.term,
            in_flight=self._flights.in_flight,
            rate=self._flights.rates(time.monotonic()),
            applied_at=state.applied_at,
            at=time.time(),
        )
