"""Health as an Envoy sees it: its admin side is asked now and then which clusters have no healthy endpoint."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiohttp
import orjson
import structlog

from grid.config import Config
from grid.proxy.addresses import endpoints

log = structlog.get_logger(__name__)

PERIOD: Final = 2.0
TIMEOUT: Final = 2.0
LARGEST: Final = 32 << 20
"""Bytes of an answer that are read; an Envoy with ten thousand endpoints says about 15 MB."""

_FORGET: Final = 5
"""Failed looks in a row after which nothing counts as observed any more."""

_FAILED: Final = ("failed_active_health_check", "failed_outlier_check", "excluded_via_immediate_hc_fail")
_NOT_SERVING: Final = ("UNHEALTHY", "TIMEOUT")


class EnvoyHealth:
    """Follows the admin side at ``url`` and hands the routing clusters that are down to ``on_down``, on the loop.

    A cluster of Envoy's stands for the provider whose routing cluster has its name; in files of ``grid sync``, whose
    clusters are capabilities, an endpoint stands for the provider whose url has its address.
    """

    def __init__(self, url: str, config: Config, on_down: Callable[[frozenset[str]], None]) -> None:
        self.url = url.rstrip("/")
        self._clusters = frozenset(provider.cluster for provider in config.providers.values())
        self._addresses = {
            (address, endpoint.port): cluster
            for (_, cluster), endpoint in endpoints(config).items()
            for address in endpoint.addresses
        }
        self._on_down = on_down
        self._failures = 0

    async def run(self) -> None:
        """Until cancelled."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            while True:
                await self._look(session)
                await asyncio.sleep(PERIOD)

    async def _look(self, session: aiohttp.ClientSession) -> None:
        try:
            down = down_clusters(await self._ask(session), self._clusters, self._addresses)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._failures += 1
            if self._failures == 1:
                log.warning(
                    "envoy's admin side gives no health", url=self.url, error=str(error) or type(error).__name__
                )
            if self._failures == _FORGET:
                self._on_down(frozenset())
            return
        if self._failures:
            log.info("envoy's admin side gives health again", url=self.url)
        self._failures = 0
        self._on_down(down)

    async def _ask(self, session: aiohttp.ClientSession) -> Any:
        async with session.get(f"{self.url}/clusters?format=json", allow_redirects=False) as answer:
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            data = bytearray()
            async for chunk in answer.content.iter_any():
                data += chunk
                if len(data) > LARGEST:
                    raise ValueError(f"more than {LARGEST} bytes")
        return orjson.loads(data)


def down_clusters(
    answer: Mapping[str, Any], clusters: frozenset[str], addresses: Mapping[tuple[str, int], str]
) -> frozenset[str]:
    """The routing clusters that ``/clusters?format=json`` shows without a healthy endpoint.

    ``clusters``: those of the configuration; ``addresses``: which of them an endpoint's address stands for.
    """
    healthy: dict[str, bool] = {}
    for status in answer.get("cluster_statuses", ()):
        named = next((name for name in (status["name"], status.get("eds_service_name")) if name in clusters), None)
        if named is not None:
            healthy.setdefault(named, False)
        for host in status.get("host_statuses", ()):
            socket = host["address"].get("socket_address", {})
            place = (socket.get("address", ""), socket.get("port_value", 0))
            cluster = named if named is not None else addresses.get(place)
            if cluster is not None:
                healthy[cluster] = healthy.get(cluster, False) or _serves(host.get("health_status", {}))
    return frozenset(cluster for cluster, serves in healthy.items() if not serves)


def _serves(health: Mapping[str, Any]) -> bool:
    return health.get("eds_health_status") not in _NOT_SERVING and not any(health.get(name) for name in _FAILED)
