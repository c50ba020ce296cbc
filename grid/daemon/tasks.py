"""Named, guarded tasks: none is lost, none fails in silence, all are gone at the end.

Two kinds. A *loop* runs one step after another for as long as the daemon lives; a step that fails is a fault of ours,
so it is logged and counted, and the loop goes on after a pause that doubles (1 s to 30 s) until a step succeeds: a bug
must not stop a control plane. An *errand* runs once and may be cancelled; what it raises is logged as a fault too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0

_log = structlog.get_logger("grid.daemon")


class TaskGuard:
    """Holds the daemon's tasks. ``on_fault`` is called with a task's name each time one fails."""

    def __init__(self, on_fault: Callable[[str], None] = lambda _: None) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_fault = on_fault

    def __len__(self) -> int:
        return len(self._tasks)

    def loop(self, name: str, step: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run ``step`` again and again until cancelled."""
        return self._hold(self._forever(name, step), name)

    def errand(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run ``work`` once."""
        return self._hold(self._once(name, work), name)

    async def stop(self, tasks: set[asyncio.Task[None]] | None = None) -> None:
        """Cancel ``tasks`` (all where None) and wait until they are gone, again where one resists."""
        chosen = self._tasks if tasks is None else tasks
        while pending := {task for task in chosen if not task.done() and task is not asyncio.current_task()}:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=1.0)

    def _hold(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _forever(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                await step()
            except Exception:  # noqa: BLE001 - any fault of one step; the loop must outlive it
                self._fault(name)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                pause = _FIRST_PAUSE

    async def _once(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:  # noqa: BLE001 - any fault of the errand; nobody else awaits it
            self._fault(name)

    def _fault(self, name: str) -> None:
        _log.exception("a task failed; please report this", task=name)
        self._on_fault(name)


class Bell:
    """Wakes one loop. Rings that come while the loop works are joined into one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def rung(self) -> bool:
        """Whether a ring waits to be answered."""
        return self._event.is_set()

    def ring(self) -> None:
        """Wake the loop, now or when it next waits."""
        self._event.set()

    def clear(self) -> None:
        """Take back a ring that has not been answered."""
        self._event.clear()

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - a ring or the time, whichever is first
        """Wait for a ring and answer it; False where ``timeout`` s passed without one."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True
