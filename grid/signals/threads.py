"""Blocking work beside the loop, so that what hangs in it holds up neither others nor the end of the process."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_daemon_thread(work: Callable[[], T], *, name: str) -> Future[T]:
    """Run ``work`` in a thread of its own that ends with the process, done or not. The future cannot be cancelled.

    For work that may hang for long, such as a name lookup: pooled threads would be used up by it, and waited for at
    the end.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the one who waits
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
