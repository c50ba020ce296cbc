"""The reading side: one gateway's document and the signal frames, kept through outages of any length.

It subscribes first, then reads the document, then applies what comes by (epoch, version). A document is the truth; a
message wakes up, and may carry the document. So a lost message costs time, never correctness: a gap, a frame that names
another place in the order, and a timer each lead to a look at what is stored. Three intervals without a frame mean a
dead link, even one whose server still answers (it may be a master that was replaced): then everything starts over, the
look-up of the address included.
"""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import structlog

from grid.bus.backoff import Backoff
from grid.bus.connect import Connection, Feed
from grid.bus.faults import RefusedError
from grid.bus.files import write_atomic
from grid.bus.holding import Announcement, Delivery, Holding, Source, read_announcement, saved_position
from grid.bus.keys import HEARTBEATS
from grid.bus.order import NOWHERE, Choice, Position, skipped
from grid.bus.reports import Report, write_report
from grid.bus.store import Store
from grid.bus.tasks import first_of, guarded, stop
from grid.model import BusError, OverlayError, Problem, Reason
from grid.overlay import Scope, SignalFrame

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

REREAD = 30.0
"""s between looks at what is stored while nothing else gives cause; spread by a fifth either way."""
REPORT_INTERVAL = 3.0
"""s between reports, spread alike."""
STEADY = 2.0
"""s that a session must last before the backoff starts over."""


@dataclass(frozen=True, slots=True)
class FrameDelivery:
    """A signal frame that is newer than the one before; ``received_at`` (monotonic s) is when it was sent or later."""

    frame: SignalFrame
    received_at: float


@dataclass(slots=True)
class Counts:
    """How often what happened since the start."""

    applied: int = 0
    rejected: int = 0
    older: int = 0
    clashes: int = 0
    gaps: int = 0
    frames: int = 0
    reads: int = 0
    sessions: int = 0
    missed_heartbeats: int = 0


@dataclass(frozen=True, slots=True)
class SubscriberState:
    """A look at a subscriber.

    ``stale_since`` (wall clock s): since when no frame has confirmed what is held; None while frames come, and while
    nothing is held. ``term``: highest epoch seen. ``problem``: the newest thing that was wrong, with ``problem_at``.
    ``applied_at``: wall clock s.
    """

    connected: bool = False
    where: str = ""
    position: Position = NOWHERE
    revision: str | None = None
    source: Source | None = None
    applied_at: float | None = None
    stale_since: float | None = None
    term: int = 0
    problem: Problem | None = None
    problem_at: float | None = None
    counts: Counts = field(default_factory=Counts)


class Subscriber:
    """Keeps one gateway's newest document. ``start()`` it, or run ``run()`` as a task; ``close()`` is prompt.

    ``connect`` makes a fresh Connection (so addresses, passwords and TLS files are read again each time).
    ``on_document`` and ``on_frame`` are called on the loop, one at a time, and must not block. ``save_to`` keeps the
    last good document on disk; it is loaded before anything is asked of the network. ``scope`` defaults to network and
    gateway; ``key`` is the public key that documents must be signed with. ``report`` makes what is written for the
    daemon every few seconds.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        network: str,
        gateway: str,
        on_document: Callable[[Delivery], None],
        on_frame: Callable[[FrameDelivery], None] | None = None,
        *,
        save_to: Path | None = None,
        scope: Scope | None = None,
        key: bytes | None = None,
        report: Callable[[SubscriberState], Report] | None = None,
        reread: float = REREAD,
        rng: random.Random | None = None,
    ) -> None:
        self._connect = connect
        self._network = network
        self._gateway = gateway
        self._on_document = on_document
        self._on_frame = on_frame
        self._save_to = save_to
        self._report = report
        self._reread = reread
        self._rng = rng or random.Random()
        self._holding = Holding(scope or Scope(network=network, gateway=gateway), key)
        self._counts = Counts()
        self._connected = False
        self._where = ""
        self._term = 0
        self._applied_at: float | None = None
        self._problem: Problem | None = None
        self._problem_at: float | None = None
        # Announcements begin with the gateway's name, so those of others are told apart without parsing them.
        self._mine = f'{{"gateway":"{gateway}",'.encode()
        self._best: Announcement | None = None
        self._announced = NOWHERE
        self._named = NOWHERE
        self._frame: tuple[int, int] = (0, 0)
        self._interval = 1.0
        self._beat = 0.0
        self._stale_since: float | None = None
        self._silent_for: Reason | None = None
        """Why no frame comes, as last logged: an outage is told once, not at every try."""
        self._full = False
        self._wanted = asyncio.Event()
        self._applied = asyncio.Event()
        self._unsaved: Delivery | None = None
        self._save = asyncio.Event()
        self._saving = threading.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def held(self) -> Delivery | None:
        """The last good document."""
        return self._holding.held

    @property
    def state(self) -> SubscriberState:
        """A look at it now."""
        held = self._holding.held
        return SubscriberState(
            connected=self._connected,
            where=self._where,
            position=self._holding.position,
            revision=self._holding.revision,
            source=held.source if held else None,
            applied_at=self._applied_at,
            stale_since=self._stale_since if held else None,
            term=self._term,
            problem=self._problem,
            problem_at=self._problem_at,
            counts=replace(self._counts),
        )

    def start(self) -> None:
        """Run in the background until ``close()``; once, however often it is called."""
        if self._task is None:
            self._task = guarded(self.run(), f"subscriber of {self._gateway}")

    async def close(self) -> None:
        """Stop what ``start()`` began; what is held stays readable."""
        task, self._task = self._task, None
        if task is not None:
            await stop(task)

    async def first_document(self) -> Delivery:
        """The document held, as soon as there is one."""
        while self._holding.held is None:
            await self._applied.wait()
        return self._holding.held

    async def run(self) -> None:
        """Keep the document current until cancelled."""
        self._stale_since = time.time()
        pause = Backoff(rng=self._rng)
        await self._load()
        saver = guarded(self._keep_saving(), f"saver of {self._gateway}")
        try:
            while True:
                started = time.monotonic()
                try:
                    await self._session()
                except BusError as error:
                    self._lost(error)
                if time.monotonic() - started >= STEADY:
                    pause.reset()
                await asyncio.sleep(pause.next())
        finally:
            self._connected = False
            await stop(saver)
            await self._save_last()

    # --- one connection after the other ------------------------------------------------------------------------------

    async def _session(self) -> None:
        connection = await self._connect()
        try:
            feed = await connection.subscribe(connection.keys.overlays, connection.keys.signals)
            try:
                self._beat = time.monotonic()
                self._named = self._announced = NOWHERE
                self._connected, self._where = True, connection.where
                self._counts.sessions += 1
                works: dict[str, Coroutine[Any, Any, None]] = {
                    "messages": self._receive(feed, connection.keys.overlays.encode()),
                    "reads": self._read(connection),
                    "heartbeat": self._watch(),
                }
                if self._report is not None:
                    works["reports"] = self._keep_reporting(connection, self._report)
                await first_of({f"{name} of {self._gateway}": work for name, work in works.items()})
            finally:
                self._best = None
                await feed.aclose()
        finally:
            await connection.aclose()

    def _lost(self, error: BusError) -> None:
        if self._stale_since is None:
            self._stale_since = time.time() - (time.monotonic() - self._beat)
        if self._silent_for is not error.reason:
            log.warning("bus lost; the last good document stays", gateway=self._gateway, error=str(error))
            self._silent_for = error.reason
        self._connected = False
        self._problem, self._problem_at = Problem(error.reason, str(error)), time.time()

    async def _watch(self) -> None:
        while True:
            left = self._beat + HEARTBEATS * self._interval - time.monotonic()
            if left <= 0:
                self._counts.missed_heartbeats += 1
                raise BusError(
                    f"no signal frame from {self._where} for {HEARTBEATS * self._interval:g} s",
                    reason=Reason.HEARTBEAT_MISSED,
                )
            # In steps, since a frame may shorten the interval.
            await asyncio.sleep(min(left, self._interval))

    # --- messages ----------------------------------------------------------------------------------------------------

    async def _receive(self, feed: Feed, overlays: bytes) -> None:
        while True:
            channel, data = await feed.next()
            if channel == overlays:
                self._hear(data)
            else:
                self._take_frame(data, time.monotonic())

    def _hear(self, data: bytes) -> None:
        """Note an announcement; it is applied once all that has arrived was heard, since only the newest counts."""
        if data.startswith(b'{"gateway":"') and not data.startswith(self._mine):
            return
        heard = read_announcement(data)
        if isinstance(heard, Problem):
            self._rejected(heard)
            return
        if heard.gateway != self._gateway:
            return
        if skipped(self._announced, heard.position):
            self._counts.gaps += 1
            self._want(full=False)
        self._announced = max(self._announced, heard.position)
        choice = self._holding.choose(heard.position, heard.revision)
        if choice is Choice.CLASH:
            self._clashed(self._holding.clash(heard.position, heard.revision))
        elif choice is Choice.OLDER:
            self._counts.older += 1
        elif choice is Choice.APPLY and (self._best is None or heard.position > self._best.position):
            if self._best is None:
                asyncio.get_running_loop().call_soon(self._apply_best)
            self._best = heard

    def _apply_best(self) -> None:
        best, self._best = self._best, None
        if best is None:
            return
        if best.document is None:
            self._want(full=True)
        else:
            self._offer(best.document, Source.MESSAGE, best.position, best.revision)

    def _take_frame(self, data: bytes, received_at: float) -> None:
        try:
            frame = SignalFrame.decode(data)
        except OverlayError as error:
            self._rejected(Problem(error.reason, str(error)))
            return
        order = (frame.epoch, frame.sequence)
        if frame.network != self._network or order <= self._frame:
            return
        self._frame = order
        self._counts.frames += 1
        self._interval = min(max(frame.interval_s, 0.1), 30.0)
        self._beat = max(self._beat, received_at)
        self._stale_since = None
        if self._silent_for is not None:
            log.info("bus found again", gateway=self._gateway, where=self._where)
            self._silent_for = None
        self._term = max(self._term, frame.epoch)
        named = frame.documents.get(self._gateway)
        if named is not None:
            self._compare(Position(*named))
        if self._on_frame is not None:
            self._call(self._on_frame, FrameDelivery(frame, received_at))

    def _compare(self, named: Position) -> None:
        """Look at what is stored where the leader names another place than we hold; once for each place it names."""
        coming = self._best.position if self._best else NOWHERE
        if named not in (self._holding.position, coming, self._named):
            self._named = named
            self._want(full=named > self._holding.position)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _want(self, *, full: bool) -> None:
        self._full = self._full or full
        self._wanted.set()

    async def _read(self, connection: Connection) -> None:
        await self._look(self._read_document(connection))
        await self._look(self._read_frame(connection))
        while True:
            try:
                async with asyncio.timeout(self._reread * self._rng.uniform(0.8, 1.2)):
                    await self._wanted.wait()
            except TimeoutError:
                self._full = False
            self._wanted.clear()
            full, self._full = self._full, False
            if full or await self._look(self._is_newer(connection)):
                await self._look(self._read_document(connection))

    async def _look(self, reading: Coroutine[Any, Any, _T]) -> _T | None:
        """Read; where something else has written the key, what is held stays until the daemon has written it anew."""
        try:
            return await reading
        except RefusedError as error:
            if error.reason is not Reason.BUS_WRONG_TYPE:
                raise
            self._note("a key of the bus is of no use; what is held stays", Problem(error.reason, str(error)))
            return None

    async def _is_newer(self, connection: Connection) -> bool:
        epoch, version, revision = await connection.command(
            "HMGET", connection.keys.overlay(self._gateway), "epoch", "version", "revision"
        )
        self._counts.reads += 1
        try:
            position = Position(int(epoch), int(version))
        except (TypeError, ValueError):
            return False
        choice = self._holding.choose(position, revision.decode() if revision else None)
        if choice is Choice.CLASH:
            self._clashed(self._holding.clash(position, revision.decode()))
        return choice is Choice.APPLY

    async def _read_document(self, connection: Connection) -> None:
        found = await Store(connection).read(self._gateway)
        self._counts.reads += 1
        if found is not None:
            self._offer(found.document, Source.READ, found.position, found.revision)

    async def _read_frame(self, connection: Connection) -> None:
        data, left_ms = await connection.many([("GET", connection.keys.signal), ("PTTL", connection.keys.signal)])
        if data is None or left_ms <= 0:
            return
        try:
            life = SignalFrame.decode(data).interval_s * HEARTBEATS
        except OverlayError as error:
            self._rejected(Problem(error.reason, str(error)))
            return
        self._take_frame(data, time.monotonic() - max(0.0, life - left_ms / 1000))

    # --- applying ----------------------------------------------------------------------------------------------------

    def _offer(
        self, document: bytes, source: Source, position: Position | None = None, revision: str | None = None
    ) -> None:
        result = self._holding.offer(document, source, position, revision)
        if isinstance(result, Problem):
            if result.code is Reason.VERSION_CLASH:
                self._clashed(result)
            else:
                self._rejected(result)
                if source is Source.MESSAGE:
                    self._want(full=True)
        elif result is not None:
            self._counts.applied += 1
            self._applied_at = time.time()
            self._term = max(self._term, result.position.epoch)
            if self._save_to is not None and source is not Source.SAVED:
                self._unsaved = result
                self._save.set()
            self._call(self._on_document, result)
            self._applied.set()

    def _call(self, callback: Callable[[Any], None], value: object) -> None:
        try:
            callback(value)
        except Exception:
            # Whoever listens must not stop the delivery of what comes next.
            log.exception("callback failed", gateway=self._gateway)

    def _clashed(self, problem: Problem) -> None:
        self._counts.clashes += 1
        self._note("document clash; the held one stays", problem)

    def _rejected(self, problem: Problem) -> None:
        self._counts.rejected += 1
        self._note("document or frame refused; the last good one stays", problem)

    def _note(self, event: str, problem: Problem) -> None:
        if problem != self._problem:
            log.warning(event, gateway=self._gateway, reason=problem.code, detail=problem.detail)
        self._problem, self._problem_at = problem, time.time()

    # --- reports and the file ----------------------------------------------------------------------------------------

    async def _keep_reporting(self, connection: Connection, report: Callable[[SubscriberState], Report]) -> None:
        while True:
            try:
                await write_report(connection, report(self.state))
            except BusError as error:
                if not isinstance(error, RefusedError):
                    raise
                self._note("report refused", Problem(error.reason, str(error)))
            await asyncio.sleep(REPORT_INTERVAL * self._rng.uniform(0.8, 1.2))

    async def _load(self) -> None:
        if self._save_to is None:
            return
        try:
            document, saved_at = await asyncio.to_thread(_read_saved, self._save_to)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("saved document is not readable", file=str(self._save_to), error=str(error))
            return
        self._stale_since = saved_at
        self._offer(document, Source.SAVED)

    async def _keep_saving(self) -> None:
        while True:
            await self._save.wait()
            self._save.clear()
            await self._save_last()

    async def _save_last(self) -> None:
        delivery = self._unsaved
        if delivery is None or self._save_to is None:
            return
        try:
            await asyncio.to_thread(_save_newer, self._save_to, delivery, self._saving)
        except OSError as error:
            log.warning("document cannot be saved", file=str(self._save_to), error=str(error))
        # Only now: a cancelled wait may have kept the thread from starting.
        if self._unsaved is delivery:
            self._unsaved = None


def _read_saved(path: Path) -> tuple[bytes, float]:
    with path.open("rb") as file:
        return file.read(), path.stat().st_mtime


def _save_newer(path: Path, delivery: Delivery, turn: threading.Lock) -> None:
    """Save unless the file holds a newer one: another process of the same gateway may share it."""
    with turn:
        try:
            saved = saved_position(path.read_bytes())
        except FileNotFoundError:
            saved = NOWHERE
        if saved <= delivery.position:
            write_atomic(path, delivery.document)
