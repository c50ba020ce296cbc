"""Every error as an RFC 9457 problem document.

``type`` is a URN of the reason code, ``title`` what the code means, ``detail`` what happened here, ``hint`` the next
step. A configuration's faults are listed under ``problems``.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from grid.model import ConfigError, GridError, Reason

MEDIA_TYPE = "application/problem+json"

_BY_STATUS = {
    400: Reason.BAD_REQUEST,
    401: Reason.UNAUTHORIZED,
    403: Reason.FOREIGN_REQUEST,
    404: Reason.NOT_FOUND,
    405: Reason.METHOD_NOT_ALLOWED,
    413: Reason.TOO_LARGE,
    415: Reason.BAD_REQUEST,
    422: Reason.BAD_REQUEST,
}


def problem(
    status: int,
    code: Reason,
    detail: str,
    *,
    hint: str | None = None,
    headers: Mapping[str, str] | None = None,
    faults: Sequence[Mapping[str, object]] = (),
) -> Response:
    """A problem document as a response."""
    body: dict[str, object] = {
        "type": f"urn:grid:reason:{code.value}",
        "title": code.meaning,
        "status": status,
        "detail": detail,
        "code": code.value,
        "hint": code.hint if hint is None else hint,
    }
    if faults:
        body["problems"] = list(faults)
    return Response(
        orjson.dumps(body),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def of_error(error: GridError) -> Response:
    """The problem document of an error of the family."""
    faults: list[Mapping[str, object]] = []
    if isinstance(error, ConfigError):
        faults = [
            {"code": one.reason.value, "path": one.path, "line": one.line, "detail": one.detail, "hint": one.hint}
            for one in error.problems
        ]
    return problem(error.status, error.reason, error.message, hint=error.hint, faults=faults)


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` with a problem document."""

    @app.exception_handler(GridError)
    async def _family(_: Request, error: GridError) -> Response:
        return of_error(error)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        code = _BY_STATUS.get(error.status_code, Reason.INTERNAL)
        detail, hint = str(error.detail), None
        if error.status_code == HTTPStatus.NOT_FOUND and detail == HTTPStatus.NOT_FOUND.phrase:
            detail, hint = f"there is nothing at {request.url.path}", "/ lists what there is"
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            detail = f"{request.method} is not for {request.url.path}"
        return problem(error.status_code, code, detail, hint=hint, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        faults: list[Mapping[str, object]] = [
            {"path": ".".join(str(part) for part in fault["loc"][1:]) or "body", "detail": str(fault["msg"])}
            for fault in error.errors()
        ]
        detail = "; ".join(f"{fault['path']}: {fault['detail']}" for fault in faults)
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, Reason.BAD_REQUEST, detail, faults=faults)
