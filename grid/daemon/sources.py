"""From the configuration to what providers are read through. Making a source may read TLS files: in threads."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from grid.config import Config, EppSource, PrometheusSource
from grid.daemon.observe import Source
from grid.model import ScrapeError
from grid.signals.epp import EppScraper, EppTarget
from grid.signals.prometheus import PrometheusScraper, PrometheusTarget
from grid.signals.readiness import ReadinessProbe
from grid.signals.scrape import Scrape, Scraper

_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Declared:
    """All that decides what a provider is read through; equal means that the old source serves on."""

    source: EppSource | PrometheusSource
    probe: str | None
    interval: float
    timeout: float

    def observes_as(self, other: "Declared") -> bool:
        """Whether both look at the same pool at the same place, whatever else differs: then old samples still count."""
        return self._place() == other._place()

    def _place(self) -> tuple[object, ...]:
        source = self.source
        if isinstance(source, EppSource):
            return (source.epp, source.pool)
        return (source.prometheus, source.pool, tuple(sorted(source.match.items())))


def declared(config: Config) -> dict[str, Declared]:
    """What the configuration says, by provider."""
    daemon = config.daemon
    return {
        name: Declared(
            provider.source,
            provider.readiness.probe if provider.readiness is not None else None,
            daemon.scrape_interval,
            daemon.scrape_timeout,
        )
        for name, provider in config.providers.items()
    }


async def make(wanted: Mapping[str, Declared]) -> dict[str, Source]:
    """Sources for all of ``wanted``."""
    made: dict[str, Source] = {}
    shared = await asyncio.to_thread(ssl.create_default_context) if any(map(_https, wanted.values())) else None
    names = sorted(wanted)
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        made |= await asyncio.to_thread(_make_some, {name: wanted[name] for name in some}, shared)
    return made


def _https(one: Declared) -> bool:
    address = one.source.epp if isinstance(one.source, EppSource) else one.source.prometheus
    return address.startswith("https") or (one.probe or "").startswith("https")


def _make_some(some: Mapping[str, Declared], shared: ssl.SSLContext | None) -> dict[str, Source]:
    return {name: _made(name, one, shared) for name, one in some.items()}


def _made(name: str, one: Declared, shared: ssl.SSLContext | None) -> Source:
    probe = None if one.probe is None else ReadinessProbe(one.probe, timeout=one.timeout, ssl_context=shared)
    scraper: Scraper
    try:
        scraper = _scraper(name, one, shared)
    except ScrapeError as error:
        scraper = _Unusable(error)
    return Source(scraper, one.interval, one.timeout, probe)


class _Unusable:
    """Stands for a source that cannot be made, so that its fault is shown as any other and the others go on."""

    def __init__(self, error: ScrapeError) -> None:
        self._error = error

    async def scrape(self) -> Scrape:
        raise self._error

    async def aclose(self) -> None:
        pass


def _scraper(name: str, one: Declared, shared: ssl.SSLContext | None) -> Scraper:
    source = one.source
    if isinstance(source, PrometheusSource):
        target = PrometheusTarget(
            source.prometheus,
            source.match,
            source.pool,
            source.token_file,
            source.ca_file,
            source.cert_file,
            source.key_file,
        )
        return PrometheusScraper(name, target, timeout=one.timeout)
    own = source.ca_file or source.cert_file or source.key_file
    return EppScraper(
        name,
        EppTarget(
            source.epp,
            source.pool,
            source.token_file,
            source.ca_file,
            source.cert_file,
            source.key_file,
            source.max_page,
        ),
        timeout=one.timeout,
        ssl_context=None if own else shared,
    )
