import math

import pytest

from grid.sim.bench import growth


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_a_power_law_has_its_exponent(power: float) -> None:
    assert growth.exponent({n: 3e-6 * n**power for n in (1, 10, 100, 5000)}) == pytest.approx(power, abs=1e-9)


def test_the_fit_is_least_squares_on_logarithms() -> None:
    # By hand: x = 0, ln 2, ln 4, y = 0, 0, ln 2 in steps of ln 2: slope = ((-1)(-1/3) + 0 + (1)(2/3)) / 2.
    assert growth.exponent({1: 1.0, 2: 1.0, 4: 2.0}) == pytest.approx(0.5)
    # Linear with a fixed part: below 1, and nearer to it the larger the sizes are.
    small = growth.exponent({n: 100.0 + n for n in (10, 20, 40)})
    large = growth.exponent({n: 100.0 + n for n in (1000, 2000, 4000)})
    assert 0.1 < small < 0.3
    assert 0.9 < large < 1


@pytest.mark.parametrize("costs", [{}, {10: 1.0}, {10: 1.0, 20: 0.0}, {0: 1.0, 20: 1.0}])
def test_what_has_no_exponent_is_refused(costs: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="two sizes"):
        growth.exponent(costs)


def test_a_row_says_what_grew_with_what() -> None:
    row = growth.grown("a pick", "sites", {2: 2e-7, 200: 2e-5})
    assert row == {
        "case": "growth of a pick with sites", "exponent": 1.0, "sizes": [2, 200], "points": [0.2, 20.0],
        "better": "less",
    }  # fmt: skip


def test_cpu_times_of_work_in_proportion_to_its_size() -> None:
    costs = growth.least({n: lambda n=n: sum(range(n)) for n in (2_000, 8_000, 32_000)}, rounds=5)  # type: ignore[misc]
    assert list(costs) == [2_000, 8_000, 32_000]
    assert all(cost > 0 and math.isfinite(cost) for cost in costs.values())
    assert growth.exponent(costs) == pytest.approx(1.0, abs=0.25)
