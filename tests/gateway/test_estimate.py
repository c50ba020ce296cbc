"""How near the estimate is to the truth, and what that is worth: several gateways in virtual time."""

from dataclasses import replace
from statistics import mean, quantiles

import pytest

from grid.sim.virtual import partition
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


# --- the published partition ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gateways", [1, 4])
def test_three_sites_share_by_capacity_and_nobody_meets_a_full_one(gateways: int) -> None:
    for clients in (64, 128, 256):
        row = partition.simulate("grid", clients, seconds=20, gateways=gateways).row()
        assert row["shares"] == [pytest.approx(share, abs=0.03) for share in (0.4, 0.4, 0.2)]
        assert row["peak_window_share"] == [pytest.approx(share, abs=0.03) for share in (0.4, 0.4, 0.2)]
        assert row["overshoot"] <= 0.03 * row["requests"]
        assert row["requests"] >= 0.95 * clients * 5 * 20
        assert row["failed"] == 0


def test_the_rules_that_went_before_are_the_published_ones() -> None:
    rows = {(row["policy"], row["clients"]): row for row in partition.run()}
    assert rows["before", 256]["shares"] == [1.0, 0.0, 0.0]
    assert rows["before", 256]["requests"] == pytest.approx(28_655, rel=0.02)
    assert rows["before", 64]["requests"] == pytest.approx(14_272, rel=0.02)
    assert rows["before", 64]["overshoot"] == 0
    assert rows["before", 256]["overshoot"] > 20_000
    assert rows["after", 64]["shares"] == [pytest.approx(share, abs=0.06) for share in (0.38, 0.39, 0.23)]
    assert rows["after", 256]["requests"] == pytest.approx(42_290, rel=0.12)
    assert 0.3 < rows["after", 256]["overshoot"] / rows["after", 256]["requests"] < 0.8
    assert rows["grid", 256]["requests"] > 1.3 * rows["after", 256]["requests"]
