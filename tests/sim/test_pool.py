import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grid.sim.pool import Outcome, PoolShape, SimulatedPool, Ticket
from grid.sim.values import Flow

FLOW = Flow("t", "m")


class Bench:
    """A pool with its endings noted."""

    def __init__(self, shape: PoolShape) -> None:
        self.ended: list[Ticket] = []
        self.started: list[Ticket] = []
        self.pool = SimulatedPool(
            shape, rng=random.Random(7), on_started=self.started.append, on_finished=self.ended.append
        )

    def outcomes(self) -> Counter[Outcome]:
        return Counter(ticket.outcome for ticket in self.ended if ticket.outcome is not None)


def test_slots_then_engine_queue_then_the_epp_queue() -> None:
    bench = Bench(PoolShape(endpoints=2, slots=4))
    for _ in range(40):
        bench.pool.submit(FLOW, 1.0, now=0.0)
    engines = bench.pool.engines()
    assert [engine.running for engine in engines] == [4, 4]
    # The EPP stops handing out once mean(waiting / 5) reaches 1.
    assert sum(engine.waiting for engine in engines) == 10
    counts = bench.pool.flows()[FLOW]
    assert (counts.in_flight, counts.queued) == (18, 22)
    assert bench.pool.held == 40


def test_without_flow_control_all_goes_to_the_engines_at_once() -> None:
    bench = Bench(PoolShape(endpoints=2, slots=4, flow_control=False))
    for _ in range(40):
        bench.pool.submit(FLOW, 1.0, now=0.0)
    assert [(engine.running, engine.waiting) for engine in bench.pool.engines()] == [(4, 16), (4, 16)]


def test_a_batch_takes_as_long_as_its_waves() -> None:
    bench = Bench(PoolShape(endpoints=2, slots=4))
    for _ in range(24):
        bench.pool.submit(FLOW, 1.0, now=0.0)
    bench.pool.advance(2.5)
    assert len(bench.ended) == 16
    bench.pool.advance(3.0)
    assert bench.outcomes() == {Outcome.ANSWERED: 24}
    assert [ticket.finished_at for ticket in bench.ended] == sorted([1.0, 2.0, 3.0] * 8)
    assert bench.pool.next_event() is None


def test_requests_start_in_the_order_they_came() -> None:
    bench = Bench(PoolShape(endpoints=1, slots=1))
    tickets = [bench.pool.submit(FLOW, 0.5, now=n * 0.01) for n in range(30)]
    bench.pool.advance(100.0)
    assert bench.started == tickets


def test_closed_loop_clients_may_come_back_from_within() -> None:
    shape = PoolShape(endpoints=2, slots=4)
    pool: SimulatedPool

    def again(ticket: Ticket) -> None:
        if pool.now < 10.0:
            pool.submit(ticket.flow, ticket.service, pool.now)

    pool = SimulatedPool(shape, rng=random.Random(1), on_finished=again)
    for _ in range(20):
        pool.submit(FLOW, 1.0, 0.0)
    pool.advance(9.5)
    assert pool.held == 20
    assert pool.flows()[FLOW].answered == 9 * 8


def test_a_dead_endpoint_loses_what_it_holds_and_the_epp_notices_late() -> None:
    bench = Bench(PoolShape(endpoints=2, slots=4))
    for _ in range(8):
        bench.pool.submit(FLOW, 5.0, now=0.0)
    bench.pool.kill(1.0, "vllm-0")
    assert bench.outcomes() == {Outcome.LOST: 4}
    assert [engine.stale for engine in bench.pool.engines()] == [False, False]
    bench.pool.advance(1.3)
    assert [engine.stale for engine in bench.pool.engines()] == [True, False]
    assert bench.pool.engines()[0].running == 4, "the last numbers stay on the page"
    assert bench.pool.submit(FLOW, 1.0, now=1.4).endpoint == "vllm-1"


def test_a_request_sent_to_a_dead_endpoint_in_its_first_moments_is_lost() -> None:
    bench = Bench(PoolShape(endpoints=1, slots=4))
    bench.pool.kill(1.0)
    assert bench.pool.submit(FLOW, 1.0, now=1.1).outcome is Outcome.LOST


def test_requests_wait_in_the_epp_for_a_dead_pool_and_go_on_when_it_returns() -> None:
    bench = Bench(PoolShape(endpoints=2, slots=4))
    bench.pool.kill(0.0)
    waiting = [bench.pool.submit(FLOW, 1.0, now=1.0) for _ in range(5)]
    bench.pool.advance(20.0)
    assert bench.pool.flows()[FLOW].queued == 5
    bench.pool.revive(20.0)
    bench.pool.advance(21.0)
    assert {ticket.outcome for ticket in waiting} == {Outcome.ANSWERED}


def test_they_wait_no_longer_than_the_limit() -> None:
    bench = Bench(PoolShape(endpoints=1, slots=4))
    bench.pool.kill(0.0)
    ticket = bench.pool.submit(FLOW, 1.0, now=1.0)
    bench.pool.advance(60.9)
    assert ticket.outcome is None
    bench.pool.advance(61.0)
    assert [(one.outcome, one.finished_at) for one in bench.ended] == [(Outcome.EXPIRED, 61.0)]


def test_without_flow_control_a_dead_pool_refuses() -> None:
    bench = Bench(PoolShape(endpoints=1, slots=4, flow_control=False))
    bench.pool.kill(0.0)
    assert bench.pool.submit(FLOW, 1.0, now=1.0).outcome is Outcome.REJECTED


def test_a_full_queue_refuses() -> None:
    bench = Bench(PoolShape(endpoints=1, slots=1, max_queued=3))
    outcomes = [bench.pool.submit(FLOW, 1.0, now=0.0).outcome for _ in range(12)]
    # One runs, five wait at the engine, three in the EPP.
    assert outcomes == [None] * 9 + [Outcome.REJECTED] * 3


def test_a_hung_endpoint_keeps_its_requests_and_goes_on_where_it_stopped() -> None:
    bench = Bench(PoolShape(endpoints=1, slots=2))
    ticket = bench.pool.submit(FLOW, 2.0, now=0.0)
    bench.pool.hang(0.5)
    bench.pool.advance(30.0)
    assert ticket.outcome is None
    assert bench.pool.poll_errors() == pytest.approx(29.5 * 20, abs=1)
    bench.pool.revive(30.0)
    bench.pool.advance(40.0)
    assert [(one.outcome, one.finished_at) for one in bench.ended] == [(Outcome.ANSWERED, 31.5)]
    assert bench.pool.poll_errors() == pytest.approx(29.5 * 20, abs=1)


def test_a_cancelled_request_frees_its_place_at_once() -> None:
    bench = Bench(PoolShape(endpoints=1, slots=1))
    first, second = (bench.pool.submit(FLOW, 5.0, now=0.0) for _ in range(2))
    bench.pool.cancel(first, 1.0)
    assert (first.outcome, second.started_at) == (Outcome.CANCELLED, 1.0)
    bench.pool.cancel(first, 2.0)
    assert bench.outcomes() == {Outcome.CANCELLED: 1}


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["submit"] * 6 + ["kill", "hang", "revive", "cancel", "advance", "drop"]),
        st.floats(0.0, 3.0),
        st.integers(0, 2),
    ),
    max_size=120,
)


@settings(max_examples=150)
@given(actions=ACTIONS, flow_control=st.booleans(), ttl=st.sampled_from([None, 2.0]))
def test_every_request_ends_once_or_is_held(
    actions: list[tuple[str, float, int]], flow_control: bool, ttl: float | None
) -> None:
    shape = replace(PoolShape(endpoints=3, slots=2, max_queued=6), flow_control=flow_control, ttl=ttl)
    bench = Bench(shape)
    now = 0.0
    tickets: list[Ticket] = []
    for action, step, which in actions:
        now += step / 4
        name = f"vllm-{which}"
        if action == "submit":
            tickets.append(bench.pool.submit(Flow(f"tenant-{which}"), step, now))
        elif action == "kill":
            bench.pool.kill(now, name)
        elif action == "hang":
            bench.pool.hang(now, name)
        elif action == "revive":
            bench.pool.revive(now, name)
        elif action == "drop":
            bench.pool.drop_all(now)
        elif action == "cancel" and tickets:
            bench.pool.cancel(tickets[which % len(tickets)], now)
        else:
            bench.pool.advance(now)
        check(bench, tickets, shape)
    bench.pool.revive(now)
    bench.pool.advance(now + 1000.0)
    assert bench.pool.held == 0
    assert len(bench.ended) == len(tickets)
    assert bench.pool.next_event() is None


def check(bench: Bench, tickets: list[Ticket], shape: PoolShape) -> None:
    assert len(bench.ended) == len(set(map(id, bench.ended))), "ended twice"
    assert bench.pool.held == len(tickets) - len(bench.ended)
    counts = bench.pool.flows().values()
    assert all(min(row.in_flight, row.queued, row.answered) >= 0 for row in counts)
    assert all(row.requests >= row.in_flight + row.answered for row in counts)
    assert all(engine.running <= shape.slots for engine in bench.pool.engines())
    upcoming = bench.pool.next_event()
    assert upcoming is None or upcoming >= bench.pool.now
