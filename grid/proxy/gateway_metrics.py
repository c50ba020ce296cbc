"""The gateway's metrics. Labels are bounded: sites of the configuration, reasons, classes of status."""

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from grid.gateway import Router, Target
from grid.model import Reason

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_LOADS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0)

_REFUSED: Final[Mapping[Reason, str]] = {
    Reason.MODEL_NOT_FOUND: "model_not_found",
    Reason.BAD_MODEL: "bad_request",
    Reason.BAD_REQUEST: "bad_request",
    Reason.BODY_TOO_LARGE: "bad_request",
    Reason.BODY_TIMEOUT: "bad_request",
    Reason.CAPACITY_EXHAUSTED: "shed",
    Reason.NO_HEALTHY_SITE: "no_route",
    Reason.NO_OVERLAY: "not_ready",
    Reason.SHUTTING_DOWN: "not_ready",
    Reason.QUEUE_FULL: "queue_full",
    Reason.ADMISSION_REFUSED: "queue_full",
    Reason.QUEUE_TIMEOUT: "queue_timeout",
}


class GatewayMetrics(Collector):
    """Counted as it happens; what requests are in flight is read off the router when asked for."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._router: Router | None = None
        self.decisions = Counter(
            "grid_route_decisions_total",
            "Decisions by the site taken (empty where none was) and why.",
            ("site", "reason"),
            registry=self.registry,
        )
        self.duration = Histogram(
            "grid_gateway_request_duration_seconds",
            "From a request's head to the end of its answer, by site that answered (empty: the gateway itself).",
            ("site", "status"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.first_byte = Histogram(
            "grid_gateway_first_byte_seconds",
            "From sending a request to a provider to the first byte of its answer's body.",
            ("site",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.estimate_error = Histogram(
            "grid_gateway_estimate_error",
            "How far off the estimated load of a provider was when its next sample came; 1 is full.",
            ("site",),
            buckets=_LOADS,
            registry=self.registry,
        )
        self.retries_denied = Counter(
            "grid_gateway_retries_denied_total", "Retries that the budget did not allow.", registry=self.registry
        )
        self.broken = Counter(
            "grid_gateway_broken_answers_total",
            "Answers that broke off after they had begun, by site.",
            ("site",),
            registry=self.registry,
        )
        self._decided: dict[tuple[str, str], Counter] = {}
        self._ended: dict[tuple[str, int], Histogram] = {}
        self._first: dict[str, Histogram] = {}
        self.registry.register(self)

    def follow(self, router: Router) -> None:
        """Show what this router has in flight."""
        self._router = router

    def decided(self, site: str, reason: str) -> None:
        """A decision was made."""
        key = (site, reason)
        found = self._decided.get(key)
        if found is None:
            found = self._decided[key] = self.decisions.labels(site, reason)
        found.inc()

    def refused(self, reason: Reason) -> None:
        """A request was not placed, or (what its own decision counted already) not answered."""
        found = _REFUSED.get(reason)
        if found is not None:
            self.decided("", found)

    def ended(self, site: str, status: int, seconds: float) -> None:
        """A request has ended with ``status`` (0: broken off, or its client had gone)."""
        key = (site, status // 100)
        found = self._ended.get(key)
        if found is None:
            label = f"{status // 100}xx" if status else "gone"
            found = self._ended[key] = self.duration.labels(site, label)
        found.observe(seconds)

    def began(self, site: str, seconds: float) -> None:
        """The first byte of an answer has come."""
        found = self._first.get(site)
        if found is None:
            found = self._first[site] = self.first_byte.labels(site)
        found.observe(seconds)

    def estimate_was_off(self, target: Target, error: float) -> None:
        """For ``on_estimate_error`` of the router."""
        self.estimate_error.labels(target.site).observe(error)

    def collect(self) -> Iterable[Metric]:
        """See :class:`prometheus_client.registry.Collector`."""
        in_flight = GaugeMetricFamily(
            "grid_gateway_in_flight", "Requests at a provider now.", labels=("site", "cluster")
        )
        estimate = GaugeMetricFamily(
            "grid_gateway_estimated_load", "This gateway's estimate of a provider's load.", labels=("site", "cluster")
        )
        document = GaugeMetricFamily("grid_gateway_has_document", "1 when there is a document to pick from, else 0.")
        router = self._router
        document.add_metric((), float(router is not None and router.snapshot is not None))
        for target in () if router is None else router.targets:
            in_flight.add_metric((target.site, target.cluster), target.own)
            estimate.add_metric((target.site, target.cluster), target.estimate)
        return (in_flight, estimate, document)

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are known without asking."""
        return ()


class FirstBytes:
    """Mean time to the first byte by ``site/cluster`` since it was last asked, for the gateway's report."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, float]] = {}

    def note(self, place: str, seconds: float) -> None:
        """One answer has begun."""
        count, total = self._sums.get(place, (0, 0.0))
        self._sums[place] = (count + 1, total + seconds)

    def take(self) -> dict[str, float]:
        """The means; counting begins anew."""
        sums, self._sums = self._sums, {}
        return {place: total / count for place, (count, total) in sums.items()}
