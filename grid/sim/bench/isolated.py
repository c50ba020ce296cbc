"""A bench in a process of its own, so that benches do not feel each other's memory: ``python -m`` this NAME.

It gets the arguments of the bench's ``run`` on stdin, pickled; the rows are the last line of its stdout, as JSON.
"""

import importlib
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import orjson

Row = dict[str, Any]

_GRACE: Final = 10.0
"""s that a bench out of time gets to end what it started."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a bench measured, or why it did not (``error``, else empty); ``seconds`` it took.

    ``late``: it was stopped, as it took too long.
    """

    rows: tuple[Row, ...] = ()
    error: str = ""
    seconds: float = 0.0
    late: bool = False


def ran(name: str, settings: Mapping[str, Any], within: float) -> Ran:
    """Run that bench for at most ``within`` s."""
    command = [sys.executable, "-m", __name__, name]
    pipe = subprocess.PIPE
    began = monotonic()
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:  # noqa: S603 - a module of ours
        try:
            out, words = process.communicate(pickle.dumps(dict(settings)), timeout=max(within, 0.0))
        except subprocess.TimeoutExpired:
            _stop(process)
            took = monotonic() - began
            return Ran(error=f"stopped after {took:.0f} s: out of time", seconds=took, late=True)
        except BaseException:
            _stop(process)
            raise
    took = monotonic() - began
    if process.returncode:
        last = words.decode(errors="replace").strip().rpartition("\n")[2]
        return Ran(error=last or f"ended with {process.returncode}", seconds=took)
    return Ran(rows=tuple(orjson.loads(out.splitlines()[-1])), seconds=took)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End it as Ctrl-C would, so that it ends the servers it started."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()


def _main() -> None:
    settings = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - of the process that started this one
    with redirect_stdout(sys.stderr):
        rows = importlib.import_module(f"grid.sim.bench.{sys.argv[1]}").run(**settings)
    sys.stdout.write(orjson.dumps(rows).decode() + "\n")


if __name__ == "__main__":
    _main()
