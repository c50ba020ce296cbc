"""Writes ``docs/balancing.md``: the words of ``balancing.md`` beside this module, with the figures of a run put in."""

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Final

from grid.sim.report.run import Report, Row
from grid.sim.virtual.churn import GRID, verdict
from grid.sim.virtual.measure import digits
from grid.sim.virtual.scenarios import FAILED, REFUSED

FOLDER: Final = "balancing"
"""Of pictures and rows, beside the page."""
DATA: Final = "report.json"

_PICTURE: Final = re.compile(rf"\]\({FOLDER}/([\w-]+)\.svg\)")

_NAMES: Final = {
    "before": "nearest first",
    "after": "two drawn, lower polled number",
    "random": "at random, by slots",
    "uniform": "at random, all alike",
    "turns": "in turn",
    "least-stale": "lowest stale number",
    "p2c-stale": "two drawn, lower stale number",
    "own": "two drawn, fewer own requests",
    "grid": "**Grid**",
    "perfect": "perfect knowledge",
    "central": "one central queue",
}

_AIMS: Final = {
    "A": ("28", "-", "1.30", "1.14"),
    "B": ("50", "-", "1.45", "-"),
    "C": ("30", "-", "1.20", "-"),
    "D": ("13", "-", "1.15", "-"),
    "E": ("29", "-", "1.36", "-"),
    "F": ("66", "-", "1.43", "-"),
}
"""Of each column, at most, in the order of the cells of its rows."""

PUBLISHED: Final[Mapping[tuple[int, str], tuple[int, str, str, int]]] = {
    (64, "before"): (14272, "1.00 0 0", "1.00", 0),
    (64, "after"): (14272, ".38 .39 .23", ".46", 0),
    (128, "before"): (28544, "1.00 0 0", "1.00", 0),
    (128, "after"): (28508, ".40 .37 .24", ".48", 49),
    (256, "before"): (28655, "1.00 0 0", "1.00", 24517),
    (256, "after"): (42290, ".34 .46 .20", ".48", 15199),
}
"""By clients and rule, one gateway: requests, shares, peak share in 10 s, arrivals at a full site."""
_UNREADABLE: Final = "unreadable"
"""How the names of the scenarios begin that have a table of their own."""
_UNKNOWN: Final = ("", "", "", "")


def _template() -> str:
    return resources.files("grid.sim.report").joinpath("balancing.md").read_text(encoding="utf-8")


def pictures() -> frozenset[str]:
    """Names of the pictures that the page shows."""
    return frozenset(_PICTURE.findall(_template()))


def render(report: Report) -> str:
    """The page about ``report``. Raises KeyError where it lacks a simulation that the page tells of."""
    rows = report.rows
    (interactive,) = rows["admission"]
    return Template(_template()).substitute(
        size=report.size,
        cpu=f"{report.cpu_s:.0f}",
        partition=_partition(rows["partition"]),
        failed=sum(row["failed"] for row in rows["partition"]),
        stale=_stale(rows["stale"]),
        columns=_columns(rows["stale"]),
        churn=_churn([row for row in rows["churn"] if not row["column"].startswith(_UNREADABLE)]),
        unreadable=_churn([row for row in rows["churn"] if row["column"].startswith(_UNREADABLE)]),
        central=f"{1e3 * central_queue(48, 0.8, 2.0):.1f}",
        **{f"{case}_s": f"{interactive[f'{case}_p99_ms'] / 1e3:.1f}" for case in ("idle", "on", "off")},
        **{key: f"{interactive[key]:.3g}" for key in ("ratio_on", "ratio_off")},
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def central_queue(slots: int, load: float, service: float) -> float:
    """Mean wait in s in one line in front of ``slots``, Poisson arrivals at ``load``, exponential ``service`` s.

    Erlang's C formula (A. K. Erlang, 1917). No rule that sends each request to one of several lines does better.
    """
    offered = slots * load
    blocked = 1.0  # Erlang B, by its recursion, since factorials of many slots overflow
    for servers in range(1, slots + 1):
        blocked = offered * blocked / (servers + offered * blocked)
    waiting = blocked / (1 - load * (1 - blocked))
    return waiting * service / (slots * (1 - load))


def _decimals(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}".removeprefix("0") if value else "0" for value in values)


def _beside(ours: object, published: object) -> str:
    return f"{ours} / {published}" if published != "" else str(ours)


def _partition(rows: Sequence[Row]) -> str:
    """All rules with one gateway, ours with more."""
    head = ("clients", "gateways", "rule", "requests", "of ideal", "shares", "peak in 10 s", "met a full site")
    cells = []
    for row in rows:
        clients, policy, gateways = row["clients"], row["policy"], row["gateways"]
        if gateways > 1 and policy != GRID:
            continue
        requests, shares, peak, full = PUBLISHED.get((clients, policy), _UNKNOWN) if gateways == 1 else _UNKNOWN
        cells.append(
            (
                clients,
                gateways,
                _NAMES.get(policy, policy),
                _beside(row["requests"], requests),
                f"{row['requests'] / row['ideal']:.1%}",
                _beside(_decimals(row["shares"]), shares),
                _beside(_decimals([max(row["peak_window_share"])]), peak),
                _beside(row["overshoot"], full),
            )
        )
    return table(head, cells)


def _columns(rows: Sequence[Row]) -> str:
    about = {row["column"]: row["about"] for row in rows}
    return table(("", "column"), about.items())


def _stale(rows: Sequence[Row]) -> str:
    columns = list(dict.fromkeys(row["column"] for row in rows))
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        shares = [f"{row[key]:.2f}" if row[key] is not None else "-" for key in ("hottest", "hottest_10s")]
        figures = [digits(row["mean_ms"]), str(row["p99_ms"]), *shares]
        found.setdefault(row["policy"], {})[row["column"]] = " / ".join(figures)
    aims = [" / ".join(_AIMS[one]) for one in columns]
    lines = [[_NAMES.get(policy, policy), *(cells[one] for one in columns)] for policy, cells in found.items()]
    return table(("rule", *columns), [("*aim*", *aims), *lines])


def _churn(rows: Sequence[Row]) -> str:
    """A line for each bound that anything came near, and for what fails or is refused: what happens is said once.

    After the table, which bounds have no line, and which were not held.
    """
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    scenarios: dict[str, dict[str, dict[str, Row]]] = {}
    for row in rows:
        scenarios.setdefault(row["column"], {}).setdefault(row["what"], {})[row["policy"]] = row
    lines: list[Sequence[str]] = []
    still: dict[str, list[str]] = {}
    for name, bounds in scenarios.items():
        found: list[Sequence[str]] = []
        for what, by_policy in bounds.items():
            if not any(row["figure"] for row in by_policy.values()):
                still.setdefault(what, []).append(f"`{name}`")
                continue
            limit = by_policy[GRID]
            bound = f"at {limit['at']} {digits(limit['bound'])}"
            found.append((what, bound, *(_judged(by_policy[one]) if one in by_policy else "" for one in policies)))
        found += _unbounded(bounds, policies)
        about = next(iter(next(iter(bounds.values())).values()))["about"]
        lines += [(f"`{name}`: {about}" if not number else "", *cells) for number, cells in enumerate(found)]
    head = ("what happens", "what is bounded", "bound", *(_NAMES.get(one, one) for one in policies))
    said = [table(head, lines), verdict(rows)]
    if still:
        everywhere = len(scenarios)
        left = "; ".join(
            f"{what} ({', '.join(names) if len(names) < everywhere else 'everywhere'})" for what, names in still.items()
        )
        said.append(f"Without a line, since no rule let any through (all figures are 0): {left}.")
    return "\n\n".join(said)


def _unbounded(bounds: Mapping[str, Mapping[str, Row]], policies: Sequence[str]) -> list[Sequence[str]]:
    """What fails or is refused, where there is any and no bound on it."""
    (first, *_) = bounds.values()
    found: list[Sequence[str]] = []
    for what, key in ((FAILED, "failed"), (REFUSED, "refused")):
        if what not in bounds and any(row[key] for row in first.values()):
            parts = [
                digits(first[one][key] / max(1, first[one]["requests"])) if one in first else "" for one in policies
            ]
            found.append((what, "-", *parts))
    return found


def _judged(row: Row) -> str:
    """A figure; one of ours that is beyond its bound says so."""
    figure = digits(row["figure"])
    return figure if row["within"] or row["policy"] != GRID else f"{figure} (not held)"
