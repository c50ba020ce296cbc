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
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


async def stop(task: asyncio.Task[None]) -> None:
    """Cancel ``task`` and wait until it is gone; what it raised was reported by its guard."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _report(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        log.error("task ended with an error", task=task.get_name(), error=str(error), exc_info=error)
