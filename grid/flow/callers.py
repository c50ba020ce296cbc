"""Who calls: band and tenant of a request, from headers that only trusted proxies may set."""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple, Self

from grid.config import AdmissionConfig

Block = IPv4Network | IPv6Network


class Caller(NamedTuple):
    """``band`` by name; ``tenant`` as the caller wrote it, empty where nobody is named."""

    band: str
    tenant: str = ""


class BandRule(NamedTuple):
    """Requests whose header ``header`` (any case) is exactly ``value`` are of ``band``."""

    header: str
    value: str
    band: str


class CallerRules:
    """Tells who calls. ``trusted``: blocks of addresses from which headers are believed, none where it is empty.

    A request that matches no rule is of band ``lowest``; one without the tenant header belongs to the tenant without a
    name. Of a header that comes twice the first one counts.
    """

    def __init__(
        self,
        rules: Sequence[BandRule],
        *,
        lowest: str,
        tenant_header: str | None = None,
        trusted: Sequence[Block] = (),
    ) -> None:
        self._rules = tuple((rule.header.lower().encode(), rule.value.encode(), rule.band) for rule in rules)
        self._nobody = Caller(lowest)
        self._tenant = None if tenant_header is None else tenant_header.lower().encode()
        self._trusted = tuple(trusted)

    @classmethod
    def from_config(cls, config: AdmissionConfig, trusted: Sequence[Block] = ()) -> Self:
        """The rules of a section of ``admission:``."""
        return cls(
            [BandRule(band.match.header, band.match.value, band.name) for band in config.bands if band.match],
            lowest=config.bands[-1].name,
            tenant_header=config.tenant.header if config.tenant else None,
            trusted=trusted,
        )

    def who(self, headers: Iterable[tuple[bytes, bytes]], client: str | None) -> Caller:
        """Who sends ``headers`` (names in lower case, as ASGI has them) from address ``client``."""
        if not self._believes(client):
            return self._nobody
        said: dict[bytes, bytes] = {}
        for name, value in headers:
            said.setdefault(name, value)
        band = next((band for header, value, band in self._rules if said.get(header) == value), self._nobody.band)
        tenant = said.get(self._tenant, b"") if self._tenant is not None else b""
        return Caller(band, tenant.decode("latin-1"))

    def _believes(self, client: str | None) -> bool:
        address = None if client is None or not self._trusted else _address(client)
        return address is not None and any(address in block for block in self._trusted)


@lru_cache(maxsize=4096)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class TenantKeys:
    """Names of tenants are the callers' words: of any length, perhaps secret. Inside, a keyed hash stands for each.

    Without ``key`` the hashes differ from process to process. ``classes`` bounds the metric label.
    """

    def __init__(self, key: bytes, *, classes: int = 8) -> None:
        self._key = key
        self._classes = classes

    def of(self, tenant: str) -> str:
        """16 hex digits; nobody stays nobody."""
        if not tenant:
            return ""
        return hashlib.blake2b(tenant.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).hexdigest()

    def label(self, hashed: str) -> str:
        """The class of a tenant, for metrics: ``none``, or one of a fixed number of classes."""
        return f"c{int(hashed, 16) % self._classes}" if hashed else "none"
