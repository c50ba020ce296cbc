from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from grid.daemon.metrics import COLLECTED, KEPT, GatewayRow, Metrics, ProviderRow, page

ROOT = Path(__file__).resolve().parents[2]


def read(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            # The text has labels in the order of their names.
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_the_page_says_what_the_code_has() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == page(), "python -m grid.daemon.metrics > docs/metrics.md"


def test_every_metric_is_exposed_with_the_kind_it_is_documented_with() -> None:
    metrics = Metrics()
    types = {
        line.split()[2]: line.split()[3] for line in metrics.exposition().decode().splitlines() if line[:6] == "# TYPE"
    }
    for family in (*COLLECTED, *KEPT):
        assert types[family.name] == family.kind
    assert {name for name in types if name.startswith("grid_") and not name.endswith("_created")} == {
        family.name for family in (*COLLECTED, *KEPT)
    }


def test_unknown_has_no_series() -> None:
    metrics = Metrics()
    metrics.show([ProviderRow("east-llama", "east")], [GatewayRow("edge")])
    found = read(metrics)
    assert "grid_provider_saturation_ratio" not in found
    assert "grid_provider_sample_age_seconds" not in found
    assert "grid_overlay_version" not in found
    assert found["grid_scrape_skipped_total"] == {("east-llama",): 0.0}


def test_numbers_are_rounded_to_be_read() -> None:
    metrics = Metrics()
    metrics.show([ProviderRow("east", "east", held=8.33 * 3, saturation=0.1 + 0.2, age=1e-9)], [])
    lines = metrics.exposition().decode().splitlines()
    assert 'grid_provider_held_requests{provider="east",site="east"} 24.99' in lines
    assert 'grid_provider_saturation_ratio{provider="east",site="east"} 0.3' in lines


def test_problems_of_the_newest_page_come_and_go() -> None:
    metrics = Metrics()
    metrics.show([ProviderRow("east-llama", "east", problems=frozenset({"bad_value", "poll_errors"}))], [])
    assert read(metrics)["grid_provider_problems"] == {
        ("bad_value", "east-llama", "east"): 1.0,
        ("poll_errors", "east-llama", "east"): 1.0,
    }
    metrics.show([ProviderRow("east-llama", "east")], [])
    assert "grid_provider_problems" not in read(metrics)


def test_a_provider_that_is_removed_vanishes() -> None:
    metrics = Metrics()
    east = ProviderRow(
        "east-llama", "east", 0.5, 0.6, 96, 192, 3, 0.4, True, "new_and_existing", 2.0, 1, {"ok": 9, "timeout": 2}
    )
    west = ProviderRow("west-llama", "west", saturation=0.0, ready=0, fresh=False, scrapes={"timeout": 4})
    metrics.show([east, west], [])
    found = read(metrics)
    assert found["grid_provider_saturation_ratio"] == {("east-llama", "east"): 0.5, ("west-llama", "west"): 0.0}
    assert found["grid_provider_ready_endpoints"][("west-llama", "west")] == 0
    assert found["grid_scrapes_total"] == {
        ("ok", "east-llama"): 9,
        ("timeout", "east-llama"): 2,
        ("timeout", "west-llama"): 4,
    }
    assert found["grid_provider_admission"] == {("east-llama", "east", "new_and_existing"): 1}
    metrics.show([east], [])
    assert "west-llama" not in metrics.exposition().decode()


def test_gateways_are_counted() -> None:
    metrics = Metrics()
    metrics.show([], [GatewayRow("edge", 12, 7, 40, 3, 2, 5, {"bus_timeout": 1})])
    found = read(metrics)
    assert found["grid_overlay_version"] == {("edge",): 12}
    assert found["grid_gateway_behind_versions"] == {("edge",): 2}
    assert found["grid_publications_total"] == {("edge",): 5}
    assert found["grid_publish_failures_total"] == {("edge", "bus_timeout"): 1}


def test_several_daemons_in_one_process_do_not_share_metrics() -> None:
    one, two = Metrics(), Metrics()
    one.leader.set(1)
    assert read(one)["grid_leader"] == {(): 1}
    assert read(two)["grid_leader"] == {(): 0}
