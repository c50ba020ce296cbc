"""``grid check``: the configuration, and with ``--live`` every source, the bus and the token files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from grid.cli.output import Listing, Output, OutputOption, emit, table
from grid.model.errors import ConfigError

if TYPE_CHECKING:
    from grid.config import Config


class Check(TypedDict):
    """One line of the report."""

    name: str
    ok: bool
    detail: str
    hint: str


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("check", short_help="Check a configuration, and with --live all it names.")(check)


def check(
    file: Annotated[Path, typer.Argument(help="The configuration file.")] = Path("/etc/grid/grid.yaml"),
    live: Annotated[bool, typer.Option("--live", help="Also ask every source, the bus and the token files.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a configuration: every problem at once, with its line and the nearest right thing.

    Exits 2 on a configuration that cannot be used, 1 when --live finds something that does not work.

    Examples:

      grid check grid.yaml

      grid check grid.yaml --live -o json
    """
    from grid.config import load

    try:
        config = load(file)
    except ConfigError as error:
        if output is Output.TABLE:
            raise
        checks = [
            _failed(f"config: {one.path or file}", _where(one.line, one.detail), one.hint) for one in error.problems
        ]
        emit({"checks": checks or [_failed(f"config: {file}", error.message, error.hint)]}, output, list)
        raise typer.Exit(error.exit_code) from error
    checks = [_described(file, config), *_advice(config)]
    if live:
        import asyncio

        from grid.daemon.preflight import preflight

        for result in asyncio.run(preflight(config)):
            checks.append(Check(name=result.name, ok=result.ok, detail=result.detail, hint=result.hint))
    emit({"checks": checks}, output, lambda: [_report(checks)])
    if not all(one["ok"] for one in checks):
        raise typer.Exit(1)


def _described(file: Path, config: "Config") -> Check:
    detail = (
        f"network {config.network}: {_several(len(config.sites), 'site')}, "
        f"{_several(len(config.providers), 'provider')}, {_several(len(config.gateways), 'gateway')}"
    )
    return Check(name=f"config: {file}", ok=True, detail=detail, hint="")


def _several(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _advice(config: "Config") -> list[Check]:
    from grid.config import warnings

    return [Check(name=f"config: {one.path}", ok=True, detail=one.detail, hint=one.hint) for one in warnings(config)]


def _failed(name: str, detail: str, hint: str) -> Check:
    return Check(name=name, ok=False, detail=detail, hint=hint)


def _where(line: int | None, detail: str) -> str:
    return detail if line is None else f"line {line}: {detail}"


def _report(checks: list[Check]) -> Listing:
    rows = [("ok" if one["ok"] else "FAILED", one["name"], one["detail"], one["hint"]) for one in checks]
    return table(None, ("", "check", "found", "next step"), rows)
