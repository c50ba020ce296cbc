"""HTTP/1.1 towards clients: uvicorn's protocol on httptools, with bounds on what a client may hold without a request.

A head has ``HEAD_BYTES`` and ``HEAD_FIELDS`` at most and must be whole within ``HEAD_SECONDS``; a client that takes
nothing of its answer for ``STALL_SECONDS`` is cut off. What is wrong at this level is answered with an error object as
well. The connection's :class:`grid.proxy.inbound.Hangup` stands in every scope.
"""

import asyncio
import re
from typing import Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from grid.model import Reason, RoutingError
from grid.proxy.answers import error_body, error_headers, refusal
from grid.proxy.inbound import EXTENSION, Hangup

HEAD_BYTES: Final = 64 * 1024
HEAD_FIELDS: Final = 256
HEAD_SECONDS: Final = 15.0
STALL_SECONDS: Final = 60.0
_LINGER: Final = 1.0
_UPGRADE: Final = re.compile(rb"(\r\n|\A)upgrade[ \t]*:", re.IGNORECASE)


class HttpProtocol(HttpToolsProtocol):
    """One connection from a client."""

    head_seconds: float = HEAD_SECONDS
    stall_seconds: float = STALL_SECONDS

    _hangup: Hangup
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _in_head = True
    _head_received = 0
    _head_parsed = 0
    _too_large = False
    _refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self._hangup = Hangup()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)
        self._hangup.fire()

    # --- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._idle:
            self._await_head()
        if self._in_head or self._idle:
            data = _without_upgrade(data)
        super().data_received(data)
        if self._in_head and not self._refused:
            self._head_received += len(data)
            if self._head_received > HEAD_BYTES:
                self._too_large = True
                self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_received, self._head_parsed = True, 0, 0
        self._await_head()
        self.scope["extensions"] = {EXTENSION: self._hangup}  # type: ignore[dict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_parsed += len(name) + len(value) + 4
        if self._head_parsed > HEAD_BYTES or len(self.headers) >= HEAD_FIELDS:
            self._too_large = True
            raise ValueError("too large a head")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._head_received = False, 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words are not for our clients
        """Refuse the head, then close once the client has had a moment to read why."""
        if self._refused:
            return
        self._refused = True
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started:
                self.transport.close()  # an answer is under way, and no second one may follow into it
                return
            cycle.disconnected = True
            cycle.message_event.set()
            self._hangup.fire()
        error = (
            refusal(Reason.HEAD_TOO_LARGE, 431, "too many or too long headers")
            if self._too_large
            else refusal(Reason.BAD_REQUEST, 400, "this is no HTTP/1.1 request")
        )
        self.transport.write(_encoded(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._stop_timers()
        self._head_timer = self.loop.call_later(_LINGER, self.transport.close)

    @property
    def _idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _give_up(self) -> None:
        self._head_timer = None
        if self._in_head or self._idle:
            self.transport.close()

    # --- writing ------------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._stall_timer = None


def _without_upgrade(data: bytes) -> bytes:
    """``data`` without an offer to speak another protocol, which a server may ignore (RFC 9110, section 7.8).

    The parser takes the offer for a promise and the request's body for the other protocol. A name that passes one
    connection only takes the place of ``Upgrade``, so nothing of it goes further.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(rb"\1keep-alive:", head) + end + rest if b"pgrade" in head or b"PGRADE" in head else data


def _encoded(error: RoutingError) -> bytes:
    body = error_body(error)
    lines = b"".join(b"%b: %b\r\n" % pair for pair in error_headers(error, body))
    return STATUS_LINE[error.status] + lines + b"connection: close\r\n\r\n" + body
