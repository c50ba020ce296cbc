"""Health as an Envoy sees it."""

import asyncio
import contextlib
from typing import Any

import orjson
import pytest
import yaml

from grid.proxy import observed
from grid.proxy.observed import EnvoyHealth, down_clusters
from tests.proxy.envoy import running_with
from tests.proxy.rig import Provider, Seen, answer, configuration, eventually, load, rig
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


def _bootstrap(ports: dict[str, int], admin: int) -> str:
    """An Envoy that asks each provider's port every 100 ms whether it is there."""
    check = {
        "timeout": "0.5s", "interval": "0.1s", "no_traffic_interval": "0.1s", "unhealthy_threshold": 1,
        "healthy_threshold": 1, "tcp_health_check": {},
    }  # fmt: skip

    def address(port: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    clusters = [
        {
            "name": name,
            "type": "STATIC",
            "health_checks": [check],
            "load_assignment": {
                "cluster_name": name,
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(port)}}]}],
            },
        }
        for name, port in ports.items()
    ]
    bootstrap = {"admin": {"address": address(admin)}, "static_resources": {"clusters": clusters}}
    return yaml.safe_dump({**bootstrap, "node": {"id": "test", "cluster": "test"}})


@pytest.mark.real_server
async def test_a_real_envoy_tells_of_a_provider_that_went_and_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "PERIOD", 0.05)
    heard: list[frozenset[str]] = []
    providers = {name: Provider(name) for name in ("east", "west")}
    for provider in providers.values():
        await provider.start()
    ports = {f"{name}-llama": provider.port for name, provider in providers.items()}
    with contextlib.ExitStack() as stack:
        running = await asyncio.to_thread(
            stack.enter_context, running_with(lambda admin, listener: _listening(_bootstrap(ports, admin), listener))
        )
        config = load(configuration({name: provider.url for name, provider in providers.items()}))
        watching = asyncio.create_task(EnvoyHealth(running.admin, config, heard.append).run())
        await until(lambda: heard and heard[-1] == frozenset())
        await providers["east"].stop()
        await until(lambda: heard[-1] == {"east-llama"})
        await providers["east"].start()
        await until(lambda: heard[-1] == frozenset())
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await asyncio.to_thread(stack.close)
    for provider in providers.values():
        await provider.stop()


def _listening(bootstrap: str, port: int) -> str:
    """With a listener, which the test's start-up waits for."""
    made = yaml.safe_load(bootstrap)
    proxy = {
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": "t",
            "cluster": "east-llama",
        },
    }
    made["static_resources"]["listeners"] = [
        {
            "name": "requests",
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
            "filter_chains": [{"filters": [proxy]}],
        }
    ]
    return yaml.safe_dump(made)
