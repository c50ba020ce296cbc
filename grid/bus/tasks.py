"""Named tasks that cannot fail unnoticed, and running several until the first ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)


def guarded(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start ``work`` as a named task; an error that ends it is logged even where nobody awaits the task."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_report)
    return task


async def first_of(works: dict[str, Coroutine[Any, Any, None]]) -> None:
    """Run ``works`` (by task name) until one ends, then cancel the others and raise what ended it, if anything."""
    tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stop(*tasks)
    for task in done:
        task.result()


async def stop(*tasks: asyncio.Task[None]) -> None:
    """Cancel ``tasks`` until they are gone; what they raise is not raised here.

    Once is not always enough: ``asyncio.wait_for`` before Python 3.12 loses a cancellation that comes just as its work
    is done.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=1.0)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not complain of it


def _report(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        log.error("task ended with an error", task=task.get_name(), error=str(error), exc_info=error)
