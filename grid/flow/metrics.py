"""Metrics of admission control.

Labels are bounded: bands and pools of the configuration, models that have a route (others are ``other``), and a fixed
number of classes that tenants are hashed into.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from grid.flow.callers import TenantKeys
from grid.flow.core import AdmissionCore
from grid.flow.pools import PoolState

OTHER: Final = "other"
_LABELS: Final = ("band", "model", "tenant_class")
_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class FlowMetrics(Collector):
    """Counters and histograms that are counted, and gauges that are read off the core when asked for.

    ``current`` gives the core, None while there is none.
    """

    def __init__(
        self, registry: CollectorRegistry, keys: TenantKeys, current: Callable[[], AdmissionCore | None]
    ) -> None:
        self._keys = keys
        self._current = current
        self._requests = Counter(
            "grid_flow_requests_total",
            "Requests by outcome: granted, queue_full, queue_timeout, admission_refused, cancelled, bypassed.",
            (*_LABELS, "outcome"),
            registry=registry,
        )
        self._waits = Histogram(
            "grid_flow_queue_duration_seconds",
            "Time from a request's arrival to its outcome.",
            (*_LABELS, "outcome"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._faults = Counter(
            "grid_flow_faults_total", "Errors inside admission control; each let requests through.", registry=registry
        )
        self._children: dict[tuple[str, str, str, str], tuple[Counter, Histogram]] = {}
        registry.register(self)

    def ended(self, band: str, model: str, tenant: str, outcome: str, waited: float) -> None:
        """A request came to an outcome after ``waited`` s; ``tenant`` is a hashed one."""
        core = self._current()
        if core is None or model not in core.routes:
            model = OTHER
        labels = (band, model, self._keys.label(tenant), outcome)
        found = self._children.get(labels)
        if found is None:
            found = self._children[labels] = (self._requests.labels(*labels), self._waits.labels(*labels))
        found[0].inc()
        found[1].observe(waited)

    def fault(self) -> None:
        """Admission control failed."""
        self._faults.inc()

    def collect(self) -> Iterable[Metric]:
        """See :class:`prometheus_client.registry.Collector`."""
        size = GaugeMetricFamily("grid_flow_queue_size", "Requests that wait.", labels=_LABELS)
        saturation = GaugeMetricFamily(
            "grid_flow_pool_saturation",
            "The worse of queued / queue limit and KV / KV ceiling; absent for a pool without an endpoint.",
            labels=("pool",),
        )
        blind = GaugeMetricFamily(
            "grid_flow_pool_blind",
            "1 while there is no fresh number of the pool, so that only own counts limit it, else 0.",
            labels=("pool",),
        )
        core = self._current()
        if core is not None:
            self._sizes(core, size)
            for pool in core.pools.values():
                blind.add_metric((pool.key,), float(pool.state is not PoolState.FRESH))
                if (value := pool.saturation) is not None:
                    saturation.add_metric((pool.key,), value)
        return (size, saturation, blind)

    def _sizes(self, core: AdmissionCore, family: GaugeMetricFamily) -> None:
        for model, route in core.routes.items():
            for band, queue in zip(core.policy.bands, route.queues, strict=True):
                sizes: Tally[str] = Tally()
                for tenant in queue.known():
                    sizes[self._keys.label(tenant.key)] += len(tenant.waiting)
                for label, value in sorted(sizes.items()):
                    family.add_metric((band.name, model, label), value)

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are known without asking, so registering needs no core."""
        return ()
