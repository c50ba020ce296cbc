import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from grid.sim.epp_page import PROFILES, EppPage
from grid.sim.values import Engine, Flow, FlowCounts

BUSY = (Engine("vllm-0", 8, 5, 0.71), Engine("vllm-1", 7, 0, 0.42), Engine("vllm-2", 4, 1, 0.15))
LOST = tuple(Engine(engine.name, engine.running, engine.waiting, engine.kv, age=9.0) for engine in BUSY)


def tenants(count: int, *, queued: int = 14) -> dict[Flow, FlowCounts]:
    return {Flow(f"tenant-{n}", "sim-model"): FlowCounts(3, queued, 26, 9, 60.2) for n in range(count)}


def samples(body: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for metric in text_string_to_metric_families(body.decode()):
        for sample in metric.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def values(body: bytes, name: str) -> list[float]:
    return [value for _, value in samples(body).get(name, [])]


def ticked(profile: str, engines: Sequence[Engine] = BUSY, *, flow_control: bool | None = None) -> EppPage:
    page = EppPage.of(profile, "llama", flow_control=flow_control, started_at=1_795_983_082.26)
    page.tick(engines)
    return page


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("flow_control", [False, True])
def test_every_page_is_well_formed(profile: str, flow_control: bool) -> None:
    flows = tenants(3) | {Flow('odd "tenant"\\\n', "other-model", -1): FlowCounts(1, 0, 1, 0, 0.0)}
    body = ticked(profile, flow_control=flow_control).render(BUSY, flows, poll_errors=3)
    metrics = list(text_string_to_metric_families(body.decode()))
    assert len(metrics) > 100
    names = re.findall(r"^# TYPE (\S+)", body.decode(), re.MULTILINE)
    assert names == sorted(names)
    assert len(names) == len(set(names)), "a family twice"
    series = [line.rsplit(" ", 1)[0] for line in body.decode().splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series)), "a series twice"
    for line in series:
        keys = [key for key in re.findall(r'[{,](\w+)="(?:[^"\\]|\\.)*"', line) if key not in ("le", "quantile")]
        assert keys == sorted(keys), line


@pytest.mark.parametrize(
    ("profile", "smallest", "largest"),
    [("v0.9", 50_000, 62_000), ("v0.10", 54_000, 67_000), ("main", 54_000, 68_000), ("gie-1.0", 50_000, 70_000)],
)
def test_an_idle_page_has_its_real_size(profile: str, smallest: int, largest: int) -> None:
    assert smallest < len(ticked(profile).render(BUSY)) < largest


@pytest.mark.parametrize(("count", "size"), [(7, 401_476), (50, 2_100_000), (250, 10_000_000)])
def test_tenants_make_a_page_grow_as_a_real_one(count: int, size: int) -> None:
    assert len(ticked("v0.10").render(BUSY, tenants(count))) == pytest.approx(size, rel=0.06)


def test_a_thousand_tenants_make_forty_megabytes() -> None:
    body = ticked("v0.10").render(BUSY, tenants(1001))
    assert len(body) == pytest.approx(40_074_955, rel=0.03)
    assert body.count(b"\n") == pytest.approx(257_367, rel=0.01)


@pytest.mark.parametrize(
    ("profile", "real"),
    [("v0.9", "v0.9.busy.txt"), ("v0.10", "v0.10-traffic.queueing.txt"), ("main", "main-fc.busy.txt")],
)
def test_the_families_are_those_of_the_real_page(profile: str, real: str, shared_fixtures: Path) -> None:
    there = set(re.findall(r"^# TYPE (\S+ \S+)", (shared_fixtures / "epp" / real).read_text(), re.MULTILINE))
    flows = tenants(7) if "traffic" in real else {}
    here = set(re.findall(r"^# TYPE (\S+ \S+)", ticked(profile).render(BUSY, flows).decode(), re.MULTILINE))
    assert here - there == set()
    missing = {name.split()[0] for name in there - here}
    assert missing <= {
        "inference_extension_scheduler_attempts_total",
        "llm_d_epp_scheduler_attempts_total",
        "llm_d_epp_flow_control_capacity_utilization_bytes",
    }


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "lwepp"])
def test_means_and_ready_do_not_exist_before_the_first_tick(profile: str) -> None:
    body = EppPage.of(profile, "llama").render(BUSY)
    assert b"average_" not in body
    assert not re.search(rb"^\S+ready_(pods|endpoints)", body, re.MULTILINE)
    assert len(values(body, "inference_pool_per_pod_queue_size")) == 3


@pytest.mark.parametrize(
    ("profile", "queue", "running", "kv"),
    [
        ("gie-1.0", 2, None, 0.4266666666666666),
        ("gie-1.4", 2, None, 0.4266666666666666),
        ("gie-1.5", 2, 6.333333333333333, 0.4266666666666666),
        ("router-dev", 2, 6.333333333333333, 0.4266666666666666),
        ("v0.9", 2, 6.333333333333333, 0.4266666666666666),
        ("v0.10", 2, 6.33, 0.43),
        ("main", 2, 6.33, 0.43),
    ],
)
def test_means_are_written_as_the_release_writes_them(
    profile: str, queue: float, running: float | None, kv: float
) -> None:
    body = ticked(profile).render(BUSY)
    prefix = PROFILES[profile].prefix
    for name in ["inference_pool"] + ([prefix] if prefix else []):
        assert values(body, f"{name}_average_queue_size") == [queue]
        assert values(body, f"{name}_average_running_requests") == ([] if running is None else [running])
        assert values(body, f"{name}_average_kv_cache_utilization") == [pytest.approx(kv)]
    assert values(body, "inference_pool_ready_pods") == [3]
    assert values(body, f"{prefix}_ready_endpoints") == ([3] if prefix else [])


def test_old_releases_cut_the_mean_queue_to_a_whole_number() -> None:
    engines = (Engine("a", 4, 3), Engine("b"), Engine("c"), Engine("d"))
    assert values(ticked("gie-1.4", engines).render(engines), "inference_pool_average_queue_size") == [0]
    assert values(ticked("gie-1.5", engines).render(engines), "inference_pool_average_queue_size") == [0.75]


@pytest.mark.parametrize(
    ("profile", "ready"), [("gie-1.0", 3), ("gie-1.2", 3), ("gie-1.4", 0), ("v0.9", 0), ("main", 0)]
)
def test_with_no_endpoint_left_the_means_freeze_and_ready_may(profile: str, ready: int) -> None:
    page = ticked(profile)
    page.tick(LOST)
    body = page.render(LOST)
    assert values(body, "inference_pool_average_queue_size") == [2]
    assert values(body, "inference_pool_ready_pods") == [ready]
    assert len(values(body, "inference_pool_per_pod_queue_size")) == 3


def test_never_ready_is_zero_without_means_from_1_3_on_and_nothing_before() -> None:
    assert values(ticked("v0.9", LOST).render(LOST), "llm_d_epp_ready_endpoints") == [0]
    assert b"average_" not in ticked("v0.9", LOST).render(LOST)
    assert values(ticked("gie-1.2", LOST).render(LOST), "inference_pool_ready_pods") == []


def test_a_deleted_pool_freezes_and_lists_no_endpoint() -> None:
    page = ticked("v0.10")
    page.deleted = True
    page.tick(LOST)
    body = page.render(BUSY)
    assert values(body, "llm_d_epp_ready_endpoints") == [3]
    assert values(body, "llm_d_epp_per_endpoint_queue_size") == []
    assert values(body, "llm_d_epp_flow_control_pool_saturation") == [1]


def test_saturation_and_stale_endpoints_are_as_the_detector_sees_them() -> None:
    one_dead = (*BUSY[:2], Engine("vllm-2", 4, 1, 0.15, age=0.3))
    body = ticked("v0.10").render(one_dead)
    assert values(body, "llm_d_epp_flow_control_stale_endpoints") == [1]
    expected = (max(5 / 5, 0.71 / 0.8) + max(0, 0.42 / 0.8) + 1.0) / 3
    assert values(body, "llm_d_epp_flow_control_pool_saturation") == [pytest.approx(expected)]
    assert values(body, "inference_extension_flow_control_pool_saturation") == [pytest.approx(expected)]
    assert values(body, "llm_d_epp_ready_endpoints") == [3], "the 5 s tick has not run"


def test_newer_releases_name_the_stage() -> None:
    found = samples(ticked("main").render(BUSY))["llm_d_epp_flow_control_pool_saturation"]
    assert [pairs["stage"] for pairs, _ in found] == ["decode", "effective"]
    assert [value for _, value in found] == [pytest.approx(0.575)] * 2


def test_queue_labels_grew_with_the_releases() -> None:
    two = samples(ticked("gie-1.2", flow_control=True).render(BUSY, tenants(2)))
    assert [set(pairs) for pairs, _ in two["inference_extension_flow_control_queue_size"]] == [
        {"fairness_id", "priority"}
    ] * 2
    full = samples(ticked("v0.10").render(BUSY, tenants(2)))
    assert set(full["llm_d_epp_flow_control_queue_size"][0][0]) == {
        "fairness_id", "inference_pool", "model_name", "priority", "target_model_name",
    }  # fmt: skip
    assert sum(value for _, value in full["llm_d_epp_flow_control_queue_size"]) == 28


def test_without_flow_control_none_of_its_series_exists() -> None:
    assert b"flow_control" not in ticked("v0.10", flow_control=False).render(BUSY, tenants(2))
    assert b"flow_control" not in ticked("v0.9").render(BUSY, tenants(2))
    assert b"flow_control" not in ticked("gie-1.0", flow_control=True).render(BUSY, tenants(2))


def test_in_flight_series_appear_with_the_first_request() -> None:
    page = ticked("v0.10")
    assert b"request_running" not in page.render(BUSY)
    body = page.render(BUSY, tenants(2))
    assert values(body, "llm_d_epp_request_running") == [3, 3]
    assert values(body, "inference_objective_running_requests") == [6]


def test_the_round_robin_epp_has_no_pool_at_all() -> None:
    body = ticked("lwepp").render(BUSY, tenants(2))
    assert b"inference_" not in body
    assert b"llm_d" not in body
    assert b"workqueue_depth" in body


def test_a_restart_shows_in_the_start_time() -> None:
    assert values(ticked("v0.9").render(BUSY), "process_start_time_seconds") == [1_795_983_082.26]
