"""Where the bus is: the forms of ``bus.url``."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from urllib.parse import unquote, urlsplit

from grid.model import ConfigError, ConfigProblem, Reason

REDIS_PORT = 6379
SENTINEL_PORT = 26379

FORMS = (
    "embedded, redis://host:port/db, rediss://host:port/db, unix:///path, redis+sentinel://h1:p1,h2:p2/master, "
    "redis+cluster://h1:p1,h2:p2"
)


class Place(StrEnum):
    """What kind of server the address names."""

    STANDALONE = "standalone"
    UNIX = "unix"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class BusAddress:
    """One parsed ``bus.url``. ``str()`` of it is safe to show: it never holds the password.

    ``nodes`` are ``(host, port)`` of the server itself, of the Sentinels or of Cluster nodes to ask first; ``path`` is
    a unix socket; ``master`` the name Sentinel knows the master by.
    """

    place: Place
    nodes: tuple[tuple[str, int], ...] = ()
    path: str = ""
    master: str = ""
    db: int = 0
    tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> "BusAddress":
        """Read a ``bus.url``. Raises ConfigError with what is wrong and the forms there are, never with a password."""
        if url == "embedded":
            return cls(Place.EMBEDDED)
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise _refused(f"cannot be read: {error}") from None
        if parts.query or parts.fragment:
            raise _refused("has a query or fragment, which has no meaning here")
        userinfo, _, hosts = parts.netloc.rpartition("@")
        user, _, password = userinfo.partition(":")
        found = _placed(parts.scheme, hosts, unquote(parts.path))
        return replace(found, username=unquote(user) or None, password=unquote(password) or None)

    def __str__(self) -> str:
        if self.place is Place.EMBEDDED:
            return "embedded"
        if self.place is Place.UNIX:
            return f"unix://{self.path}"
        variant = "" if self.place is Place.STANDALONE else f"+{self.place}"
        hosts = ",".join(endpoint(host, port) for host, port in self.nodes)
        tail = f"/{self.master}" if self.master else ""
        tail += f"/{self.db}" if self.db else ""
        return f"{'rediss' if self.tls else 'redis'}{variant}://{hosts}{tail}"


def endpoint(host: str, port: int) -> str:
    """``host:port`` with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _placed(scheme: str, hosts: str, path: str) -> BusAddress:
    if scheme == "unix":
        if hosts or not path.startswith("/"):
            raise _refused("names no absolute socket path: unix:///run/redis.sock has three slashes")
        return BusAddress(Place.UNIX, path=path)
    tls = scheme.startswith("rediss")
    tail = path.removeprefix("/")
    match scheme.replace("rediss", "redis", 1):
        case "redis":
            nodes = _nodes(hosts, REDIS_PORT)
            if len(nodes) > 1:
                raise _refused("names several hosts: for that use redis+sentinel:// or redis+cluster://")
            return BusAddress(Place.STANDALONE, nodes, db=_database(tail), tls=tls)
        case "redis+sentinel":
            master, _, db = tail.partition("/")
            if not master:
                raise _refused("names no master: redis+sentinel://host1,host2/mymaster")
            return BusAddress(Place.SENTINEL, _nodes(hosts, SENTINEL_PORT), master=master, db=_database(db), tls=tls)
        case "redis+cluster":
            if tail not in ("", "0"):
                raise _refused(f"names the database {tail!r}, and a Cluster has only database 0")
            return BusAddress(Place.CLUSTER, _nodes(hosts, REDIS_PORT), tls=tls)
        case _:
            raise _refused(f"has the unknown scheme {scheme!r}")


def _nodes(hosts: str, port: int) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for item in hosts.split(","):
        parts = urlsplit(f"//{item.strip()}")
        try:
            number = parts.port
        except ValueError:
            raise _refused(f"has a port that is no number up to 65535, in {item.strip()!r}") from None
        if not parts.hostname:
            raise _refused("names no host")
        found.append((parts.hostname, port if number is None else number))
    return tuple(found)


def _database(text: str) -> int:
    if not text:
        return 0
    if not text.isdecimal():
        raise _refused(f"has the database {text!r}, which is no number")
    return int(text)


def _refused(detail: str) -> ConfigError:
    problem = ConfigProblem(Reason.CONFIG_OUT_OF_RANGE, "bus.url", detail, hint=f"forms: {FORMS}")
    return ConfigError(f"bus.url {detail}", [problem])
