"""The metric page of a simulated endpoint picker (EPP), in every dialect that is in the field.

What is written when, and what is left out, follows what real EPPs were seen to do (``docs/signals.md``): means and the
ready count are rewritten every 5 s over the endpoints that answered within 2 s, and do not exist before the first
time; with no such endpoint left the means keep their last value; queues per endpoint, requests in flight, queues in the
EPP and saturation are as of the scrape.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from grid.sim import filler
from grid.sim.exposition import Block, family, page
from grid.sim.request_metrics import legacy_blocks, plugin_blocks, queue_blocks, request_blocks
from grid.sim.values import Engine, Flows, saturation

REFRESH = 5.0
"""s between two rewrites of the means and the ready count."""
FRESH = 2.0
"""s since its last answer within which an endpoint counts as ready and takes part in the means."""
DETECTOR = "utilization-detector"

LEGACY = "inference_pool"
LEGACY_FLOW = "inference_extension"


class FlowLabels(StrEnum):
    """Which labels the flow-control queue carries: no such series at all, the first two, or all five."""

    NONE = "none"
    TWO = "two"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Profile:
    """What one release of an EPP writes.

    ``prefix``: of the newer names, None where there are only legacy ones; ``floored``: means cut to whole numbers;
    ``freezes_ready``: the ready count too keeps its last value when no endpoint is left; ``rounded``: two decimals, and
    standard deviations beside the means; ``stages``: pool saturation by stage; ``kubernetes``: cannot run without it.
    """

    name: str
    release: str
    prefix: str | None = None
    legacy: bool = True
    floored: bool = False
    freezes_ready: bool = False
    running_mean: bool = True
    rounded: bool = False
    flow_labels: FlowLabels = FlowLabels.FULL
    flow_bytes: bool = True
    flow_saturation: bool = True
    flow_control: bool = False
    stale_series: bool = False
    stages: bool = False
    kubernetes: bool = False
    blank: bool = False


_NEW, _DEV = "llm_d_epp", "llm_d_router_epp"

PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile("gie-1.0", "GIE 1.0, llm-d 0.3", floored=True, freezes_ready=True, running_mean=False,
                    flow_labels=FlowLabels.NONE, flow_bytes=False, flow_saturation=False, kubernetes=True),
            Profile("gie-1.2", "GIE 1.2, llm-d 0.4", floored=True, freezes_ready=True, running_mean=False,
                    flow_labels=FlowLabels.TWO, flow_bytes=False, flow_saturation=False, kubernetes=True),
            Profile("gie-1.4", "GIE 1.4, llm-d 0.7", floored=True, running_mean=False, flow_saturation=False,
                    kubernetes=True),
            Profile("gie-1.5", "GIE 1.5, llm-d 0.8", kubernetes=True),
            Profile("router-dev", "llm-d between 0.8 and 0.9", prefix=_DEV),
            Profile("v0.9", "llm-d 0.9", prefix=_NEW),
            Profile("v0.10", "llm-d 0.10", prefix=_NEW, rounded=True, flow_control=True, stale_series=True),
            Profile("main", "llm-d after 0.10", prefix=_NEW, rounded=True, flow_control=True, stale_series=True,
                    stages=True),
            Profile("lwepp", "GIE 1.6 lwepp", blank=True, kubernetes=True),
        )
    }
)  # fmt: skip
"""The dialects by name, oldest first."""


@dataclass(frozen=True, slots=True)
class Means:
    """Per endpoint. ``deviations``: of queue, running and KV use, in this order."""

    queue: float
    running: float
    kv: float
    deviations: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(slots=True)
class PoolGauges:
    """What one EPP process rewrites every ``REFRESH`` s; None before the first time."""

    profile: Profile
    means: Means | None = None
    ready: int | None = None

    def tick(self, engines: Sequence[Engine]) -> None:
        """Rewrite means and ready count over the endpoints that answer."""
        fresh = [engine for engine in engines if engine.age <= FRESH]
        if not fresh:
            # The means stay as they are, for ever if need be; whether the count does depends on the release.
            if not self.profile.freezes_ready:
                self.ready = 0
            return
        self.ready = len(fresh)
        columns = ([engine.waiting for engine in fresh], [engine.running for engine in fresh],
                   [engine.kv for engine in fresh])  # fmt: skip
        queue, running, kv = (statistics.fmean(column) for column in columns)
        spread = [statistics.stdev(column) if len(fresh) > 1 else 0.0 for column in columns]
        if self.profile.floored:
            queue = math.floor(queue)
        if self.profile.rounded:
            queue, running, kv = round(queue, 2), round(running, 2), round(kv, 2)
            spread = [round(value, 2) for value in spread]
        self.means = Means(queue, running, kv, (spread[0], spread[1], spread[2]))


@dataclass(slots=True)
class EppPage:
    """The registry of one EPP process. ``tick`` is its 5 s refresh; ``render`` writes the page as of now.

    ``flow_control`` None takes the profile's default (on from 0.10). ``started_at`` is wall-clock s. ``deleted`` stands
    for a pool object that is gone: refreshes are skipped and no endpoint is listed.
    """

    profile: Profile
    pool: str
    flow_control: bool | None = None
    started_at: float = 0.0
    deleted: bool = False
    _gauges: PoolGauges = field(init=False)

    def __post_init__(self) -> None:
        self._gauges = PoolGauges(self.profile)

    @classmethod
    def of(cls, profile: str, pool: str, *, flow_control: bool | None = None, started_at: float = 0.0) -> "EppPage":
        """The page of a profile by its name; raises KeyError for a name that is none."""
        return cls(PROFILES[profile], pool, flow_control=flow_control, started_at=started_at)

    @property
    def flow_controlled(self) -> bool:
        """Whether requests pass a queue in the EPP, with its series on the page."""
        if self.profile.blank or self.profile.flow_labels is FlowLabels.NONE:
            return False
        return self.profile.flow_control if self.flow_control is None else self.flow_control

    def tick(self, engines: Sequence[Engine]) -> None:
        """Rewrite means and ready count over the endpoints that answer."""
        if not self.deleted:
            self._gauges.tick(engines)

    def render(
        self,
        engines: Sequence[Engine],
        flows: Flows = MappingProxyType({}),
        *,
        age: float = 60.0,
        poll_errors: int = 0,
    ) -> bytes:
        """The page. ``age``: s since the process started; ``poll_errors``: failed scrapes of engines so far."""
        blocks = [
            *filler.static(kubernetes=self.profile.kubernetes),
            *filler.process(started_at=self.started_at, age=age),
        ]
        if not self.profile.blank:
            listed = () if self.deleted else engines
            blocks += self._pool(listed)
            blocks += self._requests(flows, poll_errors)
            if self.flow_controlled:
                blocks += self._flow_control(listed, flows, age)
        return page(blocks)

    def _pool(self, engines: Sequence[Engine]) -> list[Block]:
        """The pool gauges, under every prefix that the release writes."""
        one = {"name": self.pool}
        means, counted = self._gauges.means, self._gauges.ready
        blocks: list[Block] = []
        for prefix, ready, endpoint, label in self._prefixes():
            note = "" if prefix != LEGACY or self.profile.prefix is None else "Older name. "
            if means is not None:
                gauges = [("average_queue_size", means.queue), ("average_kv_cache_utilization", means.kv)]
                if self.profile.running_mean:
                    gauges.append(("average_running_requests", means.running))
                if self.profile.rounded and prefix != LEGACY:
                    names = ("queue_size", "running_requests", "kv_cache_utilization")
                    gauges += [(f"std_dev_{name}", value)
                               for name, value in zip(names, means.deviations, strict=True)]  # fmt: skip
                for name, value in gauges:
                    text = f"Simulated: {note}{name.replace('_', ' ')} over the endpoints that answer."
                    blocks.append(family(f"{prefix}_{name}", "gauge", text, [(one, value)]))
            if counted is not None:
                text = f"Simulated: {note}endpoints that answered the EPP within {FRESH:g} s."
                blocks.append(family(f"{prefix}_{ready}", "gauge", text, [(one, counted)]))
            if engines:
                series = [({label: engine.name, "name": self.pool}, engine.waiting) for engine in engines]
                text = f"Simulated: {note}requests waiting at each endpoint, as last seen."
                blocks.append(family(f"{prefix}_{endpoint}", "gauge", text, series))
        for prefix in [LEGACY_FLOW] + ([self.profile.prefix] if self.profile.prefix else []):
            build = [({"build_ref": "", "commit": ""}, 1)]
            blocks.append(family(f"{prefix}_info", "gauge", "Simulated: the build.", build))
        return blocks

    def _prefixes(self) -> list[tuple[str, str, str, str]]:
        found = []
        if self.profile.legacy:
            found.append((LEGACY, "ready_pods", "per_pod_queue_size", "model_server_pod"))
        if self.profile.prefix is not None:
            found.append((self.profile.prefix, "ready_endpoints", "per_endpoint_queue_size", "model_server_endpoint"))
        return found

    def _requests(self, flows: Flows, poll_errors: int) -> list[Block]:
        """What requests left behind; nothing before the first one."""
        blocks: list[Block] = []
        prefix = self.profile.prefix
        if poll_errors and prefix is not None:
            for name in (
                f"{prefix}_datalayer_poll_errors_total",
                "llm_d_inference_scheduler_datalayer_poll_errors_total",
            ):
                series = [({"source_type": "metrics-data-source"}, poll_errors)]
                blocks.append(family(name, "counter", "Simulated: failed scrapes of engines.", series))
        begun = {flow: counts for flow, counts in flows.items() if counts.requests}
        if begun:
            blocks += legacy_blocks(begun)
            blocks += plugin_blocks([LEGACY_FLOW, *([prefix] if prefix else [])], begun)
            if prefix is not None:
                blocks += request_blocks(prefix, begun)
        return blocks

    def _flow_control(self, engines: Sequence[Engine], flows: Flows, age: float) -> list[Block]:
        profile = self.profile
        blocks: list[Block] = []
        for prefix in [LEGACY_FLOW] + ([profile.prefix] if profile.prefix else []):
            start = f"{prefix}_flow_control"
            newer = prefix != LEGACY_FLOW
            blocks += queue_blocks(
                start, self.pool, flows, full=profile.flow_labels is FlowLabels.FULL, sizes=profile.flow_bytes,
                totals=newer and profile.stale_series, cycles=int(age * 1000),
            )  # fmt: skip
            if profile.flow_saturation:
                blocks.append(self._saturation(f"{start}_pool_saturation", engines))
            if newer and profile.stale_series:
                stale = sum(engine.stale for engine in engines)
                blocks.append(
                    family(f"{start}_stale_endpoints", "gauge", "Simulated: endpoints without a fresh word.",
                           [({"detector": DETECTOR}, stale)])
                )  # fmt: skip
            if newer and profile.stages:
                queued = sum(counts.queued for counts in flows.values())
                used = [({"inference_pool": self.pool, "priority": "0"}, queued / 5000.0)]
                text = "Simulated: part of a priority's queue that is taken."
                blocks.append(family(f"{start}_capacity_utilization_requests", "gauge", text, used))
        return blocks

    def _saturation(self, name: str, engines: Sequence[Engine]) -> Block:
        value = saturation(engines)
        text = "Simulated: how near the pool is to the set point; 1 is full, and more is past it."
        if not self.profile.stages:
            return family(name, "gauge", text, [({"inference_pool": self.pool}, value)])
        # Endpoints without a role count as decode; a stage without endpoints has no series.
        stages = ["decode", "effective"] if engines else ["effective"]
        return family(name, "gauge", text, [({"inference_pool": self.pool, "stage": stage}, value) for stage in stages])
