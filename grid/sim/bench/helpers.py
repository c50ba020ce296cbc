"""Processes that help a bench: modules of this room that say and hear JSON lines on their stdout and stdin.

Each ends when its stdin does, so it outlives neither the bench nor a bench that was killed, and a terminal's Ctrl-C
reaches the bench alone, which then ends them. ``time.monotonic()`` of all processes on a machine is one clock.
"""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from statistics import quantiles
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import orjson

from grid.sim.quiet import quiet_logs

_GRACE: Final = 5.0
_PIECE: Final = 1 << 20


class Helper:
    """One such process, from construction to ``close()``. ``module`` of this package gets ``options``."""

    def __init__(self, module: str, **options: Any) -> None:
        self._module = module
        self._heard = bytearray()
        command = [sys.executable, "-m", f"grid.sim.bench.{module}"]
        self._process = subprocess.Popen(  # noqa: S603 - a module of our own
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        # Not as an argument: a configuration may be longer than one can be.
        self._tell(options)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def hear(self, within: float = 60.0) -> Any:
        """The next thing it says. Raises RuntimeError where it ends before, or says nothing for ``within`` s."""
        out = self._process.stdout
        if out is None:
            raise RuntimeError(f"{self._module} was started without a stdout")
        until = monotonic() + within
        while (end := self._heard.find(b"\n")) < 0:
            if not select.select([out], [], [], max(0.0, until - monotonic()))[0]:
                raise RuntimeError(f"the bench's process {self._module} said nothing for {within:g} s")
            piece = os.read(out.fileno(), _PIECE)
            if not piece:
                code = self._process.wait(_GRACE)
                raise RuntimeError(f"the bench's process {self._module} ended with {code}; its stderr above says why")
            self._heard += piece
        line = bytes(self._heard[:end])
        del self._heard[: end + 1]
        return orjson.loads(line)

    def ask(self, question: Any, within: float = 60.0) -> Any:
        """Say something and hear the answer."""
        self._tell(question)
        return self.hear(within)

    def _tell(self, what: Any) -> None:
        if self._process.stdin is None:
            raise RuntimeError(f"{self._module} was started without a stdin")
        with suppress(BrokenPipeError):  # how it ended is told to whoever listens
            self._process.stdin.write(orjson.dumps(what) + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End it and whatever it started; returns once it is gone."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def play(part: Callable[[dict[str, Any]], Coroutine[Any, Any, None]]) -> None:
    """Be such a process: run ``part`` with the options given, which are what the bench says first."""
    options = orjson.loads(sys.stdin.buffer.readline())
    with quiet_logs():
        asyncio.run(part(options))


def say(value: Any) -> None:
    """Tell the bench."""
    sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
    sys.stdout.buffer.flush()


async def questions() -> AsyncIterator[Any]:
    """What the bench says, until it wants no more."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    try:
        while line := await reader.readline():
            yield orjson.loads(line)
    finally:
        transport.close()


def marks(values: Sequence[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    if len(values) == 1:
        return values[0], values[0]
    found = quantiles(values, n=100, method="inclusive")
    return found[49], found[98]


def shared_out(things: Sequence[Any], parts: int) -> list[list[Any]]:
    """``things`` in ``parts`` lists of nearly one length; fewer where there are fewer things."""
    return [list(things[start::parts]) for start in range(min(parts, len(things)))]
