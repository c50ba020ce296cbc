"""The virtual EPP says what the simulated one's page says in the same state, as the daemon reads it."""

import random
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grid.model import Reading, ReadySource, Reason, ScrapeError
from grid.signals.scan import read_page
from grid.sim.epp import SimulatedEpp
from grid.sim.epp_page import PROFILES
from grid.sim.pool import Outcome as PoolOutcome
from grid.sim.pool import PoolShape, SimulatedPool, Ticket
from grid.sim.values import Flow
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.gauges import Epp, Page
from grid.sim.virtual.site import ERROR_S, Site
from grid.sim.virtual.traffic import invisible
from grid.sim.virtual.work import Fixed, Outcome, Request

READABLE = [name for name in PROFILES if name != "lwepp"]
SAME = {
    PoolOutcome.ANSWERED: {Outcome.ANSWERED},
    PoolOutcome.LOST: {Outcome.UNAVAILABLE},
    PoolOutcome.REJECTED: {Outcome.UNAVAILABLE, Outcome.SATURATED},
    PoolOutcome.EXPIRED: {Outcome.UNAVAILABLE, Outcome.SATURATED},
}


class Twins:
    """The simulated pool of one endpoint and a virtual site, to which the same happens at the same time."""

    def __init__(self, release: str, slots: int = 3, *, endpoints: int = 1, started: float = 0.0) -> None:
        flow_control = PROFILES[release].flow_control
        shape = PoolShape(endpoints, slots, flow_control=flow_control, kv_full=0.0)
        pool = SimulatedPool(shape, rng=random.Random(1), now=started)
        self.now = 0.0
        self.real = SimulatedEpp(release, "twin", pool, started=started, started_wall=started)
        self.clock = Clock()
        self.site = Site("twin", slots, self.clock, endpoints=endpoints, flow_control=flow_control)
        page = Page(release=release, started=started)
        self.epp = Epp(self.site, self.clock, random.Random(1), page)
        self.pairs: list[tuple[Ticket, Request]] = []
        self.ended: dict[Request, Outcome] = {}

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.real.advance(self.now)
        self.clock.run(self.now)

    def submit(self, service: float) -> None:
        request = Request(service)
        request.left = self.ended.__setitem__
        self.site.take(request)
        self.pairs.append((self.real.submit(Flow(), service, self.now), request))
        self.clock.run(self.now)

    def cancel(self, number: int) -> None:
        held = [(ticket, request) for ticket, request in self.pairs if ticket.outcome is None]
        if held:
            ticket, request = held[number % len(held)]
            self.real.cancel(ticket, self.now)
            self.site.cancel(request)

    def kill(self) -> None:
        self.real.pool.kill(self.now)
        self.site.kill()

    def revive(self) -> None:
        self.real.pool.revive(self.now)
        self.site.revive()

    def agree(self) -> None:
        expected = read_page(self.real.page(self.now), pool="twin").reading
        found = self.epp.read()
        for field in fields(Reading):
            said, wanted = getattr(found, field.name), getattr(expected, field.name)
            assert said == pytest.approx(wanted) if isinstance(wanted, float) else said == wanted, field.name
        for ticket, request in self.pairs:
            if ticket.outcome is None:
                assert request not in self.ended
            elif ticket.outcome is not PoolOutcome.CANCELLED:
                told = self.ended.get(request)
                assert told in SAME[ticket.outcome] or (told is None and self.now <= request.arrived + ERROR_S)
                assert request.started == pytest.approx(ticket.started_at)


ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.floats(0.05, 20.0)),
    st.tuples(st.just("submit"), st.floats(0.05, 20.0)),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("kill")),
    st.tuples(st.just("revive")),
)


@pytest.mark.parametrize("release", READABLE)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([0.0, 0.0, 0.0, 0.0871, 0.3137, 1.0379, 4.717, 31.13]), ACTIONS), max_size=40
    )
)
@settings(max_examples=25, deadline=None)
def test_the_same_happens_and_the_page_says_the_same(
    release: str, steps: list[tuple[float, tuple[str, *tuple[float, ...]]]]
) -> None:
    twins = Twins(release)
    for seconds, (what, *given_) in steps:
        twins.wait(seconds)
        getattr(twins, what)(*given_)
        twins.agree()
    twins.wait(75.0)
    twins.agree()


@pytest.mark.parametrize("release", READABLE)
def test_several_endpoints_that_are_all_full_read_alike(release: str) -> None:
    twins = Twins(release, endpoints=4)
    for _ in range(4 * 3 + 4 * 5 + 6):  # slots, healthy queues, and some in the EPP
        twins.submit(50.0)
    twins.wait(6.1)
    twins.agree()
    assert twins.epp.read().held_live == 38


def page(**given: object) -> tuple[Clock, Site, Epp]:
    clock = Clock()
    made = Page(**given)  # type: ignore[arg-type]
    site = Site("one", 8, clock, endpoints=2, flow_control=made.live and made.profile.flow_control)
    return clock, site, Epp(site, clock, random.Random(4), made)


def fill(site: Site, number: int, seconds: float = 30.0) -> list[Request]:
    requests = [Request(seconds) for _ in range(number)]
    for request in requests:
        request.left = lambda *_: None
        site.take(request)
    return requests


def test_a_page_with_means_alone_says_nothing_of_this_moment() -> None:
    clock, site, epp = page(live=False)
    fill(site, 10)
    clock.run(5.0)
    reading = epp.read()
    assert (reading.dialect, reading.ready, reading.ready_source) == ("inference_pool", 2, ReadySource.EPP)
    assert reading.in_flight is reading.flow_control_queue is reading.pool_saturation is reading.ready_live is None
    assert reading.average_running_requests == 5.0
    assert reading.means_only
    assert reading.held_engine == 10.0


@pytest.mark.parametrize(("release", "ready"), [("gie-1.2", 2), ("gie-1.5", 0)])
def test_the_oldest_releases_never_take_their_ready_count_back(release: str, ready: int) -> None:
    clock, site, epp = page(live=False, release=release)
    fill(site, 10)
    clock.run(5.0)
    site.kill()
    clock.run(60.0)
    assert epp.read().ready == ready


def test_counts_vanish_with_the_process_and_the_engines_still_show_the_truth() -> None:
    clock, site, epp = page()
    told: list[Outcome] = []
    for request in fill(site, 16 + 10 + 3, seconds=12.0):
        request.left = lambda _, outcome: told.append(outcome)
    clock.run(6.0)
    assert epp.read().held_live == 29
    before = epp.read().started_at
    epp.restart()
    assert told == [Outcome.UNAVAILABLE] * 3, "who stood in the EPP's line"
    first = epp.read()
    assert first.in_flight is first.flow_control_queue is first.ready_endpoints is first.average_queue_size is None
    assert (first.ready, first.started_at) == (2, 6.0)
    assert before != 6.0
    fill(site, 1)
    assert epp.read().in_flight == 0.0 or epp.read().in_flight is None, "it waits in the EPP, whose engines are full"
    clock.run(10.99)
    assert epp.read().ready_endpoints is None, "the first time is 5 s after the start"
    clock.run(11.5)
    assert epp.read().held_engine == pytest.approx(16 + 10 + 1)
    clock.run(30.0)
    assert told.count(Outcome.ANSWERED) == 26
    assert epp.read().in_flight == 1.0, "what came since"


def test_traffic_that_passes_the_epp_by_shows_in_means_only() -> None:
    clock, site, epp = page()
    invisible(clock, site, Fixed(1000.0), rate=2.0, rng=random.Random(9), bypass=True)
    (seen,) = fill(site, 1, seconds=1000.0)
    clock.run(5.0)
    reading = epp.read()
    assert reading.in_flight == 1.0
    assert reading.held_engine is not None
    assert 5 < reading.held_engine <= site.held == site.unseen + 1
    site.cancel(seen)
    assert epp.read().in_flight == 0.0
    site.kill()
    assert (site.held, site.unseen) == (0, 0)
    clock, site, epp = page()
    invisible(clock, site, Fixed(1.0, jitter=0.0), rate=6.0, rng=random.Random(9))
    clock.run(60.0)
    assert epp.read().in_flight == site.held > 1


def test_a_page_may_lie_stammer_or_stay_away() -> None:
    clock, site, epp = page(idle=True)
    fill(site, 60)
    clock.run(5.0)
    said = epp.read()
    assert (said.held_live, said.held_engine, said.pool_saturation) == (0.0, 0.0, 0.0)
    clock, site, epp = page(noise=0.2)
    fill(site, 10, seconds=500.0)
    seen = set()
    for number in range(1, 30):
        clock.run(5.0 * number + 5.0)
        seen.add(epp.read().average_running_requests)
    values = [value for value in seen if value is not None]
    assert len(values) > 20
    assert sum(values) / len(values) == pytest.approx(5.0, rel=0.15)
    for given_, reason in (({"denied": True}, Reason.CREDENTIAL_MISSING), ({"lost": 1.0}, Reason.TIMEOUT)):
        with pytest.raises(ScrapeError) as error:
            page(**given_)[2].read()
        assert error.value.reason is reason
    clock, site, epp = page(started=3.0)
    with pytest.raises(ScrapeError) as error:
        epp.read()
    assert error.value.reason is Reason.CONNECT_REFUSED
    clock.run(4.0)
    assert epp.read().ready == 2
    site.vanish()
    with pytest.raises(ScrapeError) as error:
        epp.read()
    assert error.value.reason is Reason.CONNECT_REFUSED
