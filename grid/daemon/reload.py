"""A new configuration, whole or not at all.

Everything is loaded, checked and made before anything is swapped; the swap is one step of the event loop. Providers
whose source stays the same keep it, with their samples, beats and memory.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import structlog

from grid.config import Config, warnings
from grid.daemon import sources
from grid.daemon.board import Board, LoadedConfig
from grid.daemon.config_file import ConfigFile, load_with_print
from grid.daemon.events import EventLog
from grid.daemon.metrics import Metrics
from grid.daemon.observe import Observer, Source
from grid.daemon.tasks import TaskGuard
from grid.debug import ReloadResult
from grid.model import ConfigError, ConfigProblem, DaemonError, Network, Reason

_log = structlog.get_logger("grid.daemon")


class _NoFileError(DaemonError):
    exit_code = 4
    status = 409


class Reloader:
    """Loads the configuration of a running daemon again.

    ``before_swap(added)`` is awaited with the gateways to come, ``on_swap(old, new)`` called in the step of the swap.
    """

    def __init__(
        self,
        path: Path | None,
        board: Board,
        *,
        observer: Observer,
        guard: TaskGuard,
        events: EventLog,
        metrics: Metrics,
        file: ConfigFile,
        before_swap: Callable[[Collection[str]], Awaitable[None]],
        on_swap: Callable[[Network, Network], None],
    ) -> None:
        self.file = file
        self._path = path
        self._board = board
        self._observer = observer
        self._guard = guard
        self._events = events
        self._metrics = metrics
        self._before_swap = before_swap
        self._on_swap = on_swap
        self._sources: dict[str, Source] = {}
        self._declared: dict[str, sources.Declared] = {}
        self._turn = asyncio.Lock()

    async def begin(self) -> None:
        """Make the sources of the configuration that the daemon was started with."""
        await self._swap(self._board.config, self._board.network)
        self._note_success()

    async def reload(self) -> ReloadResult:
        """Load, check, swap. Raises ConfigError, and then nothing has changed."""
        async with self._turn:
            if self._path is None:
                raise _NoFileError(
                    "this daemon was not started from a file",
                    reason=Reason.CONFIG_UNREADABLE,
                    hint="start it with grid run -c FILE",
                )
            try:
                config, found = await asyncio.to_thread(load_with_print, self._path)
                refuse_fixed(self._board.config, config)
                refuse_empty(self._board.config, config)
            except ConfigError as error:
                self._note_failure(error)
                raise
            old = self._board.network
            new = config.to_network(generation=old.generation + 1)
            changes = describe(self._board.config, config)
            # What the bus holds of a gateway that comes back is not its first document.
            await self._before_swap(new.gateways.keys() - old.gateways.keys())
            await self._swap(config, new)
            self.file.runs(found)
            self._note_success()
            said = "; ".join(changes) if changes else "nothing differs"
            sentence = f"configuration loaded again, generation {new.generation}: {said}"
            _log.info(sentence)
            self._events.add("reload", sentence, {"generation": new.generation, "ok": True})
            return ReloadResult(new.generation, tuple(changes))

    async def _swap(self, config: Config, network: Network) -> None:
        wanted = sources.declared(config)
        fresh = {name: one for name, one in wanted.items() if self._declared.get(name) != one}
        made = await sources.make(fresh)
        # From here to the end of the swap nothing is awaited.
        kept = {name: self._sources[name] for name in wanted if name not in fresh}
        forget = frozenset(
            name for name in fresh if (old := self._declared.get(name)) is not None and not fresh[name].observes_as(old)
        )
        before = self._board.network
        self._sources, self._declared = {**kept, **made}, wanted
        useless = self._observer.sync(self._sources, forget=forget, budget=config.daemon.scrape_budget)
        self._board.with_network(config, network)
        self._on_swap(before, network)
        for source in useless:
            self._guard.errand("close source", source.aclose)

    def _note_success(self) -> None:
        self._board.loaded = LoadedConfig()
        self._metrics.generation.set(self._board.network.generation)
        self._metrics.reload_ok.set(1)
        self._metrics.reload_at.set(time.time())
        for one in warnings(self._board.config):
            _log.warning(f"the configuration works, but look again: {one}", path=one.path, reason=one.reason.value)

    def _note_failure(self, error: ConfigError) -> None:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        first = str(error.problems[0]) if error.problems else error.message
        detail = f"the last reload was refused, generation {self._board.network.generation} stays: {first}{more}"
        self._board.loaded = LoadedConfig(ok=False, detail=detail)
        self._metrics.reload_ok.set(0)
        _log.warning(detail, problems=[str(problem) for problem in error.problems])
        self._events.add("reload", detail, {"ok": False})


def refuse_fixed(old: Config, new: Config) -> None:
    """Refuse what cannot change while the daemon runs. Raises ConfigError."""
    fixed = {
        "network": (old.network, new.network),
        "daemon.listen": (old.daemon.listen, new.daemon.listen),
        "daemon.state_dir": (old.daemon.state_dir, new.daemon.state_dir),
        **{f"bus.{name}": (getattr(old.bus, name), getattr(new.bus, name)) for name in type(old.bus).model_fields},
    }
    problems = [
        ConfigProblem(
            Reason.CONFIG_NEEDS_RESTART,
            path,
            "differs from what the daemon runs with",
            hint=Reason.CONFIG_NEEDS_RESTART.hint,
        )
        for path, (before, after) in fixed.items()
        if before != after
    ]
    if problems:
        raise ConfigError(f"{problems[0]}", problems, reason=Reason.CONFIG_NEEDS_RESTART)


def refuse_empty(old: Config, new: Config) -> None:
    """Refuse to lose every provider or gateway at once, as with a file that was cut short. Raises ConfigError."""
    problems = [
        ConfigProblem(
            Reason.CONFIG_EMPTY,
            name,
            f"the file has none any more, and {len(before)} of them run",
            hint=Reason.CONFIG_EMPTY.hint,
        )
        for name, before, after in (
            ("providers", old.providers, new.providers),
            ("gateways", old.gateways, new.gateways),
        )
        if before and not after
    ]
    if problems:
        raise ConfigError(f"{problems[0]}", problems)


def describe(old: Config, new: Config) -> list[str]:
    """What differs, in words."""
    said: list[str] = []
    for kind, before, after in (
        ("site", old.sites, new.sites),
        ("provider", old.providers, new.providers),
        ("gateway", old.gateways, new.gateways),
    ):
        said += [f"{kind} {name} added" for name in sorted(after.keys() - before.keys())]
        said += [f"{kind} {name} removed" for name in sorted(before.keys() - after.keys())]
        said += [
            f"{kind} {name} changed" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]
        ]
    if old.daemon != new.daemon:
        said.append("daemon settings changed")
    return said
