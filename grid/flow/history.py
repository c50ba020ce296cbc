"""How many requests this gateway had under way at a pool a moment ago.

A sample says what a pool held when it was taken, and it comes late. What this gateway did since is its count now minus
its count then, so the counts of the last seconds are kept.

A request that was still on its way to the pool when the sample was taken is in our count for then and not in the
pool's. So the lower of two counts is taken, that of the time of the sample and that of ``settle`` s before: requests
that were started in between, a burst for one, count as not seen. Too low a count makes the estimate of the load too
high, never too low.
"""

from collections import deque
from itertools import islice
from typing import Final

STEP: Final = 0.001
"""Of the changes within so many s the last one counts: a slot that passes from one request to the next is not free."""

MOST: Final = 1024
"""Changes kept at most; beyond, every second one is forgotten."""


class OwnHistory:
    """The counts, as far back as the next sample can reach: samples only come younger, so asking forgets the rest."""

    __slots__ = ("_changes",)

    def __init__(self, now: float) -> None:
        self._changes: deque[tuple[float, int]] = deque([(now, 0)])

    def __len__(self) -> int:
        return len(self._changes)

    def note(self, now: float, count: int) -> None:
        """From ``now`` on it is ``count``."""
        changes = self._changes
        at = changes[-1][0]
        if now - at < STEP:
            changes[-1] = (at, count)
            return
        changes.append((now, count))
        if len(changes) > MOST:
            self._changes = deque(islice(changes, 0, None, 2))

    def before(self, taken_at: float, settle: float) -> int:
        """The lower of the counts at ``taken_at`` and ``settle`` s earlier."""
        changes = self._changes
        since = taken_at - settle
        while len(changes) > 1 and changes[1][0] <= since:
            changes.popleft()
        first = last = changes[0][1]
        for at, count in islice(changes, 1, None):
            if at > taken_at:
                break
            last = count
        return min(first, last)
