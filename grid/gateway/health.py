"""Health that the data plane has seen: providers whose connections fail are used last, until they answer again.

Passive: a failed connection, or answers of which most are errors, sets a provider back for a second, and twice as long
each time that it happens again, up to half a minute. After that it is on trial: it is used like any other, but if its
first answer is an error it is set back at once, since whoever fails fast looks idle and draws requests in. A run of
good answers makes it as good as new. Active sources (an Envoy's admin) report clusters without a healthy endpoint.
Before anything was observed nobody is set back, and since a provider set back is still used where nothing else is left,
a wrong observation costs preference, never service.
"""

from typing import Final

from grid.gateway.draws import SPAN, WORD, Bits

_FIRST: Final = 1.0
_LONGEST: Final = 30.0
_WEIGHT: Final = 0.1
"""Weight of the newest outcome in the running share of failures: about the last twenty count."""

_BAD: Final = 0.5
_GOOD: Final = 0.1
_ENOUGH: Final = 5
"""Outcomes seen before a share of failures counts."""


class ObservedHealth:
    """What is known of one provider. Times are monotonic s."""

    __slots__ = ("_back_off", "_failing", "_on_trial", "_seen", "reported_down", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.reported_down = False
        self._back_off = _FIRST
        self._failing = 0.0
        self._seen = 0
        self._on_trial = False

    def healthy(self, now: float) -> bool:
        """Whether it may be used like any other."""
        return not self.reported_down and now >= self.until

    def connect_failed(self, now: float, bits: Bits) -> None:
        """No connection could be made: set back at once."""
        self._set_back(now, bits)

    def answered(self, now: float, bits: Bits, *, failed: bool) -> None:
        """A response came; ``failed`` where it is the provider's fault."""
        if now < self.until:
            return  # sent before the fault was known, or for want of anybody else: no verdict on what comes after
        if self._on_trial and failed:
            self._set_back(now, bits)
            return
        self._on_trial = False
        self._seen += 1
        self._failing += _WEIGHT * (failed - self._failing)
        if self._seen < _ENOUGH:
            return
        recent = self._failing / (1 - (1 - _WEIGHT) ** self._seen)
        if failed and recent > _BAD:
            self._set_back(now, bits)
        elif recent < _GOOD:
            self._back_off = _FIRST

    def _set_back(self, now: float, bits: Bits) -> None:
        if now < self.until:
            return  # one fault that many requests met at once counts once
        # A spread of a fifth, so that gateways do not all come back in the same instant.
        self.until = now + self._back_off * (0.9 + 0.2 * bits(WORD) / SPAN)
        self._back_off = min(_LONGEST, self._back_off * 2)
        self._failing, self._seen, self._on_trial = 0.0, 0, True
