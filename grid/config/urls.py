"""URLs of sources, upstreams and the bus. None may carry a secret: those are given as files."""

import re
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from grid.config.scalars import Scalar, did_you_mean, out_of_range, wrong_type
from grid.config.scalars import describe as _describe

_BUS_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_BUS_FORMS = (
    "embedded, redis://host:6379/0, rediss://host:6379/0, unix:///run/redis.sock, "
    "redis+sentinel://h1,h2/master, redis+cluster://h1,h2"
)
_HOST = re.compile(r"[0-9A-Za-z._~-]+|\[[0-9A-Fa-f:.%A-Za-z]+\]", re.ASCII)
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]")


def http_url(example: str) -> Scalar:
    """An absolute http or https URL without credentials and without a fragment."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            hint = f"such as {example}" if value is not None else f"such as {example}, or remove the line"
            wrong_type(f"wants a URL, not {_describe(value)}", hint)
        parts = _split(value, example)
        if parts.scheme not in ("http", "https"):
            hint = f"such as {example}"
            if "://" not in value:
                out_of_range(f"{_describe(_without_login(value))} is no URL with http:// or https://", hint)
            out_of_range(f"the scheme {_describe(parts.scheme)} is neither http nor https", hint)
        if "@" in parts.netloc:
            out_of_range("has a user name or password in it", "use token_file: secrets are only given as files")
        if _HOST.fullmatch(_host(parts.netloc)) is None:
            out_of_range(f"{_describe(value)} names no host", f"such as {example}")
        _port(parts.netloc, value)
        if parts.fragment:
            out_of_range(f"{_describe(value)} has a fragment (#...), which no server sees", "remove it")
        return value

    return Scalar(read, {"type": "string", "format": "uri", "pattern": "^https?://", "examples": [example]}, hide_query)


def bus_url() -> Scalar:
    """``embedded``, or where a Redis server, its Sentinels or a Redis Cluster are."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            wrong_type(f"wants the address of a bus, not {_describe(value)}", f"one of {_BUS_FORMS}")
        if value == "embedded":
            return value
        parts = _split(value, "redis://127.0.0.1:6379/0")
        if parts.scheme not in _BUS_SCHEMES or "://" not in value:
            shown = _describe(parts.scheme or _without_login(value))
            known = did_you_mean(parts.scheme or value, ("embedded", *_BUS_SCHEMES))
            hint = known if known.startswith("did") else f"one of {_BUS_FORMS}"
            out_of_range(f"{shown} is neither embedded nor a known scheme", hint)
        login, _, hosts = parts.netloc.rpartition("@")
        if ":" in login or "password" in parts.query.lower():
            out_of_range("has a password in it", "use bus.password_file: secrets are only given as files")
        if parts.query or parts.fragment:
            out_of_range("has a query or a fragment, which mean nothing here", "the rest of bus: holds the settings")
        _check_place(parts, hosts, value)
        return value

    schema = {"type": "string", "pattern": "^(embedded$|rediss?(\\+sentinel|\\+cluster)?://|unix://)"}
    return Scalar(read, schema | {"examples": ["embedded", "redis://127.0.0.1:6379/0"]})


def hide_query(url: str | None) -> str | None:
    """``url`` with the values of its query hidden: a token may stand there."""
    if url is None or "?" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=re.sub(r"=[^&]*", "=***", parts.query)))


def host_of(url: str) -> str:
    """The host in ``url``, in lower case, without brackets; empty where it has none."""
    return urlsplit(url).hostname or ""


def _split(value: str, example: str) -> SplitResult:
    if _SPACE.search(value):
        out_of_range("has a space or control character in it", f"such as {example}")
    try:
        return urlsplit(value)
    except ValueError:
        out_of_range(f"{_describe(_without_login(value))} is no URL", f"such as {example}")


def _without_login(value: str) -> str:
    """``value`` with anything before an @ hidden: it may be a password."""
    return re.sub(r"^([a-z+]+://)?.*@", r"\1***@", value)


def _host(netloc: str) -> str:
    if netloc.startswith("["):
        return netloc.partition("]")[0] + "]"
    return netloc.partition(":")[0]


def _port(netloc: str, value: str) -> None:
    rest = netloc.removeprefix(_host(netloc))
    if not rest:
        return
    port = rest[1:]
    if not (rest[0] == ":" and port.isdecimal() and port.isascii() and len(port) <= 5 and 0 < int(port) <= 65535):
        out_of_range(f"{_describe(_without_login(value))} has no port from 1 to 65535 after its host")


def _check_place(parts: SplitResult, hosts: str, value: str) -> None:
    path = unquote(parts.path)
    if parts.scheme == "unix":
        if hosts or len(path) < 2:
            out_of_range(
                f"{_describe(_without_login(value))} names no absolute socket path", "such as unix:///run/redis.sock"
            )
        return
    nodes = hosts.split(",")
    for node in nodes:
        if _HOST.fullmatch(_host(node)) is None:
            out_of_range(f"{_describe(_without_login(value))} names no host", f"one of {_BUS_FORMS}")
        _port(node, value)
    _, _, variant = parts.scheme.partition("+")
    database = path.removeprefix("/")
    if variant == "sentinel":
        master, _, database = database.partition("/")
        if not master:
            out_of_range("names no master behind the Sentinels", "such as redis+sentinel://h1:26379,h2:26379/mymaster")
    elif variant == "cluster":
        if database not in ("", "0"):
            out_of_range(f"names the database {_describe(database)}", "a Redis Cluster has only database 0")
    elif len(nodes) > 1:
        out_of_range("names several hosts", "for that use redis+sentinel://h1,h2/master or redis+cluster://h1,h2")
    if database and not (database.isdecimal() and database.isascii() and len(database) <= 5):
        out_of_range(f"names the database {_describe(database)}, which is no number", "such as redis://host:6379/0")
