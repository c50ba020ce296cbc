"""What an endpoint can run at once, learned from what it ran.

The mark is the most requests that were seen to run per endpoint. It grows at once. It falls by a tenth of the gap per
sample, and only on evidence that it is too high: engines queue although fewer run than the mark says. Low traffic and
traffic that was held back teach nothing.

A mark at which nothing ever queued is no limit, only the most that was asked for. Were admission to take it for one,
it would never see more and the mark would never grow. So until engines have queued at it, ``allowance`` goes beyond
it: four times the mark, which finds the limit of an endpoint of up to 1280 slots in five samples, starting from the
queue limit.
"""

from typing import Final

DECAY: Final = 0.1
"""Share of the gap by which the mark falls per sample with evidence against it."""

GROWTH: Final = 4.0
"""How far beyond a mark, as a multiple of it, admission may look for the limit."""


class LearnedCapacity:
    """The mark of one pool, in requests per endpoint. ``confirmed``: engines have queued at this mark."""

    __slots__ = ("confirmed", "mark")

    def __init__(self) -> None:
        self.mark = 0.0
        self.confirmed = False

    def observe(self, running: float, queued: float | None) -> None:
        """One new sample: requests running and queued per endpoint; ``queued`` None where nobody counts it."""
        if running > self.mark:
            self.mark = running
            self.confirmed = False
        if queued:
            self.confirmed = True
            if running < self.mark:
                self.mark = max(1.0, self.mark + (running - self.mark) * DECAY)

    def allowance(self, queue_capacity: float) -> float:
        """Requests per endpoint that admission may have in flight before it counts any as queued."""
        if self.confirmed:
            return self.mark
        return max(self.mark * GROWTH, queue_capacity)
