"""How many retries a gateway may spend: a share of its requests, and a few a second however quiet it is.

Without a budget every failing site doubles the load on the others just when they have to take over.
"""

from collections import deque
from typing import Final

WINDOW: Final = 10.0
"""s over which requests and retries are held against each other."""


class RetryBudget:
    """Over any ten seconds, at most ``share`` of the requests and ``min_per_s`` a second may be retried.

    What is left of ten quiet seconds may be spent at once, since a site is lost at once. Requests are counted without
    looking at a clock; ``turn`` (or ``take``) moves time on.
    """

    __slots__ = ("_past", "_requests", "_retries", "_second", "min_per_s", "share")

    def __init__(self, share: float = 0.2, min_per_s: float = 3.0) -> None:
        self.share = share
        self.min_per_s = min_per_s
        self._second = 0
        self._requests = 0
        self._retries = 0
        self._past: deque[tuple[int, int, int]] = deque()

    @property
    def level(self) -> float:
        """Retries that could be spent now; 1 is needed for one."""
        requests = self._requests + sum(requests for _, requests, _ in self._past)
        retries = self._retries + sum(retries for _, _, retries in self._past)
        return self.share * requests + self.min_per_s * WINDOW - retries

    def request(self) -> None:
        """A request has come in (its retries do not count)."""
        self._requests += 1

    def turn(self, now: float) -> None:
        """It is ``now`` (monotonic s)."""
        second = int(now)
        if second == self._second:
            return
        self._past.append((self._second, self._requests, self._retries))
        self._second, self._requests, self._retries = second, 0, 0
        while self._past and self._past[0][0] <= second - WINDOW:
            self._past.popleft()

    def take(self, now: float) -> bool:
        """Spend one retry at ``now``, if there is one."""
        self.turn(now)
        if self.level < 1.0:
            return False
        self._retries += 1
        return True
