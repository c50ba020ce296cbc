"""Health as an Envoy sees it."""

import asyncio
from typing import Any

import orjson
import pytest

from grid.proxy import observed
from grid.proxy.observed import down_clusters
from tests.proxy.rig import Provider, Seen, answer, eventually, rig
from tests.support.until import until

CLUSTERS = frozenset(("east-llama", "west-llama"))
ADDRESSES = {("10.0.0.1", 80): "east-llama", ("10.0.0.2", 80): "west-llama"}


def host(address: str = "10.0.0.1", port: int = 80, **health: Any) -> dict[str, Any]:
    return {
        "address": {"socket_address": {"address": address, "port_value": port}},
        "health_status": {"eds_health_status": "HEALTHY", **health},
    }


def clusters(**hosts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"cluster_statuses": [{"name": name.replace("_", "-"), "host_statuses": of} for name, of in hosts.items()]}


@pytest.mark.parametrize(
    ("health", "serves"),
    [
        ({}, True),
        ({"eds_health_status": "DRAINING"}, True),
        ({"eds_health_status": "DEGRADED"}, True),
        ({"failed_active_degraded_check": True}, True),
        ({"eds_health_status": "UNHEALTHY"}, False),
        ({"eds_health_status": "TIMEOUT"}, False),
        ({"failed_active_health_check": True}, False),
        ({"failed_outlier_check": True}, False),
        ({"excluded_via_immediate_hc_fail": True}, False),
    ],
)
def test_what_makes_an_endpoint_unhealthy(health: dict[str, Any], serves: bool) -> None:
    found = down_clusters(clusters(east_llama=[host(**health)]), CLUSTERS, {})
    assert (found == set()) is serves
    found = down_clusters(clusters(east_llama=[host(), host("10.0.0.9", **health)]), CLUSTERS, {})
    assert found == set(), "one healthy one is enough"


def test_clusters_are_known_by_name_or_by_the_addresses_of_their_providers() -> None:
    bad: Any = {"failed_active_health_check": True}
    assert down_clusters(clusters(east_llama=[]), CLUSTERS, ADDRESSES) == {"east-llama"}, "no endpoint is none healthy"
    assert down_clusters(clusters(other=[host(**bad)]), CLUSTERS, ADDRESSES) == {"east-llama"}
    both = clusters(one=[host(**bad), host("10.0.0.2")], two=[host(), host("10.0.0.2", **bad)])
    assert down_clusters(both, CLUSTERS, ADDRESSES) == set(), "healthy in one of them"
    assert down_clusters(clusters(other=[host("10.9.9.9", **bad)]), CLUSTERS, ADDRESSES) == set()
    named = {"cluster_statuses": [{"name": "x", "eds_service_name": "west-llama", "host_statuses": [host(**bad)]}]}
    assert down_clusters(named, CLUSTERS, {}) == {"west-llama"}
    assert down_clusters({}, CLUSTERS, ADDRESSES) == set()


async def test_what_is_down_there_is_used_last_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "PERIOD", 0.02)
    said: dict[str, Any] = clusters(east_llama=[host()], west_llama=[host("10.0.0.2")])
    fails = False

    async def admin(_: Provider, seen: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert seen.target == "/clusters?format=json"
        await answer(writer, 500 if fails else 200, orjson.dumps(said))

    envoy = Provider("envoy", admin)
    await envoy.start()
    try:
        async with rig(groups={"east": 0, "west": 1}, data_plane={"envoy_admin": envoy.url}) as made:

            async def goes_to(site: str) -> bool:
                return bool((await made.ask())[1]["x-grid-site"] == site)

            await until(lambda: len(envoy.seen) > 2)
            assert await goes_to("east")
            said = clusters(east_llama=[host(failed_active_health_check=True)], west_llama=[host("10.0.0.2")])
            await eventually(lambda: goes_to("west"))
            assert made.counted("west", "fallback") >= 1
            fails = True
            await eventually(lambda: goes_to("east"))  # nothing counts as observed once nobody has looked for a while
            fails = False
            await eventually(lambda: goes_to("west"))
            await envoy.stop()
            await eventually(lambda: goes_to("east"))
    finally:
        await envoy.stop()
