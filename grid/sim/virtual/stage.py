"""A play on a fleet in virtual time: traffic runs, something happens to it, and everything is written down.

A play is run once per seed, by our gateways or by a rule to hold against them. What happens, happens ``at`` a moment
that lies anywhere within a scrape interval, another one for each seed. Figures are taken over all runs together: in a
single one the chance of arrivals is larger than most effects (19 requests are a fair share of one interval).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from grid.overlay import SignalFrame
from grid.sim.virtual.measure import Tally, mean
from grid.sim.virtual.peers import Peer, Rule
from grid.sim.virtual.site import Site
from grid.sim.virtual.traffic import Entry, poisson
from grid.sim.virtual.work import Done, Exponential, Outcome, Request, Work
from grid.sim.virtual.world import Fleet, World

STEP: Final = 0.1
"""s between two looks at the sites."""
MEAN_S: Final = 2.0
"""Mean s of a request at an engine of usual speed."""
FIRST_S: Final = 0.3
"""s of it up to the first byte."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a play starts from. ``load``: arrivals against all slots, those of ``absent`` sites included.

    ``shares``: part of the traffic that each gateway has; None: all alike. ``before`` and ``after``: s of traffic up to
    the first moment at which something may happen, and from when it happens to the end. ``mean``: of ``work``, s.
    """

    fleet: Fleet
    load: float = 0.8
    shares: tuple[float, ...] | None = None
    absent: tuple[int, ...] = ()
    work: Work = field(default_factory=lambda: Exponential(MEAN_S, FIRST_S))
    mean: float = MEAN_S
    before: float = 14.0
    after: float = 20.0

    @property
    def rate(self) -> float:
        """Arrivals a second."""
        return self.load * sum(shape.slots * shape.endpoints for shape in self.fleet.sites) / self.mean


class Look(NamedTuple):
    """The sites at one moment: requests ever sent to each, held by it (running and waiting), and run at once."""

    seen: tuple[int, ...]
    held: tuple[int, ...]
    capacity: tuple[int, ...]


class Door:
    """An entry that notices whether a request has to wait although another site has a free slot."""

    def __init__(self, entry: Entry, stage: "Stage") -> None:
        self._entry = entry
        self._stage = stage

    def send(self, request: Request, done: Done) -> None:
        """Take a request; ``done`` hears how it ends."""
        stage = self._stage
        self._entry.send(request, done)
        if stage.clock.now < stage.at:
            return
        stage.arrived += 1
        sites = stage.world.sites
        if request.started is None and any(request in site.at_engines or request in site.at_epp for site in sites):
            stage.needless += any(site.held < site.capacity and not site.failing for site in stage.present)


class Stage:
    """A setting brought to life under one ``policy`` (``grid``, or a name of :data:`RULES`) and one ``seed``.

    ``at``: when it happens. ``looks``: the sites every ``STEP`` s from then on. Of the requests that have ``arrived``
    since, ``needless`` had to stand in line while another site had a free slot. ``notes``: what a play wants to be
    known of the moment itself.
    """

    def __init__(self, setting: Setting, policy: str, seed: int) -> None:
        self.setting = setting
        self.world = world = World(setting.fleet, seed=seed, absent=setting.absent)
        self.clock = world.clock
        self.at = setting.before + setting.fleet.interval * world.rng("moment").random()
        self.tally = Tally(world.sites, world.clock, since=self.at)
        self.looks: list[Look] = []
        self.faults_after: list[float] = []
        """s from when it happened to each request's end in a fault, whenever it came."""
        self.arrived = self.needless = 0
        self.notes: dict[str, float] = {}
        entries: Sequence[Entry] = world.gateways
        if policy != "grid":
            rule = RULES[policy](world)
            entries = [Peer(world, rule, number) for number in range(len(world.gateways))]
        self.entries = [Door(entry, self) for entry in entries]
        self.clock.every(STEP, self._look, first=self.at)

    @property
    def present(self) -> list[Site]:
        """The sites that are configured now."""
        return [site for site in self.world.sites if site.name in self.world.plane.network.providers]

    def run(self, happens: Callable[["Stage"], None]) -> "Stage":
        """Let the traffic begin, let it happen, and stop ``after`` s later."""
        setting = self.setting
        # Nobody measures a fleet that is being switched on: traffic begins once the first documents are out.
        self.traffic(setting.rate, start=setting.fleet.interval + 0.5)
        self.clock.at(self.at, happens, self)
        self.clock.run(self.at + setting.after)
        return self

    def traffic(self, rate: float, *, start: float, until: float = float("inf")) -> None:
        """Arrivals at random, ``rate`` a second, from ``start`` on."""
        setting, rng = self.setting, self.world.rng(f"traffic from {start:.0f}")
        poisson(
            self.clock,
            self.entries,
            setting.work,
            rate=rate,
            rng=rng,
            heard=self._heard,
            shares=setting.shares,
            start=start,
            until=until,
        )

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Do ``what`` in so many s, counted from when it happens."""
        self.clock.at(self.at + seconds, what)

    def _heard(self, request: Request, outcome: Outcome) -> None:
        if outcome not in {Outcome.ANSWERED, Outcome.REFUSED}:
            self.faults_after.append(self.clock.now - self.at)
        self.tally.heard(request, outcome)

    def _look(self) -> None:
        sites = self.world.sites
        self.looks.append(
            Look(
                tuple([site.seen for site in sites]),
                tuple([site.held for site in sites]),
                tuple([site.capacity for site in sites]),
            )
        )

    # --- what can be asked of one run ---------------------------------------------------------------------------------

    def arrivals(self, first: float, last: float) -> list[int]:
        """Requests sent to each site between ``first`` and ``last`` s from when it happened."""
        before, after = self.looks[self._spot(first)].seen, self.looks[self._spot(last)].seen
        return [now - then for now, then in zip(after, before, strict=True)]

    def first_arrival(self, site: int, since: float) -> float | None:
        """S from when it happened to the first request at ``site`` after ``since``; None: there was none."""
        begin = self._spot(since)
        known = self.looks[begin].seen[site]
        spots = range(begin, len(self.looks))
        return next((STEP * (spot - 1) for spot in spots if self.looks[spot].seen[site] > known), None)

    def last_arrival(self, site: int, first: float, last: float) -> float:
        """S from ``first`` to the last request at ``site`` up to ``last``; 0: there was none."""
        begin, looks = self._spot(first), self.looks
        spots = range(begin + 1, self._spot(last) + 1)
        return max(
            (STEP * (one - begin) for one in spots if looks[one].seen[site] > looks[one - 1].seen[site]), default=0.0
        )

    def fullest(self, sites: Sequence[int], first: float, last: float) -> float:
        """Most that any of these ``sites`` ever held against what it could run at once then; 0 where that was 0."""
        looks = self.looks[self._spot(first) : self._spot(last) + 1]
        filled = (look.held[site] / look.capacity[site] for look in looks for site in sites if look.capacity[site])
        return max(filled, default=0.0)

    def _spot(self, seconds: float) -> int:
        return min(len(self.looks) - 1, max(0, round(seconds / STEP)))


# --- figures over all runs of a play ----------------------------------------------------------------------------------

Runs = Sequence[Stage]


def share(runs: Runs, site: int, fair: float, first: float, last: float) -> float:
    """``site``'s part of the arrivals between two moments, over its ``fair`` part."""
    counts = [run.arrivals(first, last) for run in runs]
    return sum(one[site] for one in counts) / (fair * max(1, sum(map(sum, counts))))


def first_shares(runs: Runs, site: int, fair: float, *, since: float = 0.0, intervals: int = 5) -> list[float]:
    """The same for each scrape interval, counted from the first request that each run sent to ``site``."""
    mine, everything = [0] * intervals, [0] * intervals
    for run in runs:
        begin, width = run.first_arrival(site, since), run.setting.fleet.interval
        for number in range(0 if begin is None else intervals):
            arrivals = run.arrivals((begin or 0.0) + number * width, (begin or 0.0) + (number + 1) * width)
            mine[number] += arrivals[site]
            everything[number] += sum(arrivals)
    return [one / (fair * max(1, total)) for one, total in zip(mine, everything, strict=True)]


def wait(runs: Runs) -> float:
    """Mean s that answered requests stood in line, of those that came after it happened."""
    return mean([one for run in runs for one in run.tally.waits])


def ended(runs: Runs, *outcomes: Outcome) -> float:
    """Part of the requests that came after it happened, and have ended, that ended like this."""
    some = sum(run.tally.outcomes[one] for run in runs for one in outcomes)
    return some / max(1, sum(run.tally.outcomes.total() for run in runs))


# --- rules to hold against --------------------------------------------------------------------------------------------


def _stale(world: World) -> Rule:
    polled: dict[Site, float | None] = {}
    by_name = {site.name: site for site in world.sites}

    def hear(frame: SignalFrame) -> None:
        polled.clear()
        polled.update({by_name[one]: signal.saturation for one, signal in frame.providers.items() if signal.ready != 0})

    def rule(peer: Peer) -> Site:
        known = [site for site, saturation in polled.items() if saturation is not None] or list(polled) or peer.sites
        if len(known) < 2:
            return known[0]
        return min(peer.rng.sample(known, 2), key=lambda site: polled.get(site) or 0.0)

    world.plane.listen(hear)
    return rule


def _perfect(world: World) -> Rule:
    def rule(peer: Peer) -> Site:
        configured = world.plane.network.providers
        able = [site for site in world.sites if site.capacity and not site.failing and site.name in configured]
        least = min((site.held / site.capacity for site in able), default=0.0)
        return peer.rng.choice([site for site in able if site.held / site.capacity == least] or world.sites)

    return rule


RULES: Final[dict[str, Callable[[World], Rule]]] = {"p2c-stale": _stale, "perfect": _perfect}
"""``p2c-stale``: two sites at random of those whose load the newest frame tells, the one of lower saturation: the usual
way. ``perfect``: the least filled of all that work, as if everything were known at once."""
