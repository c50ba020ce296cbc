"""What the configuration declares, as plain frozen values: sites, providers, gateways.

All durations are seconds, all sizes bytes, all ratios fractions of 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from grid.model.names import Contract, Kind, Order, Picker, Placement, Tier

_EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, order=True)
class Capability:
    """What a request asks for: ``(kind, name)``. Names are compared exactly, case and spaces included."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster or location."""

    name: str
    region: str | None = None
    zone: str | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use a provider: gateways at one of ``sites`` (empty: any) whose site carries all ``labels``."""

    sites: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=lambda: _EMPTY)

    def admits(self, site: Site) -> bool:
        """Whether a gateway at ``site`` may use the provider."""
        if self.sites and site.name not in self.sites:
            return False
        return all(site.labels.get(key) == value for key, value in self.labels.items())


@dataclass(frozen=True, slots=True)
class Pressure:
    """Pressure admission of one provider: hysteresis on saturation, counted per scrape."""

    enter: float = 0.85
    exit: float = 0.70
    enter_scrapes: int = 2
    exit_scrapes: int = 3
    min_time: float = 10.0
    hold_down: float = 30.0


@dataclass(frozen=True, slots=True)
class Provider:
    """One schedulable pool at a site, reached through one routing cluster.

    ``max_running`` and ``queue_capacity`` count requests per ready endpoint; ``max_running`` None means learned.
    ``interval`` and ``timeout`` are those of its scrapes (the interval before any stretching by the scrape budget).
    ``freshness`` is a configured freshness bound, None for the derived one.
    """

    id: str
    site: str
    cluster: str
    capabilities: tuple[Capability, ...]
    max_running: int | None = None
    queue_capacity: float = 5.0
    kv_ceiling: float = 0.9
    capacity_weight: int = 100
    access: Access | None = None
    pressure: Pressure | None = None
    disabled: bool = False
    interval: float = 2.0
    timeout: float = 2.0
    freshness: float | None = None


@dataclass(frozen=True, slots=True)
class Gateway:
    """A consumer of an overlay; sits at ``site``. ``picker`` None: the plain first form of the document."""

    name: str
    site: str
    namespace: str = "default"
    contract: Contract = Contract.GRID
    order: Order = Order.GEOGRAPHY_FIRST
    placement: Placement = Placement.STATIC
    picker: Picker | None = None
    spill: float = 1.0
    overflow: float = 1.25

    @property
    def grouped(self) -> bool:
        """Whether its document carries groups: only with a picker that shares traffic, in a form that has them."""
        return self.picker not in (None, Picker.DETERMINISTIC) and self.contract is not Contract.PRAXIS_ORDERED


@dataclass(frozen=True, slots=True)
class Drain:
    """An operator's hand on a provider or a whole site: no new work until ``until`` (wall-clock s; None: for good)."""

    id: str
    target: str
    reason: str = ""
    created: float = 0.0
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """One grid: everything that shares a control plane. Providers and gateways are kept sorted by identity."""

    name: str
    sites: Mapping[str, Site]
    providers: Mapping[str, Provider]
    gateways: Mapping[str, Gateway]
    generation: int = 1
    uid: str = ""

    def tier(self, gateway_site: str, provider_site: str) -> Tier:
        """How near ``provider_site`` is to a gateway at ``gateway_site`` (overlay contract, section 7)."""
        if gateway_site == provider_site:
            return Tier.SAME_SITE
        here, there = self.sites.get(gateway_site), self.sites.get(provider_site)
        if here is None or there is None or here.region is None or there.region is None:
            return Tier.UNKNOWN
        if here.region != there.region:
            return Tier.CROSS_REGION
        if here.zone is not None and here.zone == there.zone:
            return Tier.SAME_ZONE
        return Tier.SAME_REGION
