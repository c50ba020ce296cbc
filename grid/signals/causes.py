"""Which reason code a failed exchange has, read from the system errors beneath what an HTTP library raised."""

import socket
import ssl
from collections.abc import Iterator

from grid.model import Reason

_CLIENT_REFUSED = ("CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_UNKNOWN_CA", "ALERT_CERTIFICATE")


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and everything that led to it, groups of errors included, outermost first."""
    pending, seen = [error], set[int]()
    while pending:
        current = pending.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            pending.extend(current.exceptions)
        pending.extend(cause for cause in (current.__cause__, current.__context__) if cause is not None)


def exchange_reason(error: BaseException, *, default: Reason = Reason.CONNECT_FAILED) -> Reason:
    """Return the reason of a failed exchange; ``default`` where no system error lies beneath."""
    for cause in chain(error):
        if isinstance(cause, socket.gaierror):
            return Reason.DNS_FAILED
        if isinstance(cause, ssl.SSLError):
            # What the peer says about a certificate is about ours; what we find wrong with its own has other names.
            refused = any(name in (cause.reason or "") for name in _CLIENT_REFUSED)
            return Reason.TLS_CLIENT_REFUSED if refused else Reason.TLS_FAILED
        if isinstance(cause, ConnectionRefusedError):
            return Reason.CONNECT_REFUSED
        if isinstance(cause, TimeoutError):
            return Reason.TIMEOUT
        if isinstance(cause, ConnectionError):  # reset, aborted, broken pipe
            return Reason.DISCONNECTED
        if isinstance(cause, OSError) and cause.errno is not None:  # no route, network down, ...
            return Reason.CONNECT_FAILED
    return default
