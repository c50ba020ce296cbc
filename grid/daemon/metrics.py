"""The daemon's own metrics: one table, from which both the metrics and their page in ``docs`` are made.

Run as a module it prints that page. Labels are bounded by the configuration (providers, sites, gateways) and by the
closed vocabularies of ``grid.model``. What belongs to a provider or a gateway is collected from the state of the
moment, so that it vanishes with the provider; the rest are ordinary counters and histograms.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from grid import PROTOCOL_VERSION, SCHEMA_VERSION, __version__


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its full name as exposed, kind, labels and meaning."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


_PROVIDER = ("provider", "site")
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SLOW = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)

COLLECTED = (
    Family(
        "grid_provider_saturation_ratio",
        "gauge",
        _PROVIDER,
        "Requests held over requests that can run at once; absent where unknown.",
    ),
    Family(
        "grid_provider_load_ratio",
        "gauge",
        _PROVIDER,
        "The number providers are compared by: the worse of saturation and KV pressure; absent where unknown.",
    ),
    Family("grid_provider_held_requests", "gauge", _PROVIDER, "Requests held: running, queued in engines and EPP."),
    Family("grid_provider_capacity_requests", "gauge", _PROVIDER, "Requests that can run at once."),
    Family("grid_provider_ready_endpoints", "gauge", _PROVIDER, "Ready endpoints as used in the newest decision."),
    Family(
        "grid_provider_sample_age_seconds", "gauge", _PROVIDER, "Age of the newest sample; absent before the first."
    ),
    Family(
        "grid_provider_fresh", "gauge", _PROVIDER, "1 while the newest sample is within the freshness bound, else 0."
    ),
    Family(
        "grid_provider_admission",
        "gauge",
        (*_PROVIDER, "state"),
        "1 for the admission state that holds now.",
    ),
    Family(
        "grid_provider_problems",
        "gauge",
        (*_PROVIDER, "code"),
        "1 for each problem of the newest page that was read; absent for all others.",
    ),
    Family(
        "grid_scrapes_total",
        "counter",
        ("provider", "outcome"),
        "Scrapes that ended, by outcome: ok, or the reason code of the failure.",
    ),
    Family(
        "grid_scrape_skipped_total",
        "counter",
        ("provider",),
        "Beats left out because the scrape before still ran, or the daemon was late.",
    ),
    Family(
        "grid_scrape_interval_seconds", "gauge", ("provider",), "Interval in force, as stretched by the scrape budget."
    ),
    Family("grid_publications_total", "counter", ("gateway",), "Documents published that carried a new revision."),
    Family(
        "grid_publish_failures_total",
        "counter",
        ("gateway", "reason"),
        "Publications that failed, by reason code.",
    ),
    Family("grid_overlay_version", "gauge", ("gateway",), "Version of the document published last."),
    Family("grid_overlay_epoch", "gauge", ("gateway",), "Epoch of the document published last."),
    Family("grid_overlay_candidates", "gauge", ("gateway",), "Candidates in the gateway's newest plan."),
    Family("grid_gateway_instances", "gauge", ("gateway",), "Live instances of the gateway that report."),
    Family(
        "grid_gateway_behind_versions",
        "gauge",
        ("gateway",),
        "Versions that the instance furthest behind has yet to apply.",
    ),
)

KEPT = (
    Family("grid_scrape_duration_seconds", "histogram", (), "Time from a scrape's start to its end."),
    Family("grid_cycle_duration_seconds", "histogram", (), "CPU-bound part of a cycle: decide and render."),
    Family("grid_cycles_total", "counter", ("outcome",), "Cycles by outcome: changed, unchanged, failed."),
    Family("grid_publish_duration_seconds", "histogram", (), "Time the bus took for one publication."),
    Family(
        "grid_propagation_seconds",
        "histogram",
        (),
        "From the receipt of the sample that a cycle waited longest for to the end of its publication.",
    ),
    Family("grid_signal_frames_total", "counter", ("outcome",), "Signal frames by outcome: sent, failed."),
    Family("grid_leader", "gauge", (), "1 while this daemon holds the leader lease, else 0."),
    Family("grid_epoch", "gauge", (), "Epoch of this daemon's newest term; 0 before its first."),
    Family("grid_bus_up", "gauge", (), "1 while the bus answers, else 0."),
    Family("grid_drains", "gauge", (), "Drains in force."),
    Family("grid_config_generation", "gauge", (), "Generation of the configuration in force; rises by 1 per reload."),
    Family(
        "grid_config_last_reload_successful", "gauge", (), "1 when the last load of the configuration took, else 0."
    ),
    Family(
        "grid_config_last_reload_success_timestamp_seconds",
        "gauge",
        (),
        "Wall-clock time of the load that took last.",
    ),
    Family(
        "grid_config_file_differs",
        "gauge",
        (),
        "1 while the configuration file is another than the one in force, else 0.",
    ),
    Family("grid_job_kicks_total", "counter", ("job",), "Jobs that were overdue and had to be woken."),
    Family("grid_task_faults_total", "counter", ("task",), "Faults of the daemon's own tasks; each is in the log."),
    Family(
        "grid_build_info",
        "gauge",
        ("version", "schema", "protocol"),
        "1, with the versions of program, schema and protocol.",
    ),
)

_DIGITS = 6
_BUCKETS = {"grid_propagation_seconds": _SLOW}
_BY_NAME = {family.name: family for family in (*COLLECTED, *KEPT)}


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """The moment's numbers of one provider; None is left out."""

    provider: str
    site: str
    saturation: float | None = None
    load: float | None = None
    held: float | None = None
    capacity: float | None = None
    ready: int | None = None
    age: float | None = None
    fresh: bool | None = None
    admission: str | None = None
    interval: float | None = None
    skipped: int = 0
    scrapes: Mapping[str, int] = field(default_factory=dict)
    problems: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """The moment's numbers of one gateway; None is left out."""

    gateway: str
    version: int | None = None
    epoch: int | None = None
    candidates: int | None = None
    instances: int = 0
    behind: int | None = None
    publications: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)


class _State(Collector):
    """Exposes rows that are replaced as a whole."""

    def __init__(self) -> None:
        self.providers: Sequence[ProviderRow] = ()
        self.gateways: Sequence[GatewayRow] = ()

    def collect(self) -> Iterable[Metric]:
        made = {family.name: _family(family) for family in COLLECTED}

        def put(name: str, labels: tuple[str, ...], value: float | None) -> None:
            if value is not None:
                # Rounded to be read: sums and quotients of doubles end in digits that mean nothing.
                made[name].add_metric(labels, round(float(value), _DIGITS))

        for row in self.providers:
            labels = (row.provider, row.site)
            put("grid_provider_saturation_ratio", labels, row.saturation)
            put("grid_provider_load_ratio", labels, row.load)
            put("grid_provider_held_requests", labels, row.held)
            put("grid_provider_capacity_requests", labels, row.capacity)
            put("grid_provider_ready_endpoints", labels, row.ready)
            put("grid_provider_sample_age_seconds", labels, row.age)
            put("grid_provider_fresh", labels, row.fresh)
            if row.admission is not None:
                put("grid_provider_admission", (*labels, row.admission), 1)
            for code in sorted(row.problems):
                put("grid_provider_problems", (*labels, code), 1)
            put("grid_scrape_interval_seconds", (row.provider,), row.interval)
            put("grid_scrape_skipped_total", (row.provider,), row.skipped)
            for outcome, count in sorted(row.scrapes.items()):
                put("grid_scrapes_total", (row.provider, outcome), count)
        for gateway in self.gateways:
            name = (gateway.gateway,)
            put("grid_overlay_version", name, gateway.version)
            put("grid_overlay_epoch", name, gateway.epoch)
            put("grid_overlay_candidates", name, gateway.candidates)
            put("grid_gateway_instances", name, gateway.instances)
            put("grid_gateway_behind_versions", name, gateway.behind)
            put("grid_publications_total", name, gateway.publications)
            for reason, count in sorted(gateway.failures.items()):
                put("grid_publish_failures_total", (gateway.gateway, reason), count)
        return made.values()


def _family(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    return kind(family.name, family.help, labels=family.labels)


class Metrics:
    """The daemon's metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._state = _State()
        self.registry.register(self._state)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.scrape_duration = self._histogram("grid_scrape_duration_seconds")
        self.cycle_duration = self._histogram("grid_cycle_duration_seconds")
        self.publish_duration = self._histogram("grid_publish_duration_seconds")
        self.propagation = self._histogram("grid_propagation_seconds")
        self.cycles = self._counter("grid_cycles_total")
        self.frames = self._counter("grid_signal_frames_total")
        self.kicks = self._counter("grid_job_kicks_total")
        self.faults = self._counter("grid_task_faults_total")
        self.leader = self._gauge("grid_leader")
        self.epoch = self._gauge("grid_epoch")
        self.bus_up = self._gauge("grid_bus_up")
        self.drains = self._gauge("grid_drains")
        self.generation = self._gauge("grid_config_generation")
        self.reload_ok = self._gauge("grid_config_last_reload_successful")
        self.reload_at = self._gauge("grid_config_last_reload_success_timestamp_seconds")
        self.file_differs = self._gauge("grid_config_file_differs")
        self._gauge("grid_build_info").labels(__version__, SCHEMA_VERSION, str(PROTOCOL_VERSION)).set(1)

    def show(self, providers: Sequence[ProviderRow], gateways: Sequence[GatewayRow]) -> None:
        """Replace the state of the moment."""
        self._state.providers, self._state.gateways = providers, gateways

    def exposition(self) -> bytes:
        """The text of everything. Reads ``/proc``, so not for the event loop; safe in a thread."""
        return generate_latest(self.registry)

    def _histogram(self, name: str) -> Histogram:
        family = _BY_NAME[name]
        return Histogram(name, family.help, family.labels, registry=self.registry, buckets=_BUCKETS.get(name, _FAST))

    def _counter(self, name: str) -> Counter:
        family = _BY_NAME[name]
        return Counter(name, family.help, family.labels, registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        family = _BY_NAME[name]
        return Gauge(name, family.help, family.labels, registry=self.registry)


_PAGE_HEAD = """\
# Metrics of the daemon

Made from `grid/daemon/metrics.py` by `python -m grid.daemon.metrics > docs/metrics.md`; a test holds the two together.

`GET /metrics` on the daemon's HTTP side (port 7070) answers in the Prometheus text format. Labels are bounded:
`provider`, `site` and `gateway` are names of the configuration, `outcome`, `reason` and `code` come from closed lists
([reasons.md](reasons.md) explains each code). Series of a provider or gateway vanish with it on a reload. A value that
is unknown has no series: absent is unknown, never 0.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
"""

_PAGE_FOOT = """
The `process_*` and `python_*` metrics of the Prometheus client library come beside them.
"""


def page() -> str:
    """The text of ``docs/metrics.md``."""
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels) or '-'} | {one.help} |"
        for one in sorted((*COLLECTED, *KEPT), key=lambda one: one.name)
    ]
    return _PAGE_HEAD + "\n".join(rows) + "\n" + _PAGE_FOOT


if __name__ == "__main__":
    sys.stdout.write(page())
