"""Who may ask: the token rule, and the two tricks by which a web page reaches a port on the reader's own machine.

A pure ASGI layer around the application, so that nothing inside can be reached past it, unknown paths included:

- with a token file, everything but ``/livez`` and ``/readyz`` wants its bearer token. The file is read again for every
  request that has to be judged, in a thread: rotated tokens count at once, and a file that vanished lets nobody in;
- a name that an attacker's DNS points to 127.0.0.1 (rebinding) shows in ``Host``: on loopback only names of this
  machine pass;
- a page of another origin may send simple POSTs without reading the answer: whatever changes something must not carry a
  foreign ``Origin``;
- a fault inside becomes a 500 problem document and one log line, never a broken connection.
"""

import asyncio
import hmac
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grid.debug.problems import problem
from grid.debug.view import DaemonView
from grid.model import Reason

MAX_BODY = 64 * 1024
"""Bytes that a request may carry; drains are a few hundred."""

_OPEN = frozenset({"/livez", "/readyz"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})

_log = structlog.get_logger("grid.debug")


class Guard:
    """The layer around the application."""

    def __init__(self, app: ASGIApp, view: DaemonView) -> None:
        self._app = app
        self._view = view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = await self._judge(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        # HEAD is GET whose body the server leaves out.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await self._app(inner, receive, watched)
        except Exception:  # noqa: BLE001 - whatever it was, the client gets an answer and the log gets the fault
            _log.exception("request failed", path=scope["path"])
            if not started:
                fault = problem(
                    HTTPStatus.INTERNAL_SERVER_ERROR, Reason.INTERNAL, "the answer could not be made; the log has it"
                )
                await fault(scope, receive, send)

    async def _judge(self, scope: Scope) -> Response | None:
        headers, access = Headers(scope=scope), self._view.access
        if access.loopback and not _is_here(headers.get("host")):
            return problem(
                HTTPStatus.FORBIDDEN,
                Reason.FOREIGN_REQUEST,
                f"the host {headers.get('host')!r} is not a name of this machine",
                hint="ask for 127.0.0.1 or localhost",
            )
        if scope["method"] not in _READS:
            refusal = _judge_change(headers)
            if refusal is not None:
                return refusal
        if access.token_file is None or scope["path"] in _OPEN:
            return None
        return await _judge_token(access.token_file, headers.get("authorization"))


def _judge_change(headers: Headers) -> Response | None:
    origin, host = headers.get("origin"), headers.get("host")
    if origin is not None and urlsplit(origin).netloc != host:
        return problem(
            HTTPStatus.FORBIDDEN,
            Reason.FOREIGN_REQUEST,
            f"a page of {origin!r} may not change anything here",
            hint="use the grid command, or curl",
        )
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isdecimal() or int(length) > MAX_BODY:
        return problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            Reason.TOO_LARGE,
            f"a request may carry {MAX_BODY} bytes, with their number in Content-Length",
            hint="send less",
        )
    return None


async def _judge_token(path: Path, authorization: str | None) -> Response | None:
    try:
        expected = (await asyncio.to_thread(path.read_bytes)).strip()
    except OSError as error:
        expected, fault = b"", error.strerror or type(error).__name__
    else:
        fault = "it is empty"
    if not expected:
        return problem(
            HTTPStatus.SERVICE_UNAVAILABLE, Reason.CREDENTIAL_FILE, f"daemon.token_file {path} is of no use: {fault}"
        )
    scheme, _, given = (authorization or "").partition(" ")
    if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1", "replace"), expected):
        return None
    detail = "no bearer token was sent" if authorization is None else "the token is not the right one"
    return problem(
        HTTPStatus.UNAUTHORIZED,
        Reason.UNAUTHORIZED,
        detail,
        headers={"WWW-Authenticate": 'Bearer realm="grid"'},
    )


def _is_here(host: str | None) -> bool:
    """Whether ``host`` names this machine. A client without a Host header is no browser, so it passes."""
    if host is None:
        return True
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
