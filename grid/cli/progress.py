"""Progress of simulations, on stderr and only where that is a terminal: pipes and files get results alone."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grid.sim.virtual.progress import Progress

Watch = Callable[[str], "Progress | None"]
"""What hears of the runs of the simulation of this name; None where nobody watches."""


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """A bar for each simulation that is watched: its runs, and how fast virtual time goes by. It leaves no trace."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("runs, {task.fields[speed]} virtual s/s,"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bars:
        yield lambda name: _heard(bars, name)


def _heard(bars: Any, name: str) -> "Progress":
    task = bars.add_task(name, total=None, speed="-")
    passed = 0.0

    def heard(done: int, runs: int, seconds: float) -> None:
        nonlocal passed
        passed += seconds
        elapsed = bars.tasks[task].elapsed or 0.0
        speed = f"{passed / elapsed:.0f}" if elapsed else "-"
        bars.update(task, completed=done, total=runs, speed=speed)

    return heard
