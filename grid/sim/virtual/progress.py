"""How far simulations are, for whoever watches."""

from typing import Protocol


class Progress(Protocol):
    """Hears of every run of a simulation that has ended."""

    def __call__(self, done: int, runs: int, seconds: float) -> None:
        """``done`` of ``runs`` runs have ended; the last one was ``seconds`` s of virtual time."""
        ...
