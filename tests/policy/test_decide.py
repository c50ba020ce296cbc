from dataclasses import replace
from typing import Any

import pytest

from grid.model import AdmissionState, Drain, Freshness, Picker, Pressure, Reason, Step
from grid.policy import PreviousCandidate
from tests.policy.build import (
    LLAMA,
    QWEN,
    World,
    admissions,
    busy,
    candidates,
    edge,
    groups,
    network,
    order,
    provider,
    reading,
    reasons,
)

OPEN, EXISTING, NONE = AdmissionState.NEW_AND_EXISTING, AdmissionState.EXISTING_ONLY, AdmissionState.NONE
GOOD, GONE, FULL = busy(2), reading(0), busy(20)
PRESSURE = Pressure(enter_scrapes=1, min_time=0.0)


def trio(**fields: Any) -> World:
    return World(network(*(provider(name, **fields) for name in "abc"), gateways=(edge(),)))


def read(there: World, **pages: Any) -> World:
    there.after(2, **{"a": GOOD, "b": GOOD, "c": GOOD, **pages})
    return there


# --- the sentence and the changes ---


def test_the_first_pass_tells_what_it_found() -> None:
    outcome = trio().after(2, a=GOOD, b=GOOD)
    assert outcome.changes == (
        "a: new_and_existing, fresh (2 ready endpoints (epp))",
        "b: new_and_existing, fresh (2 ready endpoints (epp))",
        "c: new_and_existing, absent (offered behind every fresh one)",
    )
    assert outcome.sentence.startswith("3 of 3 providers open, 1 absent; a: new_and_existing, fresh")


def test_a_pass_that_changes_nothing_says_so() -> None:
    there = read(trio())
    outcome = there.after(2, a=busy(3), b=busy(4), c=busy(5))
    assert outcome.changes == ()
    assert outcome.sentence == "3 of 3 providers open; nothing changed"


def test_a_sentence_says_what_changed_and_why() -> None:
    there = read(trio())
    there.after(2, a=GOOD, b=GOOD, c=GONE)
    outcome = there.after(2, a=GOOD, b=GOOD, c=GONE)
    said = "c: new_and_existing to none (not ready in 2 readings in a row)"
    assert outcome.changes == (said,)
    assert outcome.sentence == f"2 of 3 providers open, 1 none; {said}"


def test_demotion_and_its_end_are_changes() -> None:
    there = read(trio())
    first = there.after(2, a=GONE).changes
    there.after(2, a=GOOD)
    last = there.after(2, a=GOOD).changes
    assert first == (
        "a: behind every ready provider (first reading without a ready endpoint: behind every ready provider)",
    )
    assert last == ("a: back in its place (2 ready endpoints (epp))",)


def test_many_changes_are_counted() -> None:
    names = [f"p{number}" for number in range(6)]
    there = World(network(*map(provider, names), gateways=(edge(),)))
    outcome = there.after(2, **dict.fromkeys(names, GOOD))
    assert len(outcome.changes) == 6
    assert outcome.sentence.endswith("; and 3 more changes")


def test_models_that_nobody_takes_are_named_and_counted() -> None:
    many = tuple(replace(QWEN, name=f"m{number}") for number in range(5))
    there = World(network(provider("a"), provider("b", capabilities=many, disabled=True), gateways=(edge(),)))
    assert "nobody takes new work for m0, m1, m2 and 2 more; " in there.after(2, a=GOOD).sentence


def test_a_removed_provider_is_told_once_and_forgotten() -> None:
    there = read(trio())
    there.without("b")
    assert there.run().changes == ("b: no longer configured",)
    assert set(there.memory.providers) == {"a", "c"}
    assert there.run().changes == ()


def test_no_provider_at_all() -> None:
    there = World(network(gateways=(edge(),)))
    outcome = there.run()
    assert outcome.sentence == "no provider is configured; nothing changed"
    assert outcome.plans["edge"].candidates == ()


def test_the_chain_of_reasons_carries_its_numbers() -> None:
    there = trio(pressure=PRESSURE)
    decision = read(there, a=busy(15, kv_cache_utilization=0.5)).run().decisions["a"]
    assert decision.steps == (
        Step("freshness", Reason.FRESH, "sample 1 is within its bound of 6 s = 2 interval + 2 timeout + 2"),
        Step("held", Reason.LOAD_KNOWN, "15 = 15 in flight + 0 in the EPP's queue"),
        Step("capacity", Reason.LOAD_KNOWN, "20 = 10 per endpoint (declared) x 2 ready"),
        Step("load", Reason.LOAD_KNOWN, "0.75 = held / capacity"),
        Step("readiness", Reason.READY, "2 ready endpoints (epp)"),
        Step("pressure", Reason.ADMITTED, "saturation 0.75, enters at 0.85"),
        Step("admission", Reason.ADMITTED, "new_and_existing: 2 ready endpoints (epp)"),
    )
    assert (decision.age, decision.bound, decision.freshness) == (0.0, 6.0, Freshness.FRESH)


def test_changed_at_is_the_last_change_of_admission() -> None:
    there = read(trio())
    began = there.now
    there.after(2, a=GONE)
    assert there.after(2, a=GONE).decisions["a"].changed_at == there.now
    assert there.run().decisions["b"].changed_at == began


def test_one_bad_provider_harms_no_other() -> None:
    """Capacity 0, ready 0, capacity missing, load missing: picks among the others go on."""
    there = World(
        network(
            provider("a", max_running=None),
            provider("b"),
            provider("c"),
            provider("d"),
            provider("e"),
            gateways=(edge(), edge(name="first", picker=None)),
        )
    )
    outcome = there.after(2, a=busy(5), b=reading(0), c=reading(None), d=busy(float("nan")), e=GOOD)
    assert groups(outcome) == [["a", "c", "d", "e"], ["b"]]
    assert order(outcome, "first") == ["e", "a", "c", "d", "b"]


# --- the guard of the first round ---


def test_until_the_round_is_complete_nothing_that_was_offered_is_closed_or_put_back() -> None:
    there = read(trio()).restart()
    outcome = there.after(1, a=GOOD)
    assert groups(outcome) == [["a", "b", "c"]]
    assert outcome.changes == ("b: fresh to absent", "c: fresh to absent")
    there.after(0.5, b=GONE)
    outcome = there.after(0.5, b=GONE)
    assert outcome.decisions["b"].reason is Reason.FIRST_ROUND
    assert groups(outcome) == [["a", "b", "c"]]
    there.round_complete = True
    outcome = there.run()
    assert admissions(outcome) == {"a": OPEN, "b": NONE, "c": OPEN}
    assert groups(outcome) == [["a"], ["c"], ["b"]]


def test_without_a_memory_the_documents_say_what_was_offered() -> None:
    there = read(trio(), c=GONE)
    there.after(2, c=GONE)
    there.after(10, b=GOOD)
    before = groups(there.after(1, b=GOOD))
    assert before == [["b"], ["a"], ["c"]]
    there = there.restart(memory=False)
    assert groups(there.run()) == [["b"], ["a", "c"]]
    assert groups(there.after(1, a=GOOD)) == [["a", "b"], ["c"]]


def test_without_predecessor_nothing_is_guarded() -> None:
    there = trio()
    there.round_complete = False
    assert groups(there.after(1, a=GONE, b=GOOD)) == [["b"], ["c"], ["a"]]
    there.previous = {}
    assert there.after(1, a=GONE).decisions["a"].admission is NONE


def test_a_closing_is_held_back_at_the_state_that_was_offered() -> None:
    there = World(network(provider("a", pressure=PRESSURE), provider("b"), gateways=(edge(),)))
    there.after(2, a=FULL, b=GOOD)
    assert there.run().decisions["a"].admission is EXISTING
    there = there.restart()
    there.after(1, a=GONE)
    decision = there.after(1, a=GONE).decisions["a"]
    assert (decision.admission, decision.reason) == (EXISTING, Reason.FIRST_ROUND)
    assert reasons(there.run(), "a")["guard"] == "first_round"


def test_what_was_closed_stays_closed_and_what_was_stale_is_not_raised() -> None:
    there = read(trio(), c=GONE)
    there.after(2, c=GONE, a=GOOD, b=GOOD)
    there.after(10, a=GOOD, c=GONE)
    assert groups(there.run()) == [["a"], ["b"], ["c"]]
    there = there.restart()
    assert groups(there.run()) == [["a"], ["b"], ["c"]]
    assert there.run().decisions["c"].admission is NONE


@pytest.mark.parametrize("hand", ["drain", "disable", "remove"])
def test_the_guard_does_not_hold_back_the_operator(hand: str) -> None:
    there = read(trio()).restart()
    if hand == "drain":
        there.drains["b"] = Drain(id="1", target="b")
    elif hand == "disable":
        disabled = replace(there.network.providers["b"], disabled=True)
        there.network = replace(there.network, providers={**there.network.providers, "b": disabled})
    else:
        there.without("b")
    found = {entry.provider: entry.admission_state for entry in candidates(there.run())}
    assert found.get("b") is {"drain": EXISTING, "disable": NONE, "remove": None}[hand]


def test_the_most_open_offer_of_all_documents_counts() -> None:
    def offer(state: AdmissionState, fresh: bool) -> tuple[PreviousCandidate, ...]:
        return (PreviousCandidate(LLAMA.kind, "llama", "a", "a-cluster", state, fresh),)

    there = trio()
    there.round_complete = False
    there.previous = {"one": offer(EXISTING, False), "two": offer(OPEN, False), "three": offer(EXISTING, True)}
    there.previous["four"] = offer(NONE, True)
    outcome = there.after(1, a=GONE)
    assert not outcome.decisions["a"].demoted
    there.previous = {"one": offer(OPEN, False)}
    there.after(1, a=GONE)
    assert there.run().decisions["a"].admission is OPEN


# --- restart and change of leader ---


def test_a_restart_with_all_stale_keeps_the_order_of_the_predecessor() -> None:
    there = read(trio())
    there.after(10, b=GOOD, c=GOOD)
    before = groups(there.run())
    assert before == [["b", "c"], ["a"]]
    there = there.restart()
    assert groups(there.run()) == before
    there.round_complete = True
    there.now += 600
    assert groups(there.run()) == before
    assert groups(there.restart().run()) == before


@pytest.mark.parametrize("kept", [{"memory": False}, {"documents": False}, {}])
def test_a_restart_of_a_plain_gateway_keeps_the_order_by_load(kept: dict[str, bool]) -> None:
    gateways = (edge(picker=None),)
    there = World(network(*(provider(name) for name in "abcd"), gateways=gateways))
    there.after(2, a=busy(15), b=busy(5), c=busy(10))
    before = order(there.run())
    assert before == ["b", "c", "a", "d"]
    there = there.restart(**kept)
    assert order(there.run()) == before
    there.round_complete = True
    assert order(there.run()) == before
    there.now += 600
    assert order(there.run()) == before


def test_documents_alone_are_enough_even_where_the_round_is_already_over() -> None:
    there = read(trio())
    there.after(10, b=GOOD, c=GOOD)
    there = there.restart(memory=False)
    there.round_complete = True
    assert groups(there.run()) == [["b", "c"], ["a"]]


def test_hysteresis_survives_a_change_of_leader() -> None:
    there = World(network(provider("a", pressure=PRESSURE), gateways=(edge(),)))
    there.after(2, a=FULL)
    assert there.run().decisions["a"].admission is EXISTING
    for _ in range(10):
        there.after(2, a=GOOD)
    there = there.restart()
    there.round_complete = True
    for _ in range(5):
        assert there.after(2, a=GOOD).decisions["a"].admission is EXISTING
    assert there.after(2, a=GOOD).decisions["a"].admission is OPEN


def test_a_followers_older_sample_is_not_counted_again() -> None:
    there = World(network(provider("a"), gateways=(edge(),)))
    there.after(2, a=GONE)
    taken = there.samples["a"]
    there = there.restart()
    there.round_complete = True
    there.samples["a"] = replace(taken, sequence=77, received_at=there.now - 1.0)
    assert there.run().decisions["a"].admission is OPEN
    assert there.memory.providers["a"].hysteresis.zero == 1
    there.samples["a"] = replace(taken, sequence=78, received_at=there.now + 1.0)
    there.now += 1.0
    assert there.run().decisions["a"].admission is NONE


# --- what is not worked out again ---


def test_plans_are_taken_over_while_only_numbers_move() -> None:
    there = read(trio())
    first = there.run()
    again = there.after(0.5, a=busy(13))
    assert again.plans["edge"] is first.plans["edge"]
    assert again.decisions["a"].load.held == 13
    assert again.decisions["b"].steps is first.decisions["b"].steps
    assert (first.decisions["b"].age, again.decisions["b"].age) == (0.0, 0.5)


def test_plans_are_made_anew_where_something_moved() -> None:
    there = read(trio())
    first = there.run()
    assert there.after(0.5, a=GONE).plans["edge"] is not first.plans["edge"]
    second = there.run()
    there.network = replace(there.network)
    assert there.run().plans["edge"] is not second.plans["edge"]


def test_a_foreign_piece_of_work_is_ignored() -> None:
    there = read(trio())
    expected = there.run()
    there.memory = replace(there.memory, work="something else")
    assert there.run().plans == expected.plans


# --- size ---


def test_gateways_without_providers_of_a_capability_see_nothing_of_it() -> None:
    there = World(network(provider("a", capabilities=(QWEN,)), gateways=(edge(picker=Picker.RANDOM),)))
    outcome = there.after(2, a=GOOD)
    assert candidates(outcome) == []
    assert [entry.name for entry in outcome.plans["edge"].candidates] == ["qwen"]
