"""Drains: an operator's hand on a provider or a site, with an end on the wall clock.

There is one drain per target, its id is the target. The later end holds: a second, longer drain extends the first, a
shorter one changes nothing, so that nobody's drain is cut short by somebody else's.
"""

import math
from collections.abc import Iterable, Mapping

from grid.model import Drain


def _end(drain: Drain) -> float:
    return math.inf if drain.until is None else drain.until


def merged(held: Drain | None, asked: Drain, now: float) -> tuple[Drain, bool]:
    """The drain that holds after ``asked`` came to ``held``, and whether ``asked`` moved the end. Wall-clock s.

    The drain that began first keeps its beginning; the reason is that of the one whose end holds.
    """
    if held is None or _end(held) <= now:
        return asked, True
    if _end(asked) > _end(held):
        return Drain(held.id, held.target, asked.reason or held.reason, held.created, asked.until), True
    return held, False


def in_force(drains: Iterable[Drain], now: float) -> dict[str, Drain]:
    """Those that have not ended, by target."""
    return {drain.target: drain for drain in drains if _end(drain) > now}


def over(drains: Mapping[str, Drain], now: float) -> list[Drain]:
    """Those that have ended."""
    return [drain for drain in drains.values() if _end(drain) <= now]
