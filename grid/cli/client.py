"""Talks to a daemon's HTTP side: at ``--url``, else where the configuration listens, else at the default port."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from grid.model.errors import DaemonError
from grid.model.reasons import Reason

if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "http://127.0.0.1:7070"

UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="GRID_URL", help=f"The daemon's HTTP side. [default: {DEFAULT_URL}]")
]
TokenOption = Annotated[
    Path | None, typer.Option("--token-file", envvar="GRID_TOKEN_FILE", help="File with the debug token.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="The daemon's configuration: says where it listens.")
]


class _RefusedError(DaemonError):
    exit_code = 4


class _NotFoundError(DaemonError):
    exit_code = 1


class _UsageError(DaemonError):
    exit_code = 2


@dataclass(frozen=True, slots=True)
class Daemon:
    """Where a daemon listens, and the token for it. ``told_by``: what has said where, for hints."""

    url: str
    token_file: Path | None = None
    told_by: str = "--url"

    def get(self, path: str, **params: str) -> Any:
        """The JSON at ``path``."""
        return self._ask("GET", path, params=params).json()

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Send ``body``; the JSON that came back."""
        return self._ask("POST", path, json=dict(body)).json()

    def delete(self, path: str) -> None:
        """Remove what is at ``path``."""
        self._ask("DELETE", path)

    def raw(self, path: str) -> bytes:
        """The bytes at ``path``."""
        return self._ask("GET", path).content

    def events(self) -> Iterator[str]:
        """The data of server-sent events as they happen, one JSON object each."""
        import httpx

        try:
            with httpx.stream(
                "GET",
                f"{self.url}/v1/events",
                headers=self._headers(),
                timeout=httpx.Timeout(5, read=None),
                trust_env=False,
            ) as answer:
                self._judge(answer)
                for line in answer.iter_lines():
                    if line.startswith("data:"):
                        yield line[5:].strip()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _headers(self) -> dict[str, str]:
        if self.token_file is None:
            return {}
        try:
            token = self.token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise _UsageError(
                f"cannot read {self.token_file}: {error.strerror}", reason=Reason.CREDENTIAL_FILE
            ) from error
        return {"Authorization": f"Bearer {token}"}

    def _ask(self, method: str, path: str, **arguments: Any) -> "httpx.Response":
        import httpx

        try:
            answer = httpx.request(
                method, self.url + path, headers=self._headers(), timeout=5, trust_env=False, **arguments
            )
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        self._judge(answer)
        return answer

    def _unreachable(self, error: Exception) -> DaemonError:
        return DaemonError(
            f"no answer from {self.url}: {str(error) or type(error).__name__}",
            reason=Reason.DAEMON_UNREACHABLE,
            hint=f"check {self.told_by} and that grid run is up",
        )

    def _judge(self, answer: "httpx.Response") -> None:
        if answer.is_success:
            return
        if answer.is_redirect:
            raise _UsageError(f"{answer.url} leads elsewhere", reason=Reason.USAGE, hint=f"check {self.told_by}")
        answer.read()
        problem = _problem(answer)
        detail = str(problem.get("detail") or problem.get("title") or f"{self.url} answered {answer.status_code}")
        code, hint = str(problem.get("code", "")), problem.get("hint")
        reason = Reason.of(code) or Reason.HTTP_STATUS
        kind: type[DaemonError] = DaemonError
        if answer.status_code in (401, 403, 409):
            kind = _RefusedError
        elif answer.status_code == HTTPStatus.NOT_FOUND:
            kind = _NotFoundError
            # The daemon's hints name paths of its HTTP side; whoever typed a command is told commands.
            hint = "grid providers, grid gateways and grid overlay list say what there is"
        elif answer.status_code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
            kind = _UsageError
        if reason is Reason.UNAUTHORIZED and self.token_file is not None:
            hint = f"the token in {self.token_file} is not the one of daemon.token_file"
        raise kind(detail, reason=reason, hint=str(hint) if hint else None)


def _problem(answer: "httpx.Response") -> dict[str, object]:
    if "json" not in answer.headers.get("content-type", ""):
        return {}
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def find(url: str | None, token_file: Path | None, config: Path | None) -> Daemon:
    """The daemon that the options name."""
    told_by = "--url (or GRID_URL)" if url else "the address (the default one: -c or --url names another)"
    if config is not None:
        from grid.config import load

        settings = load(config).daemon
        host, port = settings.listen
        told_by = told_by if url else f"daemon.listen in {config}"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - asked on loopback, bound elsewhere
        url = url or f"http://[{host}]:{port}" if ":" in host else url or f"http://{host}:{port}"
        token_file = token_file or settings.token_file
    url = (url or DEFAULT_URL).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} is no http URL, like {DEFAULT_URL}", param_hint="--url")
    return Daemon(url, token_file, told_by)


def segment(name: str) -> str:
    """``name`` as one segment of a path."""
    return quote(name, safe="")
