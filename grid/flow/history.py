"""How many slots of a pool this gateway had taken a moment ago.

A sample says what a pool held when it was taken, and it comes late. What this gateway did since is its count now minus
its count then, so its count of the last seconds is kept. Asked for a stretch of time it gives the least of it, because
a request that was under way when the sample was taken is in our count and not in the pool's: a smaller count for then
makes the estimate larger, never smaller.

Of several changes in one instant only the last counts: a slot that passes from one request to the next in the same
call was never free.
"""

from collections import deque
from itertools import islice
from typing import Final

STEP: Final = 0.02
"""Changes within so many s share one entry."""

MOST: Final = 1024
"""Entries kept at most; beyond, neighbours are joined, which can only lower what is found."""


class _Stretch:
    """Changes from ``start`` to ``end``: the least count before ``end``, and the one that holds from ``end`` on."""

    __slots__ = ("before", "end", "last", "start")

    def __init__(self, start: float, end: float, before: int, last: int) -> None:
        self.start = start
        self.end = end
        self.before = before
        self.last = last

    @property
    def least(self) -> int:
        return min(self.before, self.last)


class UsedHistory:
    """The counts, as far back as the next sample can reach: samples only come younger, so asking forgets the rest."""

    __slots__ = ("_stretches",)

    def __init__(self, now: float) -> None:
        self._stretches = deque([_Stretch(now, now, 0, 0)])

    def __len__(self) -> int:
        return len(self._stretches)

    def note(self, now: float, count: int) -> None:
        """From ``now`` on it is ``count``."""
        stretch = self._stretches[-1]
        if now - stretch.start < STEP:
            if now > stretch.end:
                stretch.before = stretch.least
                stretch.end = now
            stretch.last = count
            return
        self._stretches.append(_Stretch(now, now, stretch.last, count))
        if len(self._stretches) > MOST:
            self._join()

    def least(self, since: float, until: float) -> int:
        """The least count from ``since`` to ``until``; what lies before ``since`` is forgotten."""
        stretches = self._stretches
        while len(stretches) > 1 and stretches[1].start <= since:
            stretches.popleft()
        first = stretches[0]
        found = first.last if first.end <= since else first.least
        for stretch in islice(stretches, 1, None):
            if stretch.start > until:
                break
            found = min(found, stretch.least)
        return found

    def _join(self) -> None:
        """Two by two; there is an odd number of them, and the newest stays as it is."""
        pairs = zip(*[iter(self._stretches)] * 2, strict=False)
        joined = deque(_Stretch(one.start, two.end, min(one.least, two.before), two.last) for one, two in pairs)
        joined.append(self._stretches[-1])
        self._stretches = joined
