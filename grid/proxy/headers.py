"""Which headers pass from client to provider and back, and what is added on the way."""

from collections.abc import Iterable
from typing import Final

from grid.proxy.asgi import Headers

ROUTING_PREFIXES: Final = (b"x-grid-", b"x-ai-routing-", b"x-gateway-destination-endpoint", b"x-praxis-")
"""Of what clients send, these would steer routing behind the gateway, so they go no further."""

_HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"expect",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""They speak of one connection (RFC 9110, section 7.6.1)."""

_REQUEST_OWN: Final = _HOP_BY_HOP | {b"host", b"content-length"}
_MAX_SESSION: Final = 256


def to_provider(headers: Iterable[tuple[bytes, bytes]], *, own_credential: bool) -> list[tuple[str, str]]:
    """What of a client's headers (names in lower case) the provider gets; Host and the length are set anew.

    ``own_credential``: the gateway brings one, so the client's stays here. Raises ValueError where a value is no text.
    """
    pairs = list(headers)
    dropped = _named(pairs)
    kept = []
    for name, value in pairs:
        if name in _REQUEST_OWN or name in dropped or name.startswith(ROUTING_PREFIXES):
            continue
        if own_credential and name == b"authorization":
            continue
        kept.append((name.decode("ascii"), value.decode()))
    return kept


def to_client(headers: Iterable[tuple[bytes, bytes]], added: Headers) -> Headers:
    """What of a provider's headers the client gets, and ``added``."""
    pairs = [(name.lower(), value) for name, value in headers]
    dropped = _named(pairs)
    kept = [
        (name, value)
        for name, value in pairs
        if name not in _HOP_BY_HOP and name not in dropped and not name.startswith(b"x-grid-")
    ]
    kept += added
    return kept


def first(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes | None:
    """The first header of that (lower-case) name."""
    return next((value for name, value in headers if name == wanted), None)


def session_of(headers: Iterable[tuple[bytes, bytes]], header: bytes | None, cookie: bytes | None) -> str | None:
    """The session's key, of ``header``, else of ``cookie``: 1 to 256 visible bytes, None where there is none such."""
    if header is not None:
        found = first(headers, header)
        if found is not None and (key := _key(found)) is not None:
            return key
    if cookie is not None:
        for pair in (first(headers, b"cookie") or b"").split(b";"):
            name, _, value = pair.strip().partition(b"=")
            if name == cookie and (key := _key(value)) is not None:
                return key
    return None


def _key(value: bytes) -> str | None:
    key = value.strip()
    if not 1 <= len(key) <= _MAX_SESSION or not all(0x20 <= byte != 0x7F for byte in key):
        return None
    return key.decode("latin-1")


def _named(pairs: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Headers that a Connection header declares to be of this connection alone."""
    return frozenset(
        token.strip().lower() for name, value in pairs if name == b"connection" for token in value.split(b",")
    )
