"""How near the estimate is to the truth, and what that is worth: several gateways in virtual time."""

from dataclasses import replace
from statistics import mean, quantiles

import pytest

from grid.sim.virtual.stale import COLUMNS, Column, simulate

SHORT = 60.0


def errors(column: Column, seconds: float = SHORT) -> list[float]:
    found: list[float] = []
    simulate(column, "grid", seconds=seconds, on_error=found.append)
    return found


@pytest.mark.parametrize(
    ("name", "average", "p99"), [("A", 0.32, 1.0), ("C", 0.36, 1.3), ("D", 0.3, 0.9), ("F", 0.32, 1.0)]
)
def test_the_estimate_stays_near_the_truth(name: str, average: float, p99: float) -> None:
    """In units of capacity; what others send in a sample interval is chance, so it is never 0."""
    found = errors(COLUMNS[name])
    assert len(found) > 100
    assert mean(found) < average
    assert quantiles(found, n=100)[98] < p99


def test_alone_and_with_every_sample_fresh_there_is_next_to_no_error() -> None:
    found = errors(Column((24,) * 4, gateways=1, sample=2.0, load=0.8))
    assert max(found) < 0.1
    assert mean(found) < 0.02


@pytest.mark.parametrize("name", ["A", "B", "C", "D", "E", "F"])
def test_choosing_by_the_estimate_beats_choosing_by_a_stale_number(name: str) -> None:
    column = COLUMNS[name]
    ours, usual = (simulate(column, policy, seconds=SHORT, seed=4) for policy in ("grid", "p2c-stale"))
    assert ours.mean_ms < 0.6 * usual.mean_ms
    assert ours.p99_ms < 0.8 * usual.p99_ms
    assert ours.hottest < 0.9 * usual.hottest


def test_own_counts_alone_are_not_enough_where_others_send_too() -> None:
    ours, own = (simulate(COLUMNS["F"], policy, seconds=120.0, seed=1) for policy in ("grid", "own"))
    assert ours.mean_ms < 0.3 * own.mean_ms


def test_a_fleet_too_large_to_speak_for_still_beats_chance() -> None:
    column = replace(COLUMNS["B"], hidden=(0.3,))
    ours, chance = (simulate(column, policy, seconds=SHORT, seed=2) for policy in ("grid", "random"))
    assert ours.mean_ms < 0.6 * chance.mean_ms
