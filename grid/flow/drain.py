"""How fast a queue drains, and what that means for those who wait or are sent away."""

import math
from typing import Final

MEMORY: Final = 30.0
"""s after which an ended request counts 1/e in the rate."""

FEWEST: Final = 5
"""Ended requests before a rate is believed."""

LONGEST: Final = 60
"""Most s that a client is told to stay away."""

_UNKNOWN: Final = 5
_GOLDEN: Final = 0.6180339887498949


class DrainRate:
    """Requests of one model that end per s, as a decaying mean over what was seen so far."""

    __slots__ = ("_at", "_count", "_since", "_weight")

    def __init__(self) -> None:
        self._count = 0
        self._weight = 0.0
        self._at = 0.0
        self._since = 0.0

    def note(self, now: float) -> None:
        """One more has ended."""
        if not self._count:
            self._since = self._at = now
        self._weight = self._weight * math.exp((self._at - now) / MEMORY) + 1.0
        self._at = now
        self._count += 1

    def per_s(self, now: float) -> float | None:
        """Requests per s; None before there is anything to go by."""
        seen = now - self._since
        if self._count < FEWEST or seen <= 0:
            return None
        return self._weight * math.exp((self._at - now) / MEMORY) / (MEMORY * -math.expm1(-seen / MEMORY))

    def time_for(self, requests: int, now: float) -> float | None:
        """Time until ``requests`` more have ended, s; None where that is unknown."""
        rate = self.per_s(now)
        return None if not rate else requests / rate


class RetrySpread:
    """Spreads ``Retry-After``, so that those who were sent away together do not come back together."""

    __slots__ = ("_turn",)

    def __init__(self, phase: float = 0.0) -> None:
        self._turn = phase % 1.0

    def after(self, wait: float | None) -> int:
        """Whole s, 1 to 60: from the expected ``wait`` to half as much again, at least 1 more. 5 where it is unknown.

        Successive answers step by the golden ratio, which spreads any number of them evenly.
        """
        self._turn = (self._turn + _GOLDEN) % 1.0
        expected = _UNKNOWN if wait is None else math.ceil(min(wait, LONGEST))
        least = min(max(1, expected), LONGEST * 2 // 3)
        return least + int(self._turn * (max(1, least // 2) + 1))
