"""The control plane in virtual time: what is published when, by whom, and who hears it."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from grid.bus.order import Position
from grid.daemon.cycle import JOIN
from grid.daemon.frames import SHORTEST
from grid.model import AdmissionState
from grid.overlay import verify
from grid.signals.schedule import GOLDEN_RATIO
from grid.sim.virtual.gauges import Page
from grid.sim.virtual.work import Exponential, Request
from grid.sim.virtual.world import EDGE, Fleet, Shape, World
from tests.sim.virtual.scene import fleet, frames, settled, traffic


def reads(world: World) -> list[tuple[float, str]]:
    """When which page is asked for, from now on."""
    seen: list[tuple[float, str]] = []

    def noting(name: str, read: Callable[[], object]) -> Callable[[], object]:
        def noted() -> object:
            seen.append((world.clock.now, name))
            return read()

        return noted

    class Noting:
        def __init__(self, epp: object) -> None:
            self.read = noting(epp.site.name, epp.read)  # type: ignore[attr-defined]

    for name, epp in list(world.plane.epps.items()):
        world.plane.epps[name] = Noting(epp)  # type: ignore[assignment]
    world.plane.daemon.epps = world.plane.epps
    return seen


def admissions(world: World) -> dict[str, str]:
    """What the document in force says of each site."""
    envelope = verify(world.plane.bus.documents[EDGE].body).envelope
    assert envelope is not None
    return {one.site: str(one.admission_state) for one in envelope.candidates}


def revisions(world: World) -> list[str]:
    return [gateway.report().revision for gateway in world.gateways]


# --- scrapes and passes -----------------------------------------------------------------------------------------------


def test_pages_are_read_once_per_interval_each_at_its_own_moment() -> None:
    world = settled(fleet(8, 8, 8, 8))
    seen = reads(world)
    start = world.clock.now
    world.clock.run(start + 20.0)
    for number in range(4):
        times = [at for at, name in seen if name == f"site-{number}"]
        assert len(times) == 10
        phase = number * GOLDEN_RATIO % 1.0 * 2.0 + 0.01
        assert all((at - phase) % 2.0 == pytest.approx(0.0, abs=1e-6) or (at - phase) % 2.0 > 1.999 for at in times)


def test_a_page_that_hangs_costs_its_own_beats_and_goes_stale() -> None:
    world = settled(Fleet((Shape(8, page=Page(lost=0.0)), Shape(8)), interval=1.0, timeout=1.5))
    world.page(0, lost=1.0)
    seen, heard = reads(world), frames(world)
    world.clock.run(world.clock.now + 12.0)
    assert [name for _, name in seen].count("site-0") == 6, "every other beat passes while the scrape before it hangs"
    assert [name for _, name in seen].count("site-1") == 12
    last = heard[-1][1].providers
    assert last["site-0"].age_s is not None
    assert last["site-0"].age_s > 10.0
    assert last["site-0"].held is None, "too old to say anything"
    assert last["site-1"].held == 0.0


def test_nothing_is_published_before_every_page_was_tried() -> None:
    world = World(Fleet((Shape(8), Shape(8, page=Page(denied=True)), Shape(8)), interval=5.0))
    world.clock.run(3.0)
    assert not world.plane.published
    world.clock.run(5.0)
    assert world.plane.published[0][1:] == (EDGE, Position(1, 1))
    at = world.plane.published[0][0]
    assert at == pytest.approx(GOLDEN_RATIO * 5.0 + 0.02 + JOIN), "one that refuses was tried too"


def test_a_pass_runs_after_every_scrape_and_at_least_once_per_interval() -> None:
    world = settled(fleet(8, 8, 8, interval=2.0))
    before = world.plane.passes
    world.clock.run(world.clock.now + 20.0)
    assert world.plane.passes - before == 30
    for number in range(3):
        world.page(number, denied=True)
    world.clock.run(world.clock.now + 2.5)  # what had been asked for arrives
    before = world.plane.passes
    world.clock.run(world.clock.now + 21.0)
    assert world.plane.passes - before == pytest.approx(21.0 / (2.0 + JOIN), abs=1)


# --- documents --------------------------------------------------------------------------------------------------------


def test_a_newcomer_is_published_before_its_page_was_read() -> None:
    world = settled(fleet(8, 8, 8), absent=(2,))
    assert set(admissions(world)) == {"site-0", "site-1"}
    now = world.clock.now
    world.join(2)
    seen = reads(world)
    world.clock.run(now + JOIN + 0.001)
    assert set(admissions(world)) == {"site-0", "site-1", "site-2"}
    assert not [name for _, name in seen if name == "site-2"]
    assert world.plane.published[-1][2] == Position(1, 2)


def test_while_a_newcomer_is_unread_others_may_still_be_lost() -> None:
    """Only a daemon that has just begun holds back; one that has read everything once never does so again."""
    world = World(fleet(8, 8, 8, interval=10.0), absent=(2,))
    world.clock.run(15.0)
    world.sites[1].kill()
    world.clock.run(23.0)
    assert admissions(world)["site-1"] == AdmissionState.NEW_AND_EXISTING, "one page with nothing ready is a demotion"
    world.join(2)
    seen = reads(world)
    world.clock.run(27.0)
    assert "site-2" not in [name for _, name in seen]
    assert admissions(world)["site-1"] == AdmissionState.NONE


def test_a_drain_closes_a_site_to_new_work_at_once_and_its_end_opens_it() -> None:
    world = settled(fleet(8, 8, gateways=2))
    world.plane.drain("site-0")
    world.clock.run(world.clock.now + 0.1)
    assert admissions(world)["site-0"] == AdmissionState.EXISTING_ONLY
    ends, entries = traffic(world, Exponential(0.5), 10.0, until=world.clock.now + 10.0)
    world.clock.run(world.clock.now + 15.0)
    assert world.sites[0].seen == 0
    assert len(ends.outcomes) == sum(len(entry.requests) for entry in entries) > 50
    world.plane.undrain("site-0")
    world.clock.run(world.clock.now + 0.1)
    assert admissions(world)["site-0"] == AdmissionState.NEW_AND_EXISTING
    assert [position.version for _, _, position in world.plane.published] == [1, 2, 3]


# --- frames -----------------------------------------------------------------------------------------------------------


def test_frames_go_out_once_a_second_and_at_once_for_a_loss() -> None:
    world = settled(fleet(8, 8, 8))
    heard = frames(world)
    world.clock.run(9.5)
    times = [at for at, _ in heard]
    assert times == pytest.approx([5.0, 6.0, 7.0, 8.0, 9.0])
    assert [frame.sequence for _, frame in heard] == [5, 6, 7, 8, 9]
    assert all(frame.documents == {EDGE: (1, 1)} for _, frame in heard)
    seen = reads(world)
    world.sites[1].kill()
    world.clock.run(12.5)
    read = next(at for at, name in seen if name == "site-1")
    extra = [at for at, _ in heard if at > 9.5 and abs(at - round(at)) > 0.001]
    assert extra[0] == pytest.approx(read + 0.01 + JOIN)
    gone = next(frame for at, frame in heard if at == extra[0])
    assert gone.providers["site-1"].ready == 0


def test_a_frame_that_follows_another_too_closely_waits() -> None:
    world = settled(fleet(8, 8, 8, 8, 8))  # the last one is read shortly before each other second
    heard = frames(world)
    world.sites[4].kill()
    world.clock.run(8.5)
    times = [at for at, _ in heard]
    loss = next(at for at in times if at % 1.0 > 0.5)
    assert loss == pytest.approx(4.0 * GOLDEN_RATIO % 1.0 * 2.0 + 4.0 + 0.02 + JOIN)
    assert min(later - earlier for earlier, later in pairwise(times)) == pytest.approx(SHORTEST)
    assert times[-1] == pytest.approx(8.0), "and those after it are on time"


def test_frames_carry_what_gateways_reported_while_they_are_alive() -> None:
    world = settled(fleet(64, gateways=3))
    heard = frames(world)
    ends, _ = traffic(world, Exponential(1000.0), 30.0, until=world.clock.now + 1.0)
    world.clock.run(world.clock.now + 6.0)
    signal = heard[-1][1].gateways[EDGE]
    assert signal.instances == 3
    assert sum(signal.in_flight.values()) == world.sites[0].held > 15
    assert not ends.outcomes
    world.gateways[2].on_report = None
    world.clock.run(world.clock.now + 22.0)
    assert heard[-1][1].gateways[EDGE].instances == 2, "one has been silent for 15 s"


# --- leaders ----------------------------------------------------------------------------------------------------------


def test_the_same_documents_under_a_new_leader_keep_their_place() -> None:
    world = settled(fleet(8, 8, 8))
    heard = frames(world)
    world.plane.change_leader(gap=10.0)
    died = world.clock.now
    world.clock.run(died + 30.0)
    assert [at for at, _ in heard if died < at < died + 10.0] == []
    assert {frame.epoch for at, frame in heard if at > died} == {2}
    assert len(world.plane.published) == 1
    assert heard[-1][1].documents == {EDGE: (1, 1)}
    world.plane.drain("site-1")
    world.clock.run(died + 31.0)
    assert [position for _, _, position in world.plane.published] == [Position(1, 1), Position(2, 2)]
    assert set(revisions(world)) == {world.plane.bus.documents[EDGE].revision}


def test_a_leader_reads_pages_at_moments_of_its_own() -> None:
    world = settled(fleet(8, interval=2.0))
    world.clock.run(7.3)
    world.plane.change_leader()
    seen = reads(world)
    world.clock.run(27.0)
    assert {round(at % 2.0, 3) for at, _ in seen} == {1.31}


def test_what_was_saved_is_what_the_next_leader_knows() -> None:
    """A capacity that was learned outlives its teacher, as of the last time the memory was saved."""
    world = settled(Fleet((Shape(16, declared=False), Shape(16, declared=False)), interval=1.0))
    heard = frames(world)
    for _ in range(12):
        request = Request(20.0)
        world.gateways[0].send(request, lambda *_: None)
    world.clock.run(world.clock.now + 60.0)
    learned = {name: signal.capacity for name, signal in heard[-1][1].providers.items()}
    assert learned == {"site-0": 6.0, "site-1": 6.0}
    world.plane.change_leader(gap=5.0)
    world.clock.run(world.clock.now + 20.0)
    assert {name: signal.capacity for name, signal in heard[-1][1].providers.items()} == learned
    # Nothing that was learned since the last time it was saved is known.
    world.plane.bus.memory = None
    world.plane.change_leader(gap=5.0)
    world.clock.run(world.clock.now + 20.0)
    assert {signal.capacity for signal in heard[-1][1].providers.values()} == {None}


def test_a_leader_that_has_not_read_everything_removes_nothing() -> None:
    world = settled(fleet(8, 8, 8, interval=10.0))
    before = admissions(world)
    world.sites[2].vanish()
    world.plane.change_leader(gap=0.5)
    world.clock.run(world.clock.now + 5.0)
    assert not world.plane.daemon.round_complete
    assert world.plane.daemon.leading
    assert admissions(world) == before
    assert len(world.plane.published) == 1


# --- a bus that is away -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "epoch"), [(3.0, 1), (30.0, 2)])
def test_what_happens_while_the_bus_is_away_is_published_once_it_is_back(seconds: float, epoch: int) -> None:
    """A leader whose lease ran out meanwhile begins a new term."""
    world = settled(fleet(8, 8, gateways=8))
    heard = frames(world)
    cut = world.clock.now
    world.plane.cut_off(seconds)
    world.plane.drain("site-1")
    world.clock.run(cut + seconds)
    assert not [at for at, _ in heard if at < cut + seconds]
    assert len(world.plane.published) == 1
    world.clock.run(cut + seconds + 1.1)
    assert [position for _, _, position in world.plane.published] == [Position(1, 1), Position(epoch, 2)]
    world.clock.run(cut + seconds + 11.0)  # subscribers pause for 10 s at most
    assert set(revisions(world)) == {world.plane.bus.documents[EDGE].revision}
    assert {frame.epoch for _, frame in heard} == {epoch}
    assert heard[-1][1].gateways[EDGE].instances == 8


def test_gateways_come_back_one_after_the_other() -> None:
    world = settled(fleet(8, 8, gateways=32))
    world.clock.run(4.5)
    first: dict[str, float] = {}

    def note(name: str) -> Callable[[object, float], None]:
        def noted(_: object, at: float) -> None:
            first.setdefault(name, at)

        return noted

    for gateway in world.gateways:
        gateway.router.on_frame = note(gateway.instance)
    heard = frames(world)
    cut = world.clock.now
    world.plane.cut_off(30.0)
    world.clock.run(cut + 45.0)
    assert len(first) == 32
    assert min(first.values()) < cut + 32.0
    assert cut + 36.0 < max(first.values()) < cut + 42.0
    instances = [frame.gateways[EDGE].instances for _, frame in heard]
    assert instances == sorted(instances), "who has not come back has not reported"
    assert instances[0] < 16
    assert instances[-1] == 32
