"""What there is to route to: ``sites`` and ``providers``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from grid.config import scalars
from grid.config.base import GIVEN, OR_EMPTY, TOKEN_FILE, Section, TlsFiles
from grid.config.scalars import did_you_mean, fault, nearest, out_of_range
from grid.config.urls import http_url
from grid.model.reasons import Reason

Labels = Annotated[Mapping[Annotated[str, scalars.label_key()], Annotated[str, scalars.label()]], OR_EMPTY]
SeriesLabels = Annotated[
    Mapping[Annotated[str, scalars.series_label()], Annotated[str, scalars.text("a label's value", "west")]],
    OR_EMPTY,
]
MAX_CAPABILITIES: Final = 1024


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise fault(Reason.CONFIG_CONFLICT, f"names '{value}' twice", "keep one of them")
        seen.add(value)
    return values


ModelName = Annotated[str, scalars.text("a model's name", "llama-3.1-70b")]
ToolName = Annotated[str, scalars.text("a tool's name", "search")]
_SiteName = Annotated[str, scalars.name()]


class SiteConfig(Section):
    """A cluster or location. Tells how near a provider is to a gateway, and carries labels for access rules."""

    region: Annotated[str | None, scalars.label()] = None
    """Region, compared as text. Omitted: unknown, so the site is in the farthest tier for all others."""

    zone: Annotated[str | None, scalars.label()] = None
    """Zone inside the region; counts only among sites of an equal region. Omitted: unknown."""

    labels: Labels = Field(default_factory=dict)
    """Labels that the access rules of providers ask for. Default: none."""


class Upstream(TlsFiles):
    """The credential of the reference gateway towards a provider."""

    token_file: Annotated[Path | None, TOKEN_FILE] = None
    """File with the bearer token sent with each request; read anew when it changes. Omitted: the client's own
    ``Authorization`` header passes through."""


class EppSource(TlsFiles):
    """An endpoint picker (EPP) whose metrics page is read directly."""

    epp: Annotated[str, http_url("http://10.0.0.11:9090/metrics")]
    """URL of the metrics page, path included."""

    pool: Annotated[str | None, scalars.text("a pool's name", "llama")] = None
    """The EPP's own name for the pool (label ``name``). Needed only where the page has several pools."""

    token_file: Annotated[Path | None, TOKEN_FILE] = None
    """File with the bearer token; read anew for each scrape, so it can be rotated. Omitted: none is sent. EPPs serve
    plain HTTP by default, where whoever is on the way can read it."""

    max_page: Annotated[int, scalars.size("1KiB", "4GiB")] = 64 << 20
    """Largest page accepted, after decompression, 1KiB to 4GiB. Default 64MiB: an EPP with a thousand tenants has
    40 MB."""


class PrometheusSource(TlsFiles):
    """A Prometheus server that already scrapes the EPP, for sites whose EPP only it can reach."""

    prometheus: Annotated[str, http_url("http://prometheus.west:9090")]
    """Base URL of the server, without ``/api/v1``."""

    match: Annotated[
        Mapping[Annotated[str, scalars.series_label()], Annotated[str, scalars.text("a label's value", "west")]],
        OR_EMPTY,
    ] = Field(default_factory=dict)
    """Labels that pick out this provider's series among all that the server has. Default: none."""

    pool: Annotated[str | None, scalars.text("a pool's name", "llama")] = None
    """The EPP's own name for the pool (label ``name``). Needed only where several pools match."""

    token_file: Annotated[Path | None, TOKEN_FILE] = None
    """File with the bearer token for the server; read anew for each query. Omitted: none is sent."""


_KINDS = ("epp", "prometheus")


def _one_source(value: Any) -> Any:
    """Exactly one of the kinds has to be named before the rest of the section can be judged."""
    if not isinstance(value, dict):
        return value
    named = [kind for kind in _KINDS if kind in value]
    if len(named) > 1:
        raise fault(Reason.CONFIG_CONFLICT, f"names both {' and '.join(named)}", "keep the one to read from")
    if not named:
        near = next((did_you_mean(key, _KINDS) for key in value if nearest(key, _KINDS)), "")
        detail = "names neither epp nor prometheus, so there is nothing to read"
        raise fault(Reason.CONFIG_MISSING_KEY, detail, near or "such as epp: http://10.0.0.11:9090/metrics")
    return value


def _kind(value: Any) -> str:
    """The tag of the kind of source; in parentheses, so that no setting is mistaken for one."""
    named = "prometheus" in value if isinstance(value, dict) else isinstance(value, PrometheusSource)
    return "(prometheus)" if named else "(epp)"


Source = Annotated[
    Annotated[EppSource, Tag("(epp)")] | Annotated[PrometheusSource, Tag("(prometheus)")],
    Discriminator(_kind),
    BeforeValidator(_one_source),
]


class Readiness(Section):
    """A second opinion on whether a provider is up."""

    probe: Annotated[str, http_url("http://10.1.0.10:8000/health")]
    """URL that answers 200 while the provider can serve."""


def _some_site(sites: tuple[str, ...]) -> tuple[str, ...]:
    if not sites:
        out_of_range("names no site", "remove the line to admit gateways at every site")
    return _distinct(sites)


class AccessConfig(Section):
    """Which gateways may use a provider: those at one of ``sites`` whose site carries all ``labels``."""

    sites: Annotated[tuple[_SiteName, ...], AfterValidator(_some_site)] = ()
    """Sites whose gateways may use it. Omitted: all."""

    labels: Labels = Field(default_factory=dict)
    """Labels that the gateway's site must carry, all of them. Default: none."""


class PressureConfig(Section):
    """When a provider takes only sessions that it already has. The two thresholds keep it from flapping."""

    enter: Annotated[float, scalars.number(10, "0.85")] = 0.85
    """Saturation at or above which a scrape counts towards holding back, above 0. Default 0.85."""

    exit: Annotated[float, scalars.number(10, "0.70")] = 0.70
    """Saturation at or below which a scrape counts towards opening again; below ``enter``. Default 0.70."""

    enter_scrapes: Annotated[int, scalars.integer(1, 100, "2")] = 2
    """Scrapes in a row at or above ``enter`` that it takes, 1 to 100. Default 2: one reading may be a burst."""

    exit_scrapes: Annotated[int, scalars.integer(1, 100, "3")] = 3
    """Scrapes in a row at or below ``exit`` that it takes, 1 to 100. Default 3: opening early costs more."""

    min_time: Annotated[float, scalars.duration("0s", "1h")] = 10.0
    """Least time in a state, 0s to 1h. Default 10s."""

    hold_down: Annotated[float, scalars.duration("0s", "1h")] = 30.0
    """Time at or below ``exit`` before it opens again, 0s to 1h. Default 30s."""


class ProviderConfig(Section):
    """One schedulable pool at a site, reached through one routing cluster."""

    site: _SiteName
    """The site it is at, one of ``sites``."""

    cluster: Annotated[str, scalars.cluster()]
    """The routing cluster that gateways know it by. ``(site, cluster)`` stands for one provider only."""

    url: Annotated[str | None, http_url("http://10.0.0.10:8000")] = None
    """Base URL that the reference gateway sends requests to. Omitted: only gateways that know the cluster use it."""

    upstream: Annotated[Upstream | None, GIVEN] = None
    """Credential of the reference gateway towards ``url``. Omitted: none."""

    models: Annotated[tuple[ModelName, ...], Field(max_length=MAX_CAPABILITIES), AfterValidator(_distinct)] = ()
    """Models it serves, as requests name them: compared exactly, case and spaces included."""

    tools: Annotated[tuple[ToolName, ...], Field(max_length=MAX_CAPABILITIES), AfterValidator(_distinct)] = ()
    """MCP tools it serves. A provider has models or tools, or both."""

    source: Source
    """Where its load signals come from: an EPP's page, or a Prometheus server."""

    readiness: Annotated[Readiness | None, GIVEN] = None
    """A probe beside the source. Omitted: the source alone tells what is ready."""

    max_running: Annotated[int | None, scalars.integer(1, 1_000_000, "64")] = None
    """Requests that one endpoint runs at once (vLLM's ``--max-num-seqs``). Omitted: learned from what it has run."""

    queue_capacity: Annotated[float, scalars.number(1_000_000, "5")] = 5.0
    """Requests queued per endpoint that are still healthy. Default 5, as in llm-d: more means that it is behind."""

    kv_ceiling: Annotated[float, scalars.number(1, "0.9")] = 0.9
    """KV-cache use that counts as full, above 0 to 1. Default 0.9: engines evict and recompute beyond."""

    capacity_weight: Annotated[int, scalars.integer(1, 1000, "100")] = 100
    """Static share of the traffic inside a group, 1 to 1000. Default 100."""

    access: Annotated[AccessConfig | None, GIVEN] = None
    """Which gateways may use it. Omitted: all."""

    pressure: Annotated[PressureConfig | None, GIVEN] = None
    """Pressure admission. Omitted: off, so a full provider is still offered and gateways choose by load."""

    disabled: Annotated[bool, scalars.flag()] = False
    """Takes the provider out without deleting it: scraped and shown, offered to nobody. Default false."""
