"""Listening sockets of the HTTP sides: the daemon's and the reference gateway's, which may not know each other."""

import socket

from grid.model import DaemonError, Reason


def listen(host: str, port: int, *, backlog: int, hint: str | None = None) -> socket.socket:
    """A listening socket there, not blocking. Blocks itself where the name has to be looked up.

    Raises DaemonError (listen_failed) with ``hint``, or the reason's own where none is given.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _refused(host, port, error, hint) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(backlog)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _refused(host, port, error, hint) from error
    return bound


def _refused(host: str, port: int, error: OSError, hint: str | None) -> DaemonError:
    return DaemonError(
        f"cannot listen on {host} port {port}: {error.strerror or error}", reason=Reason.LISTEN_FAILED, hint=hint
    )
