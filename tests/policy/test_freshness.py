import math
from dataclasses import replace

import pytest

from grid.model import Freshness, Reading, Reason
from grid.policy import freshness
from tests.policy.build import busy, provider, reading, sample

A = provider("a", interval=2.0, timeout=3.0)
MEANS = reading(2, average_running_requests=1.0, average_queue_size=0.0)


def test_the_bound_is_interval_timeout_and_one_more_interval() -> None:
    assert freshness.bound(A, sample(busy(1), interval=2.0)) == 7.0


def test_a_stretched_interval_stretches_the_bound() -> None:
    assert freshness.bound(A, sample(busy(1), interval=20.0)) == 43.0


def test_means_add_their_own_age() -> None:
    assert freshness.bound(A, sample(MEANS)) == 14.0
    assert freshness.bound(A, sample(replace(MEANS, pool_saturation=0.1))) == 7.0


def test_before_the_first_scrape_the_configured_interval_counts() -> None:
    assert freshness.bound(A, None) == 7.0


@pytest.mark.parametrize(("configured", "interval", "bound"), [(30.0, 2.0, 30.0), (5.0, 2.0, 5.0), (5.0, 20.0, 23.0)])
def test_a_configured_bound_holds_but_never_below_what_a_stretched_scrape_needs(
    configured: float, interval: float, bound: float
) -> None:
    assert freshness.bound(replace(A, freshness=configured), sample(MEANS, interval=interval)) == bound


@pytest.mark.parametrize(
    ("now", "found"), [(100.0, Freshness.FRESH), (107.0, Freshness.FRESH), (107.01, Freshness.STALE)]
)
def test_fresh_until_the_bound(now: float, found: Freshness) -> None:
    judged, age, bound, step = freshness.judge(A, sample(busy(1), at=100.0), now)
    assert judged is found
    assert age == pytest.approx(now - 100.0)
    assert bound == 7.0
    assert step.reason is (Reason.FRESH if found is Freshness.FRESH else Reason.STALE)


def test_never_read_is_absent() -> None:
    judged, age, bound, step = freshness.judge(A, None, 5.0)
    assert (judged, age, bound, step.reason) == (Freshness.ABSENT, None, 7.0, Reason.NEVER_READ)


def test_a_page_that_never_changes_stays_fresh_scrape_by_scrape() -> None:
    page = busy(5)
    for number in range(1, 100):
        at = number * 2.0
        assert freshness.judge(A, sample(page, at, number), at + 1.0)[0] is Freshness.FRESH


def test_an_age_is_never_negative_and_a_time_that_is_none_is_not_fresh() -> None:
    assert freshness.judge(A, sample(busy(1), at=10.0), 9.9)[1] == 0.0
    assert freshness.judge(A, sample(busy(1), at=math.nan), 9.9)[0] is Freshness.STALE


def test_the_reason_gives_the_sum() -> None:
    said = freshness.judge(A, sample(MEANS, at=1.0), 2.5)[3].detail
    assert said == "sample 1 is within its bound of 14 s = 2 interval + 3 timeout + 2 + 7 age of means"
    assert freshness.judge(replace(A, freshness=9.0), sample(Reading()), 0.0)[3].detail.endswith(
        "bound of 9 s as configured"
    )
