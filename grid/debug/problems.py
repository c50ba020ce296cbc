"""Every error as an RFC 9457 problem document.

``type`` is a URN of the reason code, ``title`` what the code means, ``detail`` what happened here, ``hint`` the next
step. A configuration's faults are listed under ``problems``.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

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


_SHOWN = 60
_SAID = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "json_invalid": "is no JSON: {error}",
    "string_too_short": "is empty",
    "string_too_long": "is longer than {max_length} characters",
    "greater_than_equal": "must be at least {ge}, not {given}",
    "less_than_equal": "must be at most {le}, not {given}",
}
_WANTED = {
    "string": "text",
    "float": "a number",
    "int": "a whole number",
    "model": "a JSON object",
    "dict": "a JSON object",
}
"""What is asked for, by the beginning of the kind of fault."""


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
    hint = error.hint or error.reason.hint or next((str(one["hint"]) for one in faults if one["hint"]), "")
    return problem(error.status, error.reason, error.message, hint=hint, faults=faults)


def _path(fault: Mapping[str, Any]) -> str:
    """Which value it is: the name of a parameter or of a member of the body."""
    if fault["type"] == "json_invalid":
        return "body"  # the place in it stands among the words
    return ".".join(str(part) for part in fault["loc"][1:]) or "body"


def _said(fault: Mapping[str, Any]) -> str:
    """What is wrong with one value of a request, in the words of whoever sent it."""
    kind, context, value = str(fault["type"]), fault.get("ctx", {}), fault.get("input")
    if kind in _SAID:
        return _SAID[kind].format(**context, given=_shown(value))
    if kind.endswith(("_type", "_parsing")):
        wanted = next((words for start, words in _WANTED.items() if kind.startswith(start)), "another kind of value")
        return f"wants {wanted}, not {_shown(value)}"
    return str(fault["msg"])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


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
            {"path": _path(fault), "detail": _said(fault)} for fault in error.errors()
        ]
        detail = "; ".join(f"{fault['path']}: {fault['detail']}" for fault in faults)
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, Reason.BAD_REQUEST, detail, faults=faults)
