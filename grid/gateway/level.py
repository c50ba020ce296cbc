"""The water level: which sites of a group the fleet's arrivals since the sample have reached by now.

A gateway that is a very small part of its fleet sees too little of what the others do to correct a sample by its own
change. What all of them do together is known on average though: they fill the emptiest sites first, as water would.
By the time ``t`` since the sample ``arrivals x t`` requests have come, and stand at one level in all sites that were
lower than that; the next request belongs to one of these, and to none that is still above. Sharing out what is
expected by the age of a sample is known as load interpretation (Dahlin, 2000). Drawn from are only the sites below the
level, all alike by capacity: that is the rule which fills them to one level at any age.

How many arrive follows from Little's law: what the sites hold, times the share of this gateway's own requests that
ends per second (``OwnCounts.turnover``).
"""

import math
from collections.abc import Sequence

from grid.gateway.target import Target


class WaterLevel:
    """The moments (monotonic s) at which the level reaches the sites of one group, in order."""

    __slots__ = ("_moments", "_next", "_spots")

    def __init__(self, targets: Sequence[Target]) -> None:
        """For targets of known load; where it is not known how fast requests come and go, all are reached."""
        arrivals = sum([target.arrivals or 0.0 for target in targets])
        since = sum([(target.sampled_at or 0.0) * target.capacity for target in targets])
        since /= sum([target.capacity for target in targets])
        unknown = any(target.arrivals is None for target in targets)
        self._spots = sorted(range(len(targets)), key=lambda spot: targets[spot].level)
        self._moments: list[float] = []
        self._next = 0
        capacity = held = 0.0
        for spot in self._spots:
            target = targets[spot]
            missing = target.level * capacity - held
            if unknown or missing <= 0.0:
                self._moments.append(-math.inf)
            else:
                self._moments.append(since + missing / arrivals if arrivals else math.inf)
            capacity += target.capacity
            held += target.level * target.capacity

    def reached(self, now: float) -> list[int]:
        """Spots of those that the level has reached by ``now``, and had not when this was last asked."""
        begin = end = self._next
        while end < len(self._spots) and self._moments[end] <= now:
            end += 1
        self._next = end
        return self._spots[begin:end]
