"""Waiting for something that another thread or process brings about."""

import asyncio
import time
from collections.abc import Callable

PATIENCE = 30.0
"""Seconds after which what has not come counts as hanging: far above what the slowest of machines needs."""


async def until(condition: Callable[[], object], *, within: float = PATIENCE) -> None:
    """Wait until ``condition()`` is true; fail after ``within`` s."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"this has not come true within {within:g} s")
