"""IP addresses of the providers' URLs: Envoy takes no host names in a file of endpoints.

Names are looked up off the loop, again now and then; the last good answer stays in use while a name does not resolve,
since a name server that is away must not take a provider out.
"""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from grid.config import Config
from grid.proxy.eds import Endpoint, Place

DEADLINE: Final = 2.0
"""s to wait for the answers of one round; what comes later counts in the next one."""
AT_ONCE: Final = 16
MAX_ADDRESSES: Final = 16
"""Addresses of one name that are used, the lowest ones."""

_PORTS: Final = {"http": 80, "https": 443}

Lookup = Callable[[str], Sequence[str]]
"""A host's IP addresses. Blocking; raises OSError."""


def endpoints(config: Config) -> dict[Place, Endpoint]:
    """Where the providers of a configuration are reached; names are not looked up yet."""
    return {(one.site, one.cluster): _endpoint(key, one.url) for key, one in sorted(config.providers.items())}


def _endpoint(provider: str, url: str | None) -> Endpoint:
    if url is None:
        return Endpoint("", 0, problem=f"provider {provider} has no url")
    parts = urlsplit(url)
    endpoint = Endpoint(parts.hostname or "", parts.port or _PORTS[parts.scheme], tls=parts.scheme == "https")
    if parts.path not in ("", "/") or parts.query:
        return replace(
            endpoint, host="", problem=f"the url of provider {provider} has a path, and an endpoint has none"
        )
    return replace(endpoint, addresses=_literal(endpoint.host))


def _literal(host: str) -> tuple[str, ...]:
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        return ()


@dataclass(frozen=True, slots=True)
class _Answer:
    addresses: tuple[str, ...] = ()
    problem: str = ""


class Addresses:
    """What host names resolve to. ``lookup`` is what asks; ``deadline`` in s."""

    def __init__(self, lookup: Lookup | None = None, *, deadline: float = DEADLINE) -> None:
        self._lookup = lookup or look_up
        self._deadline = deadline
        self._answers: dict[str, _Answer] = {}
        self._asking: dict[str, Future[Sequence[str]]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    def remember(self, known: Mapping[str, tuple[str, ...]]) -> None:
        """Addresses from an earlier run, in use until the names are looked up."""
        for host, addresses in known.items():
            self._answers.setdefault(host, _Answer(addresses))

    def fill(self, wanted: Mapping[Place, Endpoint]) -> dict[Place, Endpoint]:
        """``wanted`` with the addresses known now."""
        return {place: self._filled(endpoint) for place, endpoint in wanted.items()}

    def problems(self, hosts: Iterable[str]) -> dict[str, str]:
        """Of ``hosts``, those whose last look-up gave nothing, and why."""
        return {host: found.problem for host in hosts if (found := self._answers.get(host)) and found.problem}

    def unasked(self, hosts: Iterable[str]) -> set[str]:
        """Of ``hosts``, those that nothing is known of."""
        return {host for host in hosts if host not in self._answers}

    async def refresh(self, hosts: Iterable[str]) -> bool:
        """Look ``hosts`` up; whether an address changed. Takes about ``deadline`` s at most."""
        return any(await asyncio.gather(*(self._ask(host) for host in set(hosts))))

    def _filled(self, endpoint: Endpoint) -> Endpoint:
        if endpoint.addresses or endpoint.problem:
            return endpoint
        answer = self._answers.get(endpoint.host, _Answer())
        problem = answer.problem or f"{endpoint.host} is not looked up yet"
        return replace(endpoint, addresses=answer.addresses, problem="" if answer.addresses else problem)

    async def _ask(self, host: str) -> bool:
        async with self._turns:
            known = self._answers.get(host, _Answer())
            try:
                async with asyncio.timeout(self._deadline):
                    found = _Answer(_chosen(await asyncio.wrap_future(self._future(host))))
                    if not found.addresses:
                        found = replace(known, problem=f"{host} has no IP address")
            except TimeoutError:
                found = replace(known, problem=f"no answer for {host} within {self._deadline:g} s")
            except (OSError, UnicodeError) as error:
                found = replace(known, problem=f"{host} does not resolve: {getattr(error, 'strerror', None) or error}")
            self._answers[host] = found
            return found.addresses != known.addresses

    def _future(self, host: str) -> Future[Sequence[str]]:
        """The look-up of ``host`` that is under way, or a new one: one that hangs is not joined by others."""
        future = self._asking.get(host)
        if future is None or future.done():
            future = self._asking[host] = _in_thread(lambda: self._lookup(host), f"look-up of {host}")
        return future


def look_up(host: str) -> list[str]:
    """As the system resolves it. Raises OSError."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


def _chosen(found: Sequence[str]) -> tuple[str, ...]:
    """One family, since a host that has both is one host: IPv4 where there is any."""
    read = {ipaddress.ip_address(one.partition("%")[0]) for one in found}
    addresses = sorted(read, key=lambda one: (one.version, one.packed))
    return tuple(str(one) for one in addresses if one.version == addresses[0].version)[:MAX_ADDRESSES]


def _in_thread(work: Callable[[], Sequence[str]], name: str) -> Future[Sequence[str]]:
    """Run ``work`` in a thread that ends with the process: a look-up may hang for longer than anyone waits."""
    future: Future[Sequence[str]] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the one who waits
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
