"""``grid bench``: figures, each beside a peer or a calibration loop of the same run."""

import importlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from grid.cli import extras
from grid.cli.output import Listing, Output, OutputOption, emit, table

app = typer.Typer(
    help="Measure on this machine. A ratio compares with the peer named in its row, measured in the same run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Bench(StrEnum):
    """What can be measured."""

    PARSE = "parse"
    RENDER = "render"
    POLICY = "policy"
    PROPAGATE = "propagate"
    SCRAPE = "scrape"
    ADMISSION = "admission"
    GATEWAY = "gateway"
    PICK = "pick"
    SITES = "sites"


_SHORT = {
    Bench.PARSE: "Reading a page.",
    Bench.RENDER: "Building, publishing and judging a document.",
    Bench.POLICY: "A pass over all providers and gateways.",
    Bench.PROPAGATE: "From publishing to the last gateway.",
    Bench.SCRAPE: "Scraping one provider, and many.",
    Bench.ADMISSION: "What admission control adds to a request.",
    Bench.GATEWAY: "What the reference gateway adds to a request.",
    Bench.PICK: "Choosing a site.",
    Bench.SITES: "How sites are shared, over loopback.",
}
_WITH_PAGE = (Bench.PARSE, Bench.SCRAPE)

PageOption = Annotated[Path | None, typer.Option(help="A metrics page of your own (.gz too).")]


def register(parent: typer.Typer) -> None:
    """Add the commands of this family."""
    for what in Bench:
        app.command(what.value, short_help=_SHORT[what])(_command(what))
    parent.add_typer(app, name="bench", short_help="Measure on this machine.")


def _command(what: Bench) -> Any:
    def run(output: OutputOption = Output.TABLE) -> None:
        _measure(what, output)

    def run_with_page(page: PageOption = None, output: OutputOption = Output.TABLE) -> None:
        _measure(what, output, **({"page": page} if page is not None else {}))

    command = run_with_page if what in _WITH_PAGE else run
    command.__doc__ = f"{_SHORT[what]}\n\nExample:\n\n  grid bench {what} -o json"
    return command


def _measure(what: Bench, output: Output, **given: Any) -> None:
    with extras.told():
        room = importlib.import_module(f"grid.sim.bench.{what.value}")
    rows: list[dict[str, Any]] = room.run(**given)
    emit({"rows": rows}, output, lambda: _tables(rows))


def _tables(rows: list[dict[str, Any]]) -> Iterator[Listing]:
    """Costs, and how they grow: those rows have other columns."""
    for kind in (False, True):
        some = [row for row in rows if ("exponent" in row) is kind]
        columns = list(dict.fromkeys(key for row in some for key in row))
        if some:
            yield table(None, columns, [[row.get(column) for column in columns] for row in some])
