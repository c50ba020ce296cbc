"""What an EPP's page says of a simulated site, and when it says nothing.

It is the page of :mod:`grid.sim.epp_page` as :mod:`grid.signals` would read it, without the detour over text. Counts of
requests in flight and in the EPP's line are of this instant, and not there before the first request; means and the
ready count are rewritten every 5 s.
"""

import random
from dataclasses import dataclass, field, replace
from typing import Final

from grid.model import Reading, ReadySource, Reason, ScrapeError
from grid.sim.epp_page import PROFILES, REFRESH, FlowLabels, PoolGauges, Profile
from grid.sim.values import Engine, saturation
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.site import Site

LIVE_RELEASE: Final = "v0.10"
MEANS_RELEASE: Final = "gie-1.5"


@dataclass(frozen=True, slots=True)
class Page:
    """How an EPP shows its pool.

    ``live``: the page has the count of requests in flight; without, only means are known. ``release``: which EPP, by
    its name in ``PROFILES``; None: one that is usual for ``live``. ``noise``: standard deviation of the means, as a
    fraction. ``lost``: fraction of scrapes that time out. ``idle``: it always claims that nothing runs or waits.
    ``denied``: every scrape is refused for its token. ``started``: when the EPP came up.
    """

    live: bool = True
    release: str | None = None
    noise: float = 0.0
    lost: float = 0.0
    idle: bool = False
    denied: bool = False
    started: float = -60.0

    @property
    def profile(self) -> Profile:
        """What this release writes."""
        return PROFILES[self.release or (LIVE_RELEASE if self.live else MEANS_RELEASE)]


@dataclass(slots=True)
class Epp:
    """The page of one site. ``page`` may be replaced while a run goes on."""

    site: Site
    clock: Clock
    rng: random.Random
    page: Page = field(default_factory=Page)
    _gauges: PoolGauges = field(init=False)
    _started: float = field(init=False)
    _process: int = 0

    def __post_init__(self) -> None:
        now = self.clock.now
        self._started = self.page.started
        if self._started < now:
            # Each EPP has a beat of its own.
            self._started -= REFRESH * self.rng.random()
        self._begin()

    def restart(self) -> None:
        """The EPP starts anew, without a trace of what went before: see :meth:`grid.sim.virtual.site.Site.forget`."""
        self._started = self.clock.now
        self._begin()
        self.site.forget()

    def _begin(self) -> None:
        now = self.clock.now
        self._process += 1
        self._gauges = PoolGauges(self.page.profile)
        beats = max(0, int((now - self._started) / REFRESH))
        if beats:
            self._gauges.tick(self._engines())
        self.clock.at(self._started + (beats + 1) * REFRESH, self._refresh, self._process)

    def _refresh(self, process: int) -> None:
        if process != self._process:
            return
        gauges, page = self._gauges, self.page
        gauges.profile = page.profile
        gauges.tick(self._engines())
        if page.noise and gauges.means is not None and gauges.ready:
            means = gauges.means
            gauges.means = replace(
                means,
                running=self._noisy(means.running),
                queue=self._noisy(means.queue),
                kv=min(1.0, self._noisy(means.kv)),
            )
        self.clock.after(REFRESH, self._refresh, process)

    def _noisy(self, value: float) -> float:
        return max(0.0, value * self.rng.gauss(1.0, self.page.noise))

    def _engines(self) -> list[Engine]:
        engines = self.site.engines()
        return [replace(engine, running=0, waiting=0, kv=0.0) for engine in engines] if self.page.idle else engines

    # --- the page -----------------------------------------------------------------------------------------------------

    def read(self) -> Reading:
        """The page now. Raises ScrapeError where there is none."""
        page, site, profile = self.page, self.site, self.page.profile
        if site.gone or self.clock.now < self._started:
            raise ScrapeError(f"{site.name}: nothing listens", reason=Reason.CONNECT_REFUSED)
        if page.denied:
            raise ScrapeError(f"{site.name}: HTTP 401", reason=Reason.CREDENTIAL_MISSING)
        if page.lost and self.rng.random() < page.lost:
            raise ScrapeError(f"{site.name}: no answer", reason=Reason.TIMEOUT)
        engines, by_epp = self._engines(), self._gauges.ready
        flows = site.flow_control and page.live and profile.flow_labels is not FlowLabels.NONE
        live = sum(not engine.stale for engine in engines) if flows and profile.stale_series else None
        ready = by_epp if live is None else live
        means = self._gauges.means if by_epp and ready else None
        in_flight = 0 if page.idle else len(site.running) + len(site.at_engines) - site.unseen
        queued = 0 if page.idle else len(site.at_epp)
        errors = site.poll_errors()
        return Reading(
            dialect=profile.prefix or "inference_pool",
            pool=site.name,
            ready=ready,
            ready_source=None if ready is None else ReadySource.EPP if live is None else ReadySource.LIVE,
            ready_endpoints=by_epp,
            ready_live=live,
            average_queue_size=None if means is None else means.queue,
            average_running_requests=None if means is None or not profile.running_mean else means.running,
            kv_cache_utilization=None if means is None else means.kv,
            in_flight=float(in_flight) if page.live and site.begun else None,
            flow_control_queue=float(queued) if flows and site.met else None,
            pool_saturation=saturation(engines) if flows and profile.flow_saturation else None,
            started_at=self._started,
            poll_errors=float(errors) if errors and profile.prefix is not None else None,
        )
