from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from grid.model import (
    Access,
    AdmissionState,
    Capability,
    Contract,
    Drain,
    Gateway,
    Kind,
    Order,
    Picker,
    Reason,
    Site,
    Tier,
    stable_id,
)
from tests.policy.build import QWEN, World, busy, candidates, edge, groups, network, order, provider, reading

GOOD, GONE = busy(2), reading(0)
SITES = (
    Site("edge", "eu", "eu-1"),
    Site("zone", "eu", "eu-1"),
    Site("region", "eu", "eu-2"),
    Site("far", "us", "us-1"),
    Site("nowhere"),
)
NEAR_TO_FAR = ["edge", "zone", "region", "far", "nowhere"]


def spread(**gateway: Any) -> World:
    """A provider at each distance from the gateway, named after its site, all read and good."""
    there = World(network(*map(provider, NEAR_TO_FAR), gateways=(edge(**gateway),), sites=SITES))
    there.after(2, **dict.fromkeys(NEAR_TO_FAR, GOOD))
    return there


def plain(**fields: Any) -> World:
    """Two equal providers and a gateway that takes the first."""
    gateway = edge(picker=fields.pop("picker", None), **fields)
    return World(network(provider("a", max_running=100), provider("b", max_running=100), gateways=(gateway,)))


# --- tiers, both orders ---


def test_geography_first_orders_and_groups_by_tier() -> None:
    outcome = spread().run()
    assert groups(outcome) == [[name] for name in NEAR_TO_FAR]
    assert [entry.selection_tier for entry in candidates(outcome)] == list(Tier)
    assert [entry.selection_group for entry in candidates(outcome)] == [0, 1, 2, 3, 4]
    assert [entry.rank for entry in candidates(outcome)] == [0, 1, 2, 3, 4]


def test_score_first_keeps_all_tiers_in_one_group_by_identity() -> None:
    assert groups(spread(order=Order.SCORE_FIRST).run()) == [sorted(NEAR_TO_FAR)]


@pytest.mark.parametrize("kind", list(Order))
def test_stale_and_demoted_fall_behind_every_fresh_one(kind: Order) -> None:
    there = spread(order=kind)
    there.now += 60
    outcome = there.scrape(far=GOOD, nowhere=GOOD, edge=GONE)
    found = groups(outcome)
    if kind is Order.GEOGRAPHY_FIRST:
        assert found == [["far"], ["nowhere"], ["zone"], ["region"], ["edge"]]
    else:
        assert found == [["far", "nowhere"], ["region", "zone"], ["edge"]]
    fresh = {entry.provider: entry.fresh for entry in candidates(outcome)}
    assert fresh == {"far": True, "nowhere": True, "zone": False, "region": False, "edge": False}


def test_admission_comes_before_everything() -> None:
    there = spread()
    there.drains["edge"] = Drain(id="1", target="edge")
    there.network.providers["zone"]
    there.network = replace(
        there.network,
        providers={**there.network.providers, "zone": replace(there.network.providers["zone"], disabled=True)},
    )
    outcome = there.run()
    assert groups(outcome) == [["region"], ["far"], ["nowhere"], ["edge"], ["zone"]]
    assert [entry.admission_state.rank for entry in candidates(outcome)] == [0, 0, 0, 1, 2]


def test_three_of_four_with_a_wrong_token() -> None:
    """The readable one is the first group; the three others are offered behind it, in their places, and say why."""
    names = ["a", "b", "c", "d"]
    there = World(network(*map(provider, names), gateways=(edge("a"),)))
    for _ in range(5):
        outcome = there.after(2, d=GOOD)
    assert groups(outcome) == [["d"], ["a"], ["b", "c"]]
    assert all(entry.admission_state is AdmissionState.NEW_AND_EXISTING for entry in candidates(outcome))
    assert {outcome.decisions[name].reason for name in "abc"} == {Reason.NEVER_READ}
    assert outcome.sentence.startswith("4 of 4 providers open, 3 absent")


@pytest.mark.parametrize("picker", [None, *Picker])
@pytest.mark.parametrize("kind", list(Order))
def test_a_silent_provider_that_was_idle_when_last_read_attracts_nobody(kind: Order, picker: Picker | None) -> None:
    there = World(
        network(provider("a", "edge"), provider("b"), provider("c"), gateways=(edge(order=kind, picker=picker),))
    )
    there.after(2, a=busy(0), b=busy(10), c=busy(10))
    outcome = there.after(600, b=busy(10), c=busy(10))
    assert order(outcome) == ["b", "c", "a"]
    if picker not in (None, Picker.DETERMINISTIC):
        assert groups(outcome)[-1] == ["a"]


# --- capabilities ---


def test_groups_are_numbered_per_capability_and_ranks_over_the_document() -> None:
    both = (Capability(Kind.MCP_TOOL, "llama"), QWEN)
    there = World(network(provider("a"), provider("b", capabilities=both), gateways=(edge(),)))
    outcome = there.after(2, a=GOOD)
    found = outcome.plans["edge"].candidates
    assert [(entry.kind, entry.name, entry.selection_group, entry.rank) for entry in found] == [
        ("inference_model", "llama", 0, 0),
        ("inference_model", "qwen", 0, 1),
        ("mcp_tool", "llama", 0, 2),
    ]


def test_a_candidate_carries_its_identity() -> None:
    entry = candidates(spread().run())[0]
    assert entry.identity == ("inference_model", "llama", "edge", "edge-cluster")
    assert entry.stable_id == stable_id(*entry.identity)


# --- who may use them ---


def restricted(**rules: Access) -> World:
    """Three providers at one far site, some with an access rule; gateways at two sites."""
    names = ["a", "b", "c"]
    providers = [provider(name, "far", access=rules.get(name)) for name in names]
    gateways = (edge("east", name="east"), edge("west", name="west"))
    sites = (Site("east", labels=MappingProxyType({"tier": "gold"})), Site("west"))
    there = World(network(*providers, gateways=gateways, sites=sites))
    there.after(2, **dict.fromkeys(names, GOOD))
    return there


def test_who_may_not_use_a_provider_does_not_see_it() -> None:
    outcome = restricted(a=Access(sites=frozenset({"west"})), b=Access(labels={"tier": "gold"})).run()
    assert order(outcome, "east") == ["b", "c"]
    assert order(outcome, "west") == ["a", "c"]
    left_out = outcome.plans["east"].excluded
    assert [(entry.provider, entry.site, entry.reason) for entry in left_out] == [("a", "far", Reason.ACCESS_DENIED)]
    assert "does not admit east" in left_out[0].detail


@pytest.mark.parametrize("kind", list(Order))
def test_no_group_mixes_who_may_use_it_and_the_reserved_one_comes_first(kind: Order) -> None:
    there = restricted(b=Access(sites=frozenset({"east"})))
    gateways = {name: replace(gateway, order=kind) for name, gateway in there.network.gateways.items()}
    there.network = replace(there.network, gateways=gateways)
    outcome = there.run()
    assert groups(outcome, "east") == [["b"], ["a", "c"]]
    assert groups(outcome, "west") == [["a", "c"]]


def test_a_rule_that_admits_everyone_is_no_difference() -> None:
    outcome = restricted(b=Access(sites=frozenset({"east", "west", "far"}))).run()
    assert groups(outcome, "east") == [["a", "b", "c"]]


def test_a_plain_document_has_no_groups_so_access_does_not_order_it() -> None:
    there = restricted(b=Access(sites=frozenset({"east"})))
    gateways = {name: replace(gateway, picker=None) for name, gateway in there.network.gateways.items()}
    there.network = replace(there.network, gateways=gateways)
    assert order(there.run(), "east") == ["a", "b", "c"]


def test_a_gateway_that_may_use_nothing_gets_an_empty_plan_that_says_who_was_left_out() -> None:
    nobody = Access(sites=frozenset({"west"}))
    plan = restricted(a=nobody, b=nobody, c=nobody).run().plans["east"]
    assert plan.candidates == ()
    assert [entry.provider for entry in plan.excluded] == ["a", "b", "c"]


def test_a_gateway_at_a_site_nobody_declared() -> None:
    there = World(network(provider("a"), provider("b", access=Access(labels={"x": "y"})), gateways=(edge("moon"),)))
    outcome = there.after(2, a=GOOD, b=GOOD)
    assert order(outcome) == ["a"]
    assert candidates(outcome)[0].selection_tier is Tier.UNKNOWN


# --- load ---


def test_load_orders_a_plain_document_and_the_change_is_said() -> None:
    there = plain()
    assert order(there.after(2, a=busy(100), b=busy(20))) == ["b", "a"]
    outcome = there.after(2, a=busy(20), b=busy(100))
    assert order(outcome) == ["a", "b"]
    assert outcome.changes == ("edge: llama goes to a/a-cluster first, was b/b-cluster",)


@pytest.mark.parametrize("picker", [None, Picker.DETERMINISTIC])
def test_a_plain_document_has_neither_groups_nor_weights(picker: Picker | None) -> None:
    outcome = plain(picker=picker).after(2, a=GOOD, b=GOOD)
    assert [(entry.selection_group, entry.traffic_weight) for entry in candidates(outcome)] == [(None, None)] * 2
    assert outcome.plans["edge"].picker is picker


def test_the_ordered_contract_is_plain_whatever_the_picker() -> None:
    there = plain(picker=Picker.RANDOM, contract=Contract.PRAXIS_ORDERED)
    outcome = there.after(2, a=busy(150), b=busy(20))
    assert order(outcome) == ["b", "a"]
    assert candidates(outcome)[0].selection_group is None


@pytest.mark.parametrize("picker", [Picker.ROUND_ROBIN, Picker.RANDOM, Picker.WEIGHTED_RANDOM, Picker.SATURATION])
def test_load_never_orders_inside_a_group(picker: Picker) -> None:
    there = plain(picker=picker)
    for held in ((150, 20), (20, 150)):
        assert groups(there.after(2, a=busy(held[0]), b=busy(held[1]))) == [["a", "b"]]


def test_a_tier_goes_before_load_only_in_geography_first() -> None:
    near_and_far = {"edge": busy(15), "far": busy(1)}
    for kind, first in ((Order.GEOGRAPHY_FIRST, "edge"), (Order.SCORE_FIRST, "far")):
        there = World(
            network(provider("edge"), provider("far"), gateways=(edge(picker=None, order=kind),), sites=SITES)
        )
        assert order(there.after(2, **near_and_far))[0] == first


def test_equal_loads_go_by_tier_in_score_first_and_then_by_identity() -> None:
    names = ["far", "zone", "edge", "region"]
    there = World(network(*map(provider, names), gateways=(edge(picker=None, order=Order.SCORE_FIRST),), sites=SITES))
    assert order(there.after(2, **dict.fromkeys(names, GOOD))) == ["edge", "zone", "region", "far"]


def test_an_unknown_load_comes_after_the_known_ones() -> None:
    assert order(plain().after(2, a=reading(2), b=busy(190))) == ["b", "a"]


def test_noise_around_any_load_makes_no_new_order() -> None:
    for middle in range(10, 200, 3):
        there = plain()
        first = order(there.after(2, a=busy(middle), b=busy(middle)))
        assert first == ["a", "b"]
        for swing in (9, -9, 4, -4, 9, 9, -9, 0) * 5:
            assert order(there.after(2, a=busy(max(0, middle + swing)), b=busy(max(0, middle - swing)))) == first


# --- all stale ---


def test_when_all_are_stale_the_last_order_stays() -> None:
    names = ["a", "b", "c"]
    there = World(network(*map(provider, names), gateways=(edge(),)))
    there.after(2, **dict.fromkeys(names, GOOD))
    there.after(10, b=GOOD, c=GOOD)
    assert groups(there.run()) == [["b", "c"], ["a"]]
    there.now += 600
    outcome = there.run()
    assert groups(outcome) == [["b", "c"], ["a"]]
    assert not any(entry.fresh for entry in candidates(outcome))
    chain = dict(outcome.plans["edge"].steps)["b"]
    assert Reason.ALL_STALE in {step.reason for step in chain}
    there.now += 600
    assert groups(there.run()) == [["b", "c"], ["a"]]
    assert groups(there.scrape(a=GOOD)) == [["a"], ["b", "c"]]


def test_those_lost_at_different_times_keep_the_order_they_had_when_the_last_was_lost() -> None:
    names = ["a", "b", "c"]
    there = World(network(*map(provider, names), gateways=(edge(),)))
    there.after(2, **dict.fromkeys(names, GOOD))
    there.after(10, a=GOOD, c=GOOD)
    there.after(10, a=GOOD)
    assert groups(there.run()) == [["a"], ["b", "c"]]
    there.now += 600
    assert groups(there.run()) == [["a"], ["b", "c"]]


def test_all_stale_is_judged_by_what_a_gateway_may_see() -> None:
    west = Access(sites=frozenset({"west"}))
    there = restricted(c=west)
    there.after(10, b=GOOD, c=GOOD)
    outcome = there.after(10, c=GOOD)
    assert groups(outcome, "east") == [["b"], ["a"]]
    assert groups(outcome, "west") == [["c"], ["a", "b"]]


def test_removing_the_last_fresh_one_moves_none_of_the_stale() -> None:
    there = spread()
    there.now += 10
    there.scrape(nowhere=GOOD, far=GOOD)
    there.now += 10
    before = order(there.scrape(nowhere=GOOD))
    assert before == ["nowhere", "edge", "zone", "region", "far"]
    there.without("nowhere")
    assert order(there.run()) == before[1:]


def test_closed_providers_do_not_keep_the_others_from_being_all_stale() -> None:
    there = World(network(provider("a"), provider("b"), provider("c"), gateways=(edge(),)))
    there.after(2, a=GOOD, b=GOOD, c=GONE)
    there.after(10, a=GOOD, c=GONE)
    outcome = there.after(60, c=GONE)
    assert groups(outcome) == [["a"], ["b"], ["c"]]
    assert candidates(outcome)[-1].admission_state is AdmissionState.NONE


def test_a_stale_plain_document_keeps_its_order_by_load() -> None:
    there = plain()
    there.after(2, a=busy(150), b=busy(20))
    there.now += 600
    assert order(there.run()) == ["b", "a"]


def test_when_one_capability_is_all_stale_the_others_are_ordered_by_load() -> None:
    slow, fast = (provider(name, capabilities=(QWEN,)) for name in ("slow", "fast"))
    there = World(network(provider("a"), provider("b"), slow, fast, gateways=(edge(picker=None),)))
    there.after(2, a=busy(15), b=busy(5), slow=busy(15), fast=busy(5))
    outcome = there.after(60, slow=busy(5), fast=busy(15))
    assert order(outcome) == ["b", "a"]
    assert order(outcome, capability=QWEN) == ["slow", "fast"]


# --- several gateways ---


def test_gateways_of_one_kind_share_the_work_and_get_their_own_plan() -> None:
    gateways: tuple[Gateway, ...] = tuple(edge("far", name=f"g{number}") for number in range(3))
    there = World(network(provider("a"), provider("b"), gateways=gateways))
    plans = there.after(2, a=GOOD, b=GOOD).plans
    assert [plan.gateway for plan in plans.values()] == ["g0", "g1", "g2"]
    assert plans["g0"].candidates is plans["g1"].candidates


def test_each_plan_says_where_each_provider_stands() -> None:
    outcome = spread().run()
    steps = dict(outcome.plans["edge"].steps)
    assert list(steps) == sorted(NEAR_TO_FAR)
    assert steps["far"][0].detail == "llama: group 3, place 4 of 5; new_and_existing, fresh, cross_region"
    assert steps["far"][1].detail == "100 as declared"
    first = plain()
    first.after(2, a=busy(150), b=busy(20))
    assert dict(first.run().plans["edge"].steps)["a"][0].detail.endswith(
        "plain form, place 2 of 2; new_and_existing, fresh, unknown, load level 7"
    )
