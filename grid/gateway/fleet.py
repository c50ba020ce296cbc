"""What share of the fleet's traffic this gateway is, and what it had in flight when a sample was taken."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from grid.gateway.target import MAX_SCALE, Target

PERIOD: Final = 0.05
"""s between two records of the own counts; a sample's moment falls between two of them and is interpolated."""

KEEP: Final = 60.0
"""s of records kept; a sample older than that is past every sensible freshness bound."""

WINDOW: Final = 3.0
"""s over which the own total is averaged for the share: what gateways say of themselves is up to this old."""

PACE: Final = 15.0
"""s over which it is seen how fast requests come and go: even a gateway with one a second has begun a dozen by then."""


def scale_of(own: float, fleet: float, instances: int) -> tuple[float, bool]:
    """How many times this gateway's own changes stand for the whole fleet's, and whether that can be relied on.

    1 / share, where share = (own + 1) / (fleet + instances): in flight here against in flight at all ``instances``
    that report, each counted with one request more, so that an idle fleet gives equal shares and a single request
    does not swing the number. Held within 1 and 16; above that the own changes are too few to tell.
    """
    fleet = max(fleet, own)
    share = (own + 1) / (fleet + max(instances, 1))
    scale = 1 / share
    return min(MAX_SCALE, max(1.0, scale)), scale <= MAX_SCALE


def proven_of(own: float, fleet: float, scale: float) -> float:
    """How far one's own change counts when somebody is to be refused for it: sqrt(fleet / own), within 1 and ``scale``.

    Arrivals at random make a gateway's own number wander while the fleet's stands still. Gateways that wander each for
    itself move their sum by the root of their number, not by their number: so much a change here says for certain of
    all. The scale, by which picks compare, would take every swing of one gateway for a surge of the whole fleet, and
    refuse some percent of the requests of a small fleet at 0.8 of its capacity (``two-sites`` of ``grid simulate
    churn``). And where nothing is in flight yet, the scale is a guess that everybody will do alike, and no reason to
    refuse anybody.
    """
    return min(scale, max(1.0, math.sqrt(fleet / max(own, 1.0))))


class OwnCounts:
    """A ring of what this gateway had in flight at each target, by time. Recorded off the request path."""

    __slots__ = ("_begun", "_layout", "_records", "_targets", "_times", "_totals")

    def __init__(self) -> None:
        self._targets: tuple[Target, ...] = ()
        self._layout: dict[Target, int] = {}
        self._times: deque[float] = deque()
        self._totals: deque[int] = deque()
        self._begun: deque[int] = deque()
        self._records: deque[tuple[dict[Target, int], list[int]]] = deque()

    def follow(self, targets: Sequence[Target]) -> None:
        """Record these targets from now on; what was recorded of others stays as long as its records do."""
        self._targets = tuple(targets)
        self._layout = {target: place for place, target in enumerate(self._targets)}

    def record(self, now: float) -> None:
        """Keep the counts as of ``now`` (monotonic s)."""
        counts = [target.own for target in self._targets]
        self._times.append(max(now, self._times[-1]) if self._times else now)
        self._totals.append(sum(counts))
        self._begun.append(sum([target.begun for target in self._targets]))
        self._records.append((self._layout, counts))
        while self._times[0] < now - KEEP:
            self._times.popleft()
            self._totals.popleft()
            self._begun.popleft()
            self._records.popleft()

    def total(self, now: float) -> float:
        """Mean requests in flight at all targets over the last ``WINDOW`` s; before any record, those of now."""
        recent = list(self._totals)[bisect_right(self._times, now - WINDOW) :]
        return sum(recent) / len(recent) if recent else float(sum(target.own for target in self._targets))

    def turnover(self, now: float) -> float | None:
        """The part of this gateway's requests that ended per second in the last ``PACE`` s, by Little's law.

        That is begun per second / in flight on average. None where there was nothing to see it by.
        """
        start = bisect_right(self._times, now - PACE)
        in_flight = sum(islice(self._totals, start, None))
        if not in_flight:
            return None
        begun = self._begun[-1] - self._begun[start]
        seconds = self._times[-1] - self._times[start]
        return begun / seconds / in_flight * (len(self._times) - start) if begun > 0 and seconds > 0 else None

    def at(self, target: Target, moment: float, now: float) -> float:
        """Requests in flight at ``target`` at ``moment``, in proportion between the records around it.

        Between the last record and ``now`` the count of now is the later one. Before the first record nothing is
        known, and the first stands for it: 0 in a process that has just started.
        """
        place = bisect_right(self._times, moment)
        if place == 0:
            return float(self._count(0, target) if self._times else target.own)
        earlier, since = self._count(place - 1, target), self._times[place - 1]
        if place < len(self._times):
            later, until = self._count(place, target), self._times[place]
        else:
            later, until = target.own, max(now, moment)
        return earlier + (later - earlier) * (moment - since) / (until - since) if until > since else float(earlier)

    def nearest(self, target: Target, moment: float, held: float) -> float:
        """The count about ``moment`` that is nearest to ``held``.

        For the only gateway, whose count is what the page should say: between two records that differ, the page knows
        better on which side of a request it was made. Records from one ``PERIOD`` before ``moment`` on count, since an
        age is that of an arrival, not of a page, and up to the first after it.
        """
        first, last = bisect_right(self._times, moment - PERIOD) - 1, bisect_right(self._times, moment)
        counts = [self._count(place, target) for place in range(max(0, first), min(last + 1, len(self._times)))]
        if last >= len(self._times):
            counts.append(target.own)
        return float(min(max(held, min(counts)), max(counts)))

    def _count(self, place: int, target: Target) -> int:
        layout, counts = self._records[place]
        spot = layout.get(target)
        return 0 if spot is None else counts[spot]
