"""How long to wait between tries."""

import random


class Backoff:
    """Pauses that double from ``first`` to ``most`` seconds, each drawn evenly from zero to that (full jitter).

    The jitter keeps a fleet that lost the same server from coming back in step.
    """

    def __init__(self, first: float = 0.1, most: float = 10.0, rng: random.Random | None = None) -> None:
        self._first = first
        self._most = most
        self._rng = rng or random.Random()
        self._bound = first

    def next(self) -> float:
        """The next pause in s."""
        bound, self._bound = self._bound, min(self._bound * 2, self._most)
        return self._rng.uniform(0.0, bound)

    def reset(self) -> None:
        """Start over: the last try was a success."""
        self._bound = self._first
