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
from pathlib import Path
from typing import Any, Final

from grid.sim.virtual.measure import Tally
from grid.sim.virtual.peers import Peer, Rule, nearest, perfect, published
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
    plot: Path | None = None,
) -> list[dict[str, Any]]:
    """One row per number of clients and policy; ``plot`` is a folder for a picture (SVG) of each."""
    rows = []
    for number in clients:
        for policy in policies:
            found = simulate(policy, number, seconds=max(1, round(duration)), gateways=gateways, seed=seed)
            rows.append(found.row())
            if plot is not None:
                plot.mkdir(parents=True, exist_ok=True)
                (plot / f"partition-{policy}-{number}.svg").write_text(picture(found), encoding="utf-8")
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


# --- pictures ---------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _MARGIN = 720, 260, 40
_COLOURS: Final = ("#1f6f8b", "#d97706", "#4d7c0f")


def picture(found: Run) -> str:
    """Each site's share of the requests begun, second by second, as SVG."""
    seconds = found.tally.arrivals
    step = (_WIDTH - 2 * _MARGIN) / max(1, len(seconds) - 1)
    high = _HEIGHT - 2 * _MARGIN
    lines = []
    for number, site in enumerate(found.tally.sites):
        shares = [row[number] / max(1, sum(row)) for row in seconds]
        points = " ".join(
            f"{_MARGIN + step * at:.1f},{_HEIGHT - _MARGIN - high * s:.1f}" for at, s in enumerate(shares)
        )
        colour = _COLOURS[number % len(_COLOURS)]
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>')
        lines.append(f'<text x="{_MARGIN + 130 * number}" y="{_HEIGHT - 10}" fill="{colour}">{site.name}</text>')
    axes = f"M{_MARGIN} {_MARGIN}V{_HEIGHT - _MARGIN}H{_WIDTH - _MARGIN}"
    title = f"{found.policy}: share of requests, {found.clients} clients, {found.gateways} gateways"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/><text x="{_MARGIN}" y="22">{title}</text>'
        f'<path fill="none" stroke="#999" d="{axes}"/><text x="8" y="{_MARGIN + 4}">1.0</text>'
        f'<text x="8" y="{_HEIGHT - _MARGIN}">0.0</text>{"".join(lines)}</svg>\n'
    )
