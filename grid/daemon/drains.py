"""Drains: an operator's hand on a provider or a site, with an end on the wall clock.

There is one drain per target, its id is the target. The later end holds: a second, longer drain extends the first, a
shorter one changes nothing, so that nobody's drain is cut short by somebody else's.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from grid.model import Drain

_SAME = 1.0


class Ends:
    """When drains end.

    An end travels as a moment of the wall clock, so that it holds across restarts and machines. From the moment at
    which this process first sees it, it is counted on the monotonic clock: setting the wall clock moves no end.
    ``clock``: monotonic s, ``wall``: wall-clock s.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wall = wall
        self._seen: dict[tuple[str, float], float] = {}

    def left(self, drain: Drain) -> float:
        """S until it ends, inf where it has no end; not above 0 once it is over."""
        if drain.until is None:
            return math.inf
        now = self._clock()
        return self._seen.setdefault((drain.id, drain.until), now + drain.until - self._wall()) - now

    def keep(self, drains: Iterable[Drain]) -> None:
        """Forget all others: those that lie nowhere any more."""
        kept = {(drain.id, drain.until) for drain in drains}
        self._seen = {key: end for key, end in self._seen.items() if key in kept}

    def in_force(self, drains: Iterable[Drain]) -> dict[str, Drain]:
        """Those that have not ended, by target."""
        return {drain.target: drain for drain in drains if self.left(drain) > 0}

    def merged(self, held: Drain | None, asked: Drain) -> tuple[Drain, bool]:
        """The drain that holds after ``asked`` came to ``held``, and whether ``asked`` moved the end.

        The drain that began first keeps its beginning; the reason is that of the one whose end holds.
        """
        if held is None or self.left(held) <= 0:
            return asked, True
        if self.left(asked) > self.left(held):
            return Drain(held.id, held.target, asked.reason or held.reason, held.created, asked.until), True
        return held, False

    def shown(self, drain: Drain) -> Drain:
        """The same with its end by the wall clock of now, where that was set since."""
        if drain.until is None:
            return drain
        until = self._wall() + self.left(drain)
        return drain if abs(until - drain.until) < _SAME else replace(drain, until=until)
