"""Health for machines (the status code) and people (``?verbose``), and the daemon's metrics.

``/livez`` asks whether the daemon's own loop beats, not whether HTTP answers. ``/readyz`` is the sum of its required
checks; ``?exclude=NAME`` leaves one out.
"""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import PlainTextResponse, Response

from grid import PROTOCOL_VERSION, SCHEMA_VERSION, __version__
from grid.debug.render import reply
from grid.debug.view import Check, DaemonView

_NO_STORE = {"Cache-Control": "no-store"}


def _line(check: Check) -> str:
    mark, word = ("+", "ok") if check.ok else ("-", "failed") if check.required else ("!", "warning")
    return f"[{mark}]{check.name} {word}" + (f": {check.detail}" if check.detail else "")


def _report(checks: list[Check], *, verbose: bool, what: str) -> Response:
    passed = all(check.ok for check in checks if check.required)
    if verbose:
        lines = [_line(check) for check in checks] + [f"{what} check {'passed' if passed else 'failed'}"]
    else:
        lines = ["ok"] if passed else [_line(check) for check in checks if not check.ok and check.required]
    status = HTTPStatus.OK if passed else HTTPStatus.SERVICE_UNAVAILABLE
    return PlainTextResponse("\n".join(lines) + "\n", status_code=status, headers=_NO_STORE)


def router(view: DaemonView) -> APIRouter:
    """The endpoints of this family."""
    routes = APIRouter()

    @routes.get("/livez")
    async def livez(verbose: Annotated[str | None, Query()] = None) -> Response:
        return _report([view.alive()], verbose=verbose is not None, what="livez")

    @routes.get("/readyz")
    async def readyz(
        verbose: Annotated[str | None, Query()] = None,
        exclude: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        checks = [check for check in view.checks() if check.name not in exclude]
        return _report(checks, verbose=verbose is not None, what="readyz")

    @routes.get("/metrics")
    async def metrics() -> Response:
        return Response(await view.metrics(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, **_NO_STORE})

    @routes.get("/version")
    async def version() -> Response:
        return reply({"version": __version__, "schema": SCHEMA_VERSION, "protocol": PROTOCOL_VERSION})

    return routes
