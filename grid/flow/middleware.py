"""Admission control in front of any ASGI application (Starlette, FastAPI, plain ones).

    app.add_middleware(AdmissionMiddleware, admission=admission, model="llama-3.1-70b")

Plain ASGI, so nothing stands between the application and its client: bodies stream both ways as before. While a request
waits, its body is read ahead (up to ``read_ahead`` bytes) for the one thing that tells of a client that has gone: the
disconnect message. The wait then ends at once. What was read is handed to the application unchanged.

The slot is in ``scope["grid.slot"]``; it is held until the application is done with the request. Answers carry
``x-grid-band`` and ``x-grid-queue-wait-ms``.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import orjson

from grid.flow.admission import Admission, Slot
from grid.flow.callers import Caller, CallerRules
from grid.model import AdmissionError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

READ_AHEAD: Final = 1 << 20
"""Bytes of a body read while its request waits; a longer one hides a disconnect until the wait is over."""


class AdmissionMiddleware:
    """Holds requests back until they have a slot.

    ``model``: its name, or what tells it from a scope (None: this request needs no slot). ``callers`` tells band and
    tenant from the headers; without it all are of the lowest band and one tenant. ``cost`` estimates tokens from a
    scope.
    """

    def __init__(
        self,
        app: App,
        *,
        admission: Admission,
        model: str | Callable[[Scope], str | None],
        callers: CallerRules | None = None,
        cost: Callable[[Scope], int] | None = None,
        read_ahead: int = READ_AHEAD,
    ) -> None:
        self._app = app
        self._admission = admission
        self._model = model
        self._callers = callers
        self._cost = cost
        self._read_ahead = read_ahead

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, as ASGI has it."""
        model = None
        if scope["type"] == "http":
            model = self._model if isinstance(self._model, str) else self._model(scope)
        if model is None:
            await self._app(scope, receive, send)
            return
        slot = self._slot(scope, model)
        ahead = _ReadAhead(receive, self._read_ahead)
        try:
            try:
                if not slot.open():
                    if await ahead.gone_before(slot):
                        return
                    await slot.wait()
            except AdmissionError as error:
                await _refuse(send, error)
                return
            scope["grid.slot"] = slot
            await self._app(scope, ahead.receive, _tells(send, slot))
        finally:
            slot.close()
            ahead.close()

    def _slot(self, scope: Scope, model: str) -> Slot:
        client = scope.get("client")
        caller = Caller("") if self._callers is None else self._callers.who(scope["headers"], client and client[0])
        cost = 1 if self._cost is None else self._cost(scope)
        return self._admission.slot(model, band=caller.band, tenant=caller.tenant, cost=cost)


class _ReadAhead:
    """The messages of one request, some of them read before the application asks.

    A ``receive`` that was begun while the request waited is never cancelled but handed on, so no message is lost.
    """

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._read: deque[Message] = deque()
        self._size = 0
        self._pending: asyncio.Task[Message] | None = None

    async def gone_before(self, slot: Slot) -> bool:
        """Wait until ``slot``'s wait is over, and whether the client has gone first; then it has left the queue."""
        future = slot.future
        while future is not None and not future.done():
            if self._pending is None and self._size < self._limit:
                self._pending = asyncio.create_task(_next(self._receive), name="admission: read ahead")
                self._pending.add_done_callback(_seen)
            both: list[asyncio.Future[Any]] = [future] if self._pending is None else [future, self._pending]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self._pending is None or not self._pending.done():
                continue
            message = self._pending.result()
            self._pending = None
            if message["type"] == "http.disconnect":
                slot.leave()
                return True
            self._size += len(message.get("body", b""))
            self._read.append(message)
        return False

    async def receive(self) -> Message:
        if self._read:
            return self._read.popleft()
        if self._pending is not None:
            pending, self._pending = self._pending, None
            return await pending
        return await self._receive()

    def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()


async def _next(receive: Receive) -> Message:
    return await receive()


def _seen(task: asyncio.Task[Message]) -> None:
    """An error of a ``receive`` that nobody came to await is nobody's."""
    if not task.cancelled():
        task.exception()


def _tells(send: Send, slot: Slot) -> Send:
    """``send``, with the slot's headers on the answer."""

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_headers(slot)]}
        await send(message)

    return told


def _headers(slot: Slot) -> list[tuple[bytes, bytes]]:
    waited = f"{slot.waited * 1000:.0f}".encode()
    return [(b"x-grid-band", slot.band.encode()), (b"x-grid-queue-wait-ms", waited)]


async def _refuse(send: Send, error: AdmissionError) -> None:
    body = orjson.dumps(
        {"error": {"message": error.message, "type": "server_error", "code": error.reason, "param": None}}
    )
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(error.retry_after).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
