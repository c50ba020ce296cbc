"""The water level: which sites of a group the fleet's arrivals since their sample have reached by now.

A gateway that is a very small part of its fleet sees too little of what the others do to correct a sample by its own
change. What all of them do together is known on average though: they fill the emptiest sites first, as water would.
``t`` after a sample ``arrivals x t`` requests have come, and stand at one level in all sites that were lower; the next
request belongs to one of these, and to none that is still above. To share out what is expected by the age of a sample
is known as load interpretation (Dahlin, 2000). Here only sites below the level are drawn, alike by capacity: that is
what fills them to one level at any age. Where sites are sampled at different times, each goes by the age of its own.

How many arrive follows from Little's law: what the sites hold, times the part of this gateway's own requests that ends
per second (``OwnCounts.turnover``).
"""

import math
from collections.abc import Sequence

from grid.gateway.target import Target


class WaterLevel:
    """The moments (monotonic s) at which the level reaches the sites of one group, in order."""

    __slots__ = ("_moments", "_next")

    def __init__(self, targets: Sequence[Target]) -> None:
        """For targets of known load; where it is not known how fast requests come and go, all are reached."""
        arrivals = sum([target.arrivals or 0.0 for target in targets])
        unknown = any(target.arrivals is None for target in targets)
        capacity = held = 0.0
        found = []
        for spot, target in sorted(enumerate(targets), key=lambda one: one[1].level):
            missing = 0.0 if unknown else target.level * capacity - held
            if missing <= 0.0:
                found.append((-math.inf, spot))
            else:
                found.append(((target.sampled_at or 0.0) + missing / arrivals if arrivals else math.inf, spot))
            capacity += target.capacity
            held += target.level * target.capacity
        self._moments = sorted(found)
        self._next = 0

    def reached(self, now: float) -> list[int]:
        """Spots of those that the level has reached by ``now``, and had not when this was last asked."""
        begin = end = self._next
        while end < len(self._moments) and self._moments[end][0] <= now:
            end += 1
        self._next = end
        return [spot for _, spot in self._moments[begin:end]]
