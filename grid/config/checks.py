"""What the sections say about each other: references, contradictions, combinations that cannot work.

Each check yields findings; one whose paths are faulty in themselves is not reported, since it may be no fault at all.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from grid.config.base import TlsFiles
from grid.config.document import Path, Tree
from grid.config.gateways import AdmissionConfig, GatewayConfig
from grid.config.root import Config
from grid.config.scalars import did_you_mean
from grid.config.units import format_duration
from grid.model.names import Contract, Picker, Placement
from grid.model.reasons import Reason

_PLAIN_PICKERS = (None, Picker.DETERMINISTIC)


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault at ``path``; ``needs`` are further paths that have to be sound for it to be one."""

    reason: Reason
    path: Path
    detail: str
    hint: str = ""
    needs: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Declared:
    """Names that the file declares, those of faulty sections included: a reference to them is no fault."""

    sites: frozenset[str]
    admission: frozenset[str]

    @classmethod
    def of(cls, tree: Tree) -> "Declared":
        """Read them off the plain values."""
        return cls(_keys(tree, "sites"), _keys(tree, "admission"))


def _keys(tree: Tree, section: str) -> frozenset[str]:
    inner = tree.get(section)
    return frozenset(map(str, inner)) if isinstance(inner, dict) else frozenset()


def findings(config: Config, tree: Tree, damaged: frozenset[Path]) -> Iterator[Finding]:
    """Every finding about ``config``, made from ``tree`` with stand-ins for the ``damaged`` parts."""
    declared = Declared.of(tree)
    for check in _CHECKS:
        for finding in check(config, declared):
            if not any(_touches(path, damaged) for path in (finding.path, *finding.needs)):
                yield finding


def _touches(path: Path, damaged: frozenset[Path]) -> bool:
    return any(path[: len(cut)] == cut for cut in damaged)


def _daemon(config: Config, _: Declared) -> Iterator[Finding]:
    daemon = config.daemon
    if not daemon.listen.loopback and daemon.token_file is None:
        yield Finding(
            Reason.CONFIG_CONFLICT,
            ("daemon", "listen"),
            f"{daemon.listen} can be reached from other machines, and no token_file is set",
            "set daemon.token_file, or listen on 127.0.0.1",
            (("daemon", "token_file"),),
        )
    least = daemon.scrape_interval + daemon.scrape_timeout
    if daemon.freshness is not None and daemon.freshness < least:
        yield Finding(
            Reason.CONFIG_CONFLICT,
            ("daemon", "freshness"),
            f"{format_duration(daemon.freshness)} is shorter than scrape_interval + scrape_timeout "
            f"({format_duration(least)}), so healthy providers would go stale between scrapes",
            f"write auto, or at least {format_duration(least)}",
            (("daemon", "scrape_interval"), ("daemon", "scrape_timeout")),
        )


def _bus(config: Config, _: Declared) -> Iterator[Finding]:
    bus = config.bus
    if bus.tls is not None and bus.url.startswith("redis://"):
        yield Finding(
            Reason.CONFIG_CONFLICT,
            ("bus", "tls"),
            "is set, but bus.url is redis://, which is not encrypted",
            "write rediss:// in bus.url, or remove bus.tls",
            (("bus", "url"),),
        )
    if bus.username is not None and "@" in bus.url:
        yield Finding(
            Reason.CONFIG_CONFLICT,
            ("bus", "username"),
            "is set, and bus.url names a user too",
            "keep one of them",
            (("bus", "url"),),
        )


def _tls_pairs(config: Config, _: Declared) -> Iterator[Finding]:
    for path, files in tls_sections(config):
        if (files.cert_file is None) != (files.key_file is None):
            there, missing = ("cert_file", "key_file") if files.cert_file else ("key_file", "cert_file")
            yield Finding(
                Reason.CONFIG_CONFLICT,
                (*path, there),
                f"is set without {missing}; a client certificate needs both",
                f"set {missing} too, or remove {there}",
                ((*path, missing),),
            )


def tls_sections(config: Config) -> Iterator[tuple[Path, TlsFiles]]:
    """Every section with TLS files, with its path."""
    if config.bus.tls is not None:
        yield ("bus", "tls"), config.bus.tls
    for key, provider in config.providers.items():
        yield ("providers", key, "source"), provider.source
        if provider.upstream is not None:
            yield ("providers", key, "upstream"), provider.upstream


def _sites(config: Config, _: Declared) -> Iterator[Finding]:
    for key, site in config.sites.items():
        if site.zone is not None and site.region is None:
            yield Finding(
                Reason.CONFIG_CONFLICT,
                ("sites", key, "zone"),
                "is set without region; zones count only inside a region",
                "set region too",
                (("sites", key, "region"),),
            )


def _unknown(path: Path, what: str, name: str, known: frozenset[str], section: str) -> Finding:
    hint = did_you_mean(name, sorted(known)) or f"declare it under {section}:"
    return Finding(Reason.CONFIG_BAD_REFERENCE, path, f"'{name}' is no {what} of this file", hint, ((section,),))


def _references(config: Config, declared: Declared) -> Iterator[Finding]:
    for key, provider in config.providers.items():
        at: Path = ("providers", key)
        if provider.site not in declared.sites:
            yield _unknown((*at, "site"), "site", provider.site, declared.sites, "sites")
        for index, site in enumerate(provider.access.sites if provider.access else ()):
            if site not in declared.sites:
                yield _unknown((*at, "access", "sites", index), "site", site, declared.sites, "sites")
    for key, gateway in config.gateways.items():
        at = ("gateways", key)
        if gateway.site not in declared.sites:
            yield _unknown((*at, "site"), "site", gateway.site, declared.sites, "sites")
        policy = gateway.admission
        if policy is not None and policy not in declared.admission:
            yield _unknown((*at, "admission"), "admission policy", policy, declared.admission, "admission")


def _providers(config: Config, _: Declared) -> Iterator[Finding]:
    places: dict[tuple[str, str], str] = {}
    for key, provider in config.providers.items():
        at: Path = ("providers", key)
        if not provider.models and not provider.tools:
            yield Finding(
                Reason.CONFIG_MISSING_KEY,
                at,
                "serves nothing: it has neither models nor tools",
                "such as models: [llama-3.1-70b]",
                ((*at, "models"), (*at, "tools")),
            )
        first = places.setdefault((provider.site, provider.cluster), key)
        if first != key:
            yield Finding(
                Reason.CONFIG_CONFLICT,
                (*at, "cluster"),
                f"cluster '{provider.cluster}' at site '{provider.site}' is provider {first} already",
                "a cluster at a site is one provider: list all its models there, or name another cluster",
                (("providers", first, "cluster"), (*at, "site")),
            )
        if provider.upstream is not None and provider.url is None:
            yield Finding(
                Reason.CONFIG_CONFLICT,
                (*at, "upstream"),
                "is set without url, so nothing is sent there",
                "set url too",
                ((*at, "url"),),
            )
        pressure = provider.pressure
        if pressure is not None and pressure.exit >= pressure.enter:
            yield Finding(
                Reason.CONFIG_CONFLICT,
                (*at, "pressure", "exit"),
                f"{pressure.exit:g} is not below enter ({pressure.enter:g}), so the provider would flap",
                "leave a gap, such as enter 0.85 and exit 0.70",
                ((*at, "pressure", "enter"),),
            )


def _gateways(config: Config, _: Declared) -> Iterator[Finding]:
    for key, gateway in config.gateways.items():
        at: Path = ("gateways", key)
        yield from _contract(at, gateway)
        if gateway.overflow < gateway.spill:
            yield Finding(
                Reason.CONFIG_CONFLICT,
                (*at, "overflow"),
                f"{gateway.overflow:g} is below spill ({gateway.spill:g}), so nothing could overflow before it is shed",
                "overflow is at least spill",
                ((*at, "spill"),),
            )
        affinity = gateway.affinity
        if affinity is not None and affinity.header is None and affinity.cookie is None:
            yield Finding(
                Reason.CONFIG_MISSING_KEY,
                (*at, "affinity"),
                "names neither header nor cookie, so no session can be told",
                "such as header: x-session-id",
                ((*at, "affinity", "header"), (*at, "affinity", "cookie")),
            )


def _contract(at: Path, gateway: GatewayConfig) -> Iterator[Finding]:
    """Pickers and placements that the vocabulary of the gateway's document cannot say (design of the overlay)."""
    contract, picker, placement = gateway.contract, gateway.picker, gateway.placement
    needs = ((*at, "contract"), (*at, "picker"))
    if contract is Contract.PRAXIS_ORDERED and picker not in _PLAIN_PICKERS:
        yield Finding(
            Reason.CONFIG_CONFLICT,
            (*at, "picker"),
            f"{picker} cannot be written in contract praxis-ordered, which only has an order",
            "remove picker, or take contract grid or praxis-grouped",
            needs,
        )
        return
    if contract is Contract.PRAXIS_GROUPED and picker is Picker.SATURATION:
        yield Finding(
            Reason.CONFIG_CONFLICT,
            (*at, "picker"),
            "saturation is unknown to readers of contract praxis-grouped",
            "take weightedRandom, or contract grid",
            needs,
        )
        return
    if placement is Placement.STATIC:
        return
    if picker in _PLAIN_PICKERS:
        why = "without a picker that shares traffic" if picker is None else "with picker deterministic"
    elif contract is Contract.PRAXIS_GROUPED and picker is not Picker.WEIGHTED_RANDOM:
        why = f"in contract praxis-grouped with picker {picker}"
    else:
        return
    yield Finding(
        Reason.CONFIG_CONFLICT,
        (*at, "placement"),
        f"{placement} sets traffic weights, and the document has none {why}",
        "take picker weightedRandom, or placement static",
        needs,
    )


def _admission(config: Config, _: Declared) -> Iterator[Finding]:
    for key, policy in config.admission.items():
        yield from _bands(("admission", key, "bands"), policy)


def _bands(at: Path, policy: AdmissionConfig) -> Iterator[Finding]:
    names: dict[str, int] = {}
    matches: dict[tuple[str, str], str] = {}
    for index, band in enumerate(policy.bands):
        here: Path = (*at, index)
        if names.setdefault(band.name, index) != index:
            yield Finding(Reason.CONFIG_CONFLICT, (*here, "name"), f"'{band.name}' is a band already", "rename one")
        if band.match is None:
            if index < len(policy.bands) - 1:
                detail = f"band {band.name} takes everything, so nothing reaches the bands after it"
                hint = "set match, or put it last"
                yield Finding(Reason.CONFIG_CONFLICT, here, detail, hint, ((*here, "match"),))
        else:
            other = matches.setdefault((band.match.header, band.match.value), band.name)
            if other != band.name:
                detail = f"band {other} takes these requests already"
                yield Finding(Reason.CONFIG_CONFLICT, (*here, "match"), detail, "set another value")
        above = policy.bands[index - 1] if index else None
        if above is not None and band.ceiling > above.ceiling:
            yield Finding(
                Reason.CONFIG_CONFLICT,
                (*here, "ceiling"),
                f"{band.ceiling:g} is above the ceiling of the band before it ({above.name}, {above.ceiling:g}), "
                "so room would stay unused while a more important band waits",
                f"at most {above.ceiling:g}",
            )


_CHECKS: tuple[Callable[[Config, Declared], Iterator[Finding]], ...] = (
    _daemon,
    _bus,
    _tls_pairs,
    _sites,
    _references,
    _providers,
    _gateways,
    _admission,
)
