"""The whole configuration of one network."""

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from grid.config import scalars
from grid.config.base import OR_EMPTY, Section
from grid.config.fleet import AccessConfig, EppSource, PressureConfig, PrometheusSource, ProviderConfig, SiteConfig
from grid.config.gateways import AdmissionConfig, GatewayConfig
from grid.config.process import BusConfig, DaemonConfig
from grid.model.names import Kind
from grid.model.network import Access, Capability, Gateway, Network, Pressure, Provider, Site

_UID_SPACE = uuid.UUID("5b0cb0f4-6f6b-5d0f-9a57-0d2c3a8f1e64")

Name = Annotated[str, scalars.name()]


class Config(Section):
    """The configuration of one network: what there is, who routes, and how the daemon works.

    Durations are seconds, sizes bytes, shares fractions of 1. Made by ``load`` and ``parse`` only, which also check
    what the sections say about each other.
    """

    network: Name
    """Name of the network: 1 to 63 of a-z, 0-9 and -, as in Kubernetes. It is part of every key in Redis."""

    daemon: Annotated[DaemonConfig, OR_EMPTY] = DaemonConfig()
    """The daemon: schedule of the scrapes, its debug HTTP side, its state."""

    bus: Annotated[BusConfig, OR_EMPTY] = BusConfig()
    """The Redis between daemon and gateways."""

    sites: Annotated[Mapping[Name, SiteConfig], OR_EMPTY] = Field(default_factory=dict)
    """Sites by name."""

    providers: Annotated[Mapping[Name, ProviderConfig], OR_EMPTY] = Field(default_factory=dict)
    """Providers by id. The id is ours: it stands in logs, metrics and commands."""

    gateways: Annotated[Mapping[Name, GatewayConfig], OR_EMPTY] = Field(default_factory=dict)
    """Gateways by name; each gets a document of its own."""

    admission: Annotated[Mapping[Name, AdmissionConfig], OR_EMPTY] = Field(default_factory=dict)
    """Admission policies by name, for gateways to refer to."""

    @property
    def sources(self) -> dict[str, EppSource | PrometheusSource]:
        """Where each provider's load signals come from, by provider id."""
        return {provider_id: provider.source for provider_id, provider in self.providers.items()}

    def to_network(self, *, generation: int = 1) -> Network:
        """The network as plain values, everything sorted by identity.

        ``generation`` counts what was loaded so far, from 1 (a reload is the next one). The uid depends on the
        network's name alone, so every daemon of a network writes the same.
        """
        daemon = self.daemon
        return Network(
            name=self.network,
            sites={key: _site(key, site) for key, site in sorted(self.sites.items())},
            providers={
                key: Provider(
                    id=key,
                    site=provider.site,
                    cluster=provider.cluster,
                    capabilities=_capabilities(provider),
                    max_running=provider.max_running,
                    queue_capacity=provider.queue_capacity,
                    kv_ceiling=provider.kv_ceiling,
                    capacity_weight=provider.capacity_weight,
                    access=_access(provider.access),
                    pressure=_pressure(provider.pressure),
                    disabled=provider.disabled,
                    interval=daemon.scrape_interval,
                    timeout=daemon.scrape_timeout,
                    freshness=daemon.freshness,
                )
                for key, provider in sorted(self.providers.items())
            },
            gateways={key: _gateway(key, gateway) for key, gateway in sorted(self.gateways.items())},
            generation=generation,
            uid=str(uuid.uuid5(_UID_SPACE, self.network)),
        )

    def redacted(self) -> dict[str, Any]:
        """The configuration in effect, as a file would have it (values with units), without what is not set.

        There are no secrets in it to begin with, files aside; values in the query of a URL are hidden.
        """
        shown: dict[str, Any] = _without_nothing(self.model_dump(mode="json"))
        return shown


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nothing(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nothing(inner) for inner in value]
    return value


def _site(key: str, site: SiteConfig) -> Site:
    return Site(key, site.region, site.zone, MappingProxyType(dict(site.labels)))


def _capabilities(provider: ProviderConfig) -> tuple[Capability, ...]:
    models = [Capability(Kind.INFERENCE_MODEL, model) for model in provider.models]
    tools = [Capability(Kind.MCP_TOOL, tool) for tool in provider.tools]
    return tuple(sorted(models + tools))


def _access(access: AccessConfig | None) -> Access | None:
    return None if access is None else Access(frozenset(access.sites), MappingProxyType(dict(access.labels)))


def _pressure(pressure: PressureConfig | None) -> Pressure | None:
    if pressure is None:
        return None
    return Pressure(
        enter=pressure.enter,
        exit=pressure.exit,
        enter_scrapes=pressure.enter_scrapes,
        exit_scrapes=pressure.exit_scrapes,
        min_time=pressure.min_time,
        hold_down=pressure.hold_down,
    )


def _gateway(key: str, gateway: GatewayConfig) -> Gateway:
    return Gateway(
        name=key,
        site=gateway.site,
        namespace=gateway.namespace,
        contract=gateway.contract,
        order=gateway.order,
        placement=gateway.placement,
        picker=gateway.picker,
        spill=gateway.spill,
        overflow=gateway.overflow,
    )
