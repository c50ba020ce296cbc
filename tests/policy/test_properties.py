"""What holds for every network, every page and every history."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from grid.model import (
    Access,
    AdmissionState,
    Candidate,
    Contract,
    Drain,
    Gateway,
    Network,
    Order,
    Picker,
    Placement,
    Pressure,
    Provider,
    Reading,
    Sample,
    Site,
)
from grid.policy import PolicyInput, PolicyMemory, PolicyOutcome, PreviousCandidate, as_previous, decide
from tests.policy.build import LLAMA, QWEN, World, busy, edge, network, order, provider

T = TypeVar("T")

often = settings(deadline=None, max_examples=60)

NAMES = ["a", "b", "c", "d", "e"]
SITES = {
    "east": Site("east", "eu", "eu-1", {"tier": "gold"}),
    "near": Site("near", "eu", "eu-1"),
    "west": Site("west", "us"),
    "dark": Site("dark"),
}

numbers = st.one_of(
    st.none(),
    st.floats(0, 64).map(lambda value: round(value, 2)),
    st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 1e308]),
)
readings = st.builds(
    Reading,
    ready=st.none() | st.integers(0, 3),
    ready_endpoints=st.none() | st.integers(0, 3),
    ready_live=st.none() | st.integers(0, 3),
    average_queue_size=numbers,
    average_running_requests=numbers,
    kv_cache_utilization=numbers,
    in_flight=numbers,
    flow_control_queue=numbers,
    pool_saturation=numbers,
)
accesses = st.sampled_from([None, None, Access(), Access(frozenset({"east", "west"})), Access(labels={"tier": "gold"})])
pressures = st.sampled_from([None, None, Pressure(enter_scrapes=1, exit_scrapes=1, min_time=2.0, hold_down=4.0)])


@st.composite
def networks(draw: st.DrawFn) -> Network:
    providers = {
        name: Provider(
            id=name,
            site=draw(st.sampled_from(sorted(SITES))),
            cluster=f"{name}-cluster",
            capabilities=draw(st.sampled_from([(LLAMA,), (QWEN,), (LLAMA, QWEN)])),
            max_running=draw(st.sampled_from([None, 8])),
            capacity_weight=draw(st.integers(1, 1000)),
            access=draw(accesses),
            pressure=draw(pressures),
            disabled=draw(st.integers(0, 9)) == 0,
        )
        for name in NAMES
    }
    gateways = {
        name: Gateway(
            name=name,
            site=draw(st.sampled_from([*sorted(SITES), "unlisted"])),
            contract=draw(st.sampled_from(list(Contract))),
            order=draw(st.sampled_from(list(Order))),
            placement=draw(st.sampled_from(list(Placement))),
            picker=draw(st.sampled_from([None, *Picker])),
        )
        for name in ("one", "two")
    }
    return Network("test", SITES, providers, gateways)


@st.composite
def histories(draw: st.DrawFn) -> list[PolicyInput]:
    """Passes in a row, with an empty memory and no documents in each; ``play`` chains them."""
    world = draw(networks())
    now, samples, passes = 64.0, dict[str, Sample](), []
    for _ in range(draw(st.integers(1, 6))):
        now += draw(st.sampled_from([0.25, 2.0, 2.0, 16.0]))
        for name in draw(st.sets(st.sampled_from(NAMES))):
            number = samples[name].sequence + 1 if name in samples else 1
            samples[name] = Sample(name, number, now, draw(readings), interval=2.0)
        drained = draw(st.sets(st.sampled_from([*NAMES, "east"]), max_size=1))
        passes.append(
            PolicyInput(
                network=world,
                samples=dict(samples),
                memory=PolicyMemory(),
                now=now,
                probes={
                    name: draw(st.sampled_from([None, True, False])) for name in draw(st.sets(st.sampled_from(NAMES)))
                },
                drains={target: Drain(id=target, target=target) for target in drained},
                round_complete=draw(st.booleans()),
            )
        )
    return passes


def play(passes: list[PolicyInput]) -> list[PolicyOutcome]:
    memory, previous, outcomes = PolicyMemory(), dict[str, tuple[PreviousCandidate, ...]](), []
    for given_ in passes:
        outcome = decide(replace(given_, memory=memory, previous=previous))
        memory, previous = outcome.memory, {name: as_previous(plan) for name, plan in outcome.plans.items()}
        outcomes.append(outcome)
    return outcomes


def per_capability(candidates: tuple[Candidate, ...]) -> list[list[Candidate]]:
    found: dict[tuple[str, str], list[Candidate]] = {}
    for entry in candidates:
        found.setdefault((entry.kind, entry.name), []).append(entry)
    return list(found.values())


def finite(value: object) -> bool:
    return not isinstance(value, float) or (math.isfinite(value) and value >= 0)


@often
@given(histories())
def test_groups_are_whole(passes: list[PolicyInput]) -> None:
    for outcome in play(passes):
        for name, plan in outcome.plans.items():
            gateway = passes[0].network.gateways[name]
            assert [entry.rank for entry in plan.candidates] == list(range(len(plan.candidates)))
            assert len({entry.identity for entry in plan.candidates}) == len(plan.candidates)
            for entries in per_capability(plan.candidates):
                check_groups(entries, passes[0].network, grouped=gateway.grouped)


def check_groups(entries: list[Candidate], world: Network, *, grouped: bool) -> None:
    if not grouped:
        assert all(entry.selection_group is None and entry.traffic_weight is None for entry in entries)
        return
    numbers_seen = [entry.selection_group for entry in entries]
    assert sorted(set(numbers_seen), key=lambda number: number or 0) == list(range(len(set(numbers_seen))))
    assert numbers_seen == sorted(numbers_seen, key=lambda number: number or 0)
    for number in set(numbers_seen):
        group = [entry for entry in entries if entry.selection_group == number]
        assert len({entry.admission_state for entry in group}) == 1
        assert len({audience(world, entry.provider) for entry in group}) == 1
    for entry in entries:
        assert isinstance(entry.traffic_weight, int)
        assert 1 <= entry.traffic_weight <= 1000


def audience(world: Network, name: str) -> frozenset[str]:
    access = world.providers[name].access
    return frozenset(site for site, value in world.sites.items() if access is None or access.admits(value))


@often
@given(histories())
def test_everyone_is_either_a_candidate_or_left_out_for_access(passes: list[PolicyInput]) -> None:
    world = passes[0].network
    for outcome in play(passes):
        for plan in outcome.plans.values():
            seen = {entry.provider for entry in plan.candidates}
            left_out = {entry.provider for entry in plan.excluded}
            assert seen | left_out == set(world.providers)
            assert not seen & left_out
            site = world.sites.get(plan.local_site, Site(plan.local_site))
            assert left_out == {
                name for name, entry in world.providers.items() if entry.access and not entry.access.admits(site)
            }


@often
@given(histories())
def test_no_number_that_is_none_enters(passes: list[PolicyInput]) -> None:
    for outcome in play(passes):
        for decision in outcome.decisions.values():
            load = decision.load
            for value in (
                load.held,
                load.capacity,
                load.saturation,
                load.pool_saturation,
                load.load,
                load.queue,
                load.kv,
            ):
                assert finite(value)
        json.dumps(outcome.memory.to_json(passes[-1].now), allow_nan=False)


@often
@given(histories(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_never_matters(passes: list[PolicyInput], random: Random) -> None:
    def shuffled(mapping: Mapping[str, T]) -> dict[str, T]:
        keys = sorted(mapping)
        random.shuffle(keys)
        return {key: mapping[key] for key in keys}

    mixed = []
    for entry in passes:
        world = replace(
            entry.network,
            sites=shuffled(entry.network.sites),
            providers=shuffled(entry.network.providers),
            gateways=shuffled(entry.network.gateways),
        )
        mixed.append(replace(entry, network=world, samples=shuffled(entry.samples), probes=shuffled(entry.probes)))
    assert play(mixed) == play(passes)


@often
@given(histories())
def test_a_memory_that_went_through_json_gives_the_same_future(passes: list[PolicyInput]) -> None:
    straight = play(passes)
    memory, previous = PolicyMemory(), dict[str, tuple[PreviousCandidate, ...]]()
    for entry, expected in zip(passes, straight, strict=True):
        outcome = decide(replace(entry, memory=memory, previous=previous))
        assert outcome.decisions == expected.decisions
        assert outcome.plans == expected.plans
        assert outcome.changes == expected.changes
        data = json.loads(json.dumps(outcome.memory.to_json(entry.now)))
        memory = PolicyMemory.from_json(data, entry.now)
        previous = {name: as_previous(plan) for name, plan in outcome.plans.items()}


@often
@given(histories())
def test_what_a_pass_takes_over_from_the_one_before_makes_no_difference(passes: list[PolicyInput]) -> None:
    """Passes that work everything out anew end as those that do again only what changed; each pass runs twice."""
    doubled = [entry for once in passes for entry in (once, replace(once, now=once.now + 0.125))]
    memory, previous = PolicyMemory(), dict[str, tuple[PreviousCandidate, ...]]()
    for entry, expected in zip(doubled, play(doubled), strict=True):
        outcome = decide(replace(entry, memory=replace(memory, work=None), previous=previous))
        assert outcome == expected
        memory, previous = outcome.memory, {name: as_previous(plan) for name, plan in outcome.plans.items()}


@often
@given(histories(), st.sampled_from(NAMES))
def test_removing_a_provider_moves_no_others_relative_order(passes: list[PolicyInput], gone: str) -> None:
    outcomes = play(passes)
    memory = outcomes[-2].memory if len(outcomes) > 1 else PolicyMemory()
    previous = {name: as_previous(plan) for name, plan in outcomes[-2].plans.items()} if len(outcomes) > 1 else {}
    last = passes[-1]
    left = {name: entry for name, entry in last.network.providers.items() if name != gone}
    outcome = decide(replace(last, network=replace(last.network, providers=left), memory=memory, previous=previous))
    # Where the last fresh one goes, the last order stays in use instead of the one that staleness would make.
    blind = outcome.memory.all_stale.keys() - outcomes[-1].memory.all_stale.keys()
    for name, plan in outcome.plans.items():
        for capability in (LLAMA, QWEN):
            if (plan.local_site, capability) not in blind:
                before = [entry for entry in order(outcomes[-1], name, capability) if entry != gone]
                assert order(outcome, name, capability) == before


@often
@given(histories())
def test_a_pass_without_news_or_time_changes_nothing(passes: list[PolicyInput]) -> None:
    outcomes = play(passes)
    previous = {name: as_previous(plan) for name, plan in outcomes[-1].plans.items()}
    again = decide(replace(passes[-1], memory=outcomes[-1].memory, previous=previous))
    assert again.changes == ()
    assert [entry.identity for plan in again.plans.values() for entry in plan.candidates] == [
        entry.identity for plan in outcomes[-1].plans.values() for entry in plan.candidates
    ]


@often
@given(histories())
def test_the_guard_closes_and_lowers_nothing_that_was_offered(passes: list[PolicyInput]) -> None:
    outcomes = play(passes)
    memory = outcomes[-1].memory
    previous = {name: as_previous(plan) for name, plan in outcomes[-1].plans.items()}
    last = passes[-1]
    zero = Reading(ready=0, ready_endpoints=0)
    for number in range(1, 4):
        now = last.now + 2.0 * number
        samples = {name: Sample(name, 900 + number, now, zero, interval=2.0) for name in NAMES}
        world = replace(
            last, samples=samples, now=now, memory=memory, previous=previous, round_complete=False, drains={}
        )
        outcome = decide(world)
        for name, plan in outcome.plans.items():
            before = {entry.provider: entry for entry in outcomes[-1].plans[name].candidates}
            for entry in plan.candidates:
                offered = before[entry.provider]
                if offered.admission_state is not AdmissionState.NONE:
                    assert entry.admission_state.rank <= offered.admission_state.rank
                    assert entry.fresh or not offered.fresh
        memory = outcome.memory


@often
@given(st.floats(0, 1.2), st.lists(st.tuples(*[st.floats(-0.045, 0.045)] * 3), min_size=1, max_size=30))
def test_equal_loads_never_flap(load: float, noise: list[tuple[float, ...]]) -> None:
    there = World(
        network(
            *(provider(name, max_running=1000) for name in "abc"),
            gateways=(edge(picker=None), edge(name="deterministic", picker=Picker.DETERMINISTIC)),
        )
    )
    held = load * 2000
    first = order(there.after(2, **dict.fromkeys("abc", busy(held))))
    assert first == ["a", "b", "c"]
    for swings in noise:
        pages = {name: busy(max(0.0, held + 2000 * swing)) for name, swing in zip("abc", swings, strict=True)}
        outcome = there.after(2, **pages)
        assert order(outcome) == first
        assert order(outcome, "deterministic") == first


@often
@given(st.lists(st.sampled_from(["good", "bad"]), min_size=4, max_size=60))
def test_a_provider_changes_at_most_once_in_two_scrapes_and_needs_two_in_a_row_for_the_worst_and_the_best(
    pattern: list[str],
) -> None:
    there = World(network(provider("a"), gateways=(edge(),)))
    pages = {"good": busy(1), "bad": Reading(ready=0, ready_endpoints=0)}
    for index, kind in enumerate(pattern):
        before = there.memory.providers.get("a")
        decision = there.after(2, a=pages[kind]).decisions["a"]
        if before is None or before.admission is None:
            continue
        last_two = pattern[index - 1 : index + 1]
        if decision.admission is AdmissionState.NONE and before.admission is not AdmissionState.NONE:
            assert last_two == ["bad", "bad"]
        if decision.trusted and not before.trusted:
            assert last_two == ["good", "good"]
