"""What this process holds in memory, and what it may hold open."""

import gc
import resource
import sys
from pathlib import Path
from typing import Any, Final

from grid.sim.bench.helpers import say

_FILES: Final = 8192


def resident(*, most: bool = False) -> float:
    """MB of memory that this process holds, or ever held; where the system tells no more, the latter for both."""
    gc.collect()
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    wanted = "VmHWM:" if most else "VmRSS:"
    return next(int(line.split()[1]) * 1024 / 1e6 for line in status.splitlines() if line.startswith(wanted))


def tell(before: float, *, most: bool = False, **more: Any) -> None:
    """Say what it held before and what it holds now, MB."""
    say({"before_mb": before, "after_mb": resident(most=most), **more})


def allow_files() -> None:
    """Each connection takes an open file: allow as many as thousands need, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
