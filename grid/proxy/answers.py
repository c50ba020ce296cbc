"""The gateway's own answers, as clients of OpenAI's API expect them."""

from typing import Any, Final

import orjson

from grid.model import GridError, Reason, RoutingError
from grid.proxy.asgi import Headers, Send

GONE: Final = 499
"""Status under which a request is counted whose client left before it was answered."""

_JSON: Final = (b"content-type", b"application/json")


def refusal(reason: Reason, status: int, message: str, *, retry_after: int | None = None) -> RoutingError:
    """An error of the gateway's own; ``message`` is what the client reads."""
    return RoutingError(message, reason=reason, status=status, retry_after=retry_after)


def error_body(error: GridError) -> bytes:
    """The error object; its message names no address and no credential."""
    return orjson.dumps(
        {"error": {"message": error.message, "type": _type(error.status), "param": None, "code": error.reason}}
    )


def error_headers(error: GridError, body: bytes) -> Headers:
    """Headers of an answer with ``body``; with Retry-After where waiting helps."""
    headers = [_JSON, (b"content-length", b"%d" % len(body))]
    seconds = getattr(error, "retry_after", None)
    if seconds is not None:
        headers.append((b"retry-after", b"%d" % seconds))
    return headers


async def send_error(send: Send, error: GridError, added: Headers | None = None) -> None:
    """Answer with ``error``."""
    body = error_body(error)
    await _send(send, error.status, error_headers(error, body) + (added or []), body)


async def send_json(send: Send, status: int, content: Any, added: Headers | None = None) -> None:
    """Answer with ``content``."""
    body = orjson.dumps(content)
    await _send(send, status, [_JSON, (b"content-length", b"%d" % len(body)), *(added or [])], body)


async def send_bytes(send: Send, status: int, body: bytes, content_type: bytes) -> None:
    """Answer with ``body`` as it is."""
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    await _send(send, status, headers, body)


async def _send(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_exceeded"
    return "server_error" if status >= 500 else "invalid_request_error"
