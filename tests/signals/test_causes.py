"""Reason codes of failed exchanges, from the system errors beneath."""

import errno
import socket
import ssl

import pytest

from grid.model import Reason
from grid.signals.causes import chain, exchange_reason


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] the handshake failed")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), Reason.DNS_FAILED),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Reason.CONNECT_REFUSED),
        (TimeoutError("timed out"), Reason.TIMEOUT),
        (ConnectionResetError(errno.ECONNRESET, "reset"), Reason.DISCONNECTED),
        (BrokenPipeError(errno.EPIPE, "broken pipe"), Reason.DISCONNECTED),
        (OSError(errno.EHOSTUNREACH, "no route"), Reason.CONNECT_FAILED),
        (tls("CERTIFICATE_VERIFY_FAILED"), Reason.TLS_FAILED),
        (tls("WRONG_VERSION_NUMBER"), Reason.TLS_FAILED),
        (tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"), Reason.TLS_CLIENT_REFUSED),
        (tls("SSLV3_ALERT_BAD_CERTIFICATE"), Reason.TLS_CLIENT_REFUSED),
        (tls("TLSV1_ALERT_UNKNOWN_CA"), Reason.TLS_CLIENT_REFUSED),
        (ValueError("nothing of the system"), Reason.CONNECT_FAILED),
    ],
)
def test_reason_of_the_cause(cause: Exception, reason: Reason) -> None:
    assert exchange_reason(cause) is reason
    outer = RuntimeError("the library's own words")
    outer.__cause__ = cause
    assert exchange_reason(outer) is reason
    assert exchange_reason(ExceptionGroup("several attempts", [outer])) is reason


def test_the_default_is_for_what_has_no_system_error() -> None:
    assert exchange_reason(ValueError(), default=Reason.DISCONNECTED) is Reason.DISCONNECTED
    assert exchange_reason(OSError("a library's"), default=Reason.DISCONNECTED) is Reason.DISCONNECTED
    assert exchange_reason(OSError(errno.ENETDOWN, "down"), default=Reason.DISCONNECTED) is Reason.CONNECT_FAILED


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__context__, two.__context__ = two, one
    assert list(chain(one)) == [one, two]
