"""What a machine is like, as far as figures depend on it; neither its name nor where anything lies on it."""

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Final

from grid.bus.server import server_program

_GB: Final = 1 << 30
_NUMBERS: Final = r"^(\d+(?:\.\d+)*)"


def shape() -> dict[str, str]:
    """By what it is called on the page of figures. What the system does not tell is left out."""
    found = {
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or ""),
        "CPU": _first(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo")) or platform.machine(),
        "memory": _memory(),
        "system": f"{platform.system()} {_first(_NUMBERS, platform.release())}".strip(),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Redis": _redis(),
    }
    return {name: value for name, value in found.items() if value}


def load() -> float | None:
    """How many processes wanted a core, over the last minute; None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 1)
    except OSError:
        return None


def _memory() -> str:
    kilobytes = _first(r"^MemTotal:\s*(\d+) kB", _read("/proc/meminfo"))
    return f"{round(int(kilobytes) * 1024 / _GB)} GiB" if kilobytes else ""


def _redis() -> str:
    program = server_program()
    if program is None:
        return ""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=10)  # noqa: S603
    return _first(r"\bv=(\S+)", said.stdout)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1].strip() if found else ""
