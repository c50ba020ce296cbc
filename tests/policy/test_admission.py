from dataclasses import replace
from typing import Any

import pytest

from grid.model import AdmissionState, Drain, Freshness, Pressure, Reading, Reason
from grid.policy.admission import observation
from tests.policy.build import (
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
PRESSURE = Pressure(enter=0.85, exit=0.70, enter_scrapes=2, exit_scrapes=3, min_time=10.0, hold_down=30.0)
GOOD, GONE = busy(2), reading(0)
FULL, MIDDLE, CALM = busy(18), busy(16), busy(10)  # of 20
UNKNOWN = Reading(ready=2, ready_endpoints=2)


def world(**fields: Any) -> World:
    """``a`` with the given fields, beside ``b``, and a gateway of its own site."""
    return World(network(provider("a", **fields), provider("b"), gateways=(edge(),)))


def run(given: World, *pages: Reading, every: float = 2.0) -> list[str]:
    """Admission of ``a`` after each page, a demotion marked with a minus."""
    found = []
    for page in pages:
        decision = given.after(every, a=page, b=GOOD).decisions["a"]
        found.append(decision.admission.value + ("-" if decision.demoted and decision.admission is OPEN else ""))
    return found


# --- readiness ---


def test_the_first_zero_puts_it_last_and_the_second_closes_it() -> None:
    there = world()
    assert run(there, GOOD, GONE, GONE) == ["new_and_existing", "new_and_existing-", "none"]
    outcome = there.run()
    assert outcome.decisions["a"].reason is Reason.NOT_READY
    assert "2 readings in a row" in outcome.decisions["a"].steps[-1].detail


def test_a_demoted_provider_stands_behind_every_ready_one_however_near_it_is() -> None:
    there = World(network(provider("a", "edge"), provider("b"), gateways=(edge("edge"),)))
    assert groups(there.after(2, a=GOOD, b=GOOD)) == [["a"], ["b"]]
    outcome = there.after(2, a=GONE, b=GOOD)
    assert groups(outcome) == [["b"], ["a"]]
    assert outcome.decisions["a"].reason is Reason.ZERO_READY
    assert not outcome.decisions["a"].trusted


def test_one_scrape_seen_twice_is_one_reading() -> None:
    there = world()
    run(there, GOOD, GONE)
    for _ in range(5):
        assert there.run().decisions["a"].admission is OPEN


def test_two_good_readings_in_a_row_bring_it_back() -> None:
    there = world()
    assert run(there, GONE, GONE, GOOD, GOOD) == ["new_and_existing-", "none", "none", "new_and_existing"]
    outcome = there.run()
    assert outcome.decisions["a"].reason is Reason.ADMITTED


def test_the_way_back_is_told() -> None:
    there = world()
    run(there, GONE, GONE)
    outcome = there.after(2, a=GOOD)
    assert outcome.decisions["a"].reason is Reason.RECOVERING
    assert "1 of 2 good readings in a row" in outcome.decisions["a"].steps[-1].detail
    assert there.after(2, a=GOOD).decisions["a"].reason is Reason.RECOVERED


def test_a_demotion_ends_with_two_good_readings_too() -> None:
    there = world()
    assert run(there, GOOD, GONE, GOOD, GOOD)[1:] == ["new_and_existing-", "new_and_existing-", "new_and_existing"]
    there = world()
    run(there, GOOD, GONE, GOOD)
    assert there.run().decisions["a"].reason is Reason.RECOVERING


def test_good_and_bad_in_turns_make_one_change() -> None:
    there = world()
    run(there, GOOD)
    changes = [there.after(2, a=page, b=GOOD).changes for page in (GONE, GOOD) * 50]
    assert [bool(change) for change in changes] == [True] + [False] * 99


def test_two_bad_and_one_good_in_turns_stay_closed() -> None:
    there = world()
    run(there, GOOD, GONE, GONE)
    assert run(there, *(GOOD, GONE, GONE) * 10) == ["none"] * 30


def test_an_unknown_ready_count_changes_nothing() -> None:
    blind = Reading(in_flight=2.0)
    there = world()
    assert run(there, blind, GONE, blind, blind) == ["new_and_existing", *["new_and_existing-"] * 3]
    assert run(there, GONE, blind, GOOD, blind, GOOD) == ["none"] * 4 + ["new_and_existing"]


@pytest.mark.parametrize(
    ("ready", "probe", "seen"),
    [
        (3, None, True),
        (3, True, True),
        (3, False, False),
        (0, True, False),
        (0, None, False),
        (None, None, None),
        (None, True, True),
        (None, False, False),
    ],
)
def test_what_page_and_probe_say_together(ready: int | None, probe: bool | None, seen: bool | None) -> None:
    assert observation(ready, probe) is seen


# --- the probe ---


def test_a_denial_beside_a_fresh_page_puts_it_last_at_once_and_closes_it_with_the_second_scrape() -> None:
    there = world()
    run(there, GOOD)
    there.probes["a"] = False
    decision = there.run().decisions["a"]
    assert (decision.admission, decision.demoted, decision.reason) == (OPEN, True, Reason.PROBE_DENIED)
    assert run(there, GOOD, GOOD) == ["new_and_existing-", "none"]
    assert "the probe denies it" in there.run().decisions["a"].steps[-1].detail
    there.probes["a"] = True
    assert run(there, GOOD, GOOD) == ["none", "new_and_existing"]


def test_a_denial_closes_what_was_never_read_until_it_is_taken_back() -> None:
    there = world()
    there.probes["a"] = False
    outcome = there.after(2, b=GOOD)
    assert outcome.decisions["a"].admission is NONE
    assert reasons(outcome, "a")["readiness"] == "probe_denied"
    assert [entry.admission_state for entry in candidates(outcome)] == [OPEN, NONE]
    there.probes["a"] = None
    assert there.after(2, b=GOOD).decisions["a"].reason is Reason.NEVER_READ


def test_a_denial_closes_what_is_stale() -> None:
    there = world()
    run(there, GOOD)
    there.probes["a"] = False
    there.now += 60
    assert there.scrape(b=GOOD).decisions["a"].admission is NONE


def test_without_a_probe_of_the_pass_the_sample_tells_what_the_probe_said() -> None:
    there = world()
    run(there, GOOD)
    there.samples["a"] = replace(there.samples["a"], healthy=False)
    assert there.run().decisions["a"].demoted
    there.probes["a"] = None
    assert not there.run().decisions["a"].demoted


# --- stale and absent ---


def test_stale_is_not_dead() -> None:
    there = world()
    run(there, GOOD)
    there.now += 60
    outcome = there.scrape(b=GOOD)
    decision = outcome.decisions["a"]
    assert (decision.admission, decision.freshness, decision.reason) == (OPEN, Freshness.STALE, Reason.STALE)
    assert groups(outcome) == [["b"], ["a"]]
    assert "sample 62 s old" not in outcome.sentence
    assert "a: fresh to stale (sample 60 s old, bound 6 s)" in outcome.changes


def test_one_good_scrape_ends_staleness() -> None:
    there = world()
    run(there, GOOD)
    there.now += 60
    there.scrape(b=GOOD)
    outcome = there.scrape(a=GOOD, b=GOOD)
    assert outcome.decisions["a"].trusted
    assert groups(outcome) == [["a", "b"]]


def test_a_closed_provider_that_goes_stale_stays_closed() -> None:
    there = world()
    run(there, GONE, GONE)
    there.now += 60
    assert there.scrape(b=GOOD).decisions["a"].admission is NONE


def test_a_page_without_pool_series_at_the_start_is_offered_behind_and_not_lost() -> None:
    """The EPP writes its series 5 s after its start; until then every scrape fails, and nothing is closed for ever."""
    there = world()
    for _ in range(5):
        outcome = there.after(1, b=GOOD)
        assert groups(outcome) == [["b"], ["a"]]
    assert groups(there.after(1, a=GOOD, b=GOOD)) == [["a", "b"]]


# --- pressure ---


def test_off_by_default() -> None:
    assert run(world(), *[busy(500)] * 20) == ["new_and_existing"] * 20


def test_enters_after_enough_scrapes_and_time() -> None:
    there = world(pressure=PRESSURE)
    assert run(there, *[FULL] * 5) == ["new_and_existing"] * 5
    assert there.run().decisions["a"].admission is OPEN
    assert reasons(there.run(), "a")["pressure"] == "pressure_counting"
    outcome = there.after(2, a=FULL)
    assert (outcome.decisions["a"].admission, outcome.decisions["a"].reason) == (EXISTING, Reason.PRESSURE_ENTER)
    assert there.after(2, a=FULL).decisions["a"].reason is Reason.PRESSURE_HELD


def test_the_first_sample_counts_and_min_time_runs_from_first_sight() -> None:
    there = world(pressure=replace(PRESSURE, enter_scrapes=1, min_time=0.0))
    assert run(there, FULL) == ["existing_only"]


def test_a_scrape_below_enter_starts_the_count_again() -> None:
    there = world(pressure=replace(PRESSURE, min_time=0.0))
    assert run(there, FULL, MIDDLE, FULL, MIDDLE, FULL) == ["new_and_existing"] * 5
    assert run(there, FULL) == ["existing_only"]


def test_five_equal_full_scrapes_then_five_equal_calm_ones_move_the_counters_per_scrape() -> None:
    there = world(pressure=Pressure(enter_scrapes=5, exit_scrapes=5, min_time=0.0, hold_down=0.0))
    assert run(there, *[FULL] * 5) == ["new_and_existing"] * 4 + ["existing_only"]
    assert run(there, *[CALM] * 5) == ["existing_only"] * 4 + ["new_and_existing"]


def test_one_scrape_never_counts_twice() -> None:
    there = world(pressure=replace(PRESSURE, min_time=0.0))
    run(there, FULL)
    for _ in range(10):
        there.now += 1
        assert there.run().decisions["a"].admission is OPEN


def pressed() -> World:
    there = world(pressure=PRESSURE)
    run(there, *[FULL] * 6)
    assert there.run().decisions["a"].admission is EXISTING
    return there


def test_opens_after_enough_calm_scrapes_and_the_hold_down() -> None:
    there = pressed()
    assert run(there, *[CALM] * 15) == ["existing_only"] * 15
    outcome = there.after(2, a=CALM)
    assert (outcome.decisions["a"].admission, outcome.decisions["a"].reason) == (OPEN, Reason.RECOVERED)


def test_nothing_moves_by_time_alone() -> None:
    there = pressed()
    run(there, CALM, CALM)
    there.now += 300
    assert there.run().decisions["a"].admission is EXISTING


def test_min_time_holds_where_the_hold_down_is_over() -> None:
    there = world(pressure=Pressure(enter_scrapes=1, exit_scrapes=1, min_time=10.0, hold_down=0.0))
    run(there, *[FULL] * 6)
    assert run(there, *[CALM] * 5) == ["existing_only"] * 4 + ["new_and_existing"]


@pytest.mark.parametrize("blip", [MIDDLE, FULL])
def test_anything_above_exit_starts_the_hold_down_again(blip: Reading) -> None:
    there = pressed()
    run(there, *[CALM] * 14)
    run(there, blip)
    assert run(there, *[CALM] * 15) == ["existing_only"] * 15
    assert run(there, CALM) == ["new_and_existing"]


def test_a_missing_number_changes_nothing() -> None:
    there = pressed()
    run(there, *[CALM] * 10)
    assert run(there, UNKNOWN) == ["existing_only"]
    assert run(there, *[CALM] * 5)[-1] == "new_and_existing"
    there = world(pressure=replace(PRESSURE, min_time=0.0))
    assert run(there, FULL, UNKNOWN, FULL) == ["new_and_existing", "new_and_existing", "existing_only"]


def test_a_stale_provider_keeps_its_state() -> None:
    there = pressed()
    there.now += 600
    assert there.run().decisions["a"].admission is EXISTING


def test_zero_ready_closes_under_pressure_too_and_the_hold_down_guards_the_return() -> None:
    there = pressed()
    assert run(there, GONE, GONE) == ["existing_only", "none"]
    assert run(there, *[CALM] * 15) == ["none"] * 15
    assert there.run().decisions["a"].reason is Reason.RECOVERING
    assert "3 of 3 good readings at or below 0.7, 28 of 30 s hold-down" in there.run().decisions["a"].steps[-1].detail
    assert run(there, CALM) == ["new_and_existing"]


def test_a_return_above_exit_waits() -> None:
    there = world(pressure=PRESSURE)
    run(there, GONE, GONE)
    assert run(there, *[MIDDLE] * 40) == ["none"] * 40


def test_a_return_without_any_saturation_is_possible() -> None:
    there = world(pressure=PRESSURE, max_running=None)
    run(there, GONE, GONE)
    assert run(there, *[UNKNOWN] * 16) == ["none"] * 15 + ["new_and_existing"]


def test_a_learned_capacity_is_pressure_only_while_something_queues() -> None:
    there = world(pressure=replace(PRESSURE, min_time=0.0), max_running=None)
    quiet = reading(2, average_running_requests=3.0, average_queue_size=0.0)
    assert run(there, *[quiet] * 5) == ["new_and_existing"] * 5
    assert "a learned capacity at which nothing queues" in next(
        step.detail for step in there.run().decisions["a"].steps if step.rule == "pressure"
    )
    queueing = reading(2, average_running_requests=3.0, average_queue_size=2.0)
    assert run(there, queueing, queueing) == ["new_and_existing", "existing_only"]
    assert run(there, *[quiet] * 16)[-1] == "new_and_existing"


def test_taking_pressure_out_of_the_configuration_opens_at_once() -> None:
    there = pressed()
    plain = there.network
    there.network = network(provider("a"), provider("b"), gateways=tuple(plain.gateways.values()))
    outcome = there.run()
    assert outcome.decisions["a"].admission is OPEN
    assert there.memory.providers["a"].hysteresis.since == there.now


def test_counts_of_removed_pressure_are_forgotten() -> None:
    there = world(pressure=PRESSURE)
    run(there, FULL)
    assert there.memory.providers["a"].hysteresis.pressed == 1
    there.network = network(provider("a"), provider("b"))
    there.run()
    assert there.memory.providers["a"].hysteresis.pressed == 0
    closed = world(pressure=PRESSURE)
    run(closed, GONE, GONE, CALM)
    closed.network = network(provider("a"), provider("b"))
    assert closed.run().decisions["a"].admission is NONE
    assert closed.memory.providers["a"].hysteresis.calm == 0


# --- the operator's hand ---


@pytest.mark.parametrize(("target", "said"), [("a", "drained"), ("site-a", "drained with its site site-a")])
def test_a_drain_leaves_existing_sessions(target: str, said: str) -> None:
    there = World(network(provider("a", "site-a"), provider("b"), gateways=(edge(),)))
    run(there, GOOD)
    there.drains[target] = Drain(id="1", target=target, reason="maintenance")
    outcome = there.run()
    decision = outcome.decisions["a"]
    assert (decision.admission, decision.reason, decision.drained) == (EXISTING, Reason.DRAINED, True)
    assert f"a: new_and_existing to existing_only ({said}: maintenance)" in outcome.changes
    assert groups(outcome) == [["b"], ["a"]]
    del there.drains[target]
    assert there.run().decisions["a"].admission is OPEN


def test_a_drained_provider_without_endpoints_is_closed() -> None:
    there = world()
    there.drains["a"] = Drain(id="1", target="a")
    run(there, GONE, GONE)
    decision = there.run().decisions["a"]
    assert (decision.admission, decision.reason, decision.drained) == (NONE, Reason.NOT_READY, True)


def test_disabled_is_shown_and_offered_to_nobody() -> None:
    there = world(disabled=True)
    outcome = there.after(2, a=GOOD, b=GOOD)
    assert outcome.decisions["a"].reason is Reason.DISABLED
    assert [(entry.provider, entry.admission_state) for entry in candidates(outcome)] == [("b", OPEN), ("a", NONE)]


def test_the_strictest_rule_holds() -> None:
    there = world(disabled=True)
    there.drains["a"] = Drain(id="1", target="a")
    assert there.after(2, a=GOOD).decisions["a"].reason is Reason.DISABLED


# --- all of them ---


def test_five_of_five_closed_are_closed_and_said() -> None:
    """No threshold turns "everything is bad" into "use everything": the document says none, the sentence says it."""
    names = ["a", "b", "c", "d", "e"]
    there = World(network(*map(provider, names), gateways=(edge(),)))
    for _ in range(2):
        outcome = there.after(2, **dict.fromkeys(names, GONE))
    assert set(admissions(outcome).values()) == {NONE}
    assert len(candidates(outcome)) == 5
    assert outcome.sentence.startswith("0 of 5 providers open, 5 none; nobody takes new work for llama; ")
    for _ in range(2):
        outcome = there.after(2, **{**dict.fromkeys(names, GONE), "c": GOOD})
    assert order(outcome)[0] == "c"
    assert "nobody" not in outcome.sentence
