"""What a frame says of the providers, as the router takes it over."""

import math
from typing import Any

import pytest

from grid.gateway import Router, Target
from grid.model import AdmissionState, Picker
from tests.gateway.stage import MANY, Time, frame, grouped, hold, loads, members, router, signal
from tests.overlay.build import envelope


def estimates(made: Any) -> list[float]:
    return [target.estimate for target in made.targets]


def test_numbers_are_taken_over_with_their_age() -> None:
    time = Time()
    made = router(0, 0, clock=time)
    made.tick(99.0)
    hold(made, 0, 4)
    made.tick(100.0)
    # The sample is half a second old: two of the four were there already.
    made.observe(frame(signal(0, 0.5, age_s=0.5), signal(1, 0.2)), 100.0)
    assert estimates(made) == [pytest.approx(0.7), pytest.approx(0.2)]


def test_own_changes_are_scaled_by_the_share_of_the_fleet() -> None:
    made = router(0, 0)
    made.observe(frame(signal(0, 0.5), signal(1, 0.2), gateways={"edge": (1, 0), "other": (3, 0)}), 100.0)
    assert made.scale == 4.0
    hold(made, 0, 1)
    assert estimates(made) == [pytest.approx(0.9), pytest.approx(0.2)]
    assert all(target.trusted for target in made.targets)


def test_a_page_that_tells_less_than_gateways_have_there_is_not_believed() -> None:
    time = Time()
    made = router(0, 0, clock=time)
    hold(made, 0, 4)
    made.tick(98.0)
    hold(made, 0, 1)
    made.tick(100.0)
    # Reports are 1.5 s old: a quarter of the request that was sent between the two records was in them already.
    made.observe(frame(signal(0, 0.0), signal(1, 0.5), gateways={"edge": (1, 5), "other": (1, 4)}), 100.0)
    assert estimates(made) == [pytest.approx((9 + made.scale * 0.75) / 10), pytest.approx(0.5)]
    made.observe(frame(signal(0, 0.45), signal(1, 0.5), gateways={"edge": (1, 5), "other": (1, 4)}), 100.0)
    assert estimates(made)[0] == pytest.approx(0.45), "half of it is of another moment, and no lie"


def test_the_only_gateway_trusts_its_own_count_where_no_load_is_told() -> None:
    made = router(0, 0, 0)
    made.observe(frame(signal(0, None), signal(1, None), signal(2, None), gateways={"edge": (1, 3)}), 100.0)
    hold(made, 0, 10)
    hold(made, 1, 10)
    assert [(target.estimate, target.trusted, target.has_room) for target in made.targets] == [
        (1.0, True, False),
        (1.0, True, False),
        (0.0, True, True),
    ]
    assert {made.pick("llama").site for _ in range(20)} == {"s2"}


def test_the_only_gateway_takes_the_page_as_it_is() -> None:
    """Between two records it has begun one more: whether the page has it is what the page says."""
    for held, estimate in ((0.4, 0.5), (0.5, 0.5)):
        time = Time()
        made = router(0, clock=time)
        hold(made, 0, 4)
        made.tick(100.0)
        hold(made, 0, 1)
        time.now = 100.05
        made.observe(frame(signal(0, held, age_s=0.02), gateways={"edge": (1, 4)}), 100.05)
        assert estimates(made) == [pytest.approx(estimate)]


@pytest.mark.parametrize(
    ("instances", "capacity", "full_at"),
    [(1, 10.0, 1.0), (4, 10.0, 0.8), (9, 10.0, 0.6), (16, 10.0, 0.5), (4, 100.0, 0.98)],
)
def test_a_known_site_is_not_filled_to_the_brim_beside_one_that_cannot_be_read(
    instances: int, capacity: float, full_at: float
) -> None:
    gateways = {"edge": (1, 0), "other": (instances - 1, 0)} if instances > 1 else {"edge": (1, 0)}
    for load, site in ((full_at - 0.005, "s0"), (full_at, "s1")):
        made = router(0, 1)
        made.observe(frame(signal(0, load, capacity), signal(1, None, capacity), gateways=gateways), 100.0)
        assert made.scale == instances
        assert made.pick("llama").site == site


def test_one_of_many_that_is_not_known_costs_the_others_little_room() -> None:
    made = router(*[0] * 7, 1)
    loads = [signal(n, 0.94, 10.0) for n in range(7)]
    made.observe(frame(*loads, signal(7, None), gateways={"edge": (1, 0), "other": (3, 0)}), 100.0)
    assert all(target.has_room for target in made.targets[:7])
    made.observe(frame(*loads[1:], signal(0, 0.96), signal(7, None), gateways={"edge": (1, 0), "other": (3, 0)}), 101.0)
    assert [target.has_room for target in made.targets[:2]] == [False, True]


def test_nothing_is_held_back_for_a_site_that_takes_no_new_work() -> None:
    made = router(0, 1)
    states = [AdmissionState.NEW_AND_EXISTING, AdmissionState.EXISTING_ONLY]
    others = {"edge": (1, 0), "other": (3, 0)}
    elsewhere = envelope(*members(0), members(0, 0, model="other")[1], picker=Picker.SATURATION)
    for document, ready, held_back in (
        (grouped(0, 1), 1, True),
        (elsewhere, 1, False),
        (grouped(0, 1, states=states), 1, False),
        (grouped(0, 1), 0, False),
    ):
        made.apply(document)
        for at in (100.0, 101.0):  # whether anybody is set back for what a frame says shows with the next
            made.observe(frame(signal(0, 0.9), signal(1, None, ready=ready), gateways=others), at)
        assert made.targets[0].has_room is not held_back


def test_reports_alone_refuse_nobody() -> None:
    made = router(0)
    made.observe(frame(signal(0, 0.0), gateways={"crashed": (1, 20)}), 100.0)
    assert estimates(made) == [pytest.approx(2.0)]
    assert made.targets[0].is_over
    assert not made.targets[0].surely_over
    assert made.pick("llama").site == "s0"


def test_above_the_cap_the_scale_is_not_relied_on() -> None:
    made = router(0, 0)
    made.observe(frame(signal(0, 0.5), signal(1, 0.2), gateways=MANY), 100.0)
    assert made.scale == 16.0
    assert not any(target.trusted for target in made.targets)
    assert all(target.known for target in made.targets)


def test_kv_pressure_is_kv_over_its_ceiling() -> None:
    made = router(0, 0)
    made.observe(frame(signal(0, 0.1, kv=0.72, kv_ceiling=0.9), signal(1, 0.1, kv=0.5, kv_ceiling=None)), 100.0)
    assert estimates(made) == [pytest.approx(0.8), pytest.approx(0.1)]


@pytest.mark.parametrize("capacity", [None, 0.0, math.nan, math.inf])
def test_an_unknown_capacity_counts_as_the_mean_of_the_known_ones(capacity: float | None) -> None:
    made = router(0, 0, 0)
    made.observe(
        frame(signal(0, 0.5, 10.0), signal(1, 0.5, 30.0), signal(2, 0.5, capacity, held=5.0, saturation=None)), 100.0
    )
    assert [target.capacity for target in made.targets] == [10.0, 30.0, 20.0]
    assert estimates(made)[2] == pytest.approx(0.25)
    assert made.targets[2].saturation is None


def test_the_mean_is_that_of_its_own_capability() -> None:
    big = members(0, 0, model="big")
    small = tuple(one for one in members(0, 0, 0, 0, model="small") if one.site in {"s2", "s3"})
    made = router(0)
    made.apply(envelope(*big, *small, picker=Picker.SATURATION))
    made.observe(
        frame(
            signal(0, 0.1, 100.0), signal(1, 0.1, None, held=5.0), signal(2, 0.1, 8.0), signal(3, 0.1, None, held=2.0)
        ),
        100.0,
    )
    assert [target.capacity for target in made.targets] == [100.0, 100.0, 8.0, 8.0]


def test_one_that_serves_two_models_counts_with_the_peers_of_both() -> None:
    both = members(0, 0, model="big") + tuple(one for one in members(0, 0, 0, model="small") if one.site != "s0")
    made = router(0)
    made.apply(envelope(*both, picker=Picker.SATURATION))
    made.observe(frame(signal(0, 0.1, 10.0), signal(1, 0.1, None, held=1.0), signal(2, 0.1, 30.0)), 100.0)
    assert [target.capacity for target in made.targets] == [10.0, 20.0, 30.0]


def test_where_nobody_is_known_to_have_a_size_one_stands_in_and_nothing_is_full() -> None:
    made = router(0, 0, 0)
    made.observe(loads(0.5, None, None, capacity=None), 100.0)
    assert [(target.capacity, target.sized, target.has_room) for target in made.targets] == [(1.0, False, True)] * 3
    hold(made, 0, 20)
    assert made.targets[0].has_room


def test_a_load_without_a_count_stands_for_one() -> None:
    made = router(0)
    made.observe(frame(signal(0, 0.4, 20.0, held=None, saturation=None)), 100.0)
    assert estimates(made) == [pytest.approx(0.4)]
    hold(made, 0, 2)
    assert estimates(made) == [pytest.approx(0.5)]


def test_a_count_and_a_size_are_a_load() -> None:
    made = router(0)
    made.observe(frame(signal(0, None, held=4.0)), 100.0)
    assert (made.targets[0].known, made.targets[0].saturation) == (True, 0.4)


@pytest.mark.parametrize(
    "lost",
    [
        {"load": None, "held": None, "saturation": None},
        {"load": math.nan, "held": math.nan, "saturation": math.nan},
        {"age_s": 11.0},
        {"site": "elsewhere"},
    ],
)
def test_what_is_not_known_or_too_old_leaves_own_counts(lost: dict[str, Any]) -> None:
    made = router(0, 0)
    hold(made, 0, 3)
    made.observe(frame(signal(0, 0.5, **lost), signal(1, 0.5)), 100.0)
    assert (made.targets[0].known, made.targets[0].capacity) == (False, 10.0)
    assert estimates(made)[0] == pytest.approx(0.3)


def test_means_of_engines_are_older_than_their_page() -> None:
    time = Time()
    made = router(0, clock=time)
    for tick in range(41):
        hold(made, 0, 1)
        time.now = 96.0 + tick / 10
        made.tick(time.now)
    made.observe(frame(signal(0, 0.5, held_source="engine")), 100.0)
    # One more every tenth of a second: 35 of the 41 are later than what the means say.
    assert estimates(made) == [pytest.approx(0.5 + 3.5)]
    made.observe(frame(signal(0, 0.5, held_source="live")), 100.0)
    assert estimates(made) == [pytest.approx(0.5)]


def test_a_sample_without_a_bound_counts_as_long_as_nothing_newer_comes() -> None:
    made = router(0)
    made.observe(frame(signal(0, 0.5, bound_s=None, age_s=1000.0)), 100.0)
    assert (made.targets[0].known, made.targets[0].expires) == (True, math.inf)


def test_a_sample_passes_its_bound_between_frames() -> None:
    time = Time()
    made = router(0, 0, clock=time)
    made.observe(frame(signal(0, 0.9, age_s=4.0, ready=0), signal(1, 0.5)), 100.0)

    def state() -> list[tuple[bool, bool]]:
        return [(target.known, target.set_back) for target in made.targets]

    made.tick(106.0)
    assert state() == [(True, True), (True, False)]
    made.tick(106.1)
    assert state() == [(False, False), (True, False)], "nor is it known any longer that it was dead"


def test_errors_of_the_estimate_are_heard_once_per_sample() -> None:
    heard: list[tuple[str, float]] = []

    def listen(target: Target, error: float) -> None:
        heard.append((target.site, round(error, 6)))

    time = Time()
    made = router(0, clock=time, on_estimate_error=listen)
    made.observe(frame(signal(0, 0.5)), 100.0)
    hold(made, 0, 1)
    assert heard == []
    time.now = 101.0
    made.observe(frame(signal(0, 0.5, age_s=1.0)), 101.0)
    assert heard == [], "the same sample again"
    made.observe(frame(signal(0, 0.8)), 101.0)
    assert heard == [("s0", 0.2)]


def test_numbers_survive_a_new_document() -> None:
    made = router(0, 0)
    made.observe(frame(signal(0, 0.5), signal(1, 0.2), signal(2, 0.7)), 100.0)
    hold(made, 1, 2)
    made.apply(grouped(0, 0, 0))
    assert estimates(made) == [pytest.approx(0.5), pytest.approx(0.4), pytest.approx(0.7)]


def test_a_frame_before_any_document_is_kept_for_it() -> None:
    made = Router(clock=Time())
    made.observe(loads(0.5), 100.0)
    made.apply(grouped(0))
    assert estimates(made) == [0.5]
