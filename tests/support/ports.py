"""Ports of loopback for servers that are started later, or stopped and started again.

They lie below those that the system gives to whoever asks for any (32768 and up on Linux), and each test process has a
part of its own: between a look and a start, or while a server is down, nobody else is given its port by chance.
"""

import itertools
import os
import re
import socket
from collections.abc import Iterator

_FIRST, _PARTS, _SIZE = 10_000, 8, 1250


def _ports() -> Iterator[int]:
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    start = _FIRST + worker % _PARTS * _SIZE
    # Two runs on one machine have parts alike, and begin in different places.
    offset = os.getpid() * 37 % _SIZE
    return itertools.cycle([*range(start + offset, start + _SIZE), *range(start, start + offset)])


_candidates = _ports()


def free_port() -> int:
    """A port that is free now; none of the last thousand. 10000 above it is free as well, mostly."""
    for port in itertools.islice(_candidates, _SIZE):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port among {_SIZE}")
