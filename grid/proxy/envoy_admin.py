"""What an Envoy really runs, asked from its admin side: the version of each cluster, and what is in flight where."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import orjson

from grid.model import DeliveryError, Reason
from grid.proxy.eds import Place, Version

TIMEOUT: Final = 2.0
LARGEST: Final = 32 << 20
"""Bytes of an answer that are read; an Envoy with ten thousand endpoints says about 15 MB."""

_STATS = r"^cluster\..*\.(version_text|update_rejected)$"
_VERSION_TEXT = ".version_text"
_REJECTED = ".update_rejected"


@dataclass(frozen=True, slots=True)
class Running:
    """What an Envoy runs of one gateway's document.

    ``versions``: by Envoy's own cluster name, of clusters that have a version of this gateway. ``rejected``: updates
    that those clusters refused since Envoy started. ``in_flight``: requests by ``site/cluster``.
    """

    versions: Mapping[str, Version] = field(default_factory=dict)
    rejected: int = 0
    in_flight: Mapping[str, int] = field(default_factory=dict)

    @property
    def oldest(self) -> Version | None:
        """The version of the cluster that is farthest behind; None where none has any."""
        return min(self.versions.values(), key=lambda one: one.position, default=None)


class EnvoyAdmin:
    """The admin side at ``url`` of the Envoy that reads the endpoints of one gateway."""

    def __init__(self, url: str, network: str, gateway: str, *, timeout: float = TIMEOUT) -> None:
        self.url = url.rstrip("/")
        self._network = network
        self._gateway = gateway
        self._timeout = timeout
        self._client: httpx.AsyncClient | None = None

    async def read(self, places: Mapping[str, Mapping[tuple[str, int], Place]]) -> Running:
        """Ask it. ``places``: which provider an address stands for, by the cluster name that was written.

        Raises DeliveryError (``envoy_unreachable``).
        """
        try:
            async with asyncio.timeout(2 * self._timeout):
                stats = await self._get("/stats", {"filter": _STATS, "format": "json"})
                versions = self._versions(stats)
                rejected = sum(
                    int(value)
                    for name, value in _cluster_stats(stats, _REJECTED)
                    if name in versions and isinstance(value, int)
                )
                clusters = await self._get("/clusters", {"format": "json"}) if versions else {}
                return Running(versions, rejected, _in_flight(clusters, places))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
            raise self._failed(str(error) or type(error).__name__) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._failed(f"an answer that is not Envoy's: {error!r}") from error

    async def aclose(self) -> None:
        """Give the connection back."""
        if self._client is not None:
            await self._client.aclose()

    def _failed(self, detail: str) -> DeliveryError:
        return DeliveryError(f"{self.url}: {detail}", reason=Reason.ENVOY_UNREACHABLE)

    def _versions(self, stats: Any) -> dict[str, Version]:
        found = {}
        for name, value in _cluster_stats(stats, _VERSION_TEXT):
            version = Version.parse(value) if isinstance(value, str) else None
            if version is not None and (version.network, version.gateway) == (self._network, self._gateway):
                found[name] = version
        return found

    async def _get(self, path: str, params: Mapping[str, str]) -> Any:
        if self._client is None:
            # Making a client reads the system's certificates.
            self._client = await asyncio.to_thread(_client, self.url, self._timeout)
        data = bytearray()
        async with self._client.stream("GET", self.url + path, params=params) as answer:
            if answer.status_code != httpx.codes.OK:
                raise ValueError(f"status {answer.status_code} for {path}")
            async for chunk in answer.aiter_bytes():
                data += chunk
                if len(data) > LARGEST:
                    raise ValueError(f"more than {LARGEST} bytes for {path}")
        return orjson.loads(data)


def _client(url: str, timeout: float) -> httpx.AsyncClient:
    verify: ssl.SSLContext | bool = ssl.create_default_context() if url.startswith("https:") else False
    limits = httpx.Limits(max_connections=1)
    return httpx.AsyncClient(timeout=timeout, trust_env=False, verify=verify, limits=limits, follow_redirects=False)


def _cluster_stats(stats: Any, ending: str) -> list[tuple[str, Any]]:
    return [
        (one["name"].removeprefix("cluster.").removesuffix(ending), one.get("value"))
        for one in stats["stats"]
        if "name" in one and one["name"].endswith(ending)
    ]


def _in_flight(clusters: Any, places: Mapping[str, Mapping[tuple[str, int], Place]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for cluster in clusters.get("cluster_statuses", ()):
        owners = places.get(cluster.get("eds_service_name") or cluster["name"], {})
        for host in cluster.get("host_statuses", ()) if owners else ():
            socket = host["address"].get("socket_address", {})
            place = owners.get((socket.get("address", ""), socket.get("port_value", 0)))
            active = sum(int(stat.get("value", 0)) for stat in host["stats"] if stat["name"] == "rq_active")
            if place is not None and active:
                found["/".join(place)] += active
    return dict(found)
