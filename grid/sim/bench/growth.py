"""How a cost grows with size: the exponent k in cost = c x size**k, fitted to a few sizes.

A power law is a straight line on logarithmic paper. With x = ln(size) and y = ln(cost) over the n sizes, ordinary least
squares gives its slope

    k = sum((x - mean(x)) * (y - mean(y))) / sum((x - mean(x)) ** 2)

0 is a cost that does not depend on the size, 1 one in proportion to it, 2 a quadratic one. A fixed part of the cost
pulls k down where sizes are small, so sizes begin where it no longer matters.

Costs are CPU time of this thread, the least of several turns that go through all sizes: whatever else the machine does
only ever adds, and adds to one turn of one size.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from math import log
from statistics import linear_regression
from time import thread_time
from typing import Any, Final, TypeVar

Key = TypeVar("Key")

ROUNDS: Final = 7
_TURN: Final = 2e-3
"""CPU s that a turn takes at least: shorter ones are spoilt by the clock and by a single interruption."""


class Better(StrEnum):
    """Where a higher ``ratio`` is better, and where a lower one; ``better`` in the rows."""

    MORE = "more"
    LESS = "less"


def exponent(costs: Mapping[int, float]) -> float:
    """The exponent of ``costs``, by size. Raises ValueError for fewer than two sizes, or one or a cost not above 0."""
    if len(costs) < 2 or min(*costs, *costs.values()) <= 0:
        raise ValueError(f"an exponent needs two sizes and more, and costs above 0, got {dict(costs)}")
    return linear_regression([log(size) for size in costs], [log(cost) for cost in costs.values()]).slope


def grown(what: str, size: str, costs: Mapping[int, float]) -> dict[str, Any]:
    """The row of how ``what`` grows with ``size``. ``costs``: CPU s by size; ``points`` has them in us, same order."""
    return {
        "case": f"growth of {what} with {size}",
        "exponent": round(exponent(costs), 3),
        "sizes": list(costs),
        "points": [float(f"{cost * 1e6:.4g}") for cost in costs.values()],
        "better": Better.LESS,
    }


def least(works: Mapping[Key, Callable[[], object]], *, each: int = 1, rounds: int = ROUNDS) -> dict[Key, float]:
    """The least CPU s that an operation took. ``works``: what to call, by size or name; ``each`` operations a call."""
    several = {key: _enough(work) for key, work in works.items()}
    found: dict[Key, list[float]] = {key: [] for key in works}
    for _ in range(rounds):
        for key, work in works.items():
            found[key].append(_turn(work, several[key]) / several[key])
    return {key: min(times) / each for key, times in found.items()}


def _enough(work: Callable[[], object]) -> int:
    """How many calls take a turn's time."""
    number = 1
    while _turn(work, number) < _TURN:
        number *= 2
    return number


def _turn(work: Callable[[], object], times: int) -> float:
    began = thread_time()
    for _ in range(times):
        work()
    return thread_time() - began
