"""Whether the configuration file still is what the daemon runs with.

Nobody has to notice that a file was changed and never loaded: it is looked at every few seconds, through symlinks, by
size, time and inode, and read only where those have moved. A difference counts once two looks in a row agree on it, so
a file that is being written is none yet. Nothing is loaded by itself.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grid.config import Config, load

EVERY: Final = 2.0
"""S between looks."""
_TRIES: Final = 3

_Mark = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Print:
    """What a file was like: its mark (device, inode, size, time of change) and a digest of its content; None: gone."""

    mark: _Mark | None
    digest: bytes = b""


def take(path: Path, known: Print | None = None) -> Print:
    """The print of a file now. Where its mark is that of ``known``, the content is not read again. Blocks."""
    try:
        found = path.stat()
        mark = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if known is not None and known.mark == mark:
            return known
        return Print(mark, hashlib.sha256(path.read_bytes()).digest())
    except OSError:
        return Print(None)


def load_with_print(path: Path) -> tuple[Config, Print]:
    """The configuration and the print of the very file that it was read from. Blocks. Raises ConfigError."""
    before = take(path)
    for _ in range(_TRIES):
        config = load(path)
        after = take(path)
        if after == before:
            break
        before = after
    return config, before


class ConfigFile:
    """Compares the file with what runs. ``on_change(since)`` hears when it begins to differ (wall-clock s) or no more.

    ``path`` None: there is no file, and nothing ever differs.
    """

    def __init__(self, path: Path | None, on_change: Callable[[float | None], None]) -> None:
        self.differs_since: float | None = None
        self._path = path
        self._on_change = on_change
        self._runs: Print | None = None
        self._seen: Print | None = None

    def runs(self, found: Print) -> None:
        """Note what the configuration in force was read from."""
        self._runs, self._seen = found, None
        self._say(differs=False)

    async def look(self) -> None:
        """Look once."""
        if self._path is None or self._runs is None:
            return
        runs = self._runs
        found = await asyncio.to_thread(take, self._path, self._seen or runs)
        if self._runs is not runs:
            return  # a reload came in between
        if found.digest == runs.digest and found.mark is not None:
            self._runs, self._seen = found, None
            self._say(differs=False)
        elif found == self._seen:
            self._say(differs=True)
        else:
            self._seen = found

    def _say(self, *, differs: bool) -> None:
        if differs is (self.differs_since is not None):
            return
        self.differs_since = time.time() if differs else None
        self._on_change(self.differs_since)
