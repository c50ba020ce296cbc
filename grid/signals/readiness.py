"""Readiness probe: one small HTTP GET beside the metrics page, where an operator knows a better sign of readiness.

Three answers, since "not ready" and "cannot tell" must lead to different routing:

- a 2xx status: healthy;
- any other status: denied. Something answers for the provider and says no;
- connection refused: denied as well. The machine at the address is up and says that nobody listens there, and requests
  sent to it would fare no better;
- everything else (timeout, name not resolved, no route, TLS, broken connection, redirect elsewhere): unknown. It may
  just as well be our own side or the way between, and a prober that is cut off must not take every provider away.
"""

import asyncio
import contextlib
import ssl
from dataclasses import dataclass

import httpx

from grid.model import Problem, Reason
from grid.signals.causes import exchange_reason

MAX_BODY = 4096
"""Bytes of a probe's answer that are read: enough to quote it, whatever it sends."""

QUOTE_WAIT = 0.1
"""Seconds that the body of a denial is waited for."""

MAX_REDIRECTS = 3


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe found. ``healthy`` None: it cannot tell. ``problem`` None: all is well."""

    healthy: bool | None
    problem: Problem | None = None


class ReadinessProbe:
    """Asks one URL whether a provider is ready. ``timeout``: s for the whole check, redirects included.

    Redirects are followed within the URL's own origin only. ``ssl_context``: for https, the system's roots without one.
    """

    def __init__(self, url: str, *, timeout: float = 2.0, ssl_context: ssl.SSLContext | None = None) -> None:
        self._url = httpx.URL(url)
        self._timeout = timeout
        if ssl_context is None:
            https = self._url.scheme == "https"
            # Plain http needs no roots, and loading them takes longer than the probe.
            ssl_context = ssl.create_default_context() if https else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx.AsyncClient(
            verify=ssl_context,
            trust_env=False,
            timeout=timeout,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            headers={"user-agent": "grid", "accept-encoding": "identity"},
        )

    async def check(self) -> ProbeResult:
        """Ask once. Every failure is a result; nothing but cancellation is raised."""
        shown = self._url.copy_with(userinfo=b"")
        try:
            async with asyncio.timeout(self._timeout):
                return await self._ask()
        except TimeoutError:
            return _unknown(f"{shown} gave no answer within {self._timeout:g} s")
        except httpx.ConnectError as error:
            reason = exchange_reason(error)
            detail = f"{shown}: {reason.meaning}"
            return ProbeResult(
                False if reason is Reason.CONNECT_REFUSED else None, Problem(Reason.PROBE_FAILED, detail)
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = exchange_reason(error, default=Reason.DISCONNECTED)
            return _unknown(f"{shown}: {reason.meaning} ({type(error).__name__})")

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""
        await self._client.aclose()

    async def _ask(self) -> ProbeResult:
        url = self._url
        for _ in range(MAX_REDIRECTS + 1):
            async with self._client.stream("GET", url) as answer:
                if answer.has_redirect_location:
                    target = url.join(answer.headers["location"])
                    if _origin(target) != _origin(url):
                        shown = target.copy_with(userinfo=b"", query=None)
                        return ProbeResult(None, Problem(Reason.REDIRECT_REFUSED, f"redirected to {shown}"))
                    url = target
                    continue
                if answer.is_success:
                    return ProbeResult(True)
                said = await _beginning(answer)
                return ProbeResult(False, Problem(Reason.PROBE_DENIED, f"status {answer.status_code}{said}"))
        return _unknown(f"more than {MAX_REDIRECTS} redirects")


def _unknown(detail: str) -> ProbeResult:
    return ProbeResult(None, Problem(Reason.PROBE_FAILED, detail))


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _beginning(answer: httpx.Response) -> str:
    """Quote the first words of the body, if they come at once; the status has said all that counts."""
    body = b""
    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(QUOTE_WAIT):
            async for chunk in answer.aiter_raw():
                body += chunk[: MAX_BODY - len(body)]
                if len(body) >= MAX_BODY:
                    break
    words = " ".join(body.decode("utf-8", "replace").split())
    printable = "".join(character for character in words[:80] if character.isprintable())
    return f": {printable!r}" if printable else ""
