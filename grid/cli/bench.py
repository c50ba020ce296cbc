"""``grid bench``: figures, each beside a peer or a calibration loop of the same run."""

import importlib
import inspect
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from grid.cli import extras
from grid.cli.output import Output, OutputOption, emit, table


class Bench(StrEnum):
    """What can be measured."""

    PARSE = "parse"
    RENDER = "render"
    PROPAGATE = "propagate"
    SCRAPE = "scrape"
    ADMISSION = "admission"
    GATEWAY = "gateway"
    PICK = "pick"
    SITES = "sites"


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("bench", short_help="Measure on this machine.")(bench)


def bench(
    what: Annotated[Bench, typer.Argument(help="What to measure.")],
    page: Annotated[Path | None, typer.Option(help="parse: a metrics page of your own (.gz too).")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure on this machine. A ratio compares with the peer named in its row, measured in the same run.

    Examples:

      grid bench parse

      grid bench propagate -o json
    """
    with extras.told():
        room = importlib.import_module(f"grid.sim.bench.{what.value}")
    given: dict[str, Any] = {"page": page} if page is not None else {}
    if given and "page" not in inspect.signature(room.run).parameters:
        raise typer.BadParameter(f"bench {what.value} reads no page", param_hint="--page")
    rows: list[dict[str, Any]] = room.run(**given)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    emit({"rows": rows}, output, lambda: [table(None, columns, [[row.get(c) for c in columns] for row in rows])])
