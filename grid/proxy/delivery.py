"""A file that a data plane reads: replaced whole, never by something older, put back where it went missing.

What stands in the file counts, not only what this process wrote: another one may share it, and one that starts takes
up where the last one ended.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from grid.bus import Position
from grid.bus.files import write_atomic
from grid.bus.order import Choice, choose
from grid.model import DeliveryError, Reason

T = TypeVar("T")

MODE = 0o644
"""A data plane often runs as another user, and there is no secret in a document."""
LARGEST = 64 << 20
"""Bytes of an existing file that are looked at; no document comes near."""
LOCK_TIME = 2.0
"""s to wait for another process that writes into the same directory."""


@dataclass(frozen=True, slots=True)
class Held:
    """The document that a file holds."""

    position: Position
    revision: str


class Put(Enum):
    """What became of an offered content."""

    WRITTEN = "written"
    CURRENT = "current"
    NEWER = "newer"
    """The file holds a newer document, which stays."""
    CLASH = "clash"
    """The file holds the same place in the order with another revision, which stays."""


Reader = Callable[[bytes], Held | None]
"""Says what a content holds; None where it is no good document of this gateway."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    put: Put
    held: Held
    at: float


class OutFile:
    """One file that only moves forward. Methods do their I/O in a thread and raise DeliveryError (file_unwritable)."""

    def __init__(self, path: Path, read: Reader) -> None:
        self.path = path
        self.held: Held | None = None
        """What the file holds, as last seen."""
        self.changed_at: float | None = None
        """Wall clock s of when it came to hold that."""
        self._read = read
        self._last: tuple[bytes, Held] | None = None

    async def load(self) -> bytes | None:
        """Look at what is there; a good document counts as the last good one. The bytes, None where nothing is."""
        found = await self._off_loop(lambda: _contents(self.path))
        if found is None:
            return None
        data, at = found
        held = await asyncio.to_thread(self._read, data)
        if held is not None:
            self._last, self.held, self.changed_at = (data, held), held, at
        return data

    async def put(self, data: bytes, held: Held) -> Put:
        """Bring the file to ``data``, unless it holds something newer."""
        outcome = await self._off_loop(lambda: _replace(self.path, data, held, self._read))
        self.held, self.changed_at = outcome.held, outcome.at
        if outcome.held == held:
            self._last = (data, held)
        return outcome.put

    async def keep(self) -> bool:
        """Put the last good document back where the file went missing or was damaged; whether that was so."""
        return self._last is not None and await self.put(*self._last) is Put.WRITTEN

    async def _off_loop(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise DeliveryError(f"{self.path}: {error.strerror or error}", reason=Reason.FILE_UNWRITABLE) from error


def _replace(path: Path, data: bytes, held: Held, read: Reader) -> _Outcome:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(path.parent):
        found = _contents(path)
        if found is not None:
            there, at = found
            if there == data:
                return _Outcome(Put.CURRENT, held, at)
            other = read(there)
            choice = Choice.APPLY if other is None else choose(*_flat(other), *_flat(held))
            if other is not None and choice in (Choice.OLDER, Choice.CLASH):
                return _Outcome(Put.NEWER if choice is Choice.OLDER else Put.CLASH, other, at)
        write_atomic(path, data, mode=MODE)
        return _Outcome(Put.WRITTEN, held, time.time())


def _flat(held: Held) -> tuple[Position, str]:
    return held.position, held.revision


def _contents(path: Path) -> tuple[bytes, float] | None:
    """The bytes at ``path`` and when they were written; None where nothing is. Raises OSError for what is no file."""
    try:
        # A pipe would wait here for someone to write into it.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "what is there is no regular file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(LARGEST), status.st_mtime
    finally:
        os.close(handle)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other writers of this kind out of ``folder``, so that looking and replacing are one step."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_TIME
        while not _locked(handle):
            if time.monotonic() > deadline:
                raise OSError(errno.EBUSY, f"another process holds the lock of {folder}")
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Some network file systems have no locks; one writer, the usual case, needs none.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
    return True
