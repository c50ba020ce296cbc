"""Virtual time: a heap of what is due."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any


class Clock:
    """Seconds since the beginning of a run. Things due at the same moment happen in the order they were asked for."""

    __slots__ = ("_due", "_order", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, when: float, what: Callable[..., None], *given: Any) -> None:
        """Do ``what(*given)`` at ``when``; at once where that has passed."""
        heapq.heappush(self._due, (when, next(self._order), what, given))

    def after(self, delay: float, what: Callable[..., None], *given: Any) -> None:
        """Do ``what(*given)`` in ``delay`` s."""
        heapq.heappush(self._due, (self.now + delay, next(self._order), what, given))

    def every(self, interval: float, what: Callable[[], None], *, first: float = 0.0) -> None:
        """Do ``what`` at ``first`` and every ``interval`` s after that."""

        def beat(number: int) -> None:
            what()
            # Counted from the first one: sums of intervals would drift.
            self.at(first + (number + 1) * interval, beat, number + 1)

        self.at(first, beat, 0)

    def run(self, until: float) -> None:
        """Do everything that is due up to ``until``."""
        due, pop = self._due, heapq.heappop
        while due and due[0][0] <= until:
            when, _, what, given = pop(due)
            if when > self.now:  # noqa: PLR1730 - max() costs 60 ns
                self.now = when
            what(*given)
        self.now = max(self.now, until)
