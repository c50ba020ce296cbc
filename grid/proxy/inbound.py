"""One request's client: what it sends, checked and kept, and whether it is still there.

That a client has gone is told by ASGI's ``http.disconnect``, which middleware may hide: some reads the body and hands
on a ``receive`` that repeats it for ever. Grid's own server therefore puts a :class:`Hangup` into the scope, past that.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from grid.model import Reason, RoutingError
from grid.proxy.answers import refusal
from grid.proxy.asgi import Receive
from grid.proxy.interrupt import Cause, Interruptible
from grid.proxy.request_scan import BadBodyError, RequestScan

EXTENSION = "grid.hangup"
"""Where in ``scope["extensions"]`` the server puts the connection's :class:`Hangup`."""


class ClientGoneError(Exception):
    """The client has closed its connection."""


class Hangup:
    """Tells who asks that a connection was lost."""

    __slots__ = ("_listeners", "lost")

    def __init__(self) -> None:
        self.lost = False
        self._listeners: set[Callable[[], None]] = set()

    def add(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when the connection is lost; at once where it is."""
        if self.lost:
            listener()
        else:
            self._listeners.add(listener)

    def discard(self, listener: Callable[[], None]) -> None:
        """It no longer wants to know."""
        self._listeners.discard(listener)

    def fire(self) -> None:
        """The connection is lost."""
        self.lost = True
        listeners, self._listeners = self._listeners, set()
        for listener in listeners:
            listener()


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """``most`` bytes. A body may take ``grace`` s and one s more for every ``rate`` bytes that have come."""

    most: int = 32 << 20
    grace: float = 30.0
    rate: float = 16 * 1024


class Inbound:
    """Reads the body of a request and keeps it for another try until :meth:`release`.

    First :meth:`until_model`, in the request's own task; then :meth:`watch` goes on beside it, and interrupts ``waits``
    when the client has gone (``gone``) or the body turns out to be no good (``fault``).
    """

    def __init__(
        self, receive: Receive, limits: BodyLimits, waits: Interruptible, hangup: Hangup | None, name: str
    ) -> None:
        self.scan = RequestScan()
        self.gone = False
        self.ended = False
        """Whether everything has been read, good or not."""
        self.fault: RoutingError | None = None
        self._receive = receive
        self._limits = limits
        self._waits = waits
        self._hangup = hangup
        self._name = name
        self._kept: list[bytes] = []
        self._keep = True
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._began = asyncio.get_running_loop().time()

    @property
    def complete(self) -> bool:
        """Whether the whole body has come, and is good."""
        return self.scan.complete

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return self.scan.size

    async def until_model(self, *, whole: bool = False) -> str:
        """Read until the model is known (``whole``: until the end); the model.

        Raises RoutingError for a body that is no good, too large or too slow, ClientGoneError.
        """
        while self.scan.model is None or (whole and not self.complete):
            await self._take()
        return self.scan.model

    def watch(self) -> None:
        """Go on beside the request."""
        if self._hangup is not None:
            self._hangup.add(self._lost)
            if self.complete:
                return
        self._task = asyncio.create_task(self._watch(), name=self._name)

    async def completed(self) -> None:
        """Wait for the end of the body, inside of an interruptible block."""
        while not self.complete:
            self._news.clear()
            await self._news.wait()

    def whole(self) -> bytes:
        """The body, once complete."""
        if len(self._kept) > 1:
            self._kept = [b"".join(self._kept)]
        return self._kept[0] if self._kept else b""

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body from its beginning, as it comes in."""
        place = 0
        while True:
            while place < len(self._kept):
                chunk = self._kept[place]
                if not self._keep:
                    self._kept[place] = b""
                place += 1
                yield chunk
            if self.complete:
                return
            self._news.clear()
            await self._news.wait()

    def release(self) -> None:
        """There will be no other try: what has been sent need not be kept."""
        self._keep = False
        if self.complete:
            self._kept = []

    def stop(self) -> None:
        """Read no more."""
        if self._hangup is not None:
            self._hangup.discard(self._lost)
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def drain(self, seconds: float, most: int) -> None:
        """Throw away what still comes, for so long and so much at most: a client that sends reads the answer later."""
        self._kept = []
        taken = 0
        try:
            async with asyncio.timeout(seconds):
                while taken < most:
                    message = await self._receive()
                    taken += len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return
        except TimeoutError:
            return

    async def _watch(self) -> None:
        try:
            while not self.complete:
                await self._take()
            if self._hangup is None and (await self._receive())["type"] == "http.disconnect":
                self._lost()
        except ClientGoneError:
            self._lost()
        except RoutingError as error:
            self.fault = error
            self._waits.interrupt(Cause.FAULT)

    def _lost(self) -> None:
        self.gone = True
        self._waits.interrupt(Cause.GONE)

    async def _take(self) -> None:
        """One message."""
        try:
            async with asyncio.timeout_at(self._began + self._limits.grace + self.size / self._limits.rate):
                message = await self._receive()
        except TimeoutError:
            raise refusal(
                Reason.BODY_TIMEOUT, 408, f"the body came too slowly: {self.size} bytes in all this time"
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        self.ended = not message.get("more_body", False)
        if self.size + len(chunk) > self._limits.most:
            raise too_large(self._limits.most)
        try:
            if chunk:
                self.scan.feed(chunk)
            if self.ended:
                self.scan.finish()
        except BadBodyError as error:
            raise refusal(Reason.BAD_MODEL, 400, str(error)) from None
        if chunk:
            self._kept.append(chunk)
        self._news.set()


def too_large(most: int) -> RoutingError:
    """For a body over the limit."""
    return refusal(Reason.BODY_TOO_LARGE, 413, f"the body is larger than {most} bytes")
