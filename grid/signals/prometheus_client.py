"""Asking a Prometheus server, blocking, in the thread that calls. Import this module there: requests takes its time.

``prometheus-api-client`` builds and judges the queries; the session it is given holds what a daemon must insist on:
nothing from the environment, no redirects, a limit on the answer, and one deadline for all of it.
"""

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util.retry import Retry

from grid.model import Reason, ScrapeError
from grid.signals.causes import exchange_reason
from grid.signals.credentials import CredentialFiles

MAX_ANSWER: Final = 16 * 1024 * 1024
"""Bytes of one answer. A pool's signals are some kB; much more means that ``match`` is far too wide."""

_CHUNK: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """``result`` as the server's JSON has it; ``cost_s`` of the server's time; ``size`` in bytes."""

    result: object
    cost_s: float
    size: int


class _TooLargeError(requests.RequestException):
    """The answer exceeds MAX_ANSWER."""


class _Session(requests.Session):
    """A session that reads every answer under a limit and a deadline."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.deadline = 0.0
        self.answer = requests.Response()
        """The last one; an empty one where none came."""

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        response = super().send(request, **kwargs | {"stream": True})
        body = bytearray()
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > MAX_ANSWER:
                response.close()
                raise _TooLargeError
            if time.monotonic() > self.deadline:
                response.close()
                raise requests.ReadTimeout
        response._content = bytes(body)  # where requests itself puts what it has read
        self.answer = response
        return response

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002 (named so by requests)
        """Follow none: a query API has no need of them, and a login page elsewhere must not get the token."""
        return None


class PrometheusClient:
    """One Prometheus server. Not thread-safe; one query at a time.

    ``url`` is that of the server, a path prefix included. Files are read again for every connection (certificates) or
    query (token), so rotated ones count at once.
    """

    def __init__(
        self,
        url: str,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        cert_file: Path | None = None,
        key_file: Path | None = None,
    ) -> None:
        self._files = CredentialFiles(
            token_file=token_file,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            tls=any((ca_file, cert_file, key_file)),
        )
        self.shown = _without_secrets(url)
        """The URL without what it may hold of secrets."""
        self._session = _Session()
        roots = ssl.get_default_verify_paths()  # requests would bring roots of its own instead of the system's
        self._session.verify = str(ca_file or roots.cafile or roots.capath or "") or True
        if cert_file:
            self._session.cert = (str(cert_file), str(key_file)) if key_file else str(cert_file)
        # The next scrape is the retry: nothing is tried again within one.
        self._connect = PrometheusConnect(url.rstrip("/"), session=self._session, retry=Retry(0))

    def query(self, promql: str, *, deadline: float) -> Reply:
        """Ask one instant query, to be answered by the monotonic time ``deadline``.

        Raises ScrapeError with the reason of whatever keeps it from being answered.
        """
        session = self._session
        left = max(deadline - time.monotonic(), 0.01)
        session.deadline, session.answer = deadline, requests.Response()
        self._connect.headers = self._headers()
        params = {"timeout": f"{left:.3f}", "stats": "all"}
        try:
            result = self._connect.custom_query(promql, params=params, timeout=left)  # type: ignore[arg-type]
        except PrometheusApiClientException as error:
            raise self._refused(session.answer) from error
        except (requests.JSONDecodeError, KeyError, TypeError) as error:
            said = _beginning(session.answer)
            raise self._error(Reason.PROMETHEUS_ERROR, f"no answer of a Prometheus: {said}") from error
        except OSError as error:  # RequestException is one
            raise self._failed(error) from error
        return Reply(result, _cost(session.answer), len(session.answer.content))

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self._session.close()

    def _headers(self) -> dict[str, str]:
        """Return the headers of a query; read the files first, since requests would not name the broken one."""
        token = self._files.load().token
        headers = {"user-agent": "grid", "accept": "application/json"}
        return headers | {"authorization": f"Bearer {token}"} if token else headers

    def _refused(self, response: requests.Response) -> ScrapeError:
        """Make an error of a status other than 200."""
        status = response.status_code
        if response.is_redirect:
            target = _without_secrets(response.headers["location"])
            return self._error(Reason.REDIRECT_REFUSED, f"status {status} to {target}")
        if status in (401, 403):
            self._files.distrust()
        if status == 401:
            return self._error(
                Reason.CREDENTIAL_MISSING, "status 401", "set token_file of the source, or renew the token"
            )
        if status == 403:
            return self._error(
                Reason.CREDENTIAL_DENIED, "status 403", "let the token's account read the server's query API"
            )
        try:
            said = str(response.json()["error"])[:300]
        except (ValueError, KeyError, TypeError):
            said = _beginning(response)
        return self._error(Reason.PROMETHEUS_ERROR, f"status {status}: {said}")

    def _failed(self, error: Exception) -> ScrapeError:
        """Make an error of an exchange that brought no answer."""
        if isinstance(error, _TooLargeError):
            return self._error(
                Reason.TOO_LARGE, f"the answer exceeds {MAX_ANSWER} bytes", "narrow match until one target remains"
            )
        if isinstance(error, requests.Timeout):
            return self._error(Reason.TIMEOUT, "no answer in time")
        if isinstance(error, requests.exceptions.ContentDecodingError):
            return self._error(Reason.BAD_ENCODING, "its content encoding is broken")
        if isinstance(error, requests.exceptions.ChunkedEncodingError):
            return self._error(exchange_reason(error, default=Reason.TRUNCATED), "the answer ends early")
        if isinstance(error, requests.ConnectionError):
            reason = exchange_reason(error, default=Reason.NOT_HTTP)
            return self._error(reason, reason.meaning)
        return self._error(Reason.PROMETHEUS_ERROR, f"{type(error).__name__}: {error}"[:300])

    def _error(self, reason: Reason, detail: str, hint: str | None = None) -> ScrapeError:
        return ScrapeError(f"{self.shown}: {detail}", reason=reason, hint=hint)


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _cost(response: requests.Response) -> float:
    """Return the s that a query cost the server: as it says, else what its answer took to begin."""
    try:
        return float(response.json()["data"]["stats"]["timings"]["execTotalTime"])
    except (ValueError, KeyError, TypeError):
        return response.elapsed.total_seconds()


def _beginning(response: requests.Response) -> str:
    return repr(" ".join(response.content[:200].decode("utf-8", "replace").split())[:80])
