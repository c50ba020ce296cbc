"""The client library for programs with threads: :class:`GridClient` on a loop of its own.

    with SyncGridClient(network="acme", gateway="edge-east", bus_url="redis://10.0.0.5") as client:
        with client.route("llama-3.1-70b") as decision:
            send(decision.site)

Here alone there is a lock: one, around each step of choosing and counting and around what the bus brings, so that no
two threads choose on the same count. It is held for microseconds, and never while anything waits.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from grid.gateway.client import ClientState, GridClient
from grid.gateway.decision import Decision
from grid.gateway.router import Route
from grid.gateway.target import Target
from grid.model import Kind
from grid.overlay import Envelope, SignalFrame

T = TypeVar("T")

_GRACE: Final = 30.0
"""s that starting and stopping may take beside what was asked for."""


class _Shared(GridClient):
    """A client whose state several threads look at."""

    def __init__(self, lock: threading.RLock, **options: Any) -> None:
        self._lock = lock
        super().__init__(**options)

    def apply(self, envelope: Envelope) -> None:
        with self._lock:
            super().apply(envelope)

    def observe(self, frame: SignalFrame, received_at: float) -> None:
        with self._lock:
            super().observe(frame, received_at)

    def tick(self, now: float) -> None:
        with self._lock:
            super().tick(now)


class SyncRoute:
    """As :class:`grid.gateway.Route`; may be left on another thread than it was entered on."""

    __slots__ = ("_lock", "_route")

    def __init__(self, route: Route, lock: threading.RLock) -> None:
        self._route = route
        self._lock = lock

    def __enter__(self) -> Decision:
        with self._lock:
            return self._route.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._route.__exit__(kind, error, traceback)


class SyncGridClient:
    """Picks a provider for each request, from any thread. Options are those of :class:`GridClient`.

    ``start()`` waits up to ``wait`` s for the first document and goes on without one; ``close()`` ends the thread that
    follows the bus, and the last document stays in use.
    """

    def __init__(self, *, wait: float = 5.0, **options: Any) -> None:
        # A callback that hears of estimate errors is called with the lock held and may ask the client again.
        self._lock = threading.RLock()
        self._client = _Shared(self._lock, wait=wait, **options)
        self._wait = wait
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow the bus on a thread of its own until ``close()``."""
        if self._thread is not None:
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._follow, args=(self._loop,), name=f"grid-client-{self._client.gateway}", daemon=True
        )
        self._thread.start()
        try:
            self._on_loop(self._begin(), self._wait)
        except BaseException:
            self.close()
            raise

    async def _begin(self) -> None:
        self._client.start()
        await self._client.first_document(self._wait)

    def close(self) -> None:
        """Stop following the bus."""
        thread, loop = self._thread, self._loop
        if thread is None or loop is None:
            return
        self._thread = self._loop = None
        try:
            asyncio.run_coroutine_threadsafe(self._client.close(), loop).result(_GRACE)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_GRACE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def _follow(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _on_loop(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        loop = self._loop
        if loop is None:
            work.close()
            raise RuntimeError("the client is not started")
        return asyncio.run_coroutine_threadsafe(work, loop).result(seconds + _GRACE)

    # --- picking -----------------------------------------------------------------------------------------------------

    def pick(
        self,
        model: str,
        kind: Kind = Kind.INFERENCE_MODEL,
        session: str | None = None,
        tenant: str = "",
        tried: Sequence[Decision] = (),
        allowed: Collection[Target] | None = None,
    ) -> Decision:
        """As :meth:`grid.gateway.Router.pick`."""
        with self._lock:
            return self._client.pick(model, kind, session, tenant, tried, allowed)

    def route(
        self,
        model: str,
        kind: Kind = Kind.INFERENCE_MODEL,
        session: str | None = None,
        tenant: str = "",
        tried: Sequence[Decision] = (),
        allowed: Collection[Target] | None = None,
    ) -> SyncRoute:
        """As :meth:`grid.gateway.Router.route`: choosing and counting are one step, whatever other threads do."""
        return SyncRoute(self._client.route(model, kind, session, tenant, tried, allowed), self._lock)

    def first_document(self, timeout: float) -> bool:
        """Wait up to ``timeout`` s for a document; whether there is one."""
        return self._on_loop(self._client.first_document(timeout), timeout)

    # --- what the data plane says, and what can be seen ---------------------------------------------------------------

    def connect_failed(self, decision: Decision) -> None:
        """As :meth:`grid.gateway.Router.connect_failed`."""
        self._locked(lambda: self._client.connect_failed(decision))

    def answered(self, decision: Decision, *, failed: bool) -> None:
        """As :meth:`grid.gateway.Router.answered`."""
        self._locked(lambda: self._client.answered(decision, failed=failed))

    def first_byte(self, decision: Decision, seconds: float) -> None:
        """As :meth:`grid.gateway.GridClient.first_byte`."""
        self._locked(lambda: self._client.first_byte(decision, seconds))

    @property
    def state(self) -> ClientState:
        """What holds now."""
        return self._client.state

    @property
    def in_flight(self) -> dict[str, int]:
        """As :attr:`grid.gateway.Router.in_flight`."""
        return self._locked(lambda: self._client.in_flight)

    def _locked(self, work: Callable[[], T]) -> T:
        with self._lock:
            return work()
