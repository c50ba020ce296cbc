"""Scraping an EPP's metrics page over HTTP.

One deadline holds over the whole exchange, from the look at the token file to the last byte. The page is unpacked and
scanned as it arrives, in turns on the event loop of well under a millisecond each: the scan holds the interpreter, so a
thread would make the loop wait for its switch interval of 5 ms, where taking turns lets it wait for one slice.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import httpx

from grid import __version__
from grid.model import Reason, ScrapeError
from grid.signals.credentials import REFUSED_CREDENTIAL, CredentialFiles, Credentials, plain_context
from grid.signals.encoding import MAX_PAGE, Decompressor
from grid.signals.faults import Fault, broken_exchange, refusal
from grid.signals.scan import PageScan
from grid.signals.scrape import Scrape
from grid.signals.threads import in_daemon_thread

MAX_REDIRECTS: Final = 3

_SLICE: Final = 256 * 1024
"""Bytes of a page that are scanned before other tasks get a turn."""

_MAX_REFUSAL: Final = 4096
"""Bytes of an answer that is no page which are read, to see what it says."""

_REFUSAL_WAIT: Final = 0.5
"""s that its words are waited for."""

_HEADERS: Final = {
    "accept": "text/plain;version=0.0.4",
    "accept-encoding": "gzip",
    "user-agent": f"grid/{__version__}",
}
_PORTS: Final = {"http": 80, "https": 443}
_MAX_PORT: Final = 65_535
_LIMITS: Final = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None)


@dataclass(frozen=True, slots=True)
class EppTarget:
    """Where an EPP's page is and how to get at it.

    ``pool``: the EPP's name for the pool, None for the only one on the page. ``ca_file``: who may vouch for the server,
    None for the system's authorities. ``max_page``: bytes after decompression.
    """

    url: str
    pool: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    max_page: int = MAX_PAGE


@dataclass(slots=True)
class _Progress:
    """How far an exchange has come, for the words of its errors."""

    stage: str = "while looking at its credential files"
    answered: bool = False
    received: int = 0
    started: float = 0.0


class _BrokenError(Exception):
    """The exchange broke; carries the fault."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


class EppScraper:
    """Scrapes one EPP over a connection of its own that stays open between scrapes.

    ``timeout``: s for the whole exchange. ``ssl_context``: used instead of one made from the target's files.
    At most one scrape at a time. Raises :class:`ScrapeError` for a URL that is none.
    """

    def __init__(
        self, provider_id: str, target: EppTarget, *, timeout: float = 2.0, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._provider = provider_id
        self._target = target
        self._timeout = timeout
        self._url = _parsed(target.url)
        self._shown = _shown(self._url)
        self._is_name = not _is_address(self._url.host)
        self._files = CredentialFiles(
            token_file=target.token_file,
            ca_file=target.ca_file,
            cert_file=target.cert_file,
            key_file=target.key_file,
            tls=self._url.scheme == "https",
            context=ssl_context,
        )
        self._client: httpx.AsyncClient | None = None
        self._client_context: ssl.SSLContext | None = None
        self._loading: Future[Credentials] | None = None
        self._looking_up: Future[Any] | None = None
        self._reached = False

    async def scrape(self) -> Scrape:
        """Fetch and read the page once.

        Raises :class:`ScrapeError` with a reason of the families exchange, credential or page. The token is in none of
        its words.
        """
        progress = _Progress()
        try:
            async with asyncio.timeout(self._timeout):
                return await self._exchange(progress)
        except TimeoutError:
            raise self._error(Fault(Reason.TIMEOUT, f"{self._timeout:g} s passed {progress.stage}")) from None
        except ScrapeError as error:
            if error.reason in REFUSED_CREDENTIAL:
                self._files.distrust()
            raise
        finally:
            self._reached = progress.answered

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # --- the exchange -------------------------------------------------------------------------------------------------
    async def _exchange(self, progress: _Progress) -> Scrape:
        credentials = await self._credentials()
        client = await self._client_with(credentials.context)
        headers = {"authorization": f"Bearer {credentials.token}"} if credentials.token else {}
        progress.stage = "while the host name was looked up"
        await self._look_up()
        progress.started = asyncio.get_running_loop().time()
        try:
            return await self._fetch(client, headers, progress)
        except _BrokenError as broken:
            # The server may have closed the idle connection, or be a new process behind the same address; unless it was
            # we who closed it, a second try tells.
            if broken.fault.reason is not Reason.DISCONNECTED or self._client is not client:
                raise self._error(broken.fault) from broken.__cause__
        try:
            return await self._fetch(client, headers, progress)
        except _BrokenError as broken:
            raise self._error(self._hung_up_again(broken.fault)) from broken.__cause__

    def _hung_up_again(self, fault: Fault) -> Fault:
        """With TLS 1.3 a client learns by its first read that its certificate is refused, and often just by a reset."""
        if fault.reason is not Reason.DISCONNECTED or self._url.scheme != "https":
            return fault
        return Fault(
            Reason.TLS_CLIENT_REFUSED,
            f"twice it hung up between a good handshake and an answer {fault.detail}".rstrip(),
        )

    async def _fetch(self, client: httpx.AsyncClient, headers: dict[str, str], progress: _Progress) -> Scrape:
        progress.stage = "before an answer came"
        url = self._url
        try:
            for _ in range(MAX_REDIRECTS + 1):
                if client.is_closed:
                    raise _BrokenError(Fault(Reason.DISCONNECTED, "it was closed on our side"))
                async with client.stream("GET", url, headers=headers) as response:
                    if response.has_redirect_location:
                        url = self._redirected(url, response.headers["location"])
                        continue
                    progress.answered = True
                    if response.status_code != httpx.codes.OK:
                        raise self._error(refusal(response.status_code, await _beginning(response, headers)))
                    progress.stage = "while the page came in"
                    return await self._page(response, progress)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            fault = broken_exchange(error, answered=progress.answered, received=progress.received)
            raise _BrokenError(fault) from error
        raise self._error(Fault(Reason.REDIRECT_LOOP, f"more than {MAX_REDIRECTS} in a row, the last to {_shown(url)}"))

    async def _page(self, response: httpx.Response, progress: _Progress) -> Scrape:
        clock = asyncio.get_running_loop().time
        content_type = response.headers.get("content-type", "")
        scan = PageScan(self._target.pool, content_type=content_type)
        arrived, cost, own, since_turn = clock(), 0.0, 0.0, 0
        try:
            decompressor = Decompressor(response.headers.get("content-encoding", ""), limit=self._target.max_page)
            decompressor.expect(response.headers.get("content-length", ""))
            async for data in response.aiter_raw():
                progress.received += len(data)
                arrived = clock()
                cost = arrived - progress.started - own
                for piece in decompressor.pieces(data):
                    scan.feed(piece)
                    since_turn += len(piece)
                    if since_turn >= _SLICE:
                        since_turn = 0
                        await asyncio.sleep(0)
                own += clock() - arrived
            decompressor.finish()
        except ScrapeError as error:
            raise self._error(Fault(error.reason, error.message, error.hint)) from error
        result = scan.finish()
        if result.unusable is not None:
            problem = result.unusable
            typed = f" (content type {content_type[:80]!r})" if problem.code is Reason.NOT_METRICS else ""
            raise self._error(Fault(problem.code, problem.detail + typed))
        return Scrape(
            reading=result.reading,
            problems=result.problems,
            received_at=arrived,
            cost_s=max(cost, 0.0),
            page_bytes=decompressor.page_bytes,
        )

    def _redirected(self, url: httpx.URL, location: str) -> httpx.URL:
        """Where a redirect leads, which may be no other origin: the token must not go there."""
        target = url.join(location)
        if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
            raise self._error(Fault(Reason.REDIRECT_REFUSED, f"it leads to {_shown(target)}"))
        return target

    # --- what an exchange needs ---------------------------------------------------------------------------------------
    async def _credentials(self) -> Credentials:
        if self._files.constant:
            return self._files.load()
        # A file system that hangs gets one thread, not one per scrape.
        if self._loading is None or self._loading.done():
            self._loading = _file_threads().submit(self._files.load)
        try:
            return await asyncio.wrap_future(self._loading)
        except ScrapeError as error:
            raise self._error(Fault(error.reason, error.message, error.hint)) from error

    async def _client_with(self, context: ssl.SSLContext | None) -> httpx.AsyncClient:
        """The client, made anew when its TLS context has changed."""
        if self._client is None or context is not self._client_context:
            await self.aclose()
            self._client = httpx.AsyncClient(
                verify=context or plain_context(),
                trust_env=False,
                limits=_LIMITS,
                headers=_HEADERS,
                timeout=None,  # noqa: S113 - the deadline is over the whole exchange, not over each of its steps
            )
            self._client_context = context
        return self._client

    async def _look_up(self) -> None:
        """Try the host name first, unless the connection stands: in a thread that may hang without harm to others.

        The loop's own lookups share some few threads; one name server that does not answer would use them up.
        """
        if self._reached or not self._is_name:
            return
        host, port = self._url.host, self._url.port or _PORTS[self._url.scheme]
        if self._looking_up is None or self._looking_up.done():
            self._looking_up = in_daemon_thread(
                lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), name=f"lookup-{self._provider}"
            )
        try:
            await asyncio.wrap_future(self._looking_up)
        except (OSError, UnicodeError) as error:
            told = error.strerror if isinstance(error, OSError) else error
            raise self._error(Fault(Reason.DNS_FAILED, f"{host}: {told}")) from error

    def _error(self, fault: Fault) -> ScrapeError:
        message = f"{self._shown}: {fault.reason.meaning}" + (f": {fault.detail}" if fault.detail else "")
        return ScrapeError(message, reason=fault.reason, hint=fault.hint)


def _parsed(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ScrapeError(f"{url[:80]!r} is no URL: {error}", reason=Reason.BAD_URL) from error
    if parsed.scheme not in _PORTS or not parsed.host or (parsed.port or 0) > _MAX_PORT:
        raise ScrapeError(
            f"{url[:80]!r} is no http:// or https:// URL with a host and a port that exists", reason=Reason.BAD_URL
        )
    if parsed.userinfo:
        raise ScrapeError(
            f"the URL of {parsed.host} holds a user name or password",
            reason=Reason.BAD_URL,
            hint="an EPP wants a bearer token: put it into token_file",
        )
    return parsed


def _shown(url: httpx.URL) -> str:
    """A URL without what may be secret in it."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1)
def _file_threads() -> ThreadPoolExecutor:
    """Threads for looking at credential files: not the loop's own, which name lookups may hold for long."""
    return ThreadPoolExecutor(max_workers=8, thread_name_prefix="grid-files")


async def _beginning(response: httpx.Response, headers: dict[str, str]) -> str:
    """The first words of an answer that is no page, as far as they come at once, fit to be shown."""
    body = b""
    with contextlib.suppress(TimeoutError, ScrapeError, httpx.HTTPError, OSError):
        async with asyncio.timeout(_REFUSAL_WAIT):
            decompressor = Decompressor(response.headers.get("content-encoding", ""))
            async for data in response.aiter_raw():
                for piece in decompressor.pieces(data):
                    body += piece[: _MAX_REFUSAL - len(body)]
                    if len(body) >= _MAX_REFUSAL:
                        return _words(body, headers)
    return _words(body, headers)


def _words(body: bytes, headers: dict[str, str]) -> str:
    text = body.decode("utf-8", "replace")
    if secret := headers.get("authorization", "").removeprefix("Bearer "):
        text = text.replace(secret, "***")
    return "".join(char for char in " ".join(text.split()) if char.isprintable())[:160]
