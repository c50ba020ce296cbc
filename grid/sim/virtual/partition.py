"""``grid simulate partition``: how three sites of unequal size share the work of closed-loop clients, in virtual time.

Sites of 128, 128 and 64 slots, 200 ms a request; whoever is answered sends the next request at once. Load is sampled
every 5 s. Nothing fails: a full site lets requests wait. An *overshoot* is a request that arrives where every slot is
taken. Policies:

- **before**: the nearest site, whatever its load: a polled number only orders sites that are equally near;
- **after**: two sites drawn by capacity, the one of lower polled saturation, as published gateways do it; with two that
  have room one draw weighted by capacity / (1 + saturation) within 0.1 and 0.9; with none, by capacity among the
  shortest queues. Between two samples nothing is corrected;
- **grid**: :class:`grid.gateway.Router` as it runs in production.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from grid.sim.virtual.fleet import MODEL, Clock, Fleet, Slots

SLOTS: Final = (128, 128, 64)
SERVICE_S: Final = 0.2
SAMPLE_S: Final = 5.0
WINDOW_S: Final = 10
POLICIES: Final = ("before", "after", "grid")

Chosen = tuple[Slots, Callable[[], None], Callable[[], None]]
Choice = Callable[[int], Chosen]


@dataclass(slots=True)
class Run:
    """What came of one run. ``per_second``: requests begun at each site, second by second."""

    policy: str
    clients: int
    gateways: int
    sites: Sequence[Slots]
    seconds: int
    answered: int = 0
    per_second: list[list[int]] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """The run as ``grid simulate partition`` prints it."""
        seen = [site.seen for site in self.sites]
        return {
            "policy": self.policy,
            "clients": self.clients,
            "gateways": self.gateways,
            "requests": self.answered,
            "shares": _shares(seen),
            "peak_window_share": self._peaks(),
            "overshoot": sum(site.met_full for site in self.sites),
            "failed": 0,
        }

    def _peaks(self) -> list[float]:
        size = min(WINDOW_S, self.seconds)
        windows = [
            _shares([sum(column) for column in zip(*self.per_second[at : at + size], strict=True)])
            for at in range(self.seconds - size + 1)
        ]
        return [max(shares) for shares in zip(*windows, strict=True)]


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
    clock = Clock()
    sites = [Slots(f"site-{number}", slots, clock) for number, slots in enumerate(SLOTS)]
    rng = random.Random(f"{seed} {policy}")
    choose = _POLICIES[policy](clock, sites, gateways, rng)
    found = Run(policy, clients, gateways, sites, seconds)

    def send(client: int) -> None:
        site, begin, end = choose(client % gateways)
        begin()

        def done(_: float) -> None:
            end()
            found.answered += 1
            send(client)

        # A hundredth either way, or the clients would march in step for ever.
        site.send(SERVICE_S * rng.uniform(0.99, 1.01), done)

    for client in range(clients):
        clock.at(SERVICE_S * client / clients, lambda client=client: send(client))  # type: ignore[misc]
    before = [0] * len(sites)
    for second in range(1, seconds + 1):
        clock.run(float(second))
        seen = [site.seen for site in sites]
        found.per_second.append([now - then for now, then in zip(seen, before, strict=True)])
        before = seen
    return found


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts)
    return [round(count / total, 2) if total else 0.0 for count in counts]


# --- policies ---------------------------------------------------------------------------------------------------------


def _before(_clock: Clock, sites: Sequence[Slots], _gateways: int, _rng: random.Random) -> Choice:
    return lambda _: (sites[0], _nothing, _nothing)


def _after(clock: Clock, sites: Sequence[Slots], _gateways: int, rng: random.Random) -> Choice:
    polled: dict[Slots, tuple[float, int]] = dict.fromkeys(sites, (0.0, 0))

    def poll() -> None:
        polled.update({site: (site.held / site.capacity, len(site.queue)) for site in sites})

    clock.every(SAMPLE_S, poll)

    def draw(among: Sequence[Slots], weights: Sequence[float]) -> Slots:
        return rng.choices(among, weights)[0]

    def choose(_: int) -> Chosen:
        room = [site for site in sites if polled[site][0] < 1.0]
        if len(room) > 2:
            first = draw(room, [site.capacity for site in room])
            rest = [site for site in room if site is not first]
            second = draw(rest, [site.capacity for site in rest])
            site = first if polled[first][0] <= polled[second][0] else second
        elif len(room) == 2:
            worth = [site.capacity / (1 + polled[site][0]) for site in room]
            share = min(0.9, max(0.1, worth[0] / sum(worth)))
            site = draw(room, [share, 1 - share])
        elif room:
            site = room[0]
        else:
            least = min(queue for _, queue in polled.values())
            tied = [site for site in sites if polled[site][1] == least]
            site = draw(tied, [site.capacity for site in tied])
        return site, _nothing, _nothing

    return choose


def _grid(clock: Clock, sites: Sequence[Slots], gateways: int, rng: random.Random) -> Choice:
    fleet = Fleet(clock, sites, gateways, rng, sample=SAMPLE_S)

    def choose(gateway: int) -> Chosen:
        target = fleet.routers[gateway].pick(MODEL).place.target
        return fleet.sites[target.site], target.begin, target.end

    return choose


def _nothing() -> None:
    return None


_POLICIES: Final = {"before": _before, "after": _after, "grid": _grid}


# --- pictures ---------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _MARGIN = 720, 260, 40
_COLOURS: Final = ("#1f6f8b", "#d97706", "#4d7c0f")


def picture(found: Run) -> str:
    """Each site's share of the requests begun, second by second, as SVG."""
    step = (_WIDTH - 2 * _MARGIN) / max(1, found.seconds - 1)
    high = _HEIGHT - 2 * _MARGIN
    lines = []
    for number, site in enumerate(found.sites):
        shares = [row[number] / max(1, sum(row)) for row in found.per_second]
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
