"""Ends what a task awaits, from outside of it and for a stated cause; the way ``asyncio.timeout`` does it."""

import asyncio
from enum import Enum, auto
from types import TracebackType
from typing import Self


class Cause(Enum):
    """Why a request stops waiting: its client has gone, its body is no good, its provider is lost."""

    GONE = auto()
    FAULT = auto()
    RESCUED = auto()


class InterruptedWaitError(Exception):
    """Raised out of the block that was interrupted."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.name)
        self.cause = cause


class Interruptible:
    """``with`` marks what :meth:`interrupt` ends, once; outside of it an interrupt waits for the next block.

    An interrupt comes from another task or a callback, so the task is waiting somewhere inside the block.
    """

    __slots__ = ("_cancelling", "_cause", "_inside", "_sent", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._inside = False
        self._cause: Cause | None = None
        self._sent = False
        self._cancelling = 0

    def interrupt(self, cause: Cause) -> None:
        """End the block for ``cause``; the first cause counts."""
        if self._cause is not None:
            return
        self._cause = cause
        if self._inside and self._task is not None:
            self._sent = True
            self._task.cancel()

    def __enter__(self) -> Self:
        if self._cause is not None:
            cause, self._cause = self._cause, None
            raise InterruptedWaitError(cause)
        self._task = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        self._inside = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = False
        if not self._sent or self._task is None:
            return
        cause, self._cause, self._sent = self._cause, None, False
        # Somebody else's cancellation at the same time goes on.
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError and cause is not None:
            raise InterruptedWaitError(cause) from error
