"""When a model's new work is refused for load, and that nothing else is refused."""

from typing import Any

import pytest

from grid.gateway import Affinity, Router, RoutingError, Settings
from grid.model import Picker, Reason
from tests.gateway.stage import Time, frame, grouped, hold, loads, members, router, signal
from tests.overlay.build import envelope


def sheds(made: Router, **more: Any) -> bool:
    try:
        made.pick("llama", **more)
    except RoutingError as error:
        refused = error
    else:
        return False
    assert (refused.status, refused.reason) == (429, Reason.CAPACITY_EXHAUSTED)
    assert refused.retry_after in range(3, 8)
    assert "past full" in refused.message
    return True


def test_all_past_full_starts_it_and_one_below_ends_it() -> None:
    made = router(0, 1)
    story = [((1.05, 1.2), False), ((1.06, 1.06), True), ((1.0, 1.5), True), ((0.95, 2.0), True), ((0.94, 2.0), False)]
    for saturations, refused in [*story, ((1.0, 1.2), False), ((1.06, 1.2), True)]:
        made.observe(loads(*saturations), 100.0)
        assert sheds(made) is refused, saturations


def test_nobody_is_refused_on_a_missing_number() -> None:
    made = router(0, 0, 0)
    made.observe(loads(2.0, 2.0, None), 100.0)
    assert not sheds(made)
    made.observe(loads(2.0, 2.0, 2.0), 100.0)
    assert sheds(made)
    made.observe(loads(2.0, 2.0, 1.1, capacity=None), 100.0)
    assert not sheds(made)


def test_a_capacity_that_was_only_learned_is_no_limit_until_something_queues() -> None:
    made = router(0, 0)
    made.observe(loads(1.5, 1.5, capacity_source="learned"), 100.0)
    assert not sheds(made)
    assert all(target.has_room for target in made.targets)
    assert [target.capacity for target in made.targets] == [10.0, 10.0]
    made.observe(loads(1.5, 1.5, capacity_source="learned", queue=1.0), 100.0)
    assert sheds(made)


def test_it_is_saturation_that_counts_and_not_kv() -> None:
    made = router(0, 0)
    made.observe(loads(0.5, 0.5, kv=0.99, kv_ceiling=0.5), 100.0)
    assert not any(target.has_room for target in made.targets)
    assert not sheds(made)


def test_it_ends_when_the_numbers_pass_their_bound() -> None:
    made = router(0, 0)
    made.observe(loads(1.5, 1.5), 100.0)
    assert sheds(made)
    made.tick(110.1)
    assert not sheds(made)


def test_the_unhealthy_have_no_say() -> None:
    made = router(0, 0)
    made.observe(frame(signal(0, 0.2, ready=0), signal(1, 1.2)), 100.0)
    assert sheds(made)
    made.observe(frame(signal(0, 1.2, ready=0), signal(1, 1.2, ready=0)), 100.0)
    assert not sheds(made), "where nobody is healthy there is nobody to protect"


def test_a_model_sheds_alone() -> None:
    one = members(0, 0, model="x")
    other = tuple(c for c in members(0, 0, 0, model="y") if c.site == "s2")
    made = router(0)
    made.apply(envelope(*one, *other, picker=Picker.SATURATION))
    made.observe(loads(1.5, 1.5, 0.5), 100.0)
    with pytest.raises(RoutingError):
        made.pick("x")
    assert made.pick("y").site == "s2"


def test_between_frames_the_estimates_stand_in() -> None:
    made = router(0, 0)
    made.observe(loads(1.0, 1.0), 100.0)
    sent = 0
    while not sheds(made):
        made.pick("llama").place.target.begin()
        sent += 1
        assert sent < 100
    # Capacities 10 and 10, both at 10: 13 each is the first count above 1.25.
    assert [target.own for target in made.targets] == [3, 3]
    made.targets[0].end()
    assert not sheds(made)


def test_the_last_resort_fills_nobody_past_the_bound_while_another_has_less() -> None:
    made = router(0, 0, 0)
    made.observe(frame(signal(0, 1.0, queue=0.0), signal(1, 1.0, queue=4.0), signal(2, 1.0, queue=9.0)), 100.0)
    for _ in range(3):
        assert made.pick("llama").site == "s0"
        hold(made, 0, 1)
    seen = set()
    for _ in range(6):
        decision = made.pick("llama")
        assert decision.case == "last_resort"
        decision.place.target.begin()
        seen.add(decision.site)
    assert seen == {"s1", "s2"}
    assert [target.own for target in made.targets] == [3, 3, 3]
    assert sheds(made)


def test_an_unknown_load_is_never_past_the_bound() -> None:
    made = router(0, 0)
    made.observe(loads(1.0, None), 100.0)
    for _ in range(60):
        made.pick("llama").place.target.begin()
    assert not sheds(made)


def test_the_bounds_are_settings() -> None:
    made = router(0, settings=Settings(spill=0.5, overflow=0.75))
    made.observe(loads(0.4), 100.0)
    cases = []
    for _ in range(4):
        decision = made.pick("llama")
        decision.place.target.begin()
        cases.append(decision.case)
    assert cases == ["only_one", "last_resort", "last_resort", "last_resort"]
    assert sheds(made)


def test_admission_control_takes_its_place() -> None:
    made = router(0, 0, settings=Settings(sheds=False))
    made.observe(loads(3.0, 3.0), 100.0)
    assert {made.pick("llama").case for _ in range(20)} == {"last_resort"}
    assert {made.pick("llama", allowed=made.targets[:1]).case for _ in range(20)} == {"last_resort"}


def test_new_work_is_refused_and_nothing_else() -> None:
    made = router(0, 0, settings=Settings(affinity=Affinity()))
    made.observe(loads(0.5, 0.5), 100.0)
    bound = made.pick("llama", session="s")
    made.observe(loads(1.5, 1.5), 100.0)
    assert sheds(made)
    assert sheds(made, session="another")
    assert sheds(made, allowed=made.targets)
    assert sheds(made, allowed=made.targets[:1])
    assert made.pick("llama", session="s").site == bound.site
    retried = made.pick("llama", tried=[bound])
    assert retried.attempt == 2
    assert retried.site != bound.site


def test_a_changed_document_goes_on_with_it() -> None:
    made = router(0, 0)
    made.observe(loads(1.06, 1.06), 100.0)
    made.observe(loads(1.0, 1.0), 100.0)
    assert sheds(made)
    made.apply(grouped(0, 1))
    assert sheds(made)


def test_nothing_is_shed_before_the_first_frame() -> None:
    made = router(0, 0, clock=Time())
    for _ in range(500):
        made.pick("llama").place.target.begin()
    assert not sheds(made)
