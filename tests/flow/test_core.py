"""The state machine, case by case."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.flow import AdmissionCore, AdmissionPolicy, Band, PoolState, State
from grid.model import ConfigError, Reason
from tests.flow.build import MODEL, arrive, core, granted, run, signal, states

# --- how much goes at once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ceiling", [0.0, 0.7, 1.0, 1.5])
def test_a_burst_of_ten_thousand_grants_what_there_is_room_for(ceiling: float) -> None:
    made = core(("only", ceiling), pools=[signal(slots=64, held=0)], max_queued=20_000)
    tickets = arrive(made, 10_000)
    assert granted(tickets) == 64 + math.floor(ceiling * 5)
    assert made.waiting == 10_000 - granted(tickets)
    made.update(1.0, [signal(slots=64, held=0)])
    assert granted(tickets) == 64 + math.floor(ceiling * 5), "leases count until they are seen in flight"


@given(
    ready=st.integers(1, 200),
    slots=st.integers(1, 64),
    hundredths=st.integers(0, 300),
    held=st.integers(0, 500),
    queue_capacity=st.integers(1, 20),
)
def test_room_is_exact_in_whole_requests(
    ready: int, slots: int, hundredths: int, held: int, queue_capacity: int
) -> None:
    pool = signal(slots=slots, held=held, ready=ready, queue_capacity=queue_capacity)
    made = core(("only", hundredths / 100), pools=[pool])
    room = slots * ready + hundredths * queue_capacity * ready // 100 - held
    assert made.pools["east"].limits == [room]


def test_bands_share_the_room_by_their_ceilings() -> None:
    made = core(("high", 1.5), ("mid", 1.0), ("low", 0.0), pools=[signal(slots=4)])
    assert granted(arrive(made, 9, band="low")) == 4
    assert granted(arrive(made, 9, band="mid")) == 5
    assert granted(arrive(made, 9, band="high")) == 2
    assert made.pools["east"].saturation == pytest.approx(7 / 5)


def test_what_others_hold_counts() -> None:
    assert granted(arrive(core(pools=[signal(slots=8, held=6)]), 9)) == 2
    assert granted(arrive(core(pools=[signal(slots=8, held=60)]), 9)) == 0


def test_kv_pressure_holds_a_band_back_at_its_ceiling() -> None:
    made = core(("high", 1.0), ("low", 0.7), pools=[signal(kv=0.7)])  # 0.78 of the healthy limit
    assert states(arrive(made, 1, band="low")) == ["queued"]
    assert states(arrive(made, 1, band="high")) == ["granted"]
    assert made.pools["east"].saturation == pytest.approx(0.7 / 0.9)
    news = made.update(1.0, [signal(kv=0.63)])
    assert states(news) == ["granted"], "0.7 of the healthy limit is not above the ceiling"


def test_a_band_may_have_a_kv_limit_of_its_own() -> None:
    made = AdmissionCore(AdmissionPolicy(bands=(Band("batch", 0.0, kv=1.0),)))
    made.reroute(0.0, {MODEL: ["east"]})
    made.update(0.0, [signal(kv=0.8)])
    assert granted(arrive(made, 9)) == 8
    made.update(1.0, [signal(kv=0.95)])
    assert made.pools["east"].limits[0] < 0


def test_no_endpoint_no_room() -> None:
    made = core(("only", 1.5), pools=[signal(ready=0)])
    assert states(arrive(made, 1)) == ["queued"]
    assert made.pools["east"].saturation is None
    assert granted(made.update(1.0, [signal(ready=1)])) == 1


# --- bands and order --------------------------------------------------------------------------------------------------


def test_a_free_slot_goes_to_the_most_important_band() -> None:
    made = core(("high", 0.0), ("low", 0.0), pools=[signal(slots=1)])
    (holder,) = run(made, arrive(made, 1, band="low"))
    (low,) = arrive(made, 1, band="low")
    (high,) = arrive(made, 1, band="high")
    assert made.finished(1.0, holder) == [high]
    assert (high.state, low.state) == (State.GRANTED, State.QUEUED)
    assert high.waited == 1.0


def test_an_unknown_band_is_the_lowest() -> None:
    made = core(("high", 0.0), ("low", 0.0))
    assert made.level("high") == 0
    assert made.level("nonesuch") == made.level(None) == 1


@pytest.mark.parametrize(
    "bands",
    [
        (),
        (Band("a"), Band("a")),
        (Band("a", 0.7), Band("b", 1.0)),
        (Band("a", 1.0), Band("b", 0.5, kv=1.1)),
    ],
)
def test_bands_that_make_no_sense_are_refused(bands: tuple[Band, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        AdmissionPolicy(bands=bands)
    assert caught.value.reason is Reason.CONFIG_CONFLICT


def test_models_on_one_pool_take_turns_within_a_band() -> None:
    made = core(pools=[signal(slots=1)], routes={"a": ["east"], "b": ["east"]})
    (holder,) = run(made, arrive(made, 1, model="a"))
    arrive(made, 3, model="a")
    arrive(made, 3, model="b")
    order = []
    for _ in range(6):
        (holder,) = made.finished(1.0, holder)
        order.append(holder.model)
    assert order == ["a", "b", "a", "b", "a", "b"]


def test_a_band_of_one_model_goes_before_a_lower_band_of_another() -> None:
    made = core(("high", 0.0), ("low", 0.0), pools=[signal(slots=1)], routes={"a": ["east"], "b": ["east"]})
    (holder,) = run(made, arrive(made, 1, model="a", band="low"))
    arrive(made, 2, model="a", band="low")
    (high,) = arrive(made, 1, model="b", band="high")
    assert made.finished(1.0, holder) == [high]


# --- tenants ----------------------------------------------------------------------------------------------------------


def test_a_thousand_requests_of_one_caller_are_one_turn() -> None:
    made = core(pools=[signal(slots=1)])
    (holder,) = run(made, arrive(made, 1))
    arrive(made, 500, tenant="loud")
    (quiet,) = arrive(made, 1, tenant="quiet")
    (holder,) = made.finished(1.0, holder)
    assert holder.tenant == "loud"
    assert made.finished(2.0, holder) == [quiet]


def test_a_full_queue_makes_room_at_the_cost_of_whoever_has_most_in_it() -> None:
    made = core(pools=[signal(slots=1)], max_queued=3)
    run(made, arrive(made, 1))
    loud = arrive(made, 3, tenant="loud")
    (quiet,) = arrive(made, 1, tenant="quiet")
    assert quiet.state is State.QUEUED
    assert states(loud) == ["queued", "queued", "refused"]
    assert made.collect() == [loud[2]]
    assert (loud[2].reason, loud[2].status) == (Reason.QUEUE_FULL, 503)
    (second,) = arrive(made, 1, tenant="quiet")
    assert second.state is State.REFUSED, "with it, quiet would have as many as loud"
    assert states(loud) == ["queued", "queued", "refused"]


def test_turns_by_cost_are_corrected_when_the_cost_is_known() -> None:
    made = core(pools=[signal(slots=1)], by_cost=True, quantum=10)
    (holder,) = run(made, arrive(made, 1))
    arrive(made, 5, tenant="a", cost=10)
    arrive(made, 5, tenant="b", cost=10)
    (first,) = made.finished(1.0, holder)
    assert first.tenant == "a"
    order = []
    for at in range(2, 6):
        (nxt,) = made.finished(float(at), first, cost=40 if first.tenant == "a" else None)
        first = nxt
        order.append(first.tenant)
    assert order == ["b", "b", "b", "b"], "a took four times what was charged"


# --- the bounds -------------------------------------------------------------------------------------------------------


def test_a_full_queue_refuses_at_once() -> None:
    made = core(pools=[signal(slots=1)], max_queued=2)
    tickets = run(made, arrive(made, 1)) + arrive(made, 3)
    assert states(tickets) == ["running", "queued", "queued", "refused"]
    refused = tickets[-1]
    assert (refused.reason, refused.status) == (Reason.QUEUE_FULL, 503)
    assert refused.retry_after is not None
    assert 5 <= refused.retry_after <= 7, "nothing is known of the drain rate"


def test_a_queue_is_full_for_its_band_and_model_alone() -> None:
    made = core(("high", 0.0), ("low", 0.0), pools=[signal(slots=1)], max_queued=1)
    run(made, arrive(made, 1))
    assert states(arrive(made, 2, band="low")) == ["queued", "refused"]
    assert states(arrive(made, 2, band="high")) == ["queued", "refused"]


def test_retry_after_follows_the_drain_rate_and_is_spread() -> None:
    made = core(pools=[signal(slots=1)], max_queued=10)
    (holder,) = run(made, arrive(made, 1))
    arrive(made, 10)
    now = 0.0
    for _ in range(20):  # one ends every 0.5 s, so 10 waiting ones take 5 s
        now += 0.5
        (holder,) = made.finished(now, holder)
        made.started(now, holder)
        arrive(made, 1, at=now)
    said = {ticket.retry_after for ticket in arrive(made, 40, at=now)}
    assert said == {5, 6, 7}
    assert made.routes[MODEL].drain.per_s(now) == pytest.approx(2.0, rel=0.1)


def test_who_waits_too_long_gets_504() -> None:
    made = core(pools=[signal(slots=1)], max_wait=3.0)
    run(made, arrive(made, 1))
    (ticket,) = arrive(made, 1, at=1.0)
    assert made.next_deadline() == 4.0
    assert made.tick(3.9) == []
    assert made.tick(4.0) == [ticket]
    assert (ticket.state, ticket.reason, ticket.status) == (State.EXPIRED, Reason.QUEUE_TIMEOUT, 504)
    assert ticket.retry_after is not None
    assert made.waiting == 0
    assert made.next_deadline() is None


def test_a_deadline_ends_the_wait_before_max_wait() -> None:
    made = core(pools=[signal(slots=1)], max_wait=30.0)
    run(made, arrive(made, 1))
    (ticket,) = arrive(made, 1, deadline=2.0)
    assert made.next_deadline() == 2.0
    assert made.tick(2.0) == [ticket]
    assert ticket.state is State.EXPIRED


def test_a_deadline_that_cannot_be_kept_is_refused_at_the_door() -> None:
    made = core(pools=[signal(slots=1)], max_queued=100)
    (holder,) = run(made, arrive(made, 1))
    arrive(made, 20, tenant="loud")
    for at in range(1, 11):  # one a second
        (holder,) = made.finished(float(at), holder)
        made.started(float(at), holder)
    assert made.waiting == 10
    (late,) = arrive(made, 1, at=10.0, tenant="loud", deadline=15.0)
    assert (late.state, late.reason, late.status) == (State.REFUSED, Reason.ADMISSION_REFUSED, 503)
    (in_time,) = arrive(made, 1, at=10.0, tenant="loud", deadline=25.0)
    (quiet,) = arrive(made, 1, at=10.0, tenant="quiet", deadline=15.0)
    assert states([in_time, quiet]) == ["queued", "queued"], "the turns of tenants count, not only the length"


def test_a_deadline_that_has_passed_is_refused_even_where_there_is_room() -> None:
    (ticket,) = arrive(core(), 1, at=5.0, deadline=5.0)
    assert ticket.reason is Reason.ADMISSION_REFUSED


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_cancelled_requests_leave_from_anywhere_and_wake_the_next() -> None:
    made = core(pools=[signal(slots=1)])
    (holder,) = run(made, arrive(made, 1))
    first, second, third = arrive(made, 3)
    assert made.cancelled(1.0, second) == []
    assert made.cancelled(1.0, holder) == [first]
    assert made.cancelled(1.0, first) == [third], "a slot that was granted and not yet started passes on"
    assert states([holder, first, second, third]) == ["cancelled", "cancelled", "cancelled", "granted"]
    assert made.waiting == 0


def test_an_end_is_an_end() -> None:
    made = core(pools=[signal(slots=1)])
    (ticket,) = run(made, arrive(made, 1))
    made.finished(1.0, ticket)
    assert made.finished(2.0, ticket) == made.cancelled(2.0, ticket) == made.started(2.0, ticket) == []
    assert ticket.state is State.FINISHED
    assert made.slots == 0


def test_finishing_what_still_waits_is_leaving() -> None:
    made = core(pools=[signal(slots=1)])
    run(made, arrive(made, 1))
    (ticket,) = arrive(made, 1)
    made.finished(1.0, ticket)
    assert ticket.state is State.CANCELLED


def test_time_outs_of_the_cancelled_are_not_kept() -> None:
    made = core(pools=[signal(slots=1)], max_queued=100_000)
    run(made, arrive(made, 1))
    (stays,) = arrive(made, 1)
    for _ in range(5000):
        made.cancelled(0.0, arrive(made, 1)[0])
    assert len(made._expiries) < 100
    made.cancelled(0.0, stays)
    assert made._expiries == []


# --- leases -----------------------------------------------------------------------------------------------------------


def test_a_slot_that_nobody_starts_lapses() -> None:
    made = core(pools=[signal(slots=1)], lease=10.0)
    (ticket,) = arrive(made, 1)
    (waiting,) = arrive(made, 1)
    assert made.next_deadline() == 10.0
    assert made.tick(9.9) == []
    assert made.tick(10.0) == [waiting, ticket]
    assert states([ticket, waiting]) == ["lapsed", "granted"]
    made.finished(11.0, ticket)
    assert (ticket.state, made.slots) == (State.LAPSED, 1)


def test_a_lapsed_slot_comes_back_when_its_request_is_started_after_all() -> None:
    made = core(pools=[signal(slots=1)], lease=10.0)
    (ticket,) = arrive(made, 1)
    made.tick(10.0)
    assert made.slots == 0
    made.started(11.0, ticket)
    assert (ticket.state, made.slots) == (State.RUNNING, 1)
    made.finished(12.0, ticket)
    assert (ticket.state, made.slots) == (State.FINISHED, 0)


def test_a_started_slot_does_not_lapse() -> None:
    made = core(lease=10.0)
    (ticket,) = run(made, arrive(made, 1))
    assert made.tick(100.0) == []
    assert ticket.state is State.RUNNING


# --- several pools ----------------------------------------------------------------------------------------------------


def test_a_request_may_go_when_any_of_its_pools_has_room() -> None:
    made = core(pools=[signal("east", held=8), signal("west", held=6)])
    first, second, third = arrive(made, 3)
    assert states([first, second, third]) == ["granted", "granted", "queued"]
    assert first.allowed == second.allowed == ("west",)
    assert first.pool_key == "west"
    assert third.allowed == ()


def test_a_burst_on_two_pools_takes_the_room_of_both() -> None:
    made = core(pools=[signal("east", held=5), signal("west", held=1)])
    tickets = arrive(made, 50)
    assert granted(tickets) == 3 + 7
    assert [made.pools[key].used for key in ("east", "west")] == [3, 7]


def test_the_pick_may_move_a_slot_among_the_allowed_pools() -> None:
    made = core(pools=[signal("east", held=6), signal("west", held=5)])
    (ticket,) = arrive(made, 1)
    assert (ticket.pool_key, set(ticket.allowed)) == ("west", {"east", "west"})
    assert made.bind(0.0, ticket, "east")
    assert (ticket.pool_key, made.pools["east"].leases, made.pools["west"].leases) == ("east", 1, 0)
    made.started(0.0, ticket)
    assert made.bind(0.0, ticket, "west")
    assert (made.pools["east"].own, made.pools["west"].own) == (0, 1)
    assert made.bind(0.0, ticket, "west"), "it is there already"


def test_whatever_is_picked_among_allowed_no_pool_goes_over() -> None:
    made = core(pools=[signal("east", held=4), signal("west", held=4)])
    for ticket in arrive(made, 8):
        assert made.bind(0.0, ticket, min(ticket.allowed))
    assert [made.pools[key].used for key in ("east", "west")] == [4, 4]


def test_binding_past_the_ceiling_is_said_and_counted() -> None:
    made = core(pools=[signal("east", held=8), signal("west", held=0)])
    (ticket,) = arrive(made, 1)
    assert not made.bind(0.0, ticket, "east")
    assert ticket.pool_key == "east"
    assert not made.bind(0.0, ticket, "nonesuch")
    made.finished(1.0, ticket)
    assert not made.bind(1.0, ticket, "west")


def test_a_moved_slot_leaves_its_place_to_who_waits() -> None:
    made = core(pools=[signal("east", held=7), signal("west", held=7)], routes={"a": ["east", "west"], "b": ["east"]})
    (first,) = arrive(made, 1, model="a")
    assert first.pool_key == "east"
    (second,) = arrive(made, 1, model="b")
    assert second.state is State.QUEUED
    made.bind(0.0, first, "west")
    assert made.collect() == [second]


def test_a_slot_of_a_lost_pool_may_go_anywhere() -> None:
    made = core(pools=[signal("east", held=8), signal("west", held=7)])
    (ticket,) = arrive(made, 1)
    made.reroute(1.0, {MODEL: ["east"]})
    assert ticket.allowed == ("east",)


# --- routes -----------------------------------------------------------------------------------------------------------


def test_where_no_pool_has_a_say_requests_pass() -> None:
    made = core()
    tickets = arrive(made, 100, model="nonesuch")
    assert granted(tickets) == 100
    ticket = tickets[0]
    assert (ticket.pool_key, ticket.allowed) == (None, ())
    assert not made.bind(0.0, ticket, "east")
    made.started(0.0, ticket)
    made.started(0.0, ticket)
    made.finished(1.0, ticket)
    made.cancelled(1.0, tickets[1])
    assert made.passed.counts[0] == {"granted": 100, "finished": 1, "cancelled": 1}
    assert made.slots == 0


def test_who_waits_for_a_model_that_loses_its_pools_goes_on_to_the_pick() -> None:
    made = core(pools=[signal(slots=1)])
    run(made, arrive(made, 1))
    waiting = arrive(made, 3)
    news = made.reroute(1.0, {MODEL: ()})
    assert news == waiting
    assert all(ticket.state is State.GRANTED and ticket.pool_key is None for ticket in waiting)
    assert made.waiting == 0
    assert made.next_deadline() is None


def test_a_new_pool_serves_who_waits() -> None:
    made = core(pools=[signal("east", held=8), signal("west", slots=2)], routes={MODEL: ["east"]})
    waiting = arrive(made, 3)
    assert made.reroute(1.0, {MODEL: ["east", "west"]}) == waiting[:2]
    assert {ticket.pool_key for ticket in waiting[:2]} == {"west"}


def test_a_lost_pool_is_forgotten_when_its_last_request_ends() -> None:
    made = core(pools=[signal("east"), signal("west")])
    (ticket,) = run(made, arrive(made, 1))
    made.reroute(1.0, {MODEL: ["west"]})
    made.update(1.0, [signal("west")])
    assert set(made.pools) == {"east", "west"}
    made.finished(2.0, ticket)
    assert set(made.pools) == {"west"}


def test_a_lapsed_slot_of_a_forgotten_pool_can_still_be_started() -> None:
    made = core(pools=[signal("east"), signal("west", held=8)], lease=5.0)
    (ticket,) = arrive(made, 1)
    made.tick(5.0)
    made.reroute(6.0, {MODEL: ["west"]})
    made.update(6.0, [signal("west", held=8)])
    assert set(made.pools) == {"west"}
    made.started(7.0, ticket)
    assert made.slots == 1
    made.finished(8.0, ticket)
    assert (made.slots, set(made.pools)) == (0, {"west"})


def test_routes_and_signals_may_come_in_any_order() -> None:
    made = AdmissionCore()
    made.update(0.0, [signal("east")])
    made.reroute(0.0, {MODEL: ["east", "east"]})
    assert granted(arrive(made, 20)) == 8 + 5
    made.reroute(1.0, {MODEL: ["east"], "other": ["east"]})
    assert set(made.routes) == {MODEL, "other"}


# --- no number to act on ----------------------------------------------------------------------------------------------


def test_a_pool_that_was_never_read_is_open_to_its_declared_capacity() -> None:
    made = core(pools=[signal(slots=8, held=None, ready=None)])
    assert made.pools["east"].state is PoolState.ABSENT
    assert granted(arrive(made, 20)) == 8


def test_a_pool_whose_sample_is_too_old_is_open_by_own_count() -> None:
    made = core(pools=[signal(slots=8, held=8, bound=5.0)])
    waiting = arrive(made, 20)
    assert granted(waiting) == 0
    assert made.next_deadline() == 5.0
    assert len(made.tick(5.0)) == 8
    assert made.pools["east"].state is PoolState.STALE
    assert made.pools["east"].in_flight == 8
    assert made.next_deadline() == 15.0, "the leases"
    made.update(6.0, [signal(slots=8, held=16, bound=5.0)])
    assert made.pools["east"].state.value == "fresh"


def test_a_stale_pool_keeps_the_endpoints_it_was_last_known_to_have() -> None:
    made = core(pools=[signal(slots=8, ready=3, held=0)])
    made.update(5.0, [signal(slots=8, ready=3, held=None)])
    assert made.pools["east"].state is PoolState.STALE
    assert granted(arrive(made, 50, at=5.0)) == 24


def test_a_stale_pool_last_seen_without_an_endpoint_is_believed_to_have_one() -> None:
    made = core(pools=[signal(slots=8, ready=0, held=0)])
    made.update(5.0, [signal(slots=8, ready=0, held=None)])
    assert granted(arrive(made, 50, at=5.0)) == 8


def test_without_a_number_a_share_of_the_declared_capacity_is_open() -> None:
    made = core(pools=[signal(slots=8, held=None, share=0.25)])
    assert granted(arrive(made, 20)) == 2


# --- samples ----------------------------------------------------------------------------------------------------------


def test_own_requests_are_not_counted_twice_when_a_sample_has_seen_them() -> None:
    made = core(pools=[signal(slots=8)])
    run(made, arrive(made, 6))
    made.update(1.0, [signal(slots=8, held=6)])
    assert granted(arrive(made, 9, at=1.0)) == 2


def test_a_request_too_young_to_be_in_the_sample_counts_beside_it() -> None:
    made = core(pools=[signal(slots=8)])
    run(made, arrive(made, 6, at=0.9), at=0.9)
    made.update(1.0, [signal(slots=8, held=0)])
    assert granted(arrive(made, 9, at=1.0)) == 2


def test_what_ended_since_the_sample_is_room() -> None:
    made = core(pools=[signal(slots=8)])
    running = run(made, arrive(made, 8))
    made.update(2.0, [signal(slots=8, held=8, age=1.0)])
    for ticket in running[:3]:
        made.finished(2.0, ticket)
    assert granted(arrive(made, 9, at=2.0)) == 3


def test_a_sample_told_twice_changes_nothing() -> None:
    made = core(pools=[signal(slots=8, held=0)])
    made.update(1.0, [signal(slots=8, held=4, age=0.5)])
    run(made, arrive(made, 2, at=1.0), at=1.0)
    before = list(made.pools["east"].limits)
    made.update(2.0, [signal(slots=8, held=4, age=1.45, share=0.5)])
    assert made.pools["east"].limits == before


def test_numbers_that_lag_behind_their_sample_give_no_room_twice() -> None:
    """A mean that the source rewrites every 5 s, scraped every second: 500 wait, and 3 are let go, once."""
    made = core(pools=[signal(slots=8, held=8)], max_queued=500)
    waiting = arrive(made, 500)
    run(made, made.update(1.0, [signal(slots=8, held=5, lag=7.0)]), at=1.0)
    for second in (2.0, 3.0, 4.0, 5.0, 6.0, 7.0):
        assert made.update(second, [signal(slots=8, held=5, lag=7.0)]) == []
    assert made.waiting == len(waiting) - 3
    assert made.update(8.0, [signal(slots=8, held=8, lag=7.0)]) == []


def test_one_low_reading_frees_what_it_says_and_no_more() -> None:
    made = core(("only", 1.0), pools=[signal(slots=8, held=30)], max_queued=500)
    arrive(made, 500)
    freed = run(made, made.update(1.0, [signal(slots=8, held=10)]), at=1.0)
    assert len(freed) == 3
    assert made.update(2.0, [signal(slots=8, held=13)]) == []
    assert made.update(3.0, [signal(slots=8, held=13)]) == []


def test_an_older_sample_is_not_believed() -> None:
    made = core(pools=[signal(slots=8, held=8)])
    made.update(1.0, [signal(slots=8, held=0, age=2.0)])
    assert granted(arrive(made, 9, at=1.0)) == 0


def test_time_never_runs_backwards() -> None:
    made = core(pools=[signal(slots=1)])
    run(made, arrive(made, 1, at=10.0), at=10.0)
    (ticket,) = arrive(made, 1, at=5.0)
    assert ticket.arrived == 10.0


# --- shares -----------------------------------------------------------------------------------------------------------


def test_a_gateway_takes_its_share_of_the_free_room() -> None:
    made = core(pools=[signal(slots=40, held=20, share=0.25)])
    assert granted(arrive(made, 100)) == 5


def test_own_requests_that_end_make_way_for_as_many_new_ones_whatever_the_share() -> None:
    made = core(pools=[signal(slots=8)])
    running = run(made, arrive(made, 8))
    arrive(made, 8)
    made.update(1.0, [signal(slots=8, held=8, share=0.1)])
    for ticket in running:
        assert len(made.finished(2.0, ticket)) == 1


@given(
    slots=st.integers(0, 60),
    held=st.integers(0, 80),
    gateways=st.integers(2, 12),
    turn=st.integers(0, 10_000),
    ceiling=st.sampled_from([0.0, 0.7, 1.0, 1.5]),
)
def test_equal_shares_add_up_to_the_room_exactly(
    slots: int, held: int, gateways: int, turn: int, ceiling: float
) -> None:
    limits = []
    for index in range(gateways):
        made = core(("only", ceiling), phase=index / gateways)
        pool = signal("west", slots=slots, held=held, share=1 / gateways)
        made.update(1.0, [pool], turn)
        limits += made.pools["west"].limits
    assert sum(limits) == slots + math.floor(ceiling * 5 + 1e-6) - held
