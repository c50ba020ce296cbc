"""The published documents: as they are now, as they were, and when each came to be."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import Response

from grid.debug import render
from grid.debug.render import reply
from grid.debug.state import Name, missing, missing_text
from grid.debug.view import DaemonView, DocumentView, Which
from grid.model import DaemonError, Reason

_HISTORY = 1000
_STRETCHES = 5


class _UnclearError(DaemonError):
    exit_code = 2
    status = 422


def router(view: DaemonView) -> APIRouter:
    """The endpoints of this family."""
    routes = APIRouter(prefix="/v1")

    def known_gateway(name: str) -> None:
        if all(one.name != name for one in view.gateways()):
            raise missing("gateway", name, "/v1/gateways lists them")

    @routes.get("/overlays")
    async def overlays() -> Response:
        return reply({"overlays": [render.overlay(one) for one in view.gateways()]})

    @routes.get("/overlays/{gateway}")
    async def document(gateway: Name, if_none_match: Annotated[str | None, Header()] = None) -> Response:
        known_gateway(gateway)
        found = await view.document(gateway)
        if found is None:
            raise missing("document for gateway", gateway, "nothing was published yet; /readyz?verbose says why")
        return _document(found, if_none_match)

    @routes.get("/overlays/{gateway}/history")
    async def past_documents(gateway: Name, limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> Response:
        known_gateway(gateway)
        found = await view.past_documents(gateway, limit)
        return reply({"gateway": gateway, "documents": [render.past_document(one) for one in found]})

    @routes.get("/overlays/{gateway}/")
    async def no_document(gateway: Name) -> Response:
        known_gateway(gateway)
        raise _unclear("", gateway)

    @routes.get("/overlays/{gateway}/{which}")
    async def past_document(
        gateway: Name, which: Annotated[str, Path()], if_none_match: Annotated[str | None, Header()] = None
    ) -> Response:
        known_gateway(gateway)
        asked = Which.of(which)
        if asked is None:
            raise _unclear(which, gateway)
        found = await view.past_document(gateway, asked)
        if found is None:
            kept = await view.past_documents(gateway, _HISTORY)
            what = f"version {which}" if asked.version is not None else f"revision {which}"
            raise missing_text(
                f"there is no {what} of {gateway}; kept: {_ranges(one.version for one in kept)}",
                f"bus.history bounds what is kept; /v1/overlays/{gateway}/history lists it",
            )
        return _document(found, if_none_match)

    return routes


def _unclear(which: str, gateway: str) -> DaemonError:
    said = f"{which[:80]!r} names no document" if which else "the path names no document behind the gateway"
    return _UnclearError(
        f"{said}: a version is a number of up to 7 digits, a revision is named by 4 to 64 of its hex digits",
        reason=Reason.BAD_REQUEST,
        hint=f"/v1/overlays/{gateway} gives the newest, /v1/overlays/{gateway}/history lists what is kept",
    )


def _ranges(numbers: Iterable[int]) -> str:
    """``1-4, 7``; the last five stretches where there are more."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    said = [str(first) if first == last else f"{first}-{last}" for first, last in found]
    return ", ".join((["..."] if len(said) > _STRETCHES else []) + said[-_STRETCHES:]) or "none"


def _document(found: DocumentView, if_none_match: str | None) -> Response:
    headers = render.document_headers(found)
    if if_none_match is not None and _matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(found.data, media_type="application/json", headers=headers)


def _matches(header: str, etag: str) -> bool:
    """Weak comparison of If-None-Match (RFC 9110, 13.1.2)."""
    given = [one.strip().removeprefix("W/") for one in header.split(",")]
    return "*" in given or etag in given
