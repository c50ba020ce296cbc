"""How many retries a gateway may spend: a share of its requests, and a few a second however quiet it is.

Without a budget every failing site doubles the load on the others just when they have to take over.
"""

_BURST = 10.0
"""s of the least rate that may be saved up."""


class RetryBudget:
    """A bucket that every request fills by ``share`` and every second by ``min_per_s``; a retry takes one out."""

    __slots__ = ("_at", "_level", "_most", "min_per_s", "share")

    def __init__(self, share: float = 0.2, min_per_s: float = 3.0) -> None:
        self.share = share
        self.min_per_s = min_per_s
        self._most = max(min_per_s * _BURST, 1.0)
        self._level = min_per_s
        self._at: float | None = None

    @property
    def level(self) -> float:
        """Retries that could be spent now."""
        return self._level

    def request(self) -> None:
        """A request has come in (its retries do not count)."""
        if self._level < self._most:
            self._level += self.share

    def take(self, now: float) -> bool:
        """Spend one retry at ``now`` (monotonic s), if there is one."""
        if self._at is not None and now > self._at:
            self._level = max(self._level, min(self._most, self._level + (now - self._at) * self.min_per_s))
        self._at = now
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True
