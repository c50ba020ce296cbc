"""The daemon: its parts, their wiring, its beginning and its end."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from grid import __version__
from grid.bus.address import Place
from grid.bus.connect import BusSettings, Connection
from grid.bus.faults import RefusedError
from grid.bus.lease import LeaderLease
from grid.bus.publisher import Publisher
from grid.bus.server import EmbeddedServer
from grid.config import Config
from grid.daemon import config_file, frames, housekeeping
from grid.daemon.board import Board
from grid.daemon.config_file import ConfigFile, load_with_print
from grid.daemon.cycle import Cycle
from grid.daemon.delivery import Delivery, Order
from grid.daemon.drains import Ends
from grid.daemon.events import EventLog
from grid.daemon.keeper import Keeper
from grid.daemon.leadership import Leadership
from grid.daemon.link import Link, Told
from grid.daemon.metrics import Metrics
from grid.daemon.observe import Observer
from grid.daemon.reload import Reloader
from grid.daemon.shelf import Shelf
from grid.daemon.state_dir import StateDir
from grid.daemon.tasks import Bell, TaskGuard
from grid.daemon.ticker import Ticker
from grid.daemon.view import View
from grid.debug import DebugServer, create_app
from grid.model import BusError, ConfigError, DaemonError, GridError, Network, Reason
from grid.overlay.signing import Sign, signer
from grid.policy import as_previous
from grid.signals.recording import RecordingWriter

TICK = 0.025
"""S between looks at what is due."""
GRACE = 5.0
"""S that the end may take."""
THREADS = 64
"""Worker threads: a name look-up that hangs holds one, and must not hold up the others."""

_log = structlog.get_logger("grid.daemon")


class Daemon:
    """The control plane's process, or a part of one: ``run()`` for the whole, ``start()`` and ``stop()`` to embed it.

    ``config``: the file, or a configuration made otherwise (which cannot be reloaded). ``record``: write every scrape
    there. ``dry_run``: decide and say what would be published, ask for no lease, publish nothing. ``holder``: the name
    by which others see it lead. ``clock``: monotonic s.
    """

    def __init__(
        self,
        config: Path | Config,
        *,
        record: Path | None = None,
        dry_run: bool = False,
        holder: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}"
        self.metrics = Metrics()
        self.events = EventLog()
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="grid-worker")
        self._given = config
        self._record = record
        self._dry_run = dry_run
        self._clock = clock
        self._guard = TaskGuard(lambda name: self.metrics.faults.labels(name.split(" ")[0]).inc())
        self._link = Link(self._bus_changed, self._bus_refused, clock)
        self._shelf = Shelf()
        self._ticker = Ticker(clock, on_kick=lambda job: self.metrics.kicks.labels(job).inc())
        self._file = ConfigFile(config if isinstance(config, Path) else None, self._file_changed)
        self._told = Told(clock)
        self._file_bell = Bell()
        self._repairing: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._embedded: EmbeddedServer | None = None
        self._recording: RecordingWriter | None = None
        self._server: DebugServer | None = None
        self._assembled = False

    # --- the whole --------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Start, serve until SIGTERM, SIGINT or ``end()``, stop; the exit code.

        A second signal ends the process at once. Raises GridError where it cannot start.
        """
        asyncio.get_running_loop().set_default_executor(self.threads)
        with self._signals():
            try:
                await self.start()
                await self._ended.wait()
            finally:
                await self.stop()
        return 0

    def end(self) -> None:
        """Make ``run()`` come to its end."""
        self._ended.set()

    @property
    def url(self) -> str:
        """Where the HTTP side answers."""
        if self._server is None:
            raise DaemonError("the daemon has not been started", reason=Reason.INTERNAL)
        return self._server.url

    async def start(self) -> None:
        """Begin to serve. A bus that does not answer is waited for.

        Raises GridError where the configuration, the address of the HTTP side, the embedded bus, the recording or the
        signing key cannot be used.
        """
        if isinstance(self._given, Config):
            config = self._given
        else:
            config, found = await asyncio.to_thread(load_with_print, self._given)
            self._file.runs(found)
        network = config.to_network()
        settings = BusSettings.from_config(config.bus)
        sign = await asyncio.to_thread(_signer, config.bus.sign_key_file)
        if settings.address.place is Place.EMBEDDED and not self._dry_run:
            self._embedded = EmbeddedServer(network.name, config.daemon.state_dir)
            await self._embedded.start()
        if self._record is not None:
            self._recording = RecordingWriter(self._record, network, epoch=self._clock(), started_at=datetime.now(UTC))
            await self._recording.start()
        self._assemble(config, network, settings, sign)
        await self._keeper.restore()
        await self._reloader.begin()
        self._set_jobs()
        self._server = DebugServer(create_app(self._view), *config.daemon.listen)
        await self._server.start()
        self._begin_loops()
        self._ticker.start()
        _log.info(
            "daemon started",
            version=__version__,
            network=network.name,
            url=self._server.url,
            bus=str(settings.address),
            providers=len(network.providers),
            gateways=len(network.gateways),
            dry_run=self._dry_run,
        )

    async def stop(self, grace: float = GRACE) -> None:
        """End within about ``grace`` s: not ready, nothing new; what is being published goes out; the lease ends."""
        deadline = self._clock() + grace
        self._ticker.stop()
        if self._assembled:
            self._board.stopping = True
            await self._bounded("tasks", self._guard.stop(self._loops), deadline)
            await self._bounded("sources", self._observer.close(), deadline)
            await self._bounded("publication", self._delivery.finish(), deadline)
            await self._bounded("documents", self._keeper.keep_documents(), deadline)
            await self._bounded("memory", self._keeper.save(force=True), deadline)
            if self._leadership.lease.epoch and self._link.fault is None:
                await self._bounded("lease", self._leadership.lease.release(), deadline)
            await self._bounded("errands", self._guard.stop(), deadline)
        self.events.close()
        if self._server is not None:
            await self._bounded("http", self._server.stop(), deadline)
        if self._recording is not None:
            await self._bounded("recording", self._recording.close(), deadline)
        if self._assembled:
            await self._bounded("connection", self._connection.aclose(), deadline)
        if self._embedded is not None:
            await self._bounded("embedded bus", self._embedded.stop(), deadline)
            self._embedded = None
        if self._assembled:
            _log.info("daemon stopped")

    async def _bounded(self, what: str, work: Coroutine[Any, Any, None], deadline: float) -> None:
        # Even past the deadline each part gets a moment: most need none, and none may be left out.
        try:
            async with asyncio.timeout(max(0.1, deadline - self._clock())):
                await work
        except TimeoutError:
            _log.warning("a part did not end in time and is left behind", part=what)
        except GridError as error:
            _log.warning("a part did not end well", part=what, error=str(error))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        ending = (signal.SIGTERM, signal.SIGINT)

        def first(name: str) -> None:
            _log.info("stopping", signal=name)
            self.end()
            for one in ending:
                loop.remove_signal_handler(one)
                # Not through the loop: it must work even where the loop is stuck.
                signal.signal(one, _at_once)

        for one in ending:
            loop.add_signal_handler(one, first, one.name)
        loop.add_signal_handler(signal.SIGHUP, self._reload_by_signal)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            for one in ending:
                loop.remove_signal_handler(one)

    # --- its parts --------------------------------------------------------------------------------------------------

    def _assemble(self, config: Config, network: Network, settings: BusSettings, sign: Sign | None) -> None:
        self._board = Board(config, network, ends=Ends(self._clock))
        self._board.cycled_at = self._clock()
        self._make_bus_side(config, network, settings, sign)
        self._make_work()
        self._make_operator_side()
        self._loops: set[asyncio.Task[None]] = set()
        self._assembled = True

    def _make_bus_side(self, config: Config, network: Network, settings: BusSettings, sign: Sign | None) -> None:
        state_dir = config.daemon.state_dir
        disk = StateDir(state_dir) if state_dir is not None and not self._dry_run else None
        self._connection = Connection(settings, network.name, state_dir)
        self._publisher = Publisher(self._connection, self.holder, config.bus.history, sign=sign)
        lease = LeaderLease(
            self._connection,
            self.holder,
            config.bus.lease,
            gateways=network.gateways,
            epoch_file=disk.epoch_file if disk is not None else None,
            monotonic=self._clock,
        )
        self._keeper = Keeper(
            self._board,
            self._publisher,
            lease=lease,
            shelf=self._shelf,
            link=self._link,
            state_dir=disk,
            clock=self._clock,
        )
        self._leadership = Leadership(
            lease,
            self._link,
            self._clock,
            take_over=self._keeper.take_over,
            on_lead=self._lead,
            on_follow=self._follow,
        )
        self._delivery = Delivery(
            self._publisher,
            leadership=self._leadership,
            link=self._link,
            clock=self._clock,
            metrics=self.metrics,
            on_published=self._published,
        )
        self._housekeeping = housekeeping.Housekeeping(
            self._board,
            self._publisher,
            keeper=self._keeper,
            leadership=self._leadership,
            link=self._link,
            clock=self._clock,
            on_drains=lambda: self._drains_changed("drains changed by way of another daemon"),
            alone=self._dry_run,
        )

    def _make_work(self) -> None:
        self._observer = Observer(
            self._guard,
            self._clock,
            self.metrics,
            budget=self._board.config.daemon.scrape_budget,
            on_news=lambda urgent: self._cycle.ask(urgent=urgent, sample=True),
            on_change=self._source_changed,
            recording=self._recording,
        )
        self._frames = frames.FrameSender(
            self._board,
            self._publisher,
            observer=self._observer,
            leadership=self._leadership,
            link=self._link,
            metrics=self.metrics,
            clock=self._clock,
        )
        self._cycle = Cycle(
            self._board,
            observer=self._observer,
            leadership=self._leadership,
            delivery=self._delivery,
            shelf=self._shelf,
            link=self._link,
            events=self.events,
            metrics=self.metrics,
            clock=self._clock,
            on_lost=self._frames.bell.ring,
            dry_run=self._dry_run,
        )

    def _make_operator_side(self) -> None:
        self._reloader = Reloader(
            self._given if isinstance(self._given, Path) else None,
            self._board,
            observer=self._observer,
            guard=self._guard,
            events=self.events,
            metrics=self.metrics,
            file=self._file,
            before_swap=self._look_up,
            on_swap=self._swapped,
        )
        self._view = View(
            self._board,
            observer=self._observer,
            leadership=self._leadership,
            publisher=self._publisher,
            delivery=self._delivery,
            shelf=self._shelf,
            link=self._link,
            keeper=self._keeper,
            events=self.events,
            metrics=self.metrics,
            ticker=self._ticker,
            clock=self._clock,
            on_drain=self._drains_changed,
            reload=self._reloader.reload,
            file=self._file,
            dry_run=self._dry_run,
        )

    def _set_jobs(self) -> None:
        self._ticker.every(TICK, "tick", self._observer.tick)
        self._ticker.every(frames.INTERVAL, "signal frame", self._frames.bell.ring)
        self._ticker.every(housekeeping.EVERY, "housekeeping", self._housekeeping.bell.ring)
        self._housekeeping.bell.ring()
        self._ticker.every(config_file.EVERY, "config file", self._file_bell.ring)
        if not self._dry_run:
            self._ticker.every(min(1.0, self._board.config.bus.lease / 3), "lease", self._leadership.bell.ring)
            self._leadership.bell.ring()

    def _begin_loops(self) -> None:
        loops = {
            "cycle": self._cycle.step,
            "publish": self._delivery.step,
            "frames": self._frames.step,
            "housekeeping": self._housekeeping.step,
            "config file": self._look_at_file,
        }
        if not self._dry_run:
            loops["lease"] = self._leadership.step
        self._loops = {self._guard.loop(name, step) for name, step in loops.items()}

    # --- what parts tell each other ---------------------------------------------------------------------------------

    def _tell(self, kind: str, sentence: str, *, warn: bool = False, **fields: object) -> None:
        (_log.warning if warn else _log.info)(sentence, **fields)
        self.events.add(kind, sentence, fields)

    def _bus_changed(self, fault: BusError | None) -> None:
        self.metrics.bus_up.set(fault is None)
        if fault is not None:
            self._tell(
                "bus", f"the bus is away: {fault.message}", warn=True, reason=fault.reason.value, hint=fault.hint
            )
            return
        self._tell("bus", f"the bus answers: {self._connection.where}")
        self._leadership.bell.ring()
        self._delivery.retry()
        self._cycle.ask(urgent=True)

    def _bus_refused(self, error: RefusedError, news: bool) -> None:
        if error.reason is Reason.BUS_WRONG_TYPE and not self._dry_run:
            if self._repairing is None or self._repairing.done():
                self._repairing = self._guard.errand("repair", partial(self._repair, error))
        elif news:
            self._tell("bus", error.message, warn=True, reason=error.reason.value, hint=error.hint)

    async def _repair(self, cause: RefusedError) -> None:
        try:
            removed = await self._keeper.repair()
        except BusError:
            removed = []  # the link has told
        if not removed and self._told.news(cause.message):
            self._tell("bus", cause.message, warn=True, reason=cause.reason.value, hint=cause.hint)
        for key, kind in removed:
            sentence = f"the key {key} was a {kind}, which is none of ours; it was removed and is written anew"
            if self._told.news(sentence):
                self._tell("bus", sentence, warn=True, key=key, reason=cause.reason.value, hint=cause.hint)
        if removed:
            self._leadership.bell.ring()
            self._delivery.retry()
            self._cycle.ask(urgent=True)

    def _lead(self) -> None:
        lease = self._leadership.lease
        self.metrics.leader.set(1)
        self.metrics.epoch.set(lease.epoch)
        self._tell("leader", f"{self.holder} leads with epoch {lease.epoch}", epoch=lease.epoch)
        self._delivery.retry()
        self._cycle.ask(urgent=True)

    def _follow(self, why: str) -> None:
        self.metrics.leader.set(0)
        self._keeper.follow()
        self._tell("leader", f"{self.holder} follows: {why}")

    def _source_changed(self, provider: str, sentence: str, fields: Mapping[str, object]) -> None:
        self._tell("provider", sentence, warn="reason" in fields, provider=provider, **fields)

    def _file_changed(self, since: float | None) -> None:
        self.metrics.file_differs.set(since is not None)
        if since is None:
            self._tell("config", "the configuration file is what runs again")
        else:
            hint = "grid reload, or SIGHUP, loads it; grid check looks at it before"
            self._tell("config", "the configuration file differs from what runs", warn=True, hint=hint)

    async def _look_at_file(self) -> None:
        await self._file_bell.wait()
        await self._file.look()

    async def _look_up(self, gateways: Collection[str]) -> None:
        if gateways and self._link.up:
            with contextlib.suppress(BusError), self._link.watch():
                await self._keeper.refresh_documents(gateways)

    def _published(self, order: Order) -> None:
        names = [one.gateway for one in order.published]
        fresh = {name: as_previous(order.plans[name]) for name in names}
        self._board.previous = {**self._board.previous, **fresh}
        for one in order.published:
            sentence = f"{one.gateway}: version {one.version} of epoch {one.epoch}, {order.reasons[one.gateway]}"
            fields = {"gateway": one.gateway, "epoch": one.epoch, "version": one.version, "revision": one.revision}
            self.events.add("published", sentence, fields)

        self._keeper.published(names)
        self._guard.errand("keep documents", self._keeper.keep_documents)

    def _drains_changed(self, sentence: str) -> None:
        drains = self._board.drained()
        self._tell("drain", sentence, drained=sorted(drains))
        if self._recording is not None:
            self._recording.drains(drains, now=self._clock())
        self._cycle.ask(urgent=True)

    def _swapped(self, old: Network, new: Network) -> None:
        self._shelf.keep(new.gateways)
        for name in old.gateways.keys() - new.gateways.keys():
            self._publisher.positions.pop(name, None)
        if self._recording is not None and new is not old:
            self._recording.network(new, now=self._clock())
        self._cycle.ask(urgent=True)

    def _reload_by_signal(self) -> None:
        async def reload() -> None:
            with contextlib.suppress(GridError):  # said by the reloader
                await self._reloader.reload()

        if self._assembled:
            self._guard.errand("reload", reload)


def _signer(path: Path | None) -> Sign | None:
    if path is None:
        return None
    try:
        return signer(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"bus.sign_key_file {path} cannot be read: {error.strerror or error}", reason=Reason.CONFIG_UNREADABLE
        ) from error


def _at_once(number: int, _: object) -> None:
    os._exit(128 + number)
