"""What the daemon knows now: providers and why, gateways, leader, drains, configuration, history."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from grid.debug import render
from grid.debug.render import reply
from grid.debug.view import DaemonView, ProviderView
from grid.model import DaemonError, Reason

Name = Annotated[str, Path(max_length=256)]


class _MissingError(DaemonError):
    exit_code = 1
    status = 404


def missing(what: str, name: str, hint: str) -> DaemonError:
    """The error for a name that stands for nothing here."""
    return missing_text(f"there is no {what} {name!r}", hint)


def missing_text(message: str, hint: str) -> DaemonError:
    """The same with a sentence of its own."""
    return _MissingError(message, reason=Reason.NOT_FOUND, hint=hint)


def router(view: DaemonView) -> APIRouter:
    """The endpoints of this family."""
    routes = APIRouter(prefix="/v1")

    def known_provider(name: str) -> ProviderView:
        found = view.provider(name)
        if found is None:
            raise missing("provider", name, "/v1/providers lists them")
        return found

    @routes.get("/providers")
    async def providers() -> Response:
        return reply({"providers": [render.provider(one) for one in view.providers()]})

    @routes.get("/providers/{name}")
    async def provider(name: Name) -> Response:
        return reply(render.provider_detail(known_provider(name)))

    @routes.get("/providers/{name}/explain")
    async def explain(name: Name) -> Response:
        return reply(render.explanation(known_provider(name), view.plans()))

    @routes.get("/gateways")
    async def gateways() -> Response:
        return reply({"gateways": [render.gateway(one) for one in view.gateways()]})

    @routes.get("/leader")
    async def leader() -> Response:
        return reply(render.leader(view.leader()))

    @routes.get("/config")
    async def config() -> Response:
        return reply(dict(view.config()))

    @routes.get("/drains")
    async def drains() -> Response:
        return reply({"drains": [render.drain(one) for one in view.drains()]})

    @routes.get("/history")
    async def history(
        limit: Annotated[int, Query(ge=1, le=1000)] = 1000, kind: Annotated[str | None, Query()] = None
    ) -> Response:
        events = [one for one in view.history() if kind is None or one.kind == kind]
        return reply(
            {
                "events": [render.event(one) for one in events[-limit:]],
                "cycles": [render.event(one) for one in view.cycles()],
            }
        )

    return routes
