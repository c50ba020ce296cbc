"""What retries may be spent."""

import pytest

from grid.gateway.retry import RetryBudget


def spend(budget: RetryBudget, now: float, tries: int = 10_000) -> int:
    return sum(budget.take(now) for _ in range(tries))


def test_a_fifth_of_the_requests_of_ten_seconds_may_be_retried() -> None:
    budget = RetryBudget(0.2, 0.0)
    for second in range(20):
        budget.turn(float(second))
        for _ in range(100):
            budget.request()
    assert budget.level == pytest.approx(200)
    assert spend(budget, 19.5) == 200
    assert spend(budget, 19.9) == 0
    for _ in range(5):
        budget.request()
    assert spend(budget, 19.95) == 1


def test_a_quiet_gateway_may_retry_a_few_a_second() -> None:
    budget = RetryBudget(0.0, 3.0)
    assert spend(budget, 0.0) == 30
    assert spend(budget, 9.9) == 0
    assert spend(budget, 10.0) == 30
    budget = RetryBudget(0.0, 3.0)
    assert sum(budget.take(second + part / 3) for second in range(60) for part in range(3)) == 180


def test_a_budget_of_nothing_allows_nothing() -> None:
    budget = RetryBudget(0.0, 0.0)
    budget.request()
    assert spend(budget, 5.0) == 0


def test_what_was_not_used_does_not_pile_up() -> None:
    budget = RetryBudget(1.0, 1.0)
    for _ in range(50):
        budget.request()
    assert spend(budget, 1000.0) == 10
