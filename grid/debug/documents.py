"""The published documents: as they are now, as they were, and when each came to be."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import Response

from grid.debug import render
from grid.debug.render import reply
from grid.debug.state import Name, missing
from grid.debug.view import DaemonView, DocumentView


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

    @routes.get("/overlays/{gateway}/{revision}")
    async def past_document(
        gateway: Name,
        revision: Annotated[str, Path(pattern=r"^[0-9a-f]{4,64}$")],
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        known_gateway(gateway)
        found = await view.past_document(gateway, revision)
        if found is None:
            raise missing("revision", revision, f"bus.history bounds what is kept; grid overlay history {gateway}")
        return _document(found, if_none_match)

    return routes


def _document(found: DocumentView, if_none_match: str | None) -> Response:
    headers = render.document_headers(found)
    if if_none_match is not None and _matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(found.data, media_type="application/json", headers=headers)


def _matches(header: str, etag: str) -> bool:
    """Weak comparison of If-None-Match (RFC 9110, 13.1.2)."""
    given = [one.strip().removeprefix("W/") for one in header.split(",")]
    return "*" in given or etag in given
