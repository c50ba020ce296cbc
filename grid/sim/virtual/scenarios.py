"""What may befall a fleet, and how much of it choosing may let through: the scenarios of ``grid simulate churn``.

Unless a scenario says otherwise: 8 sites of four endpoints with 6 slots each, 4 gateways, a scrape every 2 s, arrivals
at random for 0.8 of all slots, requests of 2 s on average (exponential) whose first byte comes after 0.3 s.

Where bounds come from:

- ``FIRST`` 1.15: a site that comes, or comes back, may get that much of its fair share in any of its first scrape
  intervals, since engines that have just started are slow to take a flood; chance alone makes 0.03 of it over all runs;
- ``WAIT`` 28 ms: what own counts alone leave of the mean wait in column A of ``grid simulate stale`` (26 ms), with
  nothing else happening. Whatever merely takes information away may not make it worse than that;
- ``OVERFLOW`` 1.25: the load at which a gateway stops sending to a site although nobody else has room;
- the others are counted out at their scenario.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from grid.sim.virtual.gauges import Page
from grid.sim.virtual.measure import mean
from grid.sim.virtual.stage import MEAN_S, Runs, Setting, Stage, ended, first_shares, share, wait
from grid.sim.virtual.work import FAULTS, Lognormal, Outcome, Request
from grid.sim.virtual.world import Fleet, Shape

FIRST: Final = 1.15
WAIT: Final = 28.0
OVERFLOW: Final = 1.25
FAILED: Final = "part of the requests that fail"
REFUSED: Final = "part of the requests refused"
INTERVAL: Final = 2.0
LOSS_KNOWN: Final = 2.3
"""s until a loss is known everywhere: a scrape interval, 20 ms each for scrape and pass, at most 100 ms to the frame
that goes out at once, 5 ms to the gateways; and one look of 100 ms."""


_SLACK: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Bound:
    """``what`` is measured over all runs by ``figure``: ``limit`` ``at`` most, or at least."""

    what: str
    limit: float
    figure: Callable[[Runs], float]
    at: Literal["most", "least"] = "most"

    def holds(self, figure: float) -> bool:
        """Whether ``figure`` is within it; sums of floats may be off by a little."""
        beyond = figure - self.limit if self.at == "most" else self.limit - figure
        return beyond <= _SLACK


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that happens.

    ``fair``: from which s on which part of the arrivals is fair for each site (in any unit; 0: it is out of use).
    ``events``: what happens at which s. ``peers``: rules beside. ``runs``: seeds of the sizes ``small`` and ``full``.
    """

    about: str
    setting: Setting
    happens: Callable[[Stage], None]
    bounds: tuple[Bound, ...]
    fair: tuple[tuple[float, tuple[float, ...]], ...] = ((0.0, (1.0,) * 8),)
    events: tuple[tuple[float, str], ...] = ()
    peers: tuple[str, ...] = ("p2c-stale",)
    runs: tuple[int, int] = (4, 16)


# --- settings ---------------------------------------------------------------------------------------------------------

_SHAPE: Final = Shape(6, endpoints=4)
_EIGHT: Final = Fleet((_SHAPE,) * 8, gateways=4, interval=INTERVAL)
_USUAL: Final = Setting(_EIGHT)
_ALL: Final = tuple(range(8))
_OTHERS: Final = _ALL[1:]


def _paged(page: Page, *, all_sites: bool = True) -> Setting:
    """The usual setting with pages that behave like this, at all sites or at the first."""
    shape = replace(_SHAPE, page=page)
    return replace(_USUAL, fleet=replace(_EIGHT, sites=(shape, *((shape if all_sites else _SHAPE,) * 7))))


# --- bounds -----------------------------------------------------------------------------------------------------------

_NO_FAULTS: Final = Bound(FAILED, 0.0, lambda runs: ended(runs, *FAULTS))


def _refused(most: float = 0.001) -> Bound:
    return Bound(REFUSED, most, lambda runs: ended(runs, Outcome.REFUSED))


_REFUSED: Final = _refused()
_NEW_DOCUMENTS: Final = Bound(
    "documents published",
    0.0,
    lambda runs: sum(len(run.world.plane.published) - run.notes["published"] for run in runs),
)


def _waits(most: float = WAIT) -> Bound:
    return Bound("mean wait, ms", most, lambda runs: 1e3 * wait(runs))


def _arrives(site: int, since: float = 0.0) -> Bound:
    what = "part of its fair share, the most in its first five scrape intervals"
    return Bound(what, FIRST, lambda runs: max(first_shares(runs, site, 1 / 8, since=since)))


def _filled(sites: tuple[int, ...], most: float, first: float, last: float, who: str) -> Bound:
    """Each run's fullest moment, on average: of a single run chance has its say."""
    what = f"load of {who}, mean over runs of the highest"
    return Bound(what, most, lambda runs: mean([run.fullest(sites, first, last) for run in runs]))


def _level(until: float) -> Bound:
    """No site gets more than its share over 10 s, all runs together."""
    return Bound(
        "part of the fair share that any site got in 10 s, the most",
        FIRST,
        lambda runs: max(share(runs, one, 1 / 8, at, at + 10) for one in _ALL for at in range(0, int(until), 10)),
    )


def _gets(
    site: int, fair: float, limit: float, first: float, last: float, *, at: Literal["most", "least"] = "most"
) -> Bound:
    what = f"part of its fair share from {first:g} to {last:g} s on"
    return Bound(what, limit, lambda runs: share(runs, site, fair, first, last), at)


def _last_sent(first: float, last: float, most: float) -> Bound:
    what = "s until nothing new is sent there"
    return Bound(what, most, lambda runs: max(run.last_arrival(0, first, last) for run in runs))


# --- what happens -----------------------------------------------------------------------------------------------------


def _nothing(stage: Stage) -> None:
    stage.notes["published"] = len(stage.world.plane.published)


def _join(stage: Stage) -> None:
    stage.world.join(7)


def _cold_join(stage: Stage) -> None:
    stage.world.sites[7].revive(cold=30.0, factor=2.0)
    stage.world.join(7)


_CROWD: Final = 16
_LOST_AT: Final = 3.0


def _loss(stage: Stage) -> None:
    """Requests from elsewhere fill its slots, so that some of ours wait there when it dies."""
    site = stage.world.sites[0]
    for _ in range(_CROWD):
        request = Request(60.0)
        request.left = lambda *_: None
        site.take(request)

    def die() -> None:
        stage.notes["begun"] = sum(_is_ours(one) and stage.clock.now >= one.first_at for one in site.running)
        stage.notes["waited"] = sum(map(_is_ours, site.queue))
        site.kill()

    def known() -> None:
        stage.notes["left behind"] = sum(map(_is_ours, site.queue))

    stage.later(_LOST_AT, die)
    stage.later(_LOST_AT + LOSS_KNOWN, known)


def _is_ours(request: Request) -> bool:
    return request.born > 0.0


def _return(stage: Stage) -> None:
    site = stage.world.sites[0]
    site.kill()
    stage.later(_BACK_AT, lambda: site.revive(cold=10.0, factor=1.5))


_BACK_AT: Final = 12.0


def _halve(stage: Stage) -> None:
    stage.world.sites[0].kill(2)


def _fail(stage: Stage) -> None:
    stage.world.sites[0].failing = True


def _change_leader(stage: Stage) -> None:
    _nothing(stage)
    stage.world.plane.change_leader(gap=10.0)


def _cut_off(stage: Stage) -> None:
    stage.world.plane.cut_off(30.0)


_UNDRAINED_AT: Final = 10.0


def _drain(stage: Stage) -> None:
    stage.world.plane.drain("site-0")
    stage.later(_UNDRAINED_AT, lambda: stage.world.plane.undrain("site-0"))


def _restart_epp(stage: Stage) -> None:
    stage.world.epps[0].restart()


def _surge(stage: Stage) -> None:
    stage.traffic(2 * stage.setting.rate, start=stage.at, until=stage.at + 10.0)


# --- the field's failure ----------------------------------------------------------------------------------------------

_READABLE: Final = Shape(8)
_DENIED: Final = Shape(8, page=Page(denied=True))
_IDLE_BESIDE: Final = {1: {1: 0.0, 4: 0.0, 8: 0.005, 12: 0.03}, 4: {1: 0.01, 4: 0.01, 8: 0.02, 12: 0.17}}
"""By gateways and requests a second: part of the arrivals that may wait while another site has a free slot.

The site that can be read holds 4 a second, all four hold 16. Alone, a gateway knows by its own count where a slot is
free, but for what its page and its report, some ms and some s old, make of that count. Of four gateways none hears
sooner than a scrape interval what the others send. Where all four sites can be read, four gateways let 0, 0.6 and 10 %
wait at 4, 8 and 12 a second, so no more is asked of them here. Few runs are 0.02 off at 12 a
second, which is allowed for.
"""


def _unreadable(gateways: int, rate: int) -> Setting:
    fleet = Fleet((_READABLE, _DENIED, _DENIED, _DENIED), gateways=gateways, interval=INTERVAL)
    return Setting(fleet, load=rate * MEAN_S / 32, after=60.0)


def _needless(most: float) -> Bound:
    return Bound(
        "part of the arrivals that wait while another site has a free slot",
        most,
        lambda runs: sum(run.needless for run in runs) / max(1, sum(run.arrived for run in runs)),
    )


# --- all of them ------------------------------------------------------------------------------------------------------

_AFTER_LOSS: Final = ((0.0, (1.0,) * 8), (_LOST_AT, (0.0, *(1.0,) * 7)))
_AFTER_RETURN: Final = ((0.0, (0.0, *(1.0,) * 7)), (_BACK_AT, (1.0,) * 8))
_AFTER_DRAIN: Final = ((0.0, (0.0, *(1.0,) * 7)), (_UNDRAINED_AT, (1.0,) * 8))
_AFTER_HALVING: Final = ((0.0, (0.5, *(1.0,) * 7)),)
_LEARNED: Final = tuple(Shape(6, endpoints=number, declared=False) for number in (2, 2, 4, 4, 4, 4, 6, 6))
_CHAT: Final = Lognormal()
_KV: Final = Shape(48, kv_tokens=48_000)

SCENARIOS: Final[dict[str, Scenario]] = {
    "join": Scenario(
        "an empty site joins seven that carry all the traffic",
        replace(_USUAL, absent=(7,), after=16.0),
        _join,
        # It is to be full at most, 1; in single runs the last slot and a line of one come by chance, which moves the
        # mean of 16 runs by 0.01 and of 60 by half of that, so 0.05 is allowed for.
        (_arrives(7), _filled((7,), 1.05, 0, 16, "the new site"), _NO_FAULTS, _REFUSED),
        events=((0.0, "site-7 joins"),),
        runs=(16, 60),
    ),
    "slow-start": Scenario(
        "an empty site joins whose requests take twice as long for 30 s",
        replace(_USUAL, absent=(7,), after=30.0),
        _cold_join,
        (_filled((7,), OVERFLOW, 0, 30, "the new site"), _NO_FAULTS, _REFUSED, _waits()),
        events=((0.0, "site-7 joins, cold"),),
        runs=(8, 16),
    ),
    "loss": Scenario(
        "all endpoints of a site die while requests wait there",
        replace(_USUAL, load=0.75),
        _loss,
        (
            # A gateway that was refused there tries again after a second, before the page of its loss has come.
            _last_sent(_LOST_AT, 20.0, LOSS_KNOWN),
            Bound(
                "requests that fail beyond those whose answer had begun there",
                0.0,
                lambda runs: sum(len(run.faults_after) - run.notes["begun"] for run in runs),
            ),
            Bound(
                "requests that still wait there once the loss is known",
                0.0,
                lambda runs: sum(run.notes["left behind"] for run in runs),
            ),
            _filled(_OTHERS, OVERFLOW, _LOST_AT, 20, "any other site"),
            _REFUSED,
        ),
        fair=_AFTER_LOSS,
        events=((_LOST_AT, "site-0 dies"),),
    ),
    "return": Scenario(
        "a site comes back after 12 s, and for 10 s its requests take half as long again",
        replace(_USUAL, load=0.75, after=36.0),
        _return,
        (
            _arrives(0, _BACK_AT),
            _gets(0, 1 / 8, 0.85, _BACK_AT + 12, _BACK_AT + 24, at="least"),
            _filled((0,), OVERFLOW, _BACK_AT, 36, "the site"),
            _REFUSED,
        ),
        fair=_AFTER_RETURN,
        events=((0.0, "site-0 dies"), (_BACK_AT, "and is back")),
        runs=(16, 60),
    ),
    "halved": Scenario(
        "half of a site's endpoints die",
        _USUAL,
        _halve,
        (
            _gets(0, 0.5 / 7.5, FIRST, 2 * INTERVAL, 20),
            # Until a scrape tells of it, gateways fill what they take for 24 slots: twice the 12 that are left.
            _filled((0,), 2.0, 0, 20, "the site"),
            _REFUSED,
            _waits(40.0),
        ),
        fair=_AFTER_HALVING,
        events=((0.0, "half of site-0 dies"),),
    ),
    "liar": Scenario(
        "a site's page always says that it is idle",
        _paged(Page(idle=True), all_sites=False),
        _nothing,
        (_gets(0, 1 / 8, FIRST, 0, 20), _filled((0,), OVERFLOW, 0, 20, "the site"), _waits(), _NO_FAULTS, _REFUSED),
    ),
    "epp-restart": Scenario(
        "a site's EPP starts anew and does not count what runs already",
        _USUAL,
        _restart_epp,
        (_filled((0,), OVERFLOW, 0, 20, "the site"), _waits(), _NO_FAULTS, _REFUSED),
        events=((0.0, "the EPP of site-0 restarts"),),
    ),
    "black-hole": Scenario(
        "a site answers everything at once with an error",
        replace(_USUAL, load=0.75, after=30.0),
        _fail,
        (
            # Five errors set it back at each gateway, and one each after 1, 3, 7 and 15 s: 36 of 2160 requests, and
            # what is under way in those moments.
            Bound(FAILED, 0.02, lambda runs: ended(runs, *FAULTS)),
            _gets(0, 1 / 8, 0.5, 1, 30),
            _REFUSED,
        ),
        fair=((0.0, (0.0, *(1.0,) * 7)),),
        events=((0.0, "site-0 fails"),),
    ),
    "leader": Scenario(
        "the leader dies, another takes over after 10 s",
        replace(_USUAL, after=30.0),
        _change_leader,
        (_NEW_DOCUMENTS, _level(30.0), _waits(), _NO_FAULTS, _REFUSED),
        events=((0.0, "the leader dies"), (10.0, "another leads")),
    ),
    "no-frames": Scenario(
        "the bus is away for 30 s: no frames, no documents",
        replace(_USUAL, after=40.0),
        _cut_off,
        (_level(40.0), _waits(), _NO_FAULTS, _REFUSED),
        events=((0.0, "the bus is away"), (30.0, "and is back")),
    ),
    "skew-4": Scenario(
        "one of 4 gateways has 90 % of the traffic",
        replace(_USUAL, shares=(0.9, *(0.1 / 3,) * 3)),
        _nothing,
        (_level(20.0), _waits(), _NO_FAULTS, _REFUSED),
        runs=(8, 16),
    ),
    "skew-16": Scenario(
        "one of 16 gateways has 90 % of the traffic",
        replace(_USUAL, fleet=replace(_EIGHT, gateways=16), shares=(0.9, *(0.1 / 15,) * 15)),
        _nothing,
        (_level(20.0), _waits(), _NO_FAULTS, _REFUSED),
        runs=(8, 16),
    ),
    "drain": Scenario(
        "a site is drained, and taken back after 10 s",
        replace(_USUAL, load=0.75, after=26.0),
        _drain,
        (
            # 20 ms to the pass, 5 ms to the gateways; and two looks of 100 ms.
            _last_sent(0.0, 9.0, 0.2),
            # It is as warm as it was, so it is filled up at once; but not beyond that.
            _filled((0,), OVERFLOW, _UNDRAINED_AT, 26, "the site"),
            _gets(0, 1 / 8, 0.85, _UNDRAINED_AT + 2 * INTERVAL, 26, at="least"),
            _NO_FAULTS,
            _REFUSED,
        ),
        fair=_AFTER_DRAIN,
        events=((0.0, "drained"), (_UNDRAINED_AT, "taken back")),
    ),
    "surge": Scenario(
        "arrivals are three times as many for 10 s, 1.8 of all slots",
        replace(_USUAL, load=0.6),
        _surge,
        # Between two samples each of four gateways may add sqrt(4) times less than it seems to, so that no swing of one
        # is taken for a surge of all: 1 + 2 x (1.25 - 0.6). The fullest of eight sites over 20 s moves the mean of 16
        # runs by 0.05: 0.1 is for chance. It is paid for by refusing. For 10 s 0.8 of all slots too much arrives, of
        # 1.8 x 10 + 0.6 x 10 in all: a third, and a tenth of it more for chance and for gateways that do not know of
        # a slot that came free.
        (_filled(_ALL, 2.4, 0, 20, "any site"), _NO_FAULTS, _refused(0.37)),
        events=((0.0, "three times the traffic"), (10.0, "as before")),
        runs=(16, 16),
    ),
    "lost-scrapes": Scenario(
        "every fifth scrape fails",
        _paged(Page(lost=0.2)),
        _nothing,
        (_waits(), _NO_FAULTS, _REFUSED),
    ),
    "means": Scenario(
        "EPPs that tell means alone, as older ones do, with a noise of a tenth",
        _paged(Page(live=False, noise=0.1)),
        _nothing,
        # Means are 1 to 7 s old: as much as column C, where samples are up to 5 s old, may wait, and half again.
        (_waits(45.0), _NO_FAULTS, _REFUSED),
    ),
    "learned": Scenario(
        "sites of 12 to 36 slots of which nobody has declared how many",
        replace(_USUAL, fleet=replace(_EIGHT, sites=_LEARNED), before=40.0),
        _nothing,
        # As where half of two sites' load is not seen, in column F: what a site never ran it is not known to hold.
        (_waits(66.0), _NO_FAULTS, _REFUSED),
        fair=((0.0, (2.0, 2.0, 4.0, 4.0, 4.0, 4.0, 6.0, 6.0)),),
    ),
    "kv": Scenario(
        "chat requests of very different length at sites whose KV cache is full before their slots are",
        Setting(replace(_EIGHT, sites=(_KV,) * 8), load=0.4, work=_CHAT, mean=_CHAT.mean, before=24.0, after=40.0),
        _nothing,
        # A few very long requests at one site make a single run wait ten times longer than most: half again for that.
        (_waits(1.5 * WAIT), _NO_FAULTS, _REFUSED),
        runs=(16, 32),
    ),
    "two-sites": Scenario(
        "two sites, 4 gateways, load 0.6: nobody has to wait, so nobody is to be refused",
        replace(_USUAL, fleet=replace(_EIGHT, sites=(Shape(24),) * 2), load=0.6, after=60.0),
        _nothing,
        (_REFUSED, _waits(13.0)),
        fair=((0.0, (1.0, 1.0)),),
    ),
} | {
    f"unreadable-{rate}-{gateways}": Scenario(
        f"one site can be read, three refuse the token: {rate} requests a second by {gateways} "
        f"gateway{'s' * (gateways > 1)}",
        _unreadable(gateways, rate),
        _nothing,
        (_needless(most), _NO_FAULTS, _REFUSED),
        fair=((0.0, (1.0,) * 4),),
    )
    for gateways, by_rate in _IDLE_BESIDE.items()
    for rate, most in by_rate.items()
}
