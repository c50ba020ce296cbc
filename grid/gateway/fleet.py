"""What share of the fleet's traffic this gateway is, and what it had in flight when a sample was taken."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from grid.gateway.target import MAX_SCALE, Target

PERIOD = 0.05
"""s between two records of the own counts; a sample's moment falls between two of them and is interpolated."""

KEEP = 60.0
"""s of records kept; a sample older than that is past every sensible freshness bound."""


def scale_of(own: int, fleet: float, instances: int) -> tuple[float, bool]:
    """How many times this gateway's own changes stand for the whole fleet's, and whether that can be relied on.

    1 / share, where share = (own + 1) / (fleet + instances): in flight here against in flight at all ``instances``
    that report, each counted with one request more, so that an idle fleet gives equal shares and a single request
    does not swing the number. Held within 1 and 16; above that the own changes are too few to tell.
    """
    fleet = max(fleet, own)
    share = (own + 1) / (fleet + max(instances, 1))
    scale = 1 / share
    return min(MAX_SCALE, max(1.0, scale)), scale <= MAX_SCALE


class OwnCounts:
    """A ring of what this gateway had in flight at each target, by time. Recorded off the request path."""

    __slots__ = ("_layout", "_records", "_targets", "_times")

    def __init__(self) -> None:
        self._targets: tuple[Target, ...] = ()
        self._layout: dict[int, int] = {}
        self._times: deque[float] = deque()
        self._records: deque[tuple[dict[int, int], list[int]]] = deque()

    def follow(self, targets: Sequence[Target]) -> None:
        """Record these targets from now on; what was recorded of others stays as long as its records do."""
        self._targets = tuple(targets)
        self._layout = {id(target): place for place, target in enumerate(self._targets)}

    def record(self, now: float) -> None:
        """Keep the counts as of ``now`` (monotonic s)."""
        self._times.append(now)
        self._records.append((self._layout, [target.own for target in self._targets]))
        while self._times[0] < now - KEEP:
            self._times.popleft()
            self._records.popleft()

    def at(self, target: Target, moment: float) -> float:
        """Requests in flight at ``target`` at ``moment``: between two records in proportion, before all of them 0.

        Before the first record nothing is known of this gateway's past, and a process that has just started had
        nothing in flight.
        """
        place = bisect_right(self._times, moment)
        if place == 0:
            return 0.0
        earlier = self._count(place - 1, target)
        if place == len(self._times):
            return float(earlier)
        later = self._count(place, target)
        since, until = self._times[place - 1], self._times[place]
        return earlier + (later - earlier) * (moment - since) / (until - since)

    def _count(self, place: int, target: Target) -> int:
        layout, counts = self._records[place]
        spot = layout.get(id(target))
        return 0 if spot is None else counts[spot]
