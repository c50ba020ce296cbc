"""Why a request cannot be placed, as errors that know their HTTP status and, in seconds, when to come back."""

from typing import Final

from grid.model import Kind, Reason, RoutingError

MAX_NAME_BYTES: Final = 256
_WHAT: Final = {Kind.INFERENCE_MODEL: "model", Kind.MCP_TOOL: "tool"}


def unknown(kind: Kind, name: object) -> RoutingError:
    """For a name that no document has: 404, or 400 where it can be the name of nothing."""
    fault = _fault(name)
    if fault is not None:
        return RoutingError(f"{_WHAT[kind]} {fault}", reason=Reason.BAD_MODEL, status=400)
    return RoutingError(f"no candidate serves {_WHAT[kind]} {name!r}", reason=Reason.MODEL_NOT_FOUND, status=404)


def held_back(kind: Kind, name: str, seconds: int) -> RoutingError:
    """For a capability whose providers take only sessions that they already have: 429."""
    return RoutingError(
        f"every provider of {_WHAT[kind]} {name!r} is held back and takes no new work",
        reason=Reason.CAPACITY_EXHAUSTED,
        status=429,
        retry_after=seconds,
    )


def shed(kind: Kind, name: str, seconds: int) -> RoutingError:
    """For a capability whose every site is past full: 429."""
    return RoutingError(
        f"every site of {_WHAT[kind]} {name!r} is past full",
        reason=Reason.CAPACITY_EXHAUSTED,
        status=429,
        retry_after=seconds,
    )


def no_healthy_site(kind: Kind, name: str, seconds: int) -> RoutingError:
    """For a capability none of whose providers may take anything: 503."""
    return RoutingError(
        f"no provider of {_WHAT[kind]} {name!r} may take work",
        reason=Reason.NO_HEALTHY_SITE,
        status=503,
        retry_after=seconds,
    )


def no_document(gateway: str, kind: Kind, name: object, seconds: int) -> RoutingError:
    """Before the first document: 503, but 400 for what can be the name of nothing."""
    if _fault(name) is not None:
        return unknown(kind, name)
    return RoutingError(
        f"gateway {gateway} holds no document yet", reason=Reason.NO_OVERLAY, status=503, retry_after=seconds
    )


def _fault(name: object) -> str | None:
    if not isinstance(name, str):
        return f"is no text but {type(name).__name__}"
    if not name.strip():
        return "is blank"
    size = len(name.encode("utf-8", "surrogatepass"))
    return f"has {size} bytes, more than {MAX_NAME_BYTES}" if size > MAX_NAME_BYTES else None
