"""What people see: the view and the metrics; and what comes in, from signal frames."""

import json

from prometheus_client import CollectorRegistry, generate_latest

from grid.flow import AdmissionCore, describe, pool_signals
from grid.flow.callers import TenantKeys
from grid.flow.metrics import FlowMetrics
from grid.overlay.frames import GatewaySignal, ProviderSignal, SignalFrame
from tests.flow.build import MODEL, arrive, core, run, signal


def busy() -> AdmissionCore:
    """Two slots taken, five waiting, one refused, at time 10."""
    made = core(
        ("gold", 1.0),
        ("bronze", 0.0),
        pools=[signal("east", slots=2, kv=0.45)],
        routes={MODEL: ["east"]},
        max_queued=4,
    )
    made.update(1.0, [signal("east", slots=2, kv=0.0)])
    run(made, arrive(made, 2, at=1.0, band="bronze", tenant="a"), at=1.0)
    arrive(made, 2, at=4.0, band="bronze", tenant="a")
    arrive(made, 2, at=6.0, band="bronze", tenant="b")
    arrive(made, 1, at=7.0, band="bronze", tenant="b")
    arrive(made, 6, at=8.0, band="gold", tenant="c")
    arrive(made, 1, at=8.0, model="nonesuch")
    return made


def test_the_view_says_who_waits_where_and_why() -> None:
    shown = describe(busy(), 10.0)
    json.dumps(shown)
    assert (shown["waiting"], shown["slots"]) == (5, 7)
    gold, bronze = shown["bands"]
    assert (gold["band"], gold["ceiling"], gold["waiting"], gold["granted"]) == ("gold", 1.0, 1, 5)
    assert (bronze["waiting"], bronze["oldest_age_s"], bronze["refused"]) == (4, 6.0, {"queue_full": 1})
    assert [(row["model"], row["band"], row["tenants"]) for row in shown["queues"]] == [
        (MODEL, "gold", 1),
        (MODEL, "bronze", 2),
    ]
    (pool,) = shown["pools"]
    assert (pool["pool"], pool["state"], pool["capacity_source"]) == ("east", "fresh", "declared")
    assert pool["saturation"] == 1.0
    assert pool["waiting"] == {"gold": 1, "bronze": 4}
    assert pool["room"] == {"gold": 0, "bronze": 0}
    assert (pool["own"], pool["leases"], pool["in_flight"]) == (2, 5, 7)
    assert shown["tenants"] == [
        {"tenant": "a", "waiting": 2, "granted": 2},
        {"tenant": "b", "waiting": 2, "granted": 0},
        {"tenant": "c", "waiting": 1, "granted": 5},
    ]
    assert shown["passed"] == {"granted": 1}


def test_the_view_of_nothing() -> None:
    shown = describe(AdmissionCore(), 0.0)
    assert (shown["pools"], shown["queues"], shown["tenants"]) == ([], [], [])
    assert shown["bands"][0]["oldest_age_s"] is None


def test_tenants_shown_are_bounded() -> None:
    made = core(pools=[signal(slots=1)])
    for number in range(50):
        arrive(made, 1, tenant=f"t{number}")
    assert len(describe(made, 0.0)["tenants"]) == 10


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"grid_flow_{name}", labels)


def test_metrics_are_read_off_the_core() -> None:
    registry = CollectorRegistry()
    made = busy()
    keys = TenantKeys(b"key")
    FlowMetrics(registry, keys, lambda: made)
    sizes = [
        one.value
        for family in registry.collect()
        if family.name == "grid_flow_queue_size"
        for one in family.samples
        if one.labels["band"] == "bronze"
    ]
    assert sum(sizes) == 4
    assert sample(registry, "pool_saturation", pool="east") == 1.0
    assert sample(registry, "pool_blind", pool="east") == 0.0
    made.update(20.0, [signal("east", slots=2, held=None)])
    assert sample(registry, "pool_blind", pool="east") == 1.0
    made.update(21.0, [signal("east", slots=2, ready=0)])
    assert sample(registry, "pool_saturation", pool="east") is None


def test_metrics_of_outcomes_have_bounded_labels() -> None:
    registry = CollectorRegistry()
    made = busy()
    keys = TenantKeys(b"key", classes=2)
    metrics = FlowMetrics(registry, keys, lambda: made)
    for number in range(100):
        metrics.ended("gold", MODEL, keys.of(f"t{number}"), "granted", 0.5)
        metrics.ended("gold", f"made up {number}", "", "granted", 0.0)
    metrics.fault()
    page = generate_latest(registry).decode()
    assert page.count("grid_flow_requests_total{") == 3
    assert 'model="other",outcome="granted",tenant_class="none"} 100.0' in page
    labels = {"band": "gold", "model": MODEL, "outcome": "granted"}
    counts = [sample(registry, "queue_duration_seconds_count", tenant_class=name, **labels) for name in ("c0", "c1")]
    assert sum(count or 0.0 for count in counts) == 100
    assert sample(registry, "faults_total") == 1


def test_metrics_without_a_core() -> None:
    registry = CollectorRegistry()
    metrics = FlowMetrics(registry, TenantKeys(b"key"), lambda: None)
    metrics.ended("gold", MODEL, "", "bypassed", 0.0)
    assert "grid_flow_pool_saturation{" not in generate_latest(registry).decode()
    assert (
        sample(registry, "requests_total", band="gold", model="other", tenant_class="none", outcome="bypassed") == 1.0
    )


def frame(**providers: ProviderSignal) -> SignalFrame:
    return SignalFrame(
        network="acme",
        epoch=1,
        sequence=5,
        interval_s=1.0,
        sent_at=0.0,
        providers=providers,
        gateways={
            "edge": GatewaySignal(instances=2, in_flight={"east/pool": 6}),
            "core": GatewaySignal(instances=1, in_flight={"east/pool": 3, "west/pool": 1}),
        },
    )


def test_signals_come_from_a_frame() -> None:
    told = frame(
        east=ProviderSignal(
            "east",
            "pool",
            held=20,
            capacity=64,
            queue=2,
            kv=0.5,
            ready=2,
            age_s=1.5,
            bound_s=6.0,
            queue_capacity=4.0,
            kv_ceiling=0.8,
        ),
        west=ProviderSignal("west", "pool", capacity=50, held=3, queue=0.0, ready=1, age_s=0.5),
        north=ProviderSignal("north", "pool"),
    )
    east, west, north = pool_signals(told, own={"east/pool": 2}, declared={"east": 32}, lags={"west": 7.0}, since=0.5)
    assert (east.key, east.ready, east.max_running, east.held, east.running) == ("east/pool", 2, 32, 20, None)
    assert (east.kv, east.queue_capacity, east.kv_ceiling, east.age, east.bound) == (0.5, 4.0, 0.8, 2.0, 6.0)
    assert (east.share, east.gateways) == ((3 / 12 + 1 / 3) / 2, 3)
    assert (west.max_running, west.running, west.queued) == (None, 50, 0.0), "what the daemon learned is learned on"
    assert (west.queue_capacity, west.kv_ceiling, west.age, west.bound) == (5.0, 0.9, 1.0, None)
    assert (east.lag, west.lag) == (0.0, 7.0)
    assert (north.held, north.ready) == (None, None)


def test_what_is_declared_and_what_lags_stands_in_the_frame() -> None:
    told = frame(
        declared=ProviderSignal("a", "p", held=4, capacity=64, ready=2, held_source="live", capacity_source="declared"),
        learned=ProviderSignal("b", "p", held=4, capacity=64, ready=2, held_source="engine", capacity_source="learned"),
        empty=ProviderSignal("c", "p", capacity=0, ready=0, capacity_source="declared"),
        later=ProviderSignal("d", "p", capacity=9, ready=1, held_source="guess", capacity_source="guess"),
    )
    found = pool_signals(told, own={})
    assert [(one.max_running, one.running, one.lag) for one in found] == [
        (32, None, 0.0),
        (None, 64, 7.0),
        (None, None, 0.0),
        (None, 9, 0.0),
    ]
    given, *_ = pool_signals(told, own={}, declared={"declared": 16}, lags={"declared": 3.0})
    assert (given.max_running, given.lag) == (16, 3.0), "what is given goes before the frame"


def test_the_only_gateway_has_all_of_it() -> None:
    told = SignalFrame("acme", 1, 1, 1.0, 0.0, providers={"east": ProviderSignal("east", "pool")})
    (east,) = pool_signals(told, own={}, declared={})
    assert (east.share, east.gateways) == (1.0, 1)
