"""What an operator may do: drain, take a drain back, reload. Each is a POST or DELETE and leaves an event."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from grid.debug import render
from grid.debug.render import reply
from grid.debug.view import DaemonView


class DrainRequest(BaseModel):
    """Body of ``POST /v1/drains``. ``for_s`` omitted: until it is taken back."""

    model_config = ConfigDict(extra="forbid", strict=True)

    target: str = Field(
        min_length=1, max_length=256, description="A provider's id, or a site for all of its providers."
    )
    for_s: float | None = Field(default=None, gt=0, le=366 * 24 * 3600, allow_inf_nan=False)
    reason: str = Field(default="", max_length=256)


def router(view: DaemonView) -> APIRouter:
    """The endpoints of this family."""
    routes = APIRouter(prefix="/v1")

    @routes.post("/drains")
    async def drain(asked: DrainRequest) -> Response:
        made = await view.drain(asked.target, for_s=asked.for_s, reason=asked.reason)
        status = HTTPStatus.CREATED if made.extended else HTTPStatus.OK
        return reply(render.drain(made), status)

    @routes.delete("/drains/{drain_id}")
    async def undrain(drain_id: Annotated[str, Path(max_length=256)]) -> Response:
        await view.undrain(drain_id)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    @routes.post("/reload")
    async def reload() -> Response:
        done = await view.reload()
        return reply({"generation": done.generation, "changes": list(done.changes)})

    return routes
