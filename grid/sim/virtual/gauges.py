"""What an EPP's page says of a simulated site, and when it says nothing.

As real ones behave (measured on llm-d 0.10): the counts of requests in flight and in its queue are of this instant;
means per endpoint and the ready count are rewritten every 5 s, from readings up to 2 s old, and do not exist in the
EPP's first 5 s; with nothing ready the ready count says 0 while the means stay as they were.
"""

import random
from dataclasses import dataclass, field

from grid.model import Reading, ReadySource, Reason, ScrapeError
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.site import Site

PERIOD = 5.0
"""s between two refreshes of the means."""
ENGINE_QUEUE = 5
"""Requests that the EPP lets wait in one engine before it keeps them in its own queue."""
KV_LIMIT = 0.8
"""KV use at which an endpoint counts as saturated to the EPP."""


@dataclass(frozen=True, slots=True)
class Page:
    """How an EPP shows its pool.

    ``live``: it counts requests in flight itself; without, only means are known (older releases). ``noise``: standard
    deviation of the means, as a fraction. ``lost``: fraction of scrapes that time out. ``idle``: it always claims that
    nothing runs or waits. ``denied``: every scrape is refused for its token. ``started``: when the EPP came up.
    """

    live: bool = True
    noise: float = 0.0
    lost: float = 0.0
    idle: bool = False
    denied: bool = False
    started: float = -60.0


@dataclass(slots=True)
class _Means:
    ready: int
    running: float = 0.0
    queue: float = 0.0
    kv: float = 0.0


@dataclass(slots=True)
class Epp:
    """The page of one site. ``page`` may be replaced while a run goes on."""

    site: Site
    clock: Clock
    rng: random.Random
    page: Page = field(default_factory=Page)
    _means: _Means | None = None

    def __post_init__(self) -> None:
        if self.page.started + PERIOD <= self.clock.now:
            self._refresh()
        # Each EPP has a beat of its own.
        first = max(self.page.started, self.clock.now) + PERIOD * self.rng.random()
        self.clock.every(PERIOD, self._refresh, first=first)

    def restart(self) -> None:
        """The EPP starts anew: for a while its page says nothing of the pool's means."""
        self._means = None

    def read(self) -> Reading:
        """The page now. Raises ScrapeError where there is none."""
        page, site = self.page, self.site
        if page.denied:
            raise ScrapeError(f"{site.name}: HTTP 401", reason=Reason.CREDENTIAL_MISSING)
        if page.lost and self.rng.random() < page.lost:
            raise ScrapeError(f"{site.name}: no answer", reason=Reason.TIMEOUT)
        means = self._means
        waiting = len(site.queue)
        in_engines = min(waiting, ENGINE_QUEUE * site.ready)
        running = 0 if page.idle else len(site.running)
        if page.idle:
            waiting = in_engines = 0
        known = means is not None and means.ready > 0 and site.ready > 0
        return Reading(
            dialect="llm_d_epp",
            pool=site.name,
            ready=site.ready if page.live else (None if means is None else means.ready),
            ready_source=(ReadySource.LIVE if page.live else ReadySource.EPP),
            ready_endpoints=None if means is None else means.ready,
            ready_live=site.ready if page.live else None,
            average_queue_size=means.queue if known and means is not None else None,
            average_running_requests=means.running if known and means is not None else None,
            kv_cache_utilization=means.kv if known and means is not None else None,
            in_flight=float(running + in_engines) if page.live else None,
            flow_control_queue=float(waiting - in_engines) if page.live else None,
            pool_saturation=self._saturation() if page.live else None,
            started_at=page.started,
        )

    def _saturation(self) -> float:
        site = self.site
        if not site.ready:
            return 1.0
        if self.page.idle:
            return 0.0
        in_engines = min(len(site.queue), ENGINE_QUEUE * site.ready)
        return max(in_engines / (ENGINE_QUEUE * site.ready), site.kv_use() / KV_LIMIT)

    def _refresh(self) -> None:
        site, page = self.site, self.page
        if not site.ready:
            self._means = (
                _Means(0) if self._means is None else _Means(0, self._means.running, self._means.queue, self._means.kv)
            )
            return
        if page.idle:
            self._means = _Means(site.ready)
            return
        in_engines = min(len(site.queue), ENGINE_QUEUE * site.ready)
        self._means = _Means(
            site.ready,
            running=self._noisy(len(site.running) / site.ready),
            queue=self._noisy(in_engines / site.ready),
            kv=min(1.0, self._noisy(site.kv_use())),
        )

    def _noisy(self, value: float) -> float:
        if not self.page.noise:
            return value
        return max(0.0, value * self.rng.gauss(1.0, self.page.noise))
