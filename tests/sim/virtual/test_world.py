"""Whole worlds: whatever befalls them, every request ends once, and a seed says it all."""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grid.flow import AdmissionPolicy, Band
from grid.sim.virtual.gateways import Habits
from grid.sim.virtual.gauges import Page
from grid.sim.virtual.traffic import Impatient, invisible, poisson
from grid.sim.virtual.work import Exponential, Fixed, Lognormal, Outcome, Request
from grid.sim.virtual.world import Fleet, Shape, World
from tests.sim.virtual.scene import Ends, Sent, settled, traffic

POLICY = AdmissionPolicy(bands=(Band("gold", 1.5), Band("batch", 0.5)), max_queued=50, max_wait=20.0)

EVENTS: dict[str, Callable[[World, random.Random], None]] = {
    "kill": lambda world, rng: rng.choice(world.sites).kill(rng.choice([None, 1])),
    "vanish": lambda world, rng: rng.choice(world.sites).vanish(),
    "revive": lambda world, rng: rng.choice(world.sites).revive(cold=rng.choice([0.0, 4.0]), factor=2.0),
    "restart": lambda world, rng: rng.choice(world.epps).restart(),
    "fail": lambda world, rng: setattr(rng.choice(world.sites), "failing", rng.random() < 0.5),
    "leader": lambda world, rng: world.plane.change_leader(gap=rng.choice([0.5, 10.0])),
    "cut": lambda world, rng: world.plane.cut_off(rng.choice([2.0, 15.0])),
    "drain": lambda world, rng: world.plane.drain(f"site-{rng.randrange(4)}"),
    "undrain": lambda world, rng: world.plane.undrain(f"site-{rng.randrange(4)}"),
    "page": lambda world, rng: world.page(rng.randrange(4), lost=rng.choice([0.0, 0.5]), idle=rng.random() < 0.3),
}


@given(
    seed=st.integers(0, 10**6),
    events=st.lists(st.tuples(st.floats(0.0, 22.0), st.sampled_from(sorted(EVENTS))), max_size=12),
    admitted=st.booleans(),
    patience=st.sampled_from([1.5, 200.0]),
)
@settings(max_examples=12, deadline=None)
def test_every_request_ends_once_and_nothing_is_left(
    seed: int, events: list[tuple[float, str]], admitted: bool, patience: float
) -> None:
    shapes = (Shape(4), Shape(2, endpoints=2), Shape(6, kv_tokens=9000), Shape(4, page=Page(live=False)))
    habits = Habits(admission=POLICY if admitted else None)
    world = World(Fleet(shapes, gateways=2, interval=2.0, habits=habits), seed=seed)
    clock, rng, ends = world.clock, world.rng("events"), Ends(world.clock)
    entries = [Sent(Impatient(clock, gateway, patience)) for gateway in world.gateways]

    def work(rng: random.Random) -> Request:
        request = Lognormal(longest=1000)(rng)
        request.band, request.tenant = rng.choice(["gold", "batch"]), f"tenant-{rng.randrange(3)}"
        return request

    poisson(clock, entries, work, rate=5.0, rng=world.rng("traffic"), heard=ends.heard, start=3.0, until=25.0)
    for at, what in events:
        clock.at(3.0 + at, EVENTS[what], world, rng)
    clock.run(30.0)
    for site in world.sites:
        site.failing = False
        site.revive()
    clock.run(115.0)
    assert set(ends.outcomes) == {request for entry in entries for request in entry.requests}
    for gateway in world.gateways:
        assert not gateway.router.in_flight
        assert gateway.core is None or gateway.core.waiting == gateway.core.slots == 0
        assert not gateway._waiting
    assert all(site.held == site.unseen == site._committed == 0 for site in world.sites)


def test_a_quiet_fleet_answers_everything() -> None:
    world = settled(Fleet((Shape(8), Shape(8, endpoints=2)), gateways=3))
    ends, entries = traffic(world, Exponential(0.5), 20.0, until=world.clock.now + 60.0)
    world.clock.run(world.clock.now + 80.0)
    assert len(ends.outcomes) == sum(len(entry.requests) for entry in entries) > 1000
    assert set(ends.outcomes.values()) == {Outcome.ANSWERED}


def test_sites_hold_requests_in_the_epp_where_its_release_does() -> None:
    world = World(Fleet((Shape(1), Shape(1, page=Page(live=False)), Shape(1, page=Page(release="v0.9")))))
    assert [site.flow_control for site in world.sites] == [True, False, False]


# --- chance -----------------------------------------------------------------------------------------------------------


def test_one_purpose_does_not_disturb_another() -> None:
    """The same requests come at the same times, however many gateways choose and however often pages fail."""
    runs = []
    for gateways, lost in ((1, 0.0), (5, 0.0), (1, 0.4)):
        world = World(Fleet((Shape(8, page=Page(lost=lost, noise=lost)),) * 2, gateways=gateways), seed=3)
        _, entries = traffic(world, Exponential(1.0), 12.0, until=20.0)
        world.clock.run(30.0)
        runs.append(
            sorted((at, one.service) for entry in entries for at, one in zip(entry.times, entry.requests, strict=True))
        )
    assert runs[0] == runs[1] == runs[2]
    assert len(runs[0]) > 150


def test_purposes_and_seeds_have_numbers_of_their_own() -> None:
    world, other = World(Fleet((Shape(1),)), seed=1), World(Fleet((Shape(1),)), seed=2)
    drawn = {
        tuple(made.rng(purpose).random() for _ in range(3))
        for made in (world, other)
        for purpose in ("clients", "traffic", "gateway 0", "gateway 1", "epp site-0")
    }
    assert len(drawn) == 10
    assert world.rng("clients").random() == world.rng("clients").random()


def history(seed: int) -> str:
    """All that happened in an eventful run, as text."""
    fleet = Fleet(
        (Shape(6), Shape(3, endpoints=2), Shape(6, declared=False)),
        gateways=3, interval=1.0, habits=Habits(admission=POLICY),
    )  # fmt: skip
    world = World(fleet, seed=seed)
    invisible(world.clock, world.sites[2], Fixed(0.5), rate=2.0, rng=world.rng("invisible"))
    ends, entries = traffic(world, Exponential(0.7), 25.0, until=25.0)
    for at, what in ((5.0, "kill"), (7.0, "leader"), (9.0, "revive"), (12.0, "cut"), (20.0, "restart")):
        world.clock.at(at, EVENTS[what], world, world.rng(what))
    world.clock.run(60.0)
    requests = [
        (at, request.waited, request.decision is None, str(ends.outcomes[request]), ends.at[request])
        for entry in entries
        for at, request in zip(entry.times, entry.requests, strict=True)
    ]
    gateways = [(one.sent, one.retried, one.rescued, one.refused) for one in world.gateways]
    return json.dumps([requests, gateways, [str(one) for one in world.plane.published], world.plane.passes])


def test_a_seed_says_everything_that_happens_byte_for_byte() -> None:
    here = history(5)
    assert here == history(5)
    assert here != history(6)
    code = "import hashlib; from tests.sim.virtual.test_world import history as h; "
    code += "print(hashlib.sha256(h(5).encode()).hexdigest())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "17", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == hashlib.sha256(here.encode()).hexdigest()


# --- time -------------------------------------------------------------------------------------------------------------


def test_beats_do_not_drift() -> None:
    world, times = World(Fleet((Shape(1),))), list[float]()
    world.clock.every(0.1, lambda: times.append(world.clock.now), first=0.3)
    world.clock.run(1000.3)
    assert len(times) == 10001
    assert times[-1] == pytest.approx(1000.3, abs=1e-9)


def test_what_is_due_at_one_moment_happens_in_the_order_it_was_asked_for() -> None:
    clock, told = World(Fleet((Shape(1),))).clock, list[str]()
    for name in "abc":
        clock.at(2.0, told.append, name)
    clock.at(1.0, lambda: clock.at(0.5, told.append, "late"))
    clock.run(2.0)
    assert told == ["late", "a", "b", "c"]
    assert clock.now == 2.0
