"""What an operator may do: drain, take a drain back, reload. Each is a POST or DELETE and leaves an event."""

import unicodedata
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from grid.debug import render
from grid.debug.render import reply
from grid.debug.view import DaemonView

MAX_DRAIN = 366 * 24 * 3600
"""S; what should last longer is to be drained without an end."""

_BREAKING = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _plain(text: str) -> str:
    """Refuse what would break the lines of logs and terminals that the text is shown in, or turn them around."""
    for place, char in enumerate(text, start=1):
        if unicodedata.category(char) in _BREAKING or char in _TURNING:
            raise PydanticCustomError(
                "control_character",
                "has a control character (U+{code}) at place {place}; write it as one line of plain text",
                {"code": f"{ord(char):04X}", "place": place},
            )
    return text


def _length(seconds: float) -> float:
    if not 0 < seconds <= MAX_DRAIN:
        raise PydanticCustomError(
            "drain_length",
            "must be above 0 s and at most {most} s ({days} days), not {given}; without it the drain has no end",
            {"most": MAX_DRAIN, "days": MAX_DRAIN // 86_400, "given": repr(seconds)},
        )
    return seconds


_Text = Annotated[str, AfterValidator(_plain)]


class DrainRequest(BaseModel):
    """Body of ``POST /v1/drains``. ``for_s`` omitted: until it is taken back."""

    model_config = ConfigDict(extra="forbid", strict=True)

    target: _Text = Field(
        min_length=1, max_length=256, description="A provider's id, or a site for all of its providers."
    )
    for_s: Annotated[float, AfterValidator(_length)] | None = None
    reason: _Text = Field(default="", max_length=256)


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
