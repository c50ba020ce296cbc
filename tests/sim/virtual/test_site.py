"""A site under everything that can befall it, held against an account of its own."""

import math
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from grid.sim.virtual.clock import Clock
from grid.sim.virtual.site import ERROR_S, MAX_QUEUED, TTL, Site
from grid.sim.virtual.work import Outcome, Request
from tests.sim.virtual.scene import Ends


class Life(RuleBasedStateMachine):
    """Whatever happens: every request is at one place, ends once, and holds what it should hold."""

    @initialize(
        slots=st.integers(1, 4),
        endpoints=st.integers(1, 4),
        kv=st.sampled_from([None, 50, 400]),
        flow_control=st.booleans(),
    )
    def begin(self, slots: int, endpoints: int, kv: int | None, flow_control: bool) -> None:
        self.clock = Clock()
        self.site = Site("one", slots, self.clock, endpoints=endpoints, kv_tokens=kv, flow_control=flow_control)
        self.ends = Ends(self.clock)
        self.sent: list[Request] = []
        self.gone: set[Request] = set()

    def held(self) -> list[Request]:
        return [one for one in self.sent if one not in self.ends.outcomes and one not in self.gone]

    @rule(
        service=st.floats(0.01, 30.0),
        prompt=st.integers(0, 90),
        output=st.integers(0, 90),
        part=st.sampled_from([0.0, 0.5, math.inf]),
        past=st.booleans(),
    )
    def send(self, service: float, prompt: int, output: int, part: float, past: bool) -> None:
        request = Request(service, first=service * part, prompt=prompt, output=output)
        request.left = self.ends.heard
        self.sent.append(request)
        (self.site.bypass if past else self.site.send)(request)

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.3, 2.0, 9.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.clock.run(self.clock.now + seconds)

    @rule(endpoints=st.sampled_from([None, 1, 2, 9]))
    def kill(self, endpoints: int | None) -> None:
        self.site.kill(endpoints)

    @rule()
    def halve(self) -> None:
        self.site.kill(self.site.ready // 2)

    @rule(cold=st.sampled_from([0.0, 5.0]))
    def revive(self, cold: float) -> None:
        self.site.revive(cold=cold, factor=3.0)

    @rule()
    def vanish(self) -> None:
        self.site.vanish()
        assert self.site.held == 0

    @rule(broken=st.booleans())
    def fail(self, broken: bool) -> None:
        self.site.failing = broken

    @rule()
    def forget(self) -> None:
        self.site.forget()

    @precondition(lambda self: self.held())
    @rule(number=st.integers(0, 99), anyway=st.booleans())
    def take_back(self, number: int, anyway: bool) -> None:
        held = self.held()
        request = held[number % len(held)]
        started = request.started is not None
        if anyway:
            self.site.cancel(request)
        elif not self.site.withdraw(request):
            assert started
            return
        self.gone.add(request)

    @invariant()
    def everyone_is_where_they_should_be(self) -> None:
        site = self.site
        inside = [*site.running, *site.queue]
        assert len(set(inside)) == len(inside) == site.held
        assert not {*inside} & ({*self.ends.outcomes} | self.gone)
        assert all(request.started is not None for request in site.running)
        assert all(request.started is None for request in site.queue)
        assert [one.arrived for one in site.at_epp] == sorted(one.arrived for one in site.at_epp)

    @invariant()
    def nothing_holds_more_than_there_is(self) -> None:
        site = self.site
        assert len(site.running) <= site.capacity == site.slots * site.ready
        assert site.unseen == sum(request.unseen for request in (*site.running, *site.at_engines))
        assert 0.0 <= site.kv_use() <= 1.0
        assert len(site.engines()) == site.endpoints
        assert sum(engine.running for engine in site.engines() if not engine.age) >= len(site.running)

    @invariant()
    def nobody_waits_who_could_run(self) -> None:
        site = self.site
        if site.kv_tokens is None and site.queue:
            assert len(site.running) == site.capacity
        if site.at_engines:
            assert site.ready
            assert len(site.running) > 0

    def teardown(self) -> None:
        if not hasattr(self, "site"):
            return
        # Left alone and well, everybody's request comes to an end, and nothing is left behind.
        self.site.revive()
        self.clock.run(self.clock.now + 10_000.0)
        assert not self.held()
        assert self.site.held == self.site.unseen == 0
        assert self.site.kv_use() == 0.0
        assert all(request.waited >= 0.0 for request in self.sent)


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLife = Life.TestCase


# --- one thing at a time ----------------------------------------------------------------------------------------------


def a_site(slots: int = 2, **given: object) -> tuple[Clock, Site, Ends, Callable[..., Request]]:
    clock = Clock()
    site = Site("one", slots, clock, **given)  # type: ignore[arg-type]
    ends = Ends(clock)

    def send(service: float, **more: object) -> Request:
        request = Request(service, **more)  # type: ignore[arg-type]
        request.left = ends.heard
        site.send(request)
        return request

    return clock, site, ends, send


def test_what_dies_before_its_first_byte_is_turned_away_and_what_dies_later_is_broken() -> None:
    clock, site, ends, send = a_site(slots=4)
    whole, early, late = send(10.0), send(10.0, first=5.0), send(10.0, first=1.0)
    clock.run(2.0)
    site.kill()
    assert [ends.outcomes[one] for one in (whole, early, late)] == [
        Outcome.UNAVAILABLE, Outcome.UNAVAILABLE, Outcome.BROKEN,
    ]  # fmt: skip


def test_a_pool_without_endpoints_holds_who_comes_for_a_minute() -> None:
    clock, site, ends, send = a_site()
    site.kill()
    at_once = send(1.0)
    clock.run(0.1)
    assert ends.at == {at_once: ERROR_S}
    assert ends.outcomes == {at_once: Outcome.UNAVAILABLE}, "the EPP has not noticed yet"
    clock.run(1.0)
    held = send(1.0)
    clock.run(TTL + 0.9)
    assert held not in ends.outcomes
    clock.run(TTL + 1.1)
    assert (ends.outcomes[held], ends.at[held]) == (Outcome.UNAVAILABLE, TTL + 1.0)
    again = send(1.0)
    clock.run(TTL + 20.0)
    site.revive()
    clock.run(TTL + 22.0)
    assert ends.outcomes[again] is Outcome.ANSWERED


def test_who_waits_too_long_behind_others_is_told_that_the_pool_is_full() -> None:
    clock, _, ends, send = a_site(slots=1)
    for _ in range(6):  # one runs, five wait at the engine
        send(200.0)
    last = send(1.0)
    clock.run(TTL + 1.0)
    assert ends.outcomes == {last: Outcome.SATURATED}


def test_the_line_has_an_end() -> None:
    clock, site, ends, send = a_site(slots=1)
    for _ in range(6 + MAX_QUEUED):
        send(1e6)
    one_more = send(1.0)
    clock.run(0.1)
    assert ends.outcomes == {one_more: Outcome.SATURATED}
    assert site.waiting == 5 + MAX_QUEUED


def test_without_flow_control_everybody_waits_at_the_engines_and_nobody_where_there_are_none() -> None:
    clock, site, ends, send = a_site(slots=1, flow_control=False)
    waiting = [send(10.0) for _ in range(30)]
    assert len(site.at_engines) == 29
    site.kill()
    assert {ends.outcomes[one] for one in waiting} == {Outcome.UNAVAILABLE}
    clock.run(5.0)
    late = send(1.0)
    clock.run(5.1)
    assert ends.outcomes[late] is Outcome.UNAVAILABLE


def test_a_part_of_the_endpoints_takes_its_part_of_the_requests_with_it() -> None:
    clock, site, ends, send = a_site(slots=4, endpoints=4)
    for _ in range(16 + 8):
        send(10.0)
    site.kill(1)
    assert ends.count(Outcome.UNAVAILABLE) == 4 + 2
    assert (len(site.running), site.capacity) == (12, 12)
    clock.run(1.0)
    assert [engine.running for engine in site.engines()] == [4, 4, 4, 4], "the last that is known of the lost one"


def test_a_vanished_site_answers_nothing() -> None:
    clock, site, ends, send = a_site(slots=1)
    held = [send(10.0) for _ in range(9)]
    site.vanish()
    assert {ends.outcomes[one] for one in held} == {Outcome.BROKEN}
    late = send(1.0)
    clock.run(0.1)
    assert ends.outcomes[late] is Outcome.UNREACHABLE


def test_a_broken_engine_is_fast_with_errors_and_a_cold_one_slow() -> None:
    clock, site, ends, send = a_site(slots=1)
    site.failing = True
    bad = send(10.0)
    clock.run(1.0)
    assert (ends.outcomes[bad], ends.at[bad]) == (Outcome.FAILED, ERROR_S)
    site.failing = False
    site.revive(cold=5.0, factor=2.0)
    cold, warm = send(3.0), send(3.0)
    clock.run(20.0)
    assert (ends.at[cold], ends.at[warm]) == (1.0 + 6.0, 1.0 + 6.0 + 3.0)


def test_a_request_larger_than_the_cache_runs_alone() -> None:
    clock, site, ends, send = a_site(slots=8, kv_tokens=1000)
    big = send(10.0, prompt=600, output=2000)
    small = send(1.0, prompt=10, output=10)
    assert site.kv_use() == pytest.approx(0.6)
    clock.run(5.0)
    assert site.kv_use() == pytest.approx(0.8), "it grows to all of the cache, and no further"
    assert small.started is None
    clock.run(20.0)
    assert ends.at[big] == 10.0
    assert ends.at[small] == 11.0
    assert site.kv_use() == 0.0


def test_the_cache_a_request_had_elsewhere_is_not_taken_off_here() -> None:
    clock = Clock()
    with_cache = Site("one", 1, clock, kv_tokens=1000)
    without = Site("two", 1, clock)
    request = Request(5.0, prompt=500, output=500)
    sites = [without]
    request.left = lambda one, _: sites.pop().send(one) if sites else None
    with_cache.send(request)
    with_cache.kill()
    clock.run(100.0)
    with_cache.revive()
    assert with_cache.held == without.held == 0
    assert without._committed == 0


def test_an_epp_holds_back_while_caches_are_full() -> None:
    clock, site, ends, send = a_site(slots=8, kv_tokens=1000)
    send(10.0, prompt=850)
    waits = send(1.0, prompt=10)
    assert waits.started is None
    assert list(site.at_epp) == [waits]
    clock.run(20.0)
    assert ends.at[waits] == 11.0


def test_what_was_cut_off_and_came_back_ends_by_its_second_start() -> None:
    clock = Clock()
    site = Site("one", 1, clock)
    ended: list[float] = []

    def left(request: Request, outcome: Outcome) -> None:
        if outcome is Outcome.ANSWERED:
            ended.append(clock.now)
        else:
            site.revive()
            site.send(request)

    request = Request(10.0)
    request.left = left
    site.send(request)
    clock.run(2.0)
    site.kill()
    clock.run(30.0)
    assert ended == [12.0]
    assert request.waited == 0.0
