"""The picker ``saturation``: its five cases, its draws, spill and taking back, against a reference by the book."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grid.gateway import Decision, Router, RoutingError, Settings
from grid.gateway.draws import WORD
from grid.model import Picker
from grid.overlay import ProviderSignal
from tests.gateway import reference
from tests.gateway.stage import MANY, Time, chi_square, frame, grouped, hold, loads, router, signal
from tests.gateway.words import Recorder, Script


def picks(made: Router, number: int) -> Counter[str]:
    return Counter(made.pick("llama").site for _ in range(number))


# --- the five cases -------------------------------------------------------------------------------------------------


def test_three_with_room_two_drawn_and_the_lower_taken() -> None:
    made = router(0, 0, 0)
    made.observe(loads(0.1, 0.5, 0.9), 100.0)
    seen = picks(made, 3000)
    # Each pair is drawn a third of the time: s0 wins two of them, s1 one, s2 none.
    assert chi_square([seen["s0"], seen["s1"]], [2, 1]) < 7
    assert seen["s2"] == 0
    decision = made.pick("llama")
    assert decision.case == "two_drawn"
    assert decision.other is not None
    assert decision.other_estimate is not None
    assert decision.estimate <= decision.other_estimate


def test_two_with_room_the_lower_always() -> None:
    made = router(0, 0, 0)
    made.observe(loads(0.6, 1.0, 0.59), 100.0)
    seen = Counter((made.pick("llama").site, made.pick("llama").case) for _ in range(200))
    assert seen == {("s2", "lower_of_two"): 200}


def test_two_that_cannot_be_trusted_share_by_capacity_and_saturation() -> None:
    made = router(0, 0)
    made.observe(frame(signal(0, 0.5), signal(1, 0.0), gateways=MANY), 100.0)
    seen = picks(made, 6000)
    assert made.pick("llama").case == "weighted_of_two"
    assert chi_square([seen["s0"], seen["s1"]], [1 / 1.5, 1]) < 7


@pytest.mark.parametrize(("capacities", "share"), [((1.0, 1000.0), 0.1), ((1000.0, 1.0), 0.9)])
def test_such_shares_stay_within_a_tenth_and_nine_tenths(capacities: tuple[float, float], share: float) -> None:
    one, other = (signal(n, 0.2, capacity) for n, capacity in enumerate(capacities))
    edge = round(share * 2**32)
    for word, site in ((0, "s0"), (edge - 2, "s0"), (edge + 2, "s1"), (2**32 - 1, "s1")):
        made = router(0, 0, bits=Script([(32, word)]))
        made.observe(frame(one, other, gateways=MANY), 100.0)
        assert made.pick("llama").site == site


def test_one_with_room_takes_it_all() -> None:
    made = router(0, 0, 0, bits=Script([]))
    made.observe(loads(1.0, 0.999, 1.4), 100.0)
    decision = made.pick("llama")
    assert (decision.site, decision.case, decision.other) == ("s1", "only_one", None)


def test_nobody_with_room_the_shortest_queues_by_capacity() -> None:
    made = router(0, 0, 1, 1)
    made.observe(
        frame(
            signal(0, 1.0, 10.0, queue=3.0),
            signal(1, 1.0, 20.0, queue=2.0),
            signal(2, 1.2, 40.0, queue=2.0),
            signal(3, 1.0, 10.0, queue=None),
        ),
        100.0,
    )
    seen = picks(made, 3000)
    assert chi_square([seen["s1"], seen["s2"]], [1, 2]) < 7
    assert seen["s0"] == seen["s3"] == 0
    decision = made.pick("llama")
    assert (decision.case, decision.reason, decision.spilled) == ("last_resort", "overflow", False)


def test_a_site_that_cannot_be_read_is_no_sink_where_all_are_full() -> None:
    """A stale site of 16 slots beside a known one of 24 that is past full: 120 requests that stay."""
    made = router(0, 1)
    made.observe(frame(signal(0, 25 / 24, 24.0), signal(1, None, 16.0), gateways={"edge": (1, 0)}), 100.0)
    for _ in range(120):
        made.pick("llama").place.target.begin()
    known, unknown = made.targets
    assert abs(known.own - 62) <= 3
    assert known.estimate == pytest.approx(unknown.estimate, abs=0.2)


def test_nobody_with_room_and_no_queue_known_all_by_capacity() -> None:
    made = router(0, 1)
    made.observe(frame(signal(0, 1.0, 10.0, queue=None), signal(1, 1.0, 30.0, queue=None)), 100.0)
    seen = picks(made, 2000)
    assert chi_square([seen["s0"], seen["s1"]], [1, 3]) < 7


# --- spill ----------------------------------------------------------------------------------------------------------


def test_a_full_near_site_spills_and_takes_back_when_it_has_room() -> None:
    made = router(0, 1)
    made.observe(loads(0.0, 0.0), 100.0)
    near = 0
    while (decision := made.pick("llama")).site == "s0":
        assert (decision.reason, decision.group) == ("routed", 0)
        decision.place.target.begin()
        near += 1
        assert near < 100
    assert near == 10
    assert (decision.reason, decision.spilled, decision.group) == ("spilled", True, 1)
    made.targets[0].end()
    assert made.pick("llama").site == "s0"


def test_the_far_take_only_what_the_near_cannot_hold() -> None:
    made = router(0, 0, 1)
    made.observe(loads(0.5, 1.0, 0.0), 100.0)
    assert picks(made, 100) == {"s0": 100}
    made.observe(loads(1.0, 1.0, 0.0), 100.0)
    assert picks(made, 100) == {"s2": 100}
    made.observe(loads(1.0, 0.99, 0.0), 100.0)
    assert picks(made, 100) == {"s1": 100}


def test_kv_pressure_spills_too() -> None:
    made = router(0, 1)
    made.observe(frame(signal(0, 0.1, kv=0.95, kv_ceiling=0.9), signal(1, 0.9)), 100.0)
    assert picks(made, 50) == {"s1": 50}


def test_unknown_loads_come_after_known_ones_of_their_group_and_before_the_next_group() -> None:
    made = router(0, 0, 1)
    made.observe(loads(0.9, None, 0.0), 100.0)
    assert picks(made, 50) == {"s0": 50}
    made.observe(loads(1.0, None, 0.0), 100.0)
    assert picks(made, 50) == {"s1": 50}
    hold(made, 1, 10)
    assert picks(made, 50) == {"s2": 50}, "its own count fills it, against the capacity that is known"


def test_among_the_unknown_own_counts_decide() -> None:
    made = router(0, 0, 0)
    made.observe(loads(None, None, None), 100.0)
    hold(made, 0, 5)
    hold(made, 1, 2)
    seen = picks(made, 900)
    assert seen["s0"] == 0
    assert chi_square([seen["s1"], seen["s2"]], [1, 2]) < 7


def begin_and_end(made: Router, time: Time, *, seconds: float = 2.0, requests: int = 1) -> None:
    """Let requests of ``seconds`` come one by one and be gone again, so that the turnover is known."""
    made.tick(time.now)
    for _ in range(requests):
        target = made.targets[0]
        target.begin()
        for _ in range(round(seconds / 0.05)):
            time.now += 0.05
            made.tick(time.now)
        target.end()
    made.tick(time.now)


def test_where_estimates_cannot_be_trusted_the_level_of_the_water_says_who_is_drawn() -> None:
    """Requests of 2 s: half of what is held ends, and comes anew, each second."""
    time = Time()
    made = router(0, 0, 0, 0, 1, clock=time)
    begin_and_end(made, time, requests=4)
    made.observe(frame(*(signal(n, load) for n, load in enumerate((0.2, 0.4, 0.7, 1.1, 0.0))), gateways=MANY), time.now)
    # 24 are held by the group, so 12 come a second. 2 bring the lowest up to the second, 6 more both to the third.
    seen = []
    for age in (0.0, 0.15, 0.2, 0.6, 0.7, 1.6, 1.7):
        made.tick(time.now + age)
        decision = made.pick("llama")
        places = {made.pick("llama").site for _ in range(200)}
        seen.append((decision.case, places))
    assert seen == [
        ("only_one", {"s0"}),
        ("only_one", {"s0"}),
        ("lower_of_two", {"s0", "s1"}),
        ("lower_of_two", {"s0", "s1"}),
        ("two_drawn", {"s0", "s1", "s2"}),
        ("two_drawn", {"s0", "s1", "s2"}),
        ("two_drawn", {"s0", "s1", "s2", "s3"}),
    ]


def test_below_the_level_the_fewest_of_its_own_are_preferred() -> None:
    made = router(0, 0, 0)
    made.observe(frame(signal(0, 0.9), signal(1, 0.5), signal(2, 0.1), gateways=MANY), 100.0)
    hold(made, 2, 1)
    seen = picks(made, 900)
    assert seen["s2"] == 0, "it has one already"
    assert chi_square([seen["s0"], seen["s1"]], [1, 1]) < 7
    decision = made.pick("llama")
    assert decision.estimate == pytest.approx({"s0": 0.9, "s1": 0.5}[decision.site])


def test_without_trust_a_full_group_spills_all_the_same() -> None:
    made = router(0, 0, 0, 1)
    made.observe(frame(signal(0, 1.0), signal(1, 1.0), signal(2, 1.2), signal(3, 0.0), gateways=MANY), 100.0)
    assert picks(made, 50) == {"s3": 50}


def test_a_site_that_only_seems_full_is_drawn_beside_one_that_has_room() -> None:
    """Four gateways: up to 1 + 0.25 x 3/4 is doubt. One that is known for sure to be full is left out."""
    made = router(0, 0, 0)
    fleet = {"edge": (1, 0), "others": (3, 0)}
    for load, drawn in ((1.18, True), (1.19, False)):
        made.observe(frame(signal(0, 0.9), signal(1, load), signal(2, load + 0.001), gateways=fleet), 100.0)
        others = Counter(
            None if (other := made.pick("llama").other) is None else other.candidate.site for _ in range(200)
        )
        assert set(others) == ({"s1", "s2"} if drawn else {None})
    made.observe(frame(signal(0, 0.9), signal(1, 1.0, kv=1.0, kv_ceiling=0.9), signal(2, 1.0), gateways=fleet), 100.0)
    assert {made.pick("llama").case for _ in range(50)} == {"lower_of_two"}


def test_of_unequal_sites_with_one_load_the_larger_is_taken() -> None:
    """One request more is more for the smaller."""
    made = router(0, 0, 0)
    made.observe(frame(signal(0, 0.5, 8.0), signal(1, 0.5, 48.0), signal(2, 0.9, 48.0)), 100.0)
    assert picks(made, 300)["s0"] < picks(made, 300)["s1"]
    two = router(0, 0)
    two.observe(frame(signal(0, 0.5, 8.0), signal(1, 0.5, 48.0)), 100.0)
    assert picks(two, 50) == {"s1": 50}


def test_what_was_sent_to_the_shortest_queue_makes_it_longer() -> None:
    """Nobody has room and the queues told are 2, 4 and 4: not all go to the first until the next sample."""
    made = router(0, 0, 0)
    made.observe(frame(*(signal(n, 1.0, 100.0, queue=queue) for n, queue in enumerate((2.0, 4.0, 4.0)))), 100.0)
    for _ in range(20):
        decision = made.pick("llama")
        assert decision.case == "last_resort"
        decision.place.target.begin()
    backlogs = [100 * target.backlog for target in made.targets]
    assert sum(backlogs) == pytest.approx(30)
    assert max(backlogs) - min(backlogs) <= 6
    assert made.targets[0].own < 14


# --- draws ----------------------------------------------------------------------------------------------------------


def exact(capacities: list[float], saturations: list[float]) -> dict[tuple[int, int], float]:
    """Probability of each ordered pair of distinct members with room."""
    room = [n for n, one in enumerate(saturations) if one < 1.0]
    total = sum(capacities[n] for n in room)
    return {
        (a, b): capacities[a] / total * capacities[b] / (total - capacities[a]) for a in room for b in room if a != b
    }


@pytest.mark.parametrize(
    ("capacities", "saturations"),
    [
        ([10.0, 10.0, 10.0], [0.5] * 3),
        ([1.0, 2.0, 3.0, 94.0], [0.5] * 4),
        ([5.0, 10.0, 20.0, 40.0, 80.0], [0.5, 1.0, 0.5, 0.5, 1.0]),
        ([7.0] * 20, [0.5] * 3 + [1.0] * 17),
        ([0.3, 12.7, 99.1, 5.5] * 10, [0.5, 1.0] * 20),
    ],
)
def test_pairs_are_drawn_by_capacity_without_replacement(capacities: list[float], saturations: list[float]) -> None:
    made = router(*[0] * len(capacities))
    signals = [signal(n, load, size) for n, (load, size) in enumerate(zip(saturations, capacities, strict=True))]
    made.observe(frame(*signals), 100.0)
    seen: Counter[tuple[int, int]] = Counter()
    number = 20_000
    for _ in range(number):
        decision = made.pick("llama")
        assert decision.other is not None
        # Equal loads: the larger is taken, of two alike the one drawn first. So only who was drawn is counted.
        one, other = sorted((int(decision.site[1:]), int(decision.other.candidate.site[1:])))
        seen[one, other] += 1
    ordered = exact(capacities, saturations)
    expected = {(a, b): share + ordered[b, a] for (a, b), share in ordered.items() if a < b}
    assert set(seen) <= set(expected)
    usual = {pair: share for pair, share in expected.items() if share * number >= 5}
    assert chi_square([seen[pair] for pair in usual], list(usual.values())) < 1.6 + 6 / len(usual)


@pytest.mark.parametrize("number", [2, 3, 256, 1024])
def test_the_two_compared_are_never_the_same(number: int) -> None:
    made = router(*[0] * number)
    rng = random.Random(number)
    made.observe(frame(*(signal(n, rng.choice((0.5, 0.7, 1.0)), 1.0 if n else 900.0) for n in range(number))), 100.0)
    for _ in range(3000):
        decision = made.pick("llama")
        assert decision.place is not decision.other
        assert decision.place.target.has_room or decision.case == "last_resort"


def test_ties_of_two_are_broken_at_random_and_evenly() -> None:
    made = router(0, 0)
    made.observe(loads(0.5, 0.5), 100.0)
    seen = picks(made, 10_000)
    assert chi_square([seen["s0"], seen["s1"]], [1, 1]) < 7


@pytest.mark.parametrize("saturations", [(0.5, 0.5, 0.5), (None, None, None), (0.0, 0.0, 0.0), (1.1, 1.1, 1.0)])
def test_equal_or_missing_loads_spread_evenly(saturations: tuple[float | None, ...]) -> None:
    made = router(0, 0, 0)
    made.observe(loads(*saturations), 100.0)
    seen = picks(made, 9000)
    assert chi_square([seen[f"s{n}"] for n in range(3)], [1, 1, 1]) < 5


def test_before_the_first_frame_work_is_spread_evenly() -> None:
    made = router(0, 0, 0, clock=Time())
    for _ in range(300):
        made.pick("llama").place.target.begin()
    assert all(80 <= target.own <= 120 for target in made.targets)


@pytest.mark.parametrize("picker", list(Picker))
def test_the_order_of_a_frame_and_of_equal_candidates_is_no_preference(picker: Picker) -> None:
    signals = [signal(n, 0.5) for n in range(4)]
    found = []
    for order in (signals, signals[::-1], [signals[2], signals[0], signals[3], signals[1]]):
        made = (
            router(0, 0, 0, 0, picker=picker) if picker is not Picker.DETERMINISTIC else router(None, None, picker=None)
        )
        made.observe(frame(*order), 100.0)
        found.append(picks(made, 400))
    assert found[0] == found[1] == found[2]
    if picker is not Picker.DETERMINISTIC:
        assert chi_square([found[0][f"s{n}"] for n in range(4)], [1] * 4) < 5


# --- against the book -----------------------------------------------------------------------------------------------

CAPACITY = st.one_of(st.none(), st.just(0.0), st.sampled_from([8.0, 16.0, 16.0, 64.0]), st.floats(0.1, 500))
LOAD = st.one_of(st.none(), st.sampled_from([0.0, 0.5, 0.5, 0.99, 1.0, 1.2, 1.5]), st.floats(0, 2))


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[int], list[ProviderSignal], list[int], bool]:
    """Groups, signals, own requests since the sample, and whether the scale can be relied on."""
    number = draw(st.integers(1, 12))
    steps = draw(st.lists(st.booleans(), min_size=number - 1, max_size=number - 1))
    groups = [0]
    for step in steps:
        groups.append(groups[-1] + step)
    signals = []
    for n in range(number):
        load, capacity = draw(LOAD), draw(CAPACITY)
        more: dict[str, Any] = {"queue": draw(st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.0])))}
        if draw(st.booleans()):
            more |= {"kv": draw(st.floats(0, 1)), "kv_ceiling": draw(st.sampled_from([0.5, 0.9, None]))}
        signals.append(signal(n, load, capacity, **more))
    own = draw(st.lists(st.integers(0, 12), min_size=number, max_size=number))
    return groups, signals, own, draw(st.booleans())


@settings(max_examples=400, deadline=None)
@example(([0, 0, 0, 0], [signal(n, 0.5, 10.0) for n in range(4)], [0, 6, 2, 0], True), 3)
@example(([0, 0, 1], [signal(n, 1.0, 10.0, queue=float(n)) for n in range(3)], [3, 0, 0], True), 5)
@given(fleets(), st.integers(0, 2**30))
def test_the_fast_path_is_the_book(fleet: tuple[list[int], list[ProviderSignal], list[int], bool], seed: int) -> None:
    groups, signals, own, reliable = fleet
    recorder = Recorder(random.Random(seed).getrandbits)
    made = router(*groups, bits=recorder)
    made.observe(frame(*signals, gateways={} if reliable else MANY), 100.0)
    for n, requests in enumerate(own):
        hold(made, n, requests)
    for n in range(0, len(own), 3):
        if own[n]:
            made.targets[n].end()
    for _ in range(4):
        if made._models["llama"].refusal() is not None:
            with pytest.raises(RoutingError, match="past full"):
                made.pick("llama")
            return
        recorder.drawn.clear()
        decision = made.pick("llama")
        providers = [
            reference.Provider(
                target.site,
                group,
                target.weight,
                target.capacity,
                target.estimate,
                target.cost,
                target.has_room,
                target.is_open,
                target.is_over,
                target.surely_over,
                target.known,
                target.trusted,
                target.saturation,
                target.queue,
                target.brim,
                target.backlog,
            )
            for group, target in zip(groups, made.targets, strict=True)
        ]
        replay = Script(recorder.drawn)
        # No turnover was seen, so the water level has reached everybody.
        assert (decision.case, decision.site) == reference.choose(providers, replay, lambda _, __: True)
        with pytest.raises(StopIteration):
            replay(1)
        decision.place.target.begin()


@settings(max_examples=150, deadline=None)
@given(fleets(), st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=80))
def test_what_is_kept_up_to_date_is_what_building_anew_gives(
    fleet: tuple[list[int], list[ProviderSignal], list[int], bool], steps: list[tuple[int, bool]]
) -> None:
    groups, signals, _, _ = fleet
    made = router(*groups, settings=Settings(sheds=False))
    made.observe(frame(*signals), 100.0)
    for n, begins in steps:
        if n < len(groups):
            target = made.targets[n]
            if begins or not target.own:
                target.begin()
            else:
                target.end()
    snapshot = made.snapshot
    assert snapshot is not None

    def state() -> list[Any]:
        route: Any = snapshot.routes[made.pick("llama").kind]["llama"]
        front = None if route.front.room == 0 else [place.order for place in route.front.places]
        return [
            front,
            (route.over, route.sure),
            [
                (group.room, [place.order for place in group.pair if group.room <= 2 and group.room])
                for group in route.groups
            ],
            [group.odds._sums for group in route.groups],
            route._under._sums,
            route._unspent._sums,
        ]

    kept = state()
    snapshot.renumber()
    assert state() == kept
    snapshot.refresh()
    assert state() == kept


# --- held to some ---------------------------------------------------------------------------------------------------


def only(made: Router, *numbers: int) -> list[Any]:
    return [target for target in made.targets if int(target.site[1:]) in numbers]


def held(made: Router, number: int, *numbers: int) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for _ in range(number):
        decision: Decision = made.pick("llama", allowed=only(made, *numbers))
        found[decision.site, decision.case] += 1
    return found


def test_held_to_some_the_same_rule_chooses_among_them() -> None:
    made = router(0, 0, 0, 0, 1)
    made.observe(loads(0.1, 0.5, 0.9, 1.0, 0.0), 100.0)
    seen = held(made, 3000, 0, 1, 2)
    assert set(seen) == {("s0", "two_drawn"), ("s1", "two_drawn")}
    assert chi_square([seen["s0", "two_drawn"], seen["s1", "two_drawn"]], [2, 1]) < 7
    assert held(made, 50, 1, 2) == {("s1", "lower_of_two"): 50}
    assert held(made, 50, 2, 3) == {("s2", "only_one"): 50}
    assert held(made, 50, 3, 4) == {("s4", "only_one"): 50}
    assert held(made, 50, 3) == {("s3", "last_resort"): 50}
    hold(made, 3, 3)
    assert held(made, 50, 3) == {("s3", "last_resort"): 50}
    made.observe(frame(signal(0, 1.5, queue=1.0), signal(1, 1.0, queue=2.0)), 100.0)
    assert held(made, 50, 0, 1) == {("s1", "last_resort"): 50}


def test_held_to_some_that_are_full_what_was_sent_since_counts() -> None:
    made = router(0, 0, 0)
    made.observe(frame(*(signal(n, 1.0, 100.0, queue=queue) for n, queue in enumerate((2.0, 4.0, 0.0)))), 100.0)
    assert held(made, 50, 0, 1) == {("s0", "last_resort"): 50}
    hold(made, 0, 5)
    assert held(made, 50, 0, 1) == {("s1", "last_resort"): 50}
    assert held(made, 50, 0) == {("s0", "last_resort"): 50}


def test_held_to_some_without_trust_all_of_them_are_drawn_from() -> None:
    made = router(0, 0, 0)
    made.observe(frame(signal(0, 0.9), signal(1, 1.0), signal(2, 0.0), gateways=MANY), 100.0)
    seen = held(made, 3000, 0, 1)
    assert set(seen) == {("s0", "weighted_of_two"), ("s1", "weighted_of_two")}


def test_held_to_all_the_pick_is_as_ever() -> None:
    made = router(0, 0, 0)
    made.observe(loads(0.1, 0.5, 0.9), 100.0)
    other = router(0, 0, 0)
    other.observe(loads(0.1, 0.5, 0.9), 100.0)
    for _ in range(50):
        decision = made.pick("llama", allowed=made.targets)
        assert type(decision) is Decision
        assert decision.site == other.pick("llama").site


def test_held_to_nobody_there_is_no_healthy_site() -> None:
    made = router(0, 0)
    with pytest.raises(RoutingError) as caught:
        made.pick("llama", allowed=[])
    assert (caught.value.status, caught.value.reason) == (503, "no_healthy_site")


def test_a_document_without_the_picker_has_nothing_of_it() -> None:
    made = router(0, 1, picker=Picker.ROUND_ROBIN)
    made.observe(loads(3.0, 0.0), 100.0)
    assert picks(made, 10) == {"s0": 10}


def test_draws_ask_for_no_more_bits_than_they_need() -> None:
    recorder = Recorder(random.Random(3).getrandbits)
    made = router(*[0] * 250, bits=recorder)
    made.observe(frame(*(signal(n, 0.5, 10.0 + n % 7) for n in range(250))), 100.0)
    for _ in range(4000):
        made.pick("llama")
    assert len(recorder.drawn) < 4000 * 1.15
    assert sum(width for width, _ in recorder.drawn) < 4000 * WORD


def test_a_new_document_keeps_what_is_known() -> None:
    made = router(0, 0)
    made.observe(loads(0.9, 0.1), 100.0)
    hold(made, 1, 5)
    made.apply(grouped(0, 0, 0))
    assert [target.estimate for target in made.targets][:2] == [pytest.approx(0.9), pytest.approx(0.6)]
    assert made.in_flight == {"s1/s1-llama": 5}
