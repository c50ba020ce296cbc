"""Virtual time: a heap of what is due."""

import heapq
from collections.abc import Callable
from itertools import count


class Clock:
    """Seconds since the beginning of a run. Things due at the same moment happen in the order they were asked for."""

    __slots__ = ("_due", "_order", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Do ``what`` at ``when``; at once where that has passed."""
        heapq.heappush(self._due, (when, next(self._order), what))

    def after(self, delay: float, what: Callable[[], None]) -> None:
        """Do ``what`` in ``delay`` s."""
        heapq.heappush(self._due, (self.now + delay, next(self._order), what))

    def every(self, interval: float, what: Callable[[], None], *, first: float = 0.0) -> None:
        """Do ``what`` at ``first`` and every ``interval`` s after that."""

        def again() -> None:
            what()
            self.at(self.now + interval, again)

        self.at(first, again)

    def run(self, until: float) -> None:
        """Do everything that is due up to ``until``."""
        due, pop = self._due, heapq.heappop
        while due and due[0][0] <= until:
            when, _, what = pop(due)
            self.now = max(self.now, when)
            what()
        self.now = until
