"""What works, but is probably not meant: shown by ``grid check`` and in the log, refused by nobody."""

from collections.abc import Iterator

from grid.config.checks import tls_sections
from grid.config.document import Path, dotted
from grid.config.root import Config
from grid.config.scalars import Listen
from grid.config.urls import host_of
from grid.model.errors import ConfigProblem
from grid.model.names import Picker, Placement
from grid.model.reasons import Reason

_MAX_CANDIDATES = 1024
_WEIGHTLESS = (Picker.ROUND_ROBIN, Picker.RANDOM)


_Advice = tuple[Reason, Path, str, str]


def warnings(config: Config) -> tuple[ConfigProblem, ...]:
    """Everything about ``config`` that an operator should look at again; one entry for many providers alike."""
    alike: dict[tuple[Reason, Path, str, str], list[Path]] = {}
    for reason, path, detail, hint in (*_empty(config), *_plain_text(config), *_unused_tls(config), *_gateways(config)):
        kind = path[2:] if path[0] == "providers" and len(path) > 1 else path
        alike.setdefault((reason, kind, detail, hint), []).append(path)
    found = []
    for (reason, _, detail, hint), paths in alike.items():
        more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
        found.append(ConfigProblem(reason, dotted(paths[0]), detail + more, hint=hint))
    return tuple(found)


def _empty(config: Config) -> Iterator[_Advice]:
    for name, found, why in (
        ("providers", config.providers, "nothing is scraped, and no document can be made"),
        ("gateways", config.gateways, "no document is made for anybody"),
    ):
        if not found:
            yield Reason.CONFIG_EMPTY, (name,), f"there are none: {why}", f"add one under {name}:"


def _remote(url: str) -> bool:
    """Whether ``url`` leads over a network in plain text."""
    host = host_of(url)
    return url.startswith(("http://", "redis://")) and not Listen(host, 0).loopback


def _plain_text(config: Config) -> Iterator[_Advice]:
    if config.bus.password_file is not None and _remote(config.bus.url):
        detail = "the password of Redis crosses the network unencrypted"
        yield Reason.CONFIG_CONFLICT, ("bus", "password_file"), detail, "use rediss://"
    for key, source in config.sources.items():
        at: Path = ("providers", key, "source", "token_file")
        if source.token_file is not None and _remote(_url(source)):
            yield Reason.CONFIG_CONFLICT, at, "the token crosses the network unencrypted", "use https where the EPP can"
    for key, provider in config.providers.items():
        upstream = provider.upstream
        if upstream is not None and upstream.token_file is not None and provider.url and _remote(provider.url):
            at = ("providers", key, "upstream", "token_file")
            yield Reason.CONFIG_CONFLICT, at, "the token crosses the network unencrypted", "use https"


def _url(source: object) -> str:
    return str(getattr(source, "epp", None) or getattr(source, "prometheus", ""))


def _unused_tls(config: Config) -> Iterator[_Advice]:
    for path, files in tls_sections(config):
        if path[0] == "bus":
            continue
        provider = config.providers[str(path[1])]
        url = _url(provider.source) if path[2] == "source" else provider.url
        for name in ("ca_file", "cert_file"):
            if getattr(files, name) is not None and url is not None and url.startswith("http://"):
                detail = "has no effect: the URL is http://, which is not encrypted"
                yield Reason.CONFIG_CONFLICT, (*path, name), detail, "write https:// in the URL, or remove it"


def _gateways(config: Config) -> Iterator[_Advice]:
    network = config.to_network()
    for key, gateway in network.gateways.items():
        at: Path = ("gateways", key)
        site = network.sites[gateway.site]
        visible = [item for item in network.providers.values() if item.access is None or item.access.admits(site)]
        candidates = sum(len(item.capabilities) for item in visible)
        if not candidates:
            yield Reason.NO_CANDIDATES, at, "no provider admits this gateway", Reason.NO_CANDIDATES.hint
        if candidates > _MAX_CANDIDATES:
            detail = f"{candidates} candidates for this gateway; a document holds {_MAX_CANDIDATES} at most"
            yield Reason.TOO_MANY_CANDIDATES, at, detail, Reason.TOO_MANY_CANDIDATES.hint
        if gateway.placement is not Placement.STATIC and gateway.picker in _WEIGHTLESS:
            detail = f"{gateway.placement} moves weights that picker {gateway.picker} does not look at"
            yield Reason.CONFIG_CONFLICT, (*at, "placement"), detail, "take picker weightedRandom, or placement static"
