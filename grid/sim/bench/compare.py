"""Holds a run against an earlier one, the baseline: ratios and exponents, which a faster machine does not change.

A ratio is worse by the factor between the two, in the direction that its row calls better; an exponent by their
difference. Each bench runs at settings of its own, smaller than those of ``grid bench``: what counts is that they stay
the same. On a shared machine ratios vary too, those of waits most of all. So the baseline keeps of three runs the
figure in the middle, by which the factor goes, and the worst, which is within what noise does and no fault. And a bench
with a figure that looks worse runs again, up to three times, and each figure counts at its best.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from statistics import median_low
from time import monotonic
from typing import Any, Final

import orjson

from grid.sim.bench.cycle import Setup
from grid.sim.bench.fanout import Load
from grid.sim.bench.growth import Better
from grid.sim.bench.isolated import Ran, Row, ran

FACTOR: Final = 1.3
"""A ratio this many times worse is too much."""
DIFFERENCE: Final = 0.15
"""An exponent this much higher is too much."""
LEAST_MS: Final = 0.02
"""ms of CPU that a step has to take by itself, where its row tells them, for its ratio to be held against another."""
RUNS: Final = 3
LONGEST: Final = 300.0
"""s that one bench may take."""
PYTHON: Final = ".".join(map(str, sys.version_info[:2]))

SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "pick": {"batches": 30, "size": 1000, "litellm": False},
    "render": {"rounds": 30},
    "parse": {"tenants": (0, 7, 100), "rounds": 15},
    "admission": {"rounds": 10_000},
    "policy": {"providers": 400},
    "simulate": {"seconds": 10.0, "rounds": 2},
    "scrape": {"scrapes": 150, "providers": 100, "interval": 1.0, "seconds": 3.0},
    "propagate": {
        "subscribers": 50,
        "sizes": (3_000, 200_000),
        "rounds": 15,
        "loads": (
            Load(gateways=40, processes=2, rate=4.0, seconds=5.0),
            Load(gateways=20, processes=2, rate=2.0, seconds=5.0, distinct=True),
        ),
    },
    "cycle": {"setups": (Setup(10, seconds=8.0),)},
    "gateway": {"serial": 100, "streams": 64, "rounds": 2, "pause": 0.02},
    "memory": {"providers": (100,), "interval": 1.0, "page_tenants": 100, "queued": 3000, "tenants": 300},
    "sites": {"seconds": 6.0, "gateways": (4,)},
}
"""Arguments of each bench, the quick ones first."""


class Verdict(StrEnum):
    """What became of a figure."""

    WORSE = "worse"
    SAME = "same"
    BETTER = "better"
    NEW = "new"
    GONE = "gone"
    OTHER_PEER = "other peer"


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio, or an exponent, of one case.

    ``peer``: what the ratio compares with; ``worst``: of the runs that a kept one was taken from.
    """

    value: float
    better: Better
    exponent: bool = False
    peer: str = ""
    worst: float | None = None

    @property
    def kind(self) -> str:
        """Its key in a row."""
        return "exponent" if self.exponent else "ratio"

    def worse_than(self, other: "Figure") -> float:
        """How much worse it is: by which factor (1 is alike) for ratios, by which difference for exponents."""
        if self.exponent:
            return self.value - other.value
        return self.value / other.value if self.better is Better.LESS else other.value / self.value

    def too_much_worse_than(self, other: "Figure") -> bool:
        """Whether that is more than noise."""
        if other.worst is not None and self.worse_than(replace(other, value=other.worst)) <= (not self.exponent):
            return False
        return self.worse_than(other) > (DIFFERENCE if self.exponent else FACTOR)

    def verdict(self, other: "Figure") -> Verdict:
        """What it is beside the baseline's."""
        if (self.peer, self.exponent, self.better) != (other.peer, other.exponent, other.better):
            return Verdict.OTHER_PEER
        if self.too_much_worse_than(other):
            return Verdict.WORSE
        return Verdict.BETTER if other.too_much_worse_than(self) else Verdict.SAME


Figures = dict[str, Figure]
"""By case."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One line: a case of a bench, the baseline's figure and today's, as far as there are any."""

    bench: str
    case: str
    before: Figure | None
    now: Figure | None

    @property
    def verdict(self) -> Verdict:
        """What became of it."""
        if self.before is None or self.now is None:
            return Verdict.NEW if self.before is None else Verdict.GONE
        return self.now.verdict(self.before)

    @property
    def row(self) -> Row:
        """For people and programs. ``change``: above 1, or above 0 for exponents, is worse."""
        known = self.now or self.before
        both = self.verdict in (Verdict.WORSE, Verdict.SAME, Verdict.BETTER)
        return {
            "bench": self.bench,
            "case": self.case,
            "figure": known.kind if known else None,
            "better": known.better if known else None,
            "baseline": self.before.value if self.before else None,
            "now": self.now.value if self.now else None,
            "change": round(self.now.worse_than(self.before), 3) if both and self.now and self.before else None,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All lines, why a bench has none, by its name, and those that time did not suffice for."""

    lines: tuple[Compared, ...]
    failed: Mapping[str, str]
    left_out: tuple[str, ...]

    @property
    def worse(self) -> tuple[Compared, ...]:
        """What the guard is about."""
        return tuple(line for line in self.lines if line.verdict is Verdict.WORSE)


def figures(rows: Iterable[Row]) -> Figures:
    """The figures of a bench's rows, by case. Cases of one name are told apart by their size or their gateways.

    Left out are ratios of a step far below a peer of ms, ``LEAST_MS``: what is left of the step is what the caches
    happen to hold, and the ratio doubles from run to run.
    """
    rows = [row for row in rows if row.get("exponent") is not None or _steady(row)]
    names = Counter(str(row["case"]) for row in rows)
    found = {}
    for row in rows:
        case, better = str(row["case"]), Better(row["better"])
        if names[case] > 1:
            case += f", {row['size'] / 1000:.0f} kB" if "size" in row else f", gateways: {row['gateways']}"
        if "exponent" in row:
            found[case] = Figure(row["exponent"], better, exponent=True)
        else:
            found[case] = Figure(row["ratio"], better, peer=str(row.get("peer", "")))
    return found


def _steady(row: Row) -> bool:
    return row.get("ratio") is not None and row.get("cpu_ms", LEAST_MS) >= LEAST_MS


def best(one: Figures, other: Figures) -> Figures:
    """Each figure at its better value."""
    found = dict(one)
    for case, figure in other.items():
        if case not in found or found[case].worse_than(figure) > figure.worse_than(figure):
            found[case] = figure
    return found


Measure = Callable[[str, float], Ran]
"""Runs a bench by its name, for at most so many s."""


def compare(
    baseline: Mapping[str, Figures],
    benches: Sequence[str],
    *,
    within: float | None = None,
    measure: Measure | None = None,
    said: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Run ``benches`` and hold them against ``baseline``.

    ``within``: s for all of it; benches that do not come to their turn are left out, and named. ``said``: told what
    happens, a line at a time.
    """
    measure = measure or run
    end = monotonic() + within if within is not None else None
    lines: list[Compared] = []
    failed: dict[str, str] = {}
    left_out: list[str] = []
    for bench in benches:
        if _left(end) <= 0:
            left_out.append(bench)
            continue
        known = baseline.get(bench, {})
        found: Figures = {}
        for number in range(RUNS):
            said(bench if not number else f"{bench} again: something looked worse")
            outcome = measure(bench, _left(end))
            if outcome.error:
                if outcome.late and end is not None:
                    left_out += [] if found else [bench]
                elif not found:
                    failed[bench] = outcome.error
                break
            found = best(found, figures(outcome.rows))
            if not _looks_worse(found, known) or _left(end) < outcome.seconds:
                break
        if found:
            cases = dict.fromkeys((*known, *found))
            lines += [Compared(bench, case, known.get(case), found.get(case)) for case in cases]
    return Comparison(tuple(lines), failed, tuple(left_out))


def _left(end: float | None) -> float:
    return LONGEST if end is None else min(LONGEST, end - monotonic())


def _looks_worse(found: Figures, known: Figures) -> bool:
    return any(figure.verdict(known[case]) is Verdict.WORSE for case, figure in found.items() if case in known)


def run(bench: str, within: float) -> Ran:
    """That bench, in a process of its own, at the guard's settings."""
    return ran(bench, SETTINGS[bench], within)


# --- the baseline -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is kept of a run, by bench, and the version of Python that it ran on."""

    benches: Mapping[str, Figures]
    python: str = PYTHON


def measured(
    benches: Sequence[str], *, measure: Measure | None = None, said: Callable[[str], None] = lambda _: None
) -> tuple[dict[str, Figures], dict[str, str]]:
    """What a baseline keeps of these benches, and why it has none of others."""
    measure = measure or run
    found: dict[str, Figures] = {}
    failed: dict[str, str] = {}
    for bench in benches:
        runs: list[Figures] = []
        for number in range(RUNS):
            said(f"{bench}, {number + 1} of {RUNS}")
            outcome = measure(bench, LONGEST)
            if outcome.error:
                failed[bench] = outcome.error
                break
            runs.append(figures(outcome.rows))
        else:
            found[bench] = {case: _middle([one[case] for one in runs if case in one]) for case in runs[0]}
    return found, failed


def _middle(some: Sequence[Figure]) -> Figure:
    values = [one.value for one in some]
    worst = min(values) if some[0].better is Better.MORE else max(values)
    return replace(some[0], value=median_low(values), worst=worst)


def read(path: Path) -> Baseline:
    """The baseline of that file. Raises OSError, and ValueError where it is none."""
    data = orjson.loads(path.read_bytes())
    try:
        benches = {
            bench: {
                case: Figure(
                    float(entry["exponent" if "exponent" in entry else "ratio"]),
                    Better(entry["better"]),
                    exponent="exponent" in entry,
                    peer=entry.get("peer", ""),
                    worst=entry.get("worst"),
                )
                for case, entry in cases.items()
            }
            for bench, cases in data["benches"].items()
        }
        return Baseline(benches, data["python"])
    except KeyError as error:
        raise ValueError(f"no baseline as --write makes it: it lacks the key {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError("no baseline as --write makes it: file, benches, cases and figures are objects") from error


def write(path: Path, baseline: Baseline) -> None:
    """Keep it in that file."""
    benches = {
        bench: {
            case: {
                name: value
                for name, value in (
                    (figure.kind, figure.value),
                    ("worst", figure.worst),
                    ("better", figure.better),
                    ("peer", figure.peer),
                )
                if value not in (None, "")
            }
            for case, figure in cases.items()
        }
        for bench, cases in sorted(baseline.benches.items())
    }
    data = {"python": baseline.python, "benches": benches}
    path.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n")
