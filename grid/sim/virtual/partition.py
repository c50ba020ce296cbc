"""``grid simulate partition``: how three sites of unequal size share the work of closed-loop clients, in virtual time.

Sites of 128, 128 and 64 slots, 200 ms a request; whoever is answered sends the next request at once. Pages are read
every 5 s, each site's at a moment of its own. Nothing fails: a full site lets requests wait. An *overshoot* is a
request that arrives where every slot is taken; a slot that comes free goes to the queue first. Policies:

- **before**: the nearest site, whatever its load (:func:`grid.sim.virtual.peers.nearest`);
- **after**: two drawn by capacity, the lower polled saturation (:func:`grid.sim.virtual.peers.published`);
- **grid**: gateways, daemon and documents as they are in production;
- **perfect**: the least filled site at every moment, as if everything were known at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from grid.sim.virtual.measure import Tally
from grid.sim.virtual.peers import Peer, Rule, nearest, perfect, published
from grid.sim.virtual.pictures import Oscillation, Shares, Show, Waits, longer, steady
from grid.sim.virtual.progress import Progress
from grid.sim.virtual.traffic import Entry, closed_loop
from grid.sim.virtual.work import Fixed
from grid.sim.virtual.world import Fleet, Shape, World

SLOTS: Final = (128, 128, 64)
SERVICE_S: Final = 0.2
POLL_S: Final = 5.0
WARM_UP_S: Final = 3 * POLL_S
"""s that the fleet lives before clients come, so that every page has been read."""
WINDOW_S: Final = 10
POLICIES: Final = ("before", "after", "grid", "perfect")

_PEERS: Final[dict[str, Rule]] = {"before": nearest, "after": published, "perfect": perfect}


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run."""

    policy: str
    clients: int
    gateways: int
    tally: Tally

    def row(self) -> dict[str, Any]:
        """The run as ``grid simulate partition`` prints it."""
        return {
            "policy": self.policy,
            "clients": self.clients,
            "gateways": self.gateways,
            "requests": self.tally.answered,
            "shares": _rounded(self.tally.shares()),
            "peak_window_share": _rounded(self.tally.peaks(WINDOW_S)),
            "overshoot": self.tally.overshoot,
            "failed": self.tally.failed + self.tally.refused,
        }


def run(
    clients: Iterable[int] = (64, 128, 256),
    *,
    duration: float = 45.0,
    gateways: int = 1,
    policies: Sequence[str] = POLICIES,
    seed: int = 1,
    progress: Progress | None = None,
    show: Show | None = None,
) -> list[dict[str, Any]]:
    """One row per number of clients and policy."""
    numbers, seconds = tuple(clients), max(1, round(duration))
    rows = []
    for number in numbers:
        found = []
        for policy in policies:
            found.append(simulate(policy, number, seconds=seconds, gateways=gateways, seed=seed))
            rows.append(found[-1].row())
            if progress is not None:
                progress(len(rows), len(numbers) * len(policies), WARM_UP_S + seconds)
        if show is not None:
            _show(found, show)
    return rows


def simulate(policy: str, clients: int, *, seconds: int, gateways: int = 1, seed: int = 1) -> Run:
    """One run of one policy; client ``n`` uses gateway ``n`` modulo their number."""
    fleet = Fleet(tuple(Shape(slots) for slots in SLOTS), gateways=gateways, interval=POLL_S)
    world = World(fleet, seed=seed)
    entries: Sequence[Entry] = world.gateways
    if policy in _PEERS:
        entries = [Peer(world, _PEERS[policy], number) for number in range(gateways)]
    tally = Tally(world.sites, world.clock, since=WARM_UP_S)
    closed_loop(
        world.clock,
        entries,
        Fixed(SERVICE_S),
        clients=clients,
        rng=world.rng("clients"),
        heard=tally.heard,
        start=WARM_UP_S,
        spread=SERVICE_S,
    )
    world.clock.run(WARM_UP_S + seconds)
    return Run(policy, clients, gateways, tally)


def _rounded(shares: Sequence[float]) -> list[float]:
    return [round(share, 3) for share in shares]


def _show(runs: Sequence[Run], show: Show) -> None:
    """Pictures of the runs of one number of clients."""
    clients, gateways = runs[0].clients, runs[0].gateways
    about = f"{clients} clients, {gateways} gateway{'s' if gateways > 1 else ''}"
    for one in runs:
        sites = tuple(site.name for site in one.tally.sites)
        arrivals = tuple(map(tuple, one.tally.arrivals))
        picture = Shares(f"Who gets which share, {one.policy}: {about}", sites, arrivals, steady(SLOTS))
        show(f"partition-shares-{one.policy}-{clients}", picture)
    waits = {one.policy: longer(one.tally.waits) for one in runs}
    show(f"partition-waits-{clients}", Waits(f"How long requests wait: {about}", waits))
    swings = {one.policy: tuple(round(ratio, 3) for ratio in one.tally.hottest(round(POLL_S))) for one in runs}
    show(f"partition-oscillation-{clients}", Oscillation(f"How far shares swing: {about}", swings, POLL_S))
