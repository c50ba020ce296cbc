"""Connections that send half a request and stay: uvicorn waits for them for ever, so they are watched here.

A request has :data:`REQUEST_TIME` to arrive, head and body; then its connection is cut. There are
:data:`MAX_CONNECTIONS` at most: beyond, the one that has been waiting longest for the rest of a request makes room, or
else the one that has been idle longest, and where all are at work the newcomer is cut.
"""

import asyncio
from typing import Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

REQUEST_TIME: Final = 10.0
"""S from the connection, or from the first byte of a further request, to the end of that request."""
MAX_CONNECTIONS: Final = 256


class WatchedConnection(H11Protocol):
    """uvicorn's protocol with a deadline for requests."""

    request_time = REQUEST_TIME
    max_connections = MAX_CONNECTIONS

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take the data, and wait for the rest where it is no whole request yet."""
        super().data_received(data)
        # None before the first request, whatever its type says.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or cycle.more_body:
            self._wait()
        else:
            self._stop_waiting()

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.request_time, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _make_room(self) -> None:
        others = [one for one in self.connections if isinstance(one, WatchedConnection) and one is not self]
        waiting = [(one._deadline.when(), one) for one in others if one._deadline is not None]
        idle = [(one.timeout_keep_alive_task.when(), one) for one in others if one.timeout_keep_alive_task is not None]
        _, leaves = min(waiting or idle or [(0.0, self)], key=lambda entry: entry[0])
        leaves.transport.abort()
