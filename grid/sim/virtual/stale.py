"""``grid simulate stale``: choosing by numbers that are seconds old, in virtual time.

Requests arrive at random (Poisson), each at one of the gateways. A site has slots and a first-come queue; durations are
exponential, 2 s on average. All sites are sampled together every so often and gateways hear it 0.1 s later. A request's
wait is the time that it stood in a site's queue. Policies:

- **random**: any site, in proportion to its slots;
- **uniform**: any site, all alike;
- **turns**: each site in turn, each gateway from a place of its own;
- **least-stale**: the site whose sampled load / capacity is lowest;
- **p2c-stale**: two distinct sites at random, the one whose sampled load / capacity is lower: the usual way;
- **own**: two distinct sites by capacity, the one with fewer requests of this gateway per slot;
- **grid**: :class:`grid.gateway.Router` as it runs in production;
- **perfect**: two distinct sites by capacity, the one that holds less per slot at this very moment;
- **central**: one first-come queue before the slots of all sites: what nobody can do better than, and no rule that has
  to send a request somewhere when it comes can reach. It has no shares.
"""

import itertools
import random
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final

from grid.sim.virtual.fleet import Clock, Fleet, Slots
from grid.sim.virtual.gateways import MODEL
from grid.sim.virtual.pictures import Oscillation, Shares, Show, Waits, longer, steady
from grid.sim.virtual.progress import Progress

MEAN_S: Final = 2.0
"""Mean duration of a request, s."""

DELAY_S: Final = 0.1
"""s until gateways hear of a sample."""


@dataclass(frozen=True, slots=True)
class Column:
    """``load``: arrivals through the gateways against all slots; ``hidden``: per site, load that they do not see."""

    slots: tuple[int, ...] = (24,) * 8
    gateways: int = 8
    sample: float = 2.0
    load: float = 0.85
    hidden: tuple[float, ...] = ()
    about: str = ""


_A: Final = Column(about="8 equal sites, 8 gateways, a sample every 2 s, load 0.85")
COLUMNS: Final = {
    "A": _A,
    "B": replace(_A, gateways=64, about="A with 64 gateways"),
    "C": replace(_A, sample=5.0, about="A with a sample every 5 s"),
    "D": Column((24, 24), gateways=4, load=0.8, about="2 equal sites, 4 gateways, load 0.8"),
    "E": replace(_A, slots=(8, 8, 16, 16, 24, 24, 48, 48), about="capacities 8 to 48"),
    "F": replace(
        _A, load=0.725, hidden=(0.5, 0.5), about="two of 8 sites half filled by traffic that the gateways do not see"
    ),
}
POLICIES: Final = ("random", "uniform", "turns", "least-stale", "p2c-stale", "own", "grid", "perfect", "central")
WINDOW_S: Final = 10.0
"""s of the longer windows over which shares are taken."""

Chosen = tuple[Slots, Callable[[], None], Callable[[], None]]
"""A site, and what its gateway does when the request begins and ends."""

Choice = Callable[[int], Chosen]
"""Where a request of the gateway with this number goes."""


@dataclass(frozen=True, slots=True)
class _Scene:
    """What a policy is made for. ``joins``: who wants to hear of a site that joins."""

    clock: Clock
    sites: list[Slots]
    column: Column
    rng: random.Random
    on_error: Callable[[float], None] | None = None
    joins: list[Callable[[Slots], None]] = field(default_factory=list)

    def join(self, site: Slots) -> None:
        self.sites.append(site)
        for hear in self.joins:
            hear(site)


@dataclass(slots=True)
class Result:
    """Waits in s; ``hottest``: mean over sample intervals of the busiest site's share against its fair share.

    ``hottest_10s``: the same over windows of 10 s, of which ``swings`` has each. None and empty where requests have no
    site until they start. ``arrivals``: requests that came to each site, second by second.
    """

    waits: list[float]
    hottest: float | None
    hottest_10s: float | None
    swings: Sequence[float] = ()
    arrivals: Sequence[Sequence[int]] = ()

    @property
    def mean_ms(self) -> float:
        """Mean wait."""
        return 1e3 * sum(self.waits) / len(self.waits)

    @property
    def p99_ms(self) -> float:
        """99th percentile of the waits."""
        return 1e3 * sorted(self.waits)[int(0.99 * len(self.waits))]


def run(
    columns: Iterable[str] = tuple(COLUMNS),
    *,
    policies: Sequence[str] = POLICIES,
    seconds: float = 160.0,
    seeds: int = 2,
    progress: Progress | None = None,
    show: Show | None = None,
) -> list[dict[str, Any]]:
    """One row per column and policy; the first tenth of ``seconds`` is not counted. Unknown names raise KeyError.

    Pictures of waits are of all seeds, those of shares of the first.
    """
    names = tuple(columns)
    rows: list[dict[str, Any]] = []
    done, runs = 0, len(names) * len(policies) * seeds
    for name in names:
        found: dict[str, list[Result]] = {}
        for policy in policies:
            found[policy] = results = []
            for seed in range(seeds):
                results.append(simulate(COLUMNS[name], policy, seconds=seconds, seed=seed))
                done += 1
                if progress is not None:
                    progress(done, runs, seconds)
            merged = Result(
                [wait for one in results for wait in one.waits],
                _mean([one.hottest for one in results]),
                _mean([one.hottest_10s for one in results]),
            )
            rows.append(
                {
                    "column": name,
                    "policy": policy,
                    "mean_ms": round(merged.mean_ms, 1),
                    "p99_ms": round(merged.p99_ms),
                    "hottest": merged.hottest,
                    "hottest_10s": merged.hottest_10s,
                    "about": COLUMNS[name].about,
                }
            )
        if show is not None:
            _show(name, found, show)
    return rows


def _show(name: str, found: Mapping[str, Sequence[Result]], show: Show) -> None:
    """Pictures of one column."""
    column = COLUMNS[name]
    waits = {policy: longer([wait for one in results for wait in one.waits]) for policy, results in found.items()}
    show(f"stale-waits-{name}", Waits(f"How long requests wait, {name}: {column.about}", waits))
    swings = {policy: tuple(results[0].swings) for policy, results in found.items() if results[0].swings}
    show(f"stale-oscillation-{name}", Oscillation(f"How far shares swing, {name}: {column.about}", swings, WINDOW_S))
    sites = tuple(f"site-{number}" for number in range(len(column.slots)))
    for policy, results in found.items():
        if arrivals := tuple(map(tuple, results[0].arrivals)):
            title = f"Who gets which share, {name}, {policy}: {column.about}"
            picture = Shares(title, sites, arrivals, steady(column.slots), window=round(WINDOW_S))
            show(f"stale-shares-{name}-{policy}", picture)


def simulate(
    column: Column,
    policy: str,
    *,
    seconds: float,
    seed: int = 0,
    on_error: Callable[[float], None] | None = None,
) -> Result:
    """One run. The arrivals and durations of a seed are the same for every policy.

    ``on_error`` hears how far off estimates were when a new sample came (policy ``grid``).
    """
    clock = Clock()
    slots = (sum(column.slots),) if policy == "central" else column.slots
    sites = [Slots(f"site-{number}", size, clock) for number, size in enumerate(slots)]
    choose = _POLICIES[policy](_Scene(clock, sites, column, random.Random(f"{seed} choice"), on_error))
    waits: list[float] = []
    traffic = random.Random(f"{seed} traffic")
    warm_up = seconds / 10

    def arrive() -> None:
        service = traffic.expovariate(1 / MEAN_S)
        gateway = traffic.randrange(column.gateways)
        clock.at(clock.now + traffic.expovariate(rate), arrive)
        site, begin, end = choose(gateway)
        begin()
        arrived = clock.now

        def done(waited: float) -> None:
            end()
            if arrived >= warm_up:
                waits.append(waited)

        site.send(service, done)

    rate = column.load * sum(column.slots) / MEAN_S
    clock.at(traffic.expovariate(rate), arrive)
    for number, (size, load) in enumerate(zip(column.slots, column.hidden, strict=False)):
        site = sites[number % len(sites)]
        _fill(clock, site, load * size / MEAN_S, random.Random(f"{seed} hidden site-{number}"))
    shares, windows, by_second = _Shares(sites), _Shares(sites), _Shares(sites)
    clock.every(column.sample, shares.look, first=warm_up)
    clock.every(WINDOW_S, windows.look, first=warm_up)
    clock.every(1.0, by_second.look, first=warm_up)
    clock.run(seconds)
    if policy == "central":
        return Result(waits, None, None)
    swings = [round(ratio, 3) for ratio in windows.found]
    return Result(waits, shares.hottest, windows.hottest, swings, by_second.counts)


def joined(column: Column, policy: str = "grid", *, seed: int = 0, intervals: int = 5) -> list[float]:
    """What the last site gets of its fair share in each of its first sample ``intervals``.

    It joins empty, after twenty of them in which the others carried all of the load. For the policies ``random``,
    ``uniform``, ``least-stale``, ``p2c-stale`` and ``grid``.
    """
    clock = Clock()
    *sites, last = (Slots(f"site-{number}", size, clock) for number, size in enumerate(column.slots))
    scene = _Scene(clock, sites, column, random.Random(f"{seed} choice"))
    choose = _POLICIES[policy](scene)
    traffic = random.Random(f"{seed} traffic")
    rate = column.load * sum(column.slots) / MEAN_S

    def arrive() -> None:
        clock.at(clock.now + traffic.expovariate(rate), arrive)
        site, begin, end = choose(traffic.randrange(column.gateways))
        begin()
        site.send(traffic.expovariate(1 / MEAN_S), lambda _: end())

    clock.at(0.0, arrive)
    joins = 20 * column.sample
    clock.run(joins - 0.01)
    scene.join(last)
    told = joins + DELAY_S
    clock.run(told)
    shares, before = [], [site.seen for site in sites]
    for interval in range(1, intervals + 1):
        clock.run(told + interval * column.sample)
        seen = [site.seen for site in sites]
        new = [now - then for now, then in zip(seen, before, strict=True)]
        shares.append(new[-1] / sum(new) * sum(column.slots) / last.capacity)
        before = seen
    return shares


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 3) if known else None


def _fill(clock: Clock, site: Slots, rate: float, rng: random.Random) -> None:
    def arrive() -> None:
        clock.at(clock.now + rng.expovariate(rate), arrive)
        site.take(rng.expovariate(1 / MEAN_S), lambda _: None)

    clock.at(rng.expovariate(rate), arrive)


class _Shares:
    """How much more than its fair share the busiest site got, per interval."""

    def __init__(self, sites: Sequence[Slots]) -> None:
        self._sites = sites
        self._before: list[int] | None = None
        self.found: list[float] = []
        self.counts: list[list[int]] = []

    def look(self) -> None:
        seen = [site.seen for site in self._sites]
        if self._before is not None:
            new = [now - before for now, before in zip(seen, self._before, strict=True)]
            slots = sum(site.capacity for site in self._sites)
            fair = [max(1, sum(new)) * site.capacity / slots for site in self._sites]
            self.counts.append(new)
            self.found.append(max(got / due for got, due in zip(new, fair, strict=True)))
        self._before = seen

    @property
    def hottest(self) -> float:
        return sum(self.found) / len(self.found)


# --- policies ---------------------------------------------------------------------------------------------------------


def _random(scene: _Scene) -> Choice:
    return lambda _: _plain(scene.rng.choices(scene.sites, [site.capacity for site in scene.sites])[0])


def _uniform(scene: _Scene) -> Choice:
    return lambda _: _plain(scene.rng.choice(scene.sites))


def _turns(scene: _Scene) -> Choice:
    sites = scene.sites
    counts = [itertools.count(scene.rng.randrange(len(sites))) for _ in range(scene.column.gateways)]
    return lambda gateway: _plain(sites[next(counts[gateway]) % len(sites)])


def _least(scene: _Scene) -> Choice:
    known = _sampled(scene)
    return lambda _: _plain(min(scene.sites, key=lambda site: known.get(site, 0.0)))


def _p2c(scene: _Scene) -> Choice:
    known = _sampled(scene)
    return lambda _: _plain(min(scene.rng.sample(scene.sites, 2), key=lambda site: known.get(site, 0.0)))


def _sampled(scene: _Scene) -> dict[Slots, float]:
    """Load / capacity of each site, as gateways have been told it."""
    clock, known = scene.clock, dict[Slots, float]()

    def sample() -> None:
        seen = {site: site.held / site.capacity for site in scene.sites}
        clock.at(clock.now + DELAY_S, lambda: known.update(seen))

    clock.every(scene.column.sample, sample)
    return known


def _own(scene: _Scene) -> Choice:
    own = [dict.fromkeys(scene.sites, 0) for _ in range(scene.column.gateways)]
    draw = _pairs(scene)

    def choose(gateway: int) -> Chosen:
        mine = own[gateway]
        site = min(draw(), key=lambda site: mine[site] / site.capacity)

        def add(number: int) -> None:
            mine[site] += number

        return site, lambda: add(1), lambda: add(-1)

    return choose


def _perfect(scene: _Scene) -> Choice:
    draw = _pairs(scene)
    return lambda _: _plain(min(draw(), key=lambda site: site.held / site.capacity))


def _pairs(scene: _Scene) -> Callable[[], tuple[Slots, Slots]]:
    """Draws two distinct sites, each in proportion to its slots."""
    sites, draw = scene.sites, scene.rng.random
    bounds = list(accumulate(site.capacity for site in sites))

    def pair() -> tuple[Slots, Slots]:
        first = second = sites[bisect(bounds, draw() * bounds[-1])]
        while second is first:
            second = sites[bisect(bounds, draw() * bounds[-1])]
        return first, second

    return pair


def _grid(scene: _Scene) -> Choice:
    column = scene.column
    fleet = Fleet(
        scene.clock,
        scene.sites,
        column.gateways,
        scene.rng,
        sample=column.sample,
        delay=DELAY_S,
        on_error=scene.on_error,
    )
    scene.joins.append(fleet.join)

    def choose(gateway: int) -> Chosen:
        target = fleet.routers[gateway].pick(MODEL).place.target
        return fleet.sites[target.site], target.begin, target.end

    return choose


def _central(scene: _Scene) -> Choice:
    return lambda _: _plain(scene.sites[0])


def _plain(site: Slots) -> Chosen:
    return site, _nothing, _nothing


def _nothing() -> None:
    return None


_POLICIES: Final = {
    "random": _random,
    "uniform": _uniform,
    "turns": _turns,
    "least-stale": _least,
    "p2c-stale": _p2c,
    "own": _own,
    "grid": _grid,
    "perfect": _perfect,
    "central": _central,
}
