"""The providers as the gateway reaches them: address, credential, a pool of connections each.

aiohttp, since httpx's pool takes time in the square of its connections. One session per provider, so that one that
hangs cannot use up the connections of the others. Nothing is decoded, nothing followed, no proxy taken from the
environment.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final, Self

import aiohttp
import structlog
from yarl import URL

from grid.bus.tasks import guarded, stop
from grid.config.fleet import ProviderConfig
from grid.proxy.credentials import Credential

log = structlog.get_logger(__name__)

REFRESH: Final = 1.0
"""s between looks at the files of credentials."""

_HEAD: Final = 64 * 1024


class ConnectFailedError(Exception):
    """No connection: the request has not been sent."""


class BrokenExchangeError(Exception):
    """The exchange ended before its time: the request may have been worked on."""


class SilentError(BrokenExchangeError):
    """Nothing came for too long."""


@dataclass(frozen=True, slots=True)
class Pool:
    """``connections`` to one provider at most; times in s.

    ``connect`` to make a connection; ``turn`` to get one at all, waiting for a free one included; ``silence`` without a
    byte until an exchange is given up; ``idle``: an unused connection is kept so long, less than the 5 s after which
    common servers close theirs.
    """

    connections: int = 2048
    connect: float = 2.0
    turn: float = 5.0
    silence: float = 600.0
    idle: float = 4.0


class Upstream:
    """One provider. ``own_credential``: the gateway brings a token of its own. Made by :class:`Upstreams`."""

    def __init__(self, name: str, config: ProviderConfig, pool: Pool) -> None:
        self.name = name
        self.site = config.site
        self.cluster = config.cluster
        self._base = (config.url or "").rstrip("/")
        self.credential = Credential(name, config.upstream, tls=self._base.startswith("https:"))
        self._pool = pool
        self._urls: dict[str, URL] = {}
        self._session: aiohttp.ClientSession | None = None

    @property
    def own_credential(self) -> bool:
        """Whether the gateway brings a token of its own."""
        return self.credential.has_token

    @property
    def problem(self) -> str | None:
        """Why nothing can be sent there now; None where it can."""
        return self.credential.problem if self._base else "no url is configured"

    async def send(
        self, path: str, query: bytes, headers: list[tuple[str, str]], body: bytes | AsyncIterator[bytes]
    ) -> aiohttp.ClientResponse:
        """POST to ``path`` and wait for the head of the answer; adds the credential to ``headers``.

        Raises ConnectFailedError, SilentError, BrokenExchangeError.
        """
        problem = self.problem
        if problem is not None:
            raise ConnectFailedError(problem)
        if self._session is None:
            self._session = self._open()
        token, tls = self.credential.token, self.credential.tls
        if token is not None:
            headers.append(("authorization", f"Bearer {token}"))
        # Part of what connections are told apart by, so a renewed certificate is used from the next connection on.
        verify: SSLContext | bool = True if tls is None else tls
        try:
            return await self._session.request(
                "POST", self._url(path, query), data=body, headers=headers, ssl=verify, allow_redirects=False
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectFailedError(str(error) or type(error).__name__) from error
        except aiohttp.SocketTimeoutError as error:
            raise SilentError(f"no byte within {self._pool.silence:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise BrokenExchangeError(str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        pool = self._pool
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=pool.connections, keepalive_timeout=pool.idle),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=pool.turn, sock_connect=pool.connect, sock_read=pool.silence
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("user-agent", "accept", "accept-encoding", "content-type"),
            max_line_size=_HEAD,
            max_field_size=_HEAD,
        )

    def _url(self, path: str, query: bytes) -> URL:
        if query:
            return URL(f"{self._base}{path}?{query.decode('latin-1')}", encoded=True)
        found = self._urls.get(path)
        if found is None:
            found = self._urls[path] = URL(self._base + path, encoded=True)
        return found


class Upstreams:
    """All providers of the configuration, by where documents place them. ``async with`` around its use."""

    def __init__(self, providers: Mapping[str, ProviderConfig], pool: Pool | None = None) -> None:
        sized = pool or Pool()
        self._by_place = {
            (provider.site, provider.cluster): Upstream(name, provider, sized) for name, provider in providers.items()
        }
        self._refresher: asyncio.Task[None] | None = None

    @property
    def all(self) -> list[Upstream]:
        """Every one of them."""
        return list(self._by_place.values())

    def get(self, site: str, cluster: str) -> Upstream | None:
        """Who is there; None where the configuration names nobody."""
        return self._by_place.get((site, cluster))

    async def __aenter__(self) -> Self:
        if any(upstream.credential.files for upstream in self.all):
            await self._refresh()
            self._refresher = guarded(self._keep_fresh(), "credentials of providers")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._refresher is not None:
            await stop(self._refresher)
        for upstream in self.all:
            await upstream.aclose()

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH)
            await self._refresh()

    async def _refresh(self) -> None:
        await asyncio.to_thread(_refresh, self.all)


def _refresh(upstreams: list[Upstream]) -> None:
    for upstream in upstreams:
        upstream.credential.refresh()
