"""What happened, as sentences: a bounded history, and a bounded queue for everyone who follows it."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping

from grid.debug import Event
from grid.model import DaemonError, Reason

KEPT_EVENTS = 1000
KEPT_CYCLES = 50
QUEUE = 256
"""Events that wait for one client before the oldest is dropped."""
MAX_FEEDS = 32
QUIET_S = 15.0
"""After so long without an event a feed says so, so that its connection can be kept alive."""


class _TooManyError(DaemonError):
    status = 503


class Feed:
    """One client's events. Ends when the log is closed."""

    def __init__(self, waiting: deque[Event], on_close: Callable[["Feed"], None]) -> None:
        self._waiting = waiting
        self._on_close = on_close
        self._wake = asyncio.Event()
        self._ended = False
        self._lost = 0
        if waiting:
            self._wake.set()

    def put(self, event: Event) -> None:
        """Hand over an event; the oldest goes where the client reads too slowly."""
        if len(self._waiting) == QUEUE:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(event)
        self._wake.set()

    def end(self) -> None:
        """Let the client have what waits, then end."""
        self._ended = True
        self._wake.set()

    def take_lost(self) -> int:
        """Events dropped since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    def close(self) -> None:
        """The client is gone."""
        self._on_close(self)

    async def __aiter__(self) -> AsyncIterator[Event | None]:
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._ended:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._wake.wait()
            except TimeoutError:
                yield None


class EventLog:
    """Keeps the newest events and cycles, and hands events to feeds."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._next = 1
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._cycles: deque[Event] = deque(maxlen=KEPT_CYCLES)
        self._feeds: set[Feed] = set()
        self._closed = False

    def add(self, kind: str, sentence: str, fields: Mapping[str, object] | None = None) -> Event:
        """Keep an event and tell everyone who follows."""
        event = self._make(kind, sentence, fields)
        self._events.append(event)
        for feed in self._feeds:
            feed.put(event)
        return event

    def add_cycle(self, sentence: str, fields: Mapping[str, object], *, changed: bool) -> None:
        """Keep a cycle; one that changed something is an event too."""
        self._cycles.append(self.add("cycle", sentence, fields) if changed else self._make("cycle", sentence, fields))

    def _make(self, kind: str, sentence: str, fields: Mapping[str, object] | None) -> Event:
        event = Event(self._next, self._wall(), kind, sentence, dict(fields or {}))
        self._next += 1
        return event

    def history(self) -> tuple[Event, ...]:
        """The events kept, oldest first."""
        return tuple(self._events)

    def cycles(self) -> tuple[Event, ...]:
        """The cycles kept, oldest first."""
        return tuple(self._cycles)

    def feed(self, after: int | None) -> Feed:
        """Follow what happens, after the kept events with an id above ``after``."""
        if len(self._feeds) >= MAX_FEEDS:
            raise _TooManyError(f"{MAX_FEEDS} clients follow already", reason=Reason.TOO_MANY_LISTENERS)
        missed = [event for event in self._events if after is not None and event.id > after]
        feed = Feed(deque(missed[-QUEUE:]), self._feeds.discard)
        self._feeds.add(feed)
        if self._closed:
            if not missed:
                feed.put(self._events[-1])
            feed.end()
        return feed

    def close(self) -> None:
        """Tell everyone who follows that this end is in order, and end all feeds."""
        if self._closed:
            return
        self.add("stopping", "the daemon stops")
        self._closed = True
        for feed in self._feeds:
            feed.end()
