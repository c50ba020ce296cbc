"""What came of a run: waits, outcomes, and who got how much of the traffic when."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from grid.sim.virtual.clock import Clock
from grid.sim.virtual.site import Site
from grid.sim.virtual.work import FAULTS, Outcome, Request

STEP = 1.0
"""s of one entry of ``Tally.arrivals``."""


@dataclass(slots=True)
class Tally:
    """Counts from ``since`` on. ``arrivals``: requests that came to each site, second by second (fewer, at the end)."""

    sites: Sequence[Site]
    clock: Clock
    since: float = 0.0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    """s that each answered request stood in line."""
    latencies: list[float] = field(default_factory=list)
    """s from the gateway's door to the end of the answer."""
    arrivals: list[list[int]] = field(default_factory=list)
    _seen: list[int] = field(default_factory=list)
    _met_full: int = 0

    def __post_init__(self) -> None:
        self.clock.at(self.since, self._begin)

    def heard(self, request: Request, outcome: Outcome) -> None:
        """A request has ended."""
        if request.born < self.since:
            return
        self.outcomes[outcome] += 1
        if outcome is Outcome.ANSWERED:
            self.waits.append(request.waited)
            self.latencies.append(self.clock.now - request.born)

    def _begin(self) -> None:
        self._seen = [site.seen for site in self.sites]
        self._met_full = sum(site.met_full for site in self.sites)
        self.clock.every(STEP, self._look, first=self.clock.now + STEP)

    def _look(self) -> None:
        seen = [site.seen for site in self.sites]
        self.arrivals.append([now - then for now, then in zip(seen, self._seen, strict=True)])
        self._seen = seen

    # --- figures ------------------------------------------------------------------------------------------------------

    @property
    def answered(self) -> int:
        """Requests that were answered."""
        return self.outcomes[Outcome.ANSWERED]

    @property
    def failed(self) -> int:
        """Requests that a client saw fail for a fault of a site."""
        return sum(self.outcomes[one] for one in FAULTS)

    @property
    def refused(self) -> int:
        """Requests that a gateway refused (429, 503, 504)."""
        return self.outcomes[Outcome.REFUSED]

    @property
    def overshoot(self) -> int:
        """Requests that came to a site while every slot was taken."""
        return sum(site.met_full for site in self.sites) - self._met_full

    def shares(self, first: int = 0, last: int | None = None) -> list[float]:
        """Each site's part of the arrivals of these seconds; zeros where nothing came."""
        counts = [sum(column) for column in zip(*self.arrivals[first:last], strict=True)]
        total = sum(counts)
        return [count / total if total else 0.0 for count in counts] or [0.0] * len(self.sites)

    def peaks(self, window: int = 10) -> list[float]:
        """Each site's largest part of the arrivals in any ``window`` s."""
        size = min(window, len(self.arrivals))
        found = [self.shares(at, at + size) for at in range(len(self.arrivals) - size + 1)]
        return [max(column) for column in zip(*found, strict=True)]

    def hottest(self, window: int, fair: Sequence[float] | None = None) -> list[float]:
        """Per ``window`` of whole seconds: the largest of the sites' shares over their fair share.

        ``fair``: None for shares by the capacity that all sites have while everything is well.
        """
        if fair is None:
            slots = [site.slots * site.endpoints for site in self.sites]
            fair = [one / sum(slots) for one in slots]
        found = []
        for at in range(0, len(self.arrivals) - window + 1, window):
            shares = self.shares(at, at + window)
            found.append(max((got / due for got, due in zip(shares, fair, strict=True) if due), default=0.0))
        return found


def digits(value: float) -> str:
    """Three digits that count; the whole of larger numbers."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which ``part`` of all lie; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
