"""What was wrong with an exchange, told from what the HTTP library raised or the server answered."""

import ssl
from dataclasses import dataclass
from typing import Final

import h11
import httpx

from grid.model import Reason
from grid.signals.causes import chain, exchange_reason

_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")
_SILENT: Final = "the server may want a client certificate (cert_file and key_file), or speak no TLS at all"
_HEAD_TOO_LARGE: Final = 431


@dataclass(frozen=True, slots=True)
class Fault:
    """A reason code, what was seen, and the next step where the reason's own does not fit."""

    reason: Reason
    detail: str = ""
    hint: str | None = None


def broken_exchange(error: Exception, *, answered: bool, received: int) -> Fault:
    """Why an exchange broke: before an answer came, or (``answered``) in its body, after ``received`` bytes of it."""
    causes = list(chain(error))
    if answered:
        return Fault(Reason.TRUNCATED, f"the body broke off after {received} bytes {_in_words(causes)}".rstrip())
    for cause in causes:
        if isinstance(cause, httpx.InvalidURL):
            return Fault(Reason.REDIRECT_REFUSED, "it leads to something that is no URL")
        if isinstance(cause, ssl.SSLWantReadError | ssl.SSLWantWriteError):
            continue
        if isinstance(cause, ssl.SSLError):
            return _tls_fault(cause)
        if isinstance(cause, h11.RemoteProtocolError):
            if cause.error_status_hint == _HEAD_TOO_LARGE:
                return Fault(Reason.TOO_LARGE, "the headers of the answer", "look at what answers at this URL")
            return Fault(Reason.NOT_HTTP, str(cause)[:120])
    if isinstance(error, httpx.ConnectError):
        return Fault(exchange_reason(error), _in_words(causes))
    return Fault(Reason.DISCONNECTED, _in_words(causes))


def _tls_fault(error: ssl.SSLError) -> Fault:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Fault(Reason.TLS_FAILED, f"its certificate is not accepted: {error.verify_message}")
    said = error.reason or ""
    reason = exchange_reason(error)
    if said in _NO_TLS:
        return Fault(Reason.TLS_FAILED, "what answers there does not speak TLS", "use http:// or the TLS port")
    words = said.replace("_", " ").lower()
    if isinstance(error, ssl.SSLEOFError):
        return Fault(reason, "the server hung up during the handshake", _SILENT)
    return Fault(reason, words, _SILENT if said.endswith("ALERT_HANDSHAKE_FAILURE") else None)


def _in_words(causes: list[BaseException]) -> str:
    """The innermost system error's own words."""
    told = [
        cause
        for cause in causes
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, ssl.SSLWantReadError)
    ]
    return f"({told[-1].strerror})" if told else ""


def refusal(status: int, body: str) -> Fault:
    """What a status other than 200 means. ``body`` is the beginning of the answer's text, fit to be shown.

    An EPP answers a wrong token with 500: its authenticator knows no other way to say no.
    """
    said = f"status {status}" + (f": {body!r}" if body else "")
    if status == httpx.codes.UNAUTHORIZED:
        return Fault(Reason.CREDENTIAL_MISSING, said)
    if status == httpx.codes.FORBIDDEN:
        return Fault(Reason.CREDENTIAL_DENIED, said)
    if status == httpx.codes.INTERNAL_SERVER_ERROR:
        if body.startswith("Authentication failed"):
            return Fault(Reason.CREDENTIAL_REJECTED, said)
        if body.startswith("Authorization for user"):
            return Fault(Reason.CREDENTIAL_UNCHECKED, said)
        if body.startswith("An error has occurred while serving metrics"):
            return Fault(Reason.GATHER_FAILED, said)
    return Fault(Reason.HTTP_STATUS, said)
