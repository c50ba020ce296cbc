"""Waiting for what a real server brings about."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.until import PATIENCE


async def eventually(check: Callable[[], Awaitable[object]], *, within: float = PATIENCE) -> None:
    """Ask ``check`` until it says yes; fails after ``within`` s."""
    async with asyncio.timeout(within):
        while not await check():  # noqa: ASYNC110 - the answer lies in another process
            await asyncio.sleep(0.005)
