"""Gateways in virtual time: what is tried again, what is rescued, who is let in, and what all of them remember."""

from collections.abc import Sequence

import pytest

from grid.flow import AdmissionPolicy, Band
from grid.gateway import Affinity, Settings
from grid.sim.virtual.gateways import Habits
from grid.sim.virtual.measure import Tally
from grid.sim.virtual.traffic import Impatient, closed_loop, poisson
from grid.sim.virtual.work import Exponential, Fixed, Outcome, Request
from grid.sim.virtual.world import Fleet, Shape, World
from tests.sim.virtual.scene import Ends, fleet, frames, settled, traffic

FULL = AdmissionPolicy(bands=(Band("gold", 0.0), Band("batch", 0.0)), max_queued=10_000, max_wait=600.0)
"""Every slot may be filled, and nobody may wait at a site."""
NOBODY_REFUSED = Habits(Settings(sheds=False))


def send(world: World, *services: float, first: float = 1e9, **given: object) -> tuple[Ends, list[Request]]:
    ends, requests = Ends(world.clock), [Request(one, first=first, **given) for one in services]  # type: ignore[arg-type]
    for request in requests:
        world.gateways[0].send(request, ends.heard)
    return ends, requests


def at_rest(world: World) -> bool:
    """Whether nobody holds anything any more."""
    return all(not gateway.router.in_flight for gateway in world.gateways) and not sum(one.held for one in world.sites)


# --- again ------------------------------------------------------------------------------------------------------------


def test_what_was_lost_before_its_first_byte_is_sent_elsewhere_and_answered() -> None:
    world = settled(fleet(8, 8))
    ends, requests = send(world, *[10.0] * 12)
    world.clock.run(world.clock.now + 1.0)
    lost = [one for one in requests if one in world.sites[0].running]
    world.sites[0].kill()
    assert world.gateways[0].retried == len(lost) == 6
    world.clock.run(world.clock.now + 30.0)
    assert ends.count(Outcome.ANSWERED) == 12
    assert all(len(one.tried) == (one in lost) for one in requests)
    assert at_rest(world)


def test_what_the_client_has_seen_the_beginning_of_is_broken() -> None:
    world = settled(fleet(8, 8))
    ends, _ = send(world, *[10.0] * 12, first=0.5)
    world.clock.run(world.clock.now + 1.0)
    world.sites[0].kill()
    world.clock.run(world.clock.now + 30.0)
    assert (ends.count(Outcome.BROKEN), ends.count(Outcome.ANSWERED)) == (6, 6)
    assert world.gateways[0].retried == 0
    assert at_rest(world)


def test_a_site_that_vanished_is_tried_in_vain_and_used_last() -> None:
    world = settled(fleet(8, 8, interval=5.0))
    world.sites[0].vanish()
    ends, _ = traffic(world, Fixed(0.1), 20.0, until=world.clock.now + 4.0)
    world.clock.run(world.clock.now + 6.0)
    assert set(ends.outcomes.values()) == {Outcome.ANSWERED}
    assert 1 <= world.gateways[0].retried <= 6, "it is set back after the first"


def test_retries_have_a_budget() -> None:
    """Half a retry a second over ten, and a tenth of the requests."""
    world = settled(fleet(64, 64, habits=Habits(Settings(retry_share=0.1, retry_min_per_s=0.5))))
    ends, _ = send(world, *[10.0] * 40)
    world.clock.run(world.clock.now + 1.0)
    world.sites[0].kill()
    assert world.gateways[0].retried == 5 + 4
    assert ends.count(Outcome.UNAVAILABLE) == 11
    world.clock.run(world.clock.now + 30.0)
    assert ends.count(Outcome.ANSWERED) == 29


def test_with_nowhere_else_to_go_the_first_answer_stands() -> None:
    world = settled(fleet(8))
    ends, _ = send(world, 10.0)
    world.sites[0].kill()
    world.clock.run(world.clock.now + 1.0)
    assert ends.count(Outcome.UNAVAILABLE) == 1
    assert world.gateways[0].retried == 0


def test_errors_of_a_site_are_passed_on_and_remembered() -> None:
    world = settled(fleet(8, 8, 8))
    world.sites[0].failing = True
    ends, _ = traffic(world, Fixed(0.2), 40.0, until=world.clock.now + 20.0)
    world.clock.run(world.clock.now + 25.0)
    assert 5 <= ends.count(Outcome.FAILED) < 0.1 * len(ends.outcomes)
    assert world.gateways[0].retried == 0


# --- rescue -----------------------------------------------------------------------------------------------------------


def test_who_waits_where_nothing_is_ready_goes_elsewhere_once_it_is_known() -> None:
    world = settled(fleet(4, 4, interval=2.0, habits=NOBODY_REFUSED))
    ends, _ = send(world, *[3.0] * 24)  # full, and some in both EPPs
    site = world.sites[0]
    assert len(site.at_epp) >= 1
    waiting = len(site.at_epp)
    site.kill()
    died = world.clock.now
    assert world.gateways[0].rescued == 0
    world.clock.run(died + 2.2)
    assert world.gateways[0].rescued == waiting
    assert site.held == 0
    world.clock.run(died + 60.0)
    assert ends.count(Outcome.ANSWERED) == 24
    assert at_rest(world)


def test_with_no_elsewhere_they_go_on_waiting() -> None:
    world = settled(fleet(4, interval=2.0))
    site = world.sites[0]
    site.kill()
    world.clock.run(world.clock.now + 0.5)
    ends, _ = send(world, 1.0, 1.0)
    world.clock.run(world.clock.now + 10.0)
    assert (world.gateways[0].rescued, world.gateways[0].refused, site.waiting) == (0, 0, 2)
    site.revive()
    world.clock.run(world.clock.now + 2.0)
    assert ends.count(Outcome.ANSWERED) == 2


def test_where_everything_is_lost_nobody_is_moved_about() -> None:
    world = settled(fleet(4, 4, interval=1.0))
    for site in world.sites:
        site.kill()
    world.clock.run(world.clock.now + 0.5)
    ends, _ = send(world, *[1.0] * 6)
    last = world.sites[0]  # the other one's page is read before
    there = last.waiting
    assert 0 < there < 6
    world.clock.run(world.clock.now + 50.0)
    assert last.waiting == 6
    assert world.gateways[0].rescued == 6 - there
    for site in world.sites:
        site.revive()
    world.clock.run(world.clock.now + 5.0)
    assert ends.count(Outcome.ANSWERED) == 6


def test_who_was_moved_once_stays() -> None:
    world = settled(fleet(2, 2, 2, interval=1.0, habits=NOBODY_REFUSED))
    first, *others = world.sites
    for site in others:
        for _ in range(2 + 5 + 3):  # so that whoever comes there stands in the EPP's line
            other = Request(1000.0)
            other.left = lambda *_: None
            site.take(other)
    first.kill()
    world.clock.run(world.clock.now + 0.3)
    ends, request = Ends(world.clock), Request(1.0)
    while request not in first.queue:
        request = Request(1.0)
        world.gateways[0].send(request, ends.heard)
    world.clock.run(world.clock.now + 1.2)
    assert request.rescued
    (there,) = (site for site in others if request in site.at_epp)
    there.kill()
    world.clock.run(world.clock.now + 3.0)
    assert request in there.at_epp, "there is another elsewhere, but once is enough"


# --- clients that give up ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("admission", [None, FULL], ids=["free", "admitted"])
def test_a_client_that_gives_up_holds_nothing_wherever_its_request_is(admission: AdmissionPolicy | None) -> None:
    world = settled(fleet(4, 4, habits=Habits(Settings(sheds=False), admission)))
    gateway, ends = world.gateways[0], Ends(world.clock)
    entry = Impatient(world.clock, gateway, 2.0)
    requests = [Request(seconds) for seconds in [1.0] * 4 + [30.0] * 26]
    for request in requests:
        entry.send(request, ends.heard)
    assert gateway.core is None or gateway.core.waiting == 22
    world.clock.run(world.clock.now + 1.5)
    assert ends.count(Outcome.ANSWERED) == 4
    world.clock.run(world.clock.now + 1.0)
    assert ends.count(Outcome.CANCELLED) == 26
    assert at_rest(world)
    assert gateway.core is None or (gateway.core.waiting, gateway.core.slots) == (0, 0)
    gateway.cancel(requests[0])
    assert len(ends.outcomes) == 30


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hashed", [False, True])
def test_sessions_keep_to_their_site(hashed: bool) -> None:
    world = settled(fleet(64, 64, 64, gateways=3, habits=Habits(Settings(affinity=Affinity(hashed=hashed)))))
    where: dict[str, set[str]] = {}
    for number in range(120):
        request = Request(1e-6, session=f"chat-{number % 12}")
        gateway = world.gateways[number % 3 if not hashed else number // 12 % 3]
        gateway.send(request, lambda *_: None)
        assert request.decision is not None
        where.setdefault(request.session or "", set()).add(request.decision.site)
        world.clock.run(world.clock.now + 0.02)
    assert all(len(sites) == 1 for sites in where.values())
    assert len(set.union(*where.values())) > 1


# --- admission --------------------------------------------------------------------------------------------------------


def crowd(world: World, *, clients: int, rate: float, seconds: float, until: float = 1e9) -> Tally:
    """Batch clients in closed loops and gold requests at random, at all gateways."""
    tally, clock = Tally(world.sites, world.clock), world.clock
    start = clock.now

    def batch(rng: object) -> Request:
        return Request(rng.expovariate(1.0), band="batch", tenant=f"tenant-{rng.randrange(5)}")  # type: ignore[attr-defined]

    def gold(rng: object) -> Request:
        return Request(rng.expovariate(5.0), band="gold")  # type: ignore[attr-defined]

    given = {"heard": tally.heard, "start": start, "until": start + until}
    closed_loop(clock, world.gateways, batch, clients=clients, rng=world.rng("batch"), **given)  # type: ignore[arg-type]
    poisson(clock, world.gateways, gold, rate=rate, rng=world.rng("gold"), **given)  # type: ignore[arg-type]
    clock.run(start + seconds)
    return tally


def test_one_gateway_never_grants_more_than_there_is_room_for() -> None:
    world = settled(fleet(16, 8, 8, habits=Habits(admission=FULL)))
    tally = crowd(world, clients=100, rate=10.0, seconds=30.0)
    assert tally.overshoot == 0
    assert tally.answered > 0.97 * 30.0 * (32 - 2.0)
    assert tally.refused == tally.failed == 0
    core = world.gateways[0].core
    assert core is not None
    assert core.slots == sum(site.held for site in world.sites) == 32
    assert core.waiting >= 100 - 32


def test_several_gateways_share_the_room_and_nobody_waits_for_ever() -> None:
    world = settled(fleet(24, 24, 16, gateways=4, habits=Habits(admission=FULL)))
    tally = crowd(world, clients=200, rate=20.0, seconds=60.0, until=40.0)
    assert tally.overshoot < 0.02 * tally.answered
    assert tally.answered > 0.9 * 40.0 * (64 - 4.0)
    assert tally.failed == tally.refused == 0
    assert all(
        gateway.core is not None and gateway.core.waiting == gateway.core.slots == 0 for gateway in world.gateways
    )
    assert at_rest(world)


def test_who_waits_too_long_is_refused_at_that_very_moment() -> None:
    policy = AdmissionPolicy(bands=(Band("only", 0.0),), max_wait=0.4, max_queued=5)
    world = settled(fleet(2, habits=Habits(admission=policy)))
    world.clock.run(4.5)
    world.plane.cut_off(20.0)  # no frame wakes anybody meanwhile
    ends, requests = send(world, *[100.0] * 9, tenant="one")
    assert [ends.outcomes.get(one) for one in requests] == [None] * 7 + [Outcome.REFUSED] * 2
    came = world.clock.now
    world.clock.run(came + 5.0)
    assert [ends.at[one] - came for one in requests[2:7]] == pytest.approx([0.4] * 5)


def test_where_the_only_pool_is_lost_what_waits_for_it_is_refused_once_that_is_sure() -> None:
    world = settled(fleet(4, interval=2.0, habits=Habits(admission=FULL)))
    ends, requests = send(world, *[5.0] * 300)
    died = world.clock.now
    world.sites[0].kill()
    world.clock.run(died + 30.0)
    assert {ends.at[one] - died <= 0.21 for one in requests if ends.outcomes.get(one) is Outcome.UNAVAILABLE} == {True}
    refused = {ends.at[one] - died for one in requests if ends.outcomes.get(one) is Outcome.REFUSED}
    assert len(refused) == 1, "all in one instant"
    assert 2.0 < refused.pop() < 4.1, "with the second page that says so"
    assert ends.count(Outcome.REFUSED) > 100
    world.sites[0].revive()
    world.clock.run(died + 60.0)
    assert len(ends.outcomes) == 300
    assert ends.count(Outcome.ANSWERED) == 4, "those that stood in the EPP's line"
    assert at_rest(world)


def test_before_the_first_frame_what_is_declared_counts() -> None:
    made = Fleet((Shape(11), Shape(11, declared=False)), interval=0.5, habits=Habits(admission=FULL))
    world = World(made)
    while not world.plane.published:
        world.clock.run(world.clock.now + 0.01)
    gateway = world.gateways[0]
    gateway.router.on_frame = None
    world.clock.run(world.clock.now + 0.01)
    core = gateway.core
    assert core is not None
    assert core.pools["site-0/site-0-cluster"].capacity == 11.0
    assert core.pools["site-1/site-1-cluster"].capacity != 11.0


def test_admission_hears_at_once_of_a_site_that_is_set_back() -> None:
    world = settled(fleet(8, 8, interval=5.0, habits=Habits(admission=FULL)))
    core = world.gateways[0].core
    assert core is not None
    assert len(core.routes["sim-model"].pools) == 2
    world.sites[0].vanish()
    send(world, *[1.0] * 6)
    world.clock.run(world.clock.now + 0.1)
    assert [pool.key for pool in core.routes["sim-model"].pools] == ["site-1/site-1-cluster"]


def test_admission_shares_room_by_what_gateways_reported() -> None:
    world = settled(fleet(64, gateways=2, habits=Habits(admission=FULL)))
    send(world, *[100.0] * 40)
    world.clock.run(world.clock.now + 6.0)
    busy, idle = (one.core.pools["site-0/site-0-cluster"].signal.share for one in world.gateways if one.core)
    assert busy > 0.7
    assert busy + idle == pytest.approx(1.0)


def test_a_frame_that_is_older_than_the_last_changes_nothing() -> None:
    world = settled(fleet(8))
    heard = frames(world)
    world.clock.run(7.5)
    send(world, *[100.0] * 4)
    world.clock.run(12.5)
    target = world.gateways[0].router.targets[0]
    assert target.saturation == 0.5
    world.gateways[0].frame(heard[0][1])
    assert target.saturation == 0.5


# --- the whole of it --------------------------------------------------------------------------------------------------


def shares(world: World, names: Sequence[int]) -> list[float]:
    seen = [world.sites[name].seen for name in names]
    return [one / sum(seen) for one in seen]


@pytest.mark.parametrize("skew", [0.0, 3600.0])
def test_clocks_that_are_wrong_change_nothing(skew: float) -> None:
    world = settled(fleet(40, 20, gateways=2, habits=Habits(skew=skew)))
    ends, _ = traffic(world, Exponential(1.0), 40.0, until=world.clock.now + 30.0)
    world.clock.run(world.clock.now + 60.0)
    assert len(ends.outcomes) == ends.count(Outcome.ANSWERED) > 1000
    assert shares(world, [0, 1]) == pytest.approx([2 / 3, 1 / 3], abs=0.04)


def test_a_crowd_that_comes_at_once_is_not_taken_for_a_fleet_s() -> None:
    """Reports show it at once, a gateway's own mean only later: nobody may be refused for the difference."""
    for seed in (14, 15, 18):
        for gateways in (1, 2):
            world = World(fleet(128, 128, 64, gateways=gateways, interval=5.0), seed=seed)
            tally = Tally(world.sites, world.clock)
            closed_loop(
                world.clock, world.gateways, Fixed(0.2), clients=256, rng=world.rng("c"), heard=tally.heard,
                start=7.0 + seed / 10,
            )  # fmt: skip
            world.clock.run(13.0)
            assert tally.answered > 4000
            assert tally.refused == 0
