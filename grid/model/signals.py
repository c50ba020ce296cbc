"""What one scrape of one provider said."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from grid.model.names import ReadySource
from grid.model.reasons import Reason

_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that was wrong: a reason code and a sentence with the value seen."""

    code: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """The signals of one pool on one page. None is unknown, never 0; NaN, infinities and negatives never get here.

    Means are per endpoint and are None where the page says that they are frozen (no ready endpoint).
    ``ready`` is the count to use, from ``ready_source``; ``ready_endpoints`` what the EPP's own gauge says (up to 7 s
    old); ``ready_live`` per-endpoint series minus stale endpoints, where the page allows that (well under 1 s old).
    ``in_flight`` is the sum of the EPP's in-flight series, None where the page has none.
    """

    dialect: str | None = None
    pool: str | None = None
    ready: int | None = None
    ready_source: ReadySource | None = None
    ready_endpoints: int | None = None
    ready_live: int | None = None
    average_queue_size: float | None = None
    average_running_requests: float | None = None
    kv_cache_utilization: float | None = None
    in_flight: float | None = None
    flow_control_queue: float | None = None
    pool_saturation: float | None = None
    started_at: float | None = None
    """``process_start_time_seconds`` of the EPP; a change means that it restarted."""
    poll_errors: float | None = None
    """Sum of the EPP's own failed engine scrapes; a rise means that it loses its sight."""

    @property
    def held_live(self) -> float | None:
        """Requests held, counted live by the EPP: in flight plus its flow-control queue."""
        if self.in_flight is None:
            return None
        return self.in_flight + (self.flow_control_queue or 0.0)

    @property
    def held_engine(self) -> float | None:
        """Requests held, from the engines' means: (running + queue) x ready, plus the EPP's flow-control queue.

        Old EPPs have no mean of running requests; then what is held is unknown, since only the queue is known.
        """
        ready, running, queue = self.ready_endpoints, self.average_running_requests, self.average_queue_size
        if not ready or running is None or queue is None:
            return None
        return (running + queue) * ready + (self.flow_control_queue or 0.0)

    @property
    def means_only(self) -> bool:
        """Whether every load signal is a mean that the EPP rewrites every 5 s (so up to 7 s older than the scrape)."""
        return self.in_flight is None and self.pool_saturation is None


@dataclass(frozen=True, slots=True)
class Sample:
    """What one successful scrape of one provider said.

    ``received_at``: our monotonic clock in s when the page had arrived, minus the age a Prometheus reported.
    ``sequence`` counts the successful scrapes of this provider by this daemon from 1; hysteresis counts it.
    ``interval``: s between scrapes as in force then (stretched by the scrape budget). ``cost``: s the exchange took.
    ``healthy``: what a readiness probe beside the page said last, None without one.
    """

    provider: str
    sequence: int
    received_at: float
    reading: Reading
    interval: float
    cost: float = 0.0
    page_bytes: int = 0
    healthy: bool | None = None
    restarted: bool = False
    problems: tuple[Problem, ...] = ()
