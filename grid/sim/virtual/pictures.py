"""What the pictures of a simulation show, as plain data: :mod:`grid.sim.virtual.plots` draws it, a file can hold it.

All times are virtual s since the beginning of what is shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

SHORTEST = 1e-3
"""s of the shortest wait that a distribution tells from none."""
POINTS = 60
"""Points of a distribution's line."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Who got which part of the traffic when.

    ``arrivals``: requests that came to each of ``sites``, second by second; ``window``: s that make one point of a
    line. ``fair``: from which second on which shares are fair, in order; ``events``: what happened at which second.
    """

    title: str
    sites: tuple[str, ...]
    arrivals: tuple[tuple[int, ...], ...]
    fair: tuple[tuple[float, tuple[float, ...]], ...]
    window: int = 1
    events: tuple[tuple[float, str], ...] = ()
    kind: Literal["shares"] = "shares"

    def lines(self) -> list[tuple[list[float], list[float]]]:
        """For each site: the middle of each whole window in which anything came, and the site's share in it."""
        times: list[float] = []
        lines: list[list[float]] = [[] for _ in self.sites]
        for at in range(0, len(self.arrivals) - self.window + 1, self.window):
            counts = [sum(column) for column in zip(*self.arrivals[at : at + self.window], strict=True)]
            total = sum(counts)
            if total:
                times.append(at + self.window / 2)
                for line, count in zip(lines, counts, strict=True):
                    line.append(count / total)
        return [(times, line) for line in lines]


@dataclass(frozen=True, slots=True)
class Waits:
    """How long requests waited, one line per policy. ``what`` was measured stands at the axis.

    ``lines``: by policy, ascending s and the fraction of requests that took longer; empty where nobody waited.
    """

    title: str
    lines: Mapping[str, tuple[tuple[float, float], ...]]
    what: str = "wait in a site's queue"
    kind: Literal["waits"] = "waits"


@dataclass(frozen=True, slots=True)
class Oscillation:
    """How far the busiest site is above its fair share, one line per policy, one value per ``window`` s."""

    title: str
    lines: Mapping[str, tuple[float, ...]]
    window: float
    events: tuple[tuple[float, str], ...] = ()
    kind: Literal["oscillation"] = "oscillation"


Picture = Shares | Waits | Oscillation

Show = Callable[[str, Picture], None]
"""Is shown a picture; the name is that of its file."""


def longer(waits: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """The complementary distribution of waits in s: evenly spaced on a logarithmic axis, from SHORTEST to the longest.

    Empty where nobody waited as long as SHORTEST. The last fraction is that of the longest wait itself, so above 0.
    Numbers have as many digits as a picture can show.
    """
    ordered = sorted(waits)
    if not ordered or ordered[-1] < SHORTEST:
        return ()
    ratio = (ordered[-1] / SHORTEST) ** (1 / (POINTS - 1))
    points = []
    below = 0
    for number in range(POINTS - 1):
        wait = float(f"{SHORTEST * ratio**number:.4g}")
        while ordered[below] <= wait and below < len(ordered) - 1:
            below += 1
        points.append((wait, (len(ordered) - below) / len(ordered)))
    points.append((ordered[-1], 1 / len(ordered)))
    return tuple((float(f"{wait:.4g}"), float(f"{part:.4g}")) for wait, part in points)


def steady(slots: Sequence[int]) -> tuple[tuple[float, tuple[float, ...]], ...]:
    """Fair shares that never change: by ``slots``."""
    total = sum(slots)
    return ((0.0, tuple(one / total for one in slots)),)


def summed(runs: Sequence[Sequence[Sequence[int]]]) -> tuple[tuple[int, ...], ...]:
    """Arrivals of several runs as one: site by site, second by second, as long as the shortest run."""
    return tuple(tuple(map(sum, zip(*second, strict=True))) for second in zip(*runs, strict=False))
