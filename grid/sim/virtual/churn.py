"""``grid simulate churn``: what happens to a fleet, and what choosing lets through of it, in virtual time.

Every scenario of :mod:`grid.sim.virtual.scenarios` runs through sites, EPPs, daemon, bus and gateways with the code of
production, once per seed, beside a peer rule that has the same sites and the same traffic. A row is one bound of one
scenario under one policy; ``figure`` is what came of it, over all runs together, which may be ``bound`` ``at`` most, or
has to be that at least.
"""

from collections.abc import Iterable
from typing import Any, Final

from grid.sim.virtual.measure import digits, mean, quantile
from grid.sim.virtual.pictures import Shares, Show, Waits, longer, summed
from grid.sim.virtual.progress import Progress
from grid.sim.virtual.scenarios import SCENARIOS, Scenario
from grid.sim.virtual.stage import Runs, Stage

GRID: Final = "grid"
SIZES: Final = ("small", "full")
_SLACK: Final = 1e-9


def run(
    names: Iterable[str] = tuple(SCENARIOS),
    *,
    size: str = "full",
    seed: int = 1,
    peers: bool = True,
    progress: Progress | None = None,
    show: Show | None = None,
) -> list[dict[str, Any]]:
    """One row per scenario, policy and bound. ``progress`` hears of every run, ``show`` is shown pictures.

    Raises KeyError for an unknown name, ValueError for an unknown size.
    """
    chosen = {name: SCENARIOS[name] for name in names}
    if size not in SIZES:
        raise ValueError(f"sizes are {' and '.join(SIZES)}, got {size!r}")
    number = SIZES.index(size)
    policies = {name: (GRID, *(one.peers if peers else ())) for name, one in chosen.items()}
    total, done = sum(one.runs[number] * len(policies[name]) for name, one in chosen.items()), 0
    rows = []
    for name, scenario in chosen.items():
        found: dict[str, Runs] = {}
        for policy in policies[name]:
            runs = []
            for one in range(scenario.runs[number]):
                runs.append(Stage(scenario.setting, policy, 1000 * seed + one).run(scenario.happens))
                done += 1
                if progress is not None:
                    progress(done, total, runs[-1].clock.now)
            found[policy] = runs
            rows += _rows(name, policy, scenario, runs)
        if show is not None:
            _show(name, scenario, found, show)
    return rows


def broken(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of our own policy that are not within their bounds."""
    return [row for row in rows if row["policy"] == GRID and not row["within"]]


def verdict(rows: Iterable[dict[str, Any]]) -> str:
    """In a line, which bounds Grid broke."""
    ours = [row for row in rows if row["policy"] == GRID]
    beyond = [
        f"{row['column']}: {row['what']} {digits(row['figure'])}, at {row['at']} {digits(row['bound'])}"
        for row in broken(ours)
    ]
    if not beyond:
        return f"Grid kept all {len(ours)} bounds."
    return f"Grid broke {len(beyond)} of {len(ours)} bounds: {'; '.join(beyond)}."


def _rows(name: str, policy: str, scenario: Scenario, runs: Runs) -> list[dict[str, Any]]:
    waits = [one for run in runs for one in run.tally.waits]
    common = {
        "column": name,
        "policy": policy,
        "mean_ms": round(1e3 * mean(waits), 1),
        "p99_ms": round(1e3 * quantile(waits, 0.99)),
        "hottest": round(mean([ratio for run in runs for ratio in _swings(scenario, run)]), 2),
    }
    ends = {
        "failed": sum(run.tally.failed for run in runs),
        "refused": sum(run.tally.refused for run in runs),
        "requests": sum(run.tally.outcomes.total() for run in runs),
        "about": scenario.about,
    }
    rows = []
    for bound in scenario.bounds:
        figure = bound.figure(runs)
        judged = {"figure": _rounded(figure), "at": bound.at, "bound": bound.limit, "within": bound.holds(figure)}
        rows.append(common | {"what": bound.what} | judged | ends)
    return rows


def _rounded(figure: float) -> float:
    """Four digits that count, however small it is; what is counted stays whole."""
    return figure if isinstance(figure, int) else float(f"{figure:.4g}")


def _swings(scenario: Scenario, run: Stage) -> list[float]:
    """Per scrape interval, how far the busiest site is above its fair share."""
    found = []
    width = run.setting.fleet.interval
    for number in range(int(run.setting.after / width)):
        begin = number * width
        due = [shares for since, shares in scenario.fair if since <= begin + _SLACK][-1]
        arrivals = run.arrivals(begin, begin + width)
        whole = sum(due) / max(1, sum(arrivals))
        found.append(max(got * whole / one for got, one in zip(arrivals, due, strict=True) if one))
    return found


def _show(name: str, scenario: Scenario, found: dict[str, Runs], show: Show) -> None:
    fair = tuple((since, tuple(one / sum(due) for one in due)) for since, due in scenario.fair)
    for policy, runs in found.items():
        sites = tuple(site.name for site in runs[0].world.sites)
        arrivals = summed([run.tally.arrivals for run in runs])
        title = f"{scenario.about}: {policy}"
        show(f"churn-shares-{name}-{policy}", Shares(title, sites, arrivals, fair, events=scenario.events))
    waits = {policy: longer([one for run in runs for one in run.tally.waits]) for policy, runs in found.items()}
    show(f"churn-waits-{name}", Waits(f"How long requests wait: {scenario.about}", waits))
