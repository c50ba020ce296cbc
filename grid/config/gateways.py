"""Who routes, and by what rules: ``gateways`` and ``admission``."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from grid.config import scalars
from grid.config.base import GIVEN, Section
from grid.config.scalars import Listen, Network
from grid.config.urls import http_url
from grid.model.names import Contract, Order, Picker, Placement

RETRY_STATUSES: Final = (503, 429, 502, 504)


class AffinityMode(StrEnum):
    """How sessions stay where they are: a table in each gateway, or a hash that all gateways agree on."""

    TABLE = "table"
    HASH = "hash"


class TenantCost(StrEnum):
    """What tenants take turns in: requests, or expected tokens."""

    REQUESTS = "requests"
    TOKENS = "tokens"


class AffinityConfig(Section):
    """Keeps a session at the provider it began with."""

    header: Annotated[str | None, scalars.header()] = None
    """Request header that names the session. At least one of ``header`` and ``cookie``; the header is read first."""

    cookie: Annotated[str | None, scalars.cookie()] = None
    """Cookie that names the session."""

    ttl: Annotated[float, scalars.duration("1s", "7d")] = 3600.0
    """Time without a request after which a session is forgotten, 1s to 7d. Default 1h."""

    mode: Annotated[AffinityMode, scalars.choice(AffinityMode)] = AffinityMode.TABLE
    """``table`` (default) remembers each session in this gateway; ``hash`` needs no memory, and all gateways agree."""

    max_sessions: Annotated[int, scalars.integer(1, 10_000_000, "100000")] = 100_000
    """Sessions remembered at most, 1 to 10000000; the one longest unused goes first. Default 100000, about 30 MB."""


class RetryConfig(Section):
    """Another try at another provider, before the client has seen anything."""

    budget: Annotated[float, scalars.percent(zero=True)] = 0.2
    """Retries as a share of requests, 0% to 100%. Default 20%: a fleet that fails is not buried under retries."""

    min_per_s: Annotated[float, scalars.number(10_000, "3", zero=True)] = 3.0
    """Retries per second that the budget always allows, 0 to 10000. Default 3: little traffic may retry too."""

    on: tuple[Annotated[str | int, scalars.retry_cause(RETRY_STATUSES)], ...] = ("connect", 503, 429)
    """After what: ``connect`` (no connection) and the statuses 503, 429, 502, 504. Default [connect, 503, 429]: after
    502 and 504 the request may have been worked on."""


class DataPlane(Section):
    """A data plane whose own view of health is heard."""

    envoy_admin: Annotated[str, http_url("http://127.0.0.1:9901")]
    """Base URL of Envoy's admin side; a cluster without a healthy endpoint there is used last."""


class GatewayConfig(Section):
    """A consumer of an overlay. Its document holds the providers that it may use, in its own order."""

    site: Annotated[str, scalars.name()]
    """The site it is at, one of ``sites``."""

    namespace: Annotated[str, scalars.name()] = "default"
    """Namespace in the document's scope. Default ``default``."""

    contract: Annotated[Contract, scalars.choice(Contract)] = Contract.GRID
    """Vocabulary of the document: ``grid`` (default), ``praxis-grouped`` or ``praxis-ordered`` for gateways that read
    only those."""

    order: Annotated[Order, scalars.choice(Order)] = Order.GEOGRAPHY_FIRST
    """What comes first after admission: ``geographyFirst`` (default) or ``scoreFirst`` (load before distance)."""

    placement: Annotated[Placement, scalars.choice(Placement)] = Placement.STATIC
    """Where traffic weights come from: ``static`` (default: ``capacity_weight``), ``capacity`` (live) or ``headroom``
    (what is free). The live ones need a document that has weights."""

    picker: Annotated[Picker | None, scalars.choice(Picker)] = None
    """How the gateway chooses inside a group: ``deterministic``, ``roundRobin``, ``random``, ``weightedRandom`` or
    ``saturation``. Omitted: none is named and the document has its plain first form, which every reader accepts."""

    spill: Annotated[float, scalars.number(100, "1.0")] = 1.0
    """Estimated saturation at which a provider has no room left and the next group is tried. Default 1.0: full."""

    overflow: Annotated[float, scalars.number(100, "1.25")] = 1.25
    """Estimated saturation above which new work is shed when no group has room; at least ``spill``. Default 1.25."""

    affinity: Annotated[AffinityConfig | None, GIVEN] = None
    """Session affinity. Omitted: off."""

    retry: Annotated[RetryConfig, GIVEN] = RetryConfig()
    """Retries of the reference gateway. Omitted: with the defaults; ``{on: []}`` switches them off."""

    rescue: Annotated[bool, scalars.flag()] = True
    """Sends a request that still waits for its first byte elsewhere, once, when its provider has lost every endpoint.
    Default true."""

    max_body: Annotated[int, scalars.size("1KiB", "4GiB")] = 32 << 20
    """Largest request body that the reference gateway accepts, 1KiB to 4GiB. Default 32MiB."""

    metrics_listen: Annotated[Listen | None, scalars.listen()] = None
    """``host:port`` where the gateway shows its own metrics. Omitted: not shown."""

    data_plane: Annotated[DataPlane | None, GIVEN] = None
    """A data plane whose observed health is heard. Omitted: none."""

    trusted_proxies: tuple[Annotated[Network, scalars.ip_network()], ...] = ()
    """Blocks of addresses from which band and tenant headers are believed. Default: none, so they are not believed."""

    admission: Annotated[str | None, scalars.name()] = None
    """Name of the admission policy that stands before the choice, one of ``admission``. Omitted: none."""


class BandMatch(Section):
    """Requests of a band: those that carry a header with a value."""

    header: Annotated[str, scalars.header()]
    """Name of the request header."""

    value: Annotated[str, scalars.text("a header's value", "gold")]
    """Its value, compared exactly."""


class Band(Section):
    """A priority class. Bands are listed from the most important down."""

    name: Annotated[str, scalars.name()]
    """Its name, in metrics and errors."""

    match: Annotated[BandMatch | None, GIVEN] = None
    """Which requests are of this band. Omitted: all that no band above took, so only the last band may omit it."""

    ceiling: Annotated[float, scalars.number(100, "1.0")] = 1.0
    """Pool saturation that a grant of this band may not go above. Default 1.0: the healthy limit. A band that must
    never wait needs more. Never above the ceiling of a band before it."""


class TenantConfig(Section):
    """Who calls, so that tenants of a band take turns."""

    header: Annotated[str, scalars.header()]
    """Request header that names the tenant."""

    cost: Annotated[TenantCost, scalars.choice(TenantCost)] = TenantCost.REQUESTS
    """What a turn is measured in: ``requests`` (default) or expected ``tokens``."""


class AdmissionConfig(Section):
    """An admission policy: says when a request may go, before the picker says where."""

    bands: Annotated[tuple[Band, ...], Field(min_length=1, max_length=32)]
    """Bands from the most important down, 1 to 32. The last one takes what matches nothing."""

    tenant: Annotated[TenantConfig | None, GIVEN] = None
    """Whose turn it is inside a band. Omitted: first come, first served."""

    max_queued: Annotated[int, scalars.integer(1, 1_000_000, "1000")] = 1000
    """Requests that wait at most, per band and model, 1 to 1000000; more are refused (503). Default 1000."""

    max_wait: Annotated[float, scalars.duration("1ms", "1h")] = 30.0
    """Longest wait, 1ms to 1h; after it the request is refused (504). Default 30s."""
