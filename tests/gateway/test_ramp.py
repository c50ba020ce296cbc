"""A site that joins, or is back, is not where everybody goes at once."""

from dataclasses import replace
from typing import Any

import pytest

from grid.gateway import Router
from grid.gateway.frames import RAMP
from grid.sim.virtual.stale import COLUMNS, joined
from tests.gateway.stage import MANY, frame, grouped, loads, router, signal


def costs(made: Router) -> list[float]:
    return [round(target.cost, 4) for target in made.targets]


def test_one_that_joins_counts_as_busy_as_its_peers_and_less_and_less_so() -> None:
    made = router(0, 0, 0)
    made.observe(loads(0.6, 0.6, 0.6), 100.0)
    made.apply(grouped(0, 0, 0, 0))
    seen = []
    for age in (0.0, RAMP / 2, RAMP):
        made.observe(loads(0.6, 0.6, 0.6, 0.0), 100.0 + age)
        target = made.targets[3]
        seen.append(round(target.cost - 0.1, 4))
        assert (target.estimate, target.has_room) == (0.0, True), "only the comparison knows"
    assert seen == [pytest.approx(0.98 * 0.6), pytest.approx(0.49 * 0.6), 0.0]


@pytest.mark.parametrize("missing", [{"ready": 0}, {"load": None, "saturation": None, "held": None}, {"age_s": 60.0}])
def test_one_that_is_back_is_one_that_joins(missing: dict[str, Any]) -> None:
    made = router(0, 0, 0)
    made.observe(loads(0.6, 0.6, 0.6), 100.0)
    made.observe(frame(signal(0, 0.6), signal(1, 0.6), signal(2, 0.6)._replace(**missing)), 101.0)
    made.observe(loads(0.6, 0.6, 0.1), 102.0)
    assert costs(made)[2] == pytest.approx(0.98 * 0.6 + 0.1)
    made.observe(loads(0.6, 0.6, 0.7), 103.0)
    assert costs(made)[2] == pytest.approx(0.7 + 0.1), "it has as much already"


def test_where_most_are_new_nobody_is_spared() -> None:
    made = router(0, 0, 0)
    made.observe(loads(0.6, 0.0, 0.0), 100.0)
    assert costs(made) == [0.7, 0.1, 0.1]
    made.apply(grouped(0, 0, 0, 0, 0, 0, 0))
    made.observe(loads(0.6, 0.6, 0.6, 0.0, 0.0, 0.0, 0.0), 101.0)
    assert costs(made)[3:] == [0.1] * 4


def test_a_dead_or_unknown_one_has_no_ramp() -> None:
    made = router(0, 0, 0)
    made.observe(loads(0.6, 0.6, 0.6), 100.0)
    made.observe(frame(signal(0, 0.6), signal(1, 0.6), signal(2, 0.0, ready=0)), 101.0)
    assert costs(made)[2] == pytest.approx(0.1)


def test_the_water_level_takes_one_that_joins_for_as_full_as_its_peers() -> None:
    made = router(0, 0, 0)
    made.observe(frame(*(signal(n, 0.6) for n in range(3)), gateways=MANY), 100.0)
    made.apply(grouped(0, 0, 0, 0))
    made.observe(frame(*(signal(n, 0.6 if n < 3 else 0.0) for n in range(4)), gateways=MANY), 101.0)
    assert made.targets[3].level == pytest.approx(0.98 * 0.6)


def test_an_empty_site_gets_about_its_share_from_the_first_moment() -> None:
    """Eight sites at load 0.8 of which one joins empty: at most 1.15 of its fair share in each of five intervals."""
    column = replace(COLUMNS["A"], load=0.8)
    runs = [joined(column, seed=seed) for seed in range(8)]
    shares = [sum(run[n] for run in runs) / len(runs) for n in range(5)]
    assert max(shares) < 1.15
    assert min(shares) > 0.7
    usual = [joined(column, "p2c-stale", seed=seed) for seed in range(4)]
    assert sum(run[0] for run in usual) / len(usual) > 1.5


def test_the_same_seed_gives_the_same_shares() -> None:
    assert joined(COLUMNS["A"], seed=1) == joined(COLUMNS["A"], seed=1)
