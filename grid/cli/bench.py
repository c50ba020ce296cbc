"""``grid bench``: figures, each beside a peer or a calibration loop of the same run."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import grid
from grid.cli import extras, folders
from grid.cli.output import Listing, Output, OutputOption, emit, say, table

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
    CYCLE = "cycle"
    SCRAPE = "scrape"
    ADMISSION = "admission"
    GATEWAY = "gateway"
    PICK = "pick"
    SITES = "sites"
    MEMORY = "memory"
    SIMULATE = "simulate"


_SHORT = {
    Bench.PARSE: "Reading a page.",
    Bench.RENDER: "Building, publishing and judging a document.",
    Bench.POLICY: "A pass over all providers and gateways.",
    Bench.PROPAGATE: "From publishing to the last gateway.",
    Bench.CYCLE: "From a change on a site's page to the last gateway, in its parts.",
    Bench.SCRAPE: "Scraping one provider, and many.",
    Bench.ADMISSION: "What admission control adds to a request.",
    Bench.GATEWAY: "What the reference gateway adds to a request.",
    Bench.PICK: "Choosing a site.",
    Bench.SITES: "How sites are shared, over loopback.",
    Bench.MEMORY: "What daemon, gateway, subscriber and admission hold in memory.",
    Bench.SIMULATE: "How many requests a second the simulator gets through.",
}
_WITH_PAGE = (Bench.PARSE, Bench.SCRAPE)

PageOption = Annotated[Path | None, typer.Option(help="A metrics page of your own (.gz too).")]


def register(parent: typer.Typer) -> None:
    """Add the commands of this family."""
    for what in Bench:
        app.command(what.value, short_help=_SHORT[what])(_command(what))
    app.command("compare", short_help="Hold ratios and growth against a run that was kept.")(compare)
    app.command("report", short_help="Run all of it and write the page of figures.")(report)
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


# --- the guard, and the page ------------------------------------------------------------------------------------------

_BASELINE = "tests/bench/baseline.json"
_PAGE = "docs/performance.md"


def compare(
    baseline: Annotated[
        Path | None, typer.Option(help=f"What to hold against.  [default: {_BASELINE} of the source tree]")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Some benches, parted by commas.", show_default="all of them")
    ] = None,
    within: Annotated[float | None, typer.Option(min=1.0, help="Seconds for all; the rest is left out.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Measure three times and keep the figures instead.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run the benches at small sizes and hold their ratios and exponents against those that were kept.

    Exits with 1 where a ratio is 1.3 times worse, an exponent higher by 0.15, or a bench did not run.

    Examples:

      grid bench compare --only parse,pick

      grid bench compare --within 60 -o json
    """
    from grid.sim.bench import compare as room

    names = _names(only, list(room.SETTINGS))
    path = baseline or _in_source_tree(_BASELINE, "--baseline")
    try:
        before = room.Baseline({}) if write and not path.exists() else room.read(path)
    except (OSError, ValueError) as error:
        message = f"cannot read {path}: {_why(error)}; --write makes one, --baseline names another"
        raise typer.BadParameter(message, param_hint="--baseline") from error
    if write:
        folders.writable(path.parent, "--baseline")
        found, failed = room.measured(names, said=say)
        room.write(path, room.Baseline({**before.benches, **found}))
        say(f"wrote {path}")
        _exit_on(_told(failed))
        return
    if before.python != room.PYTHON:
        say(f"the baseline is of Python {before.python}, this is {room.PYTHON}: peers may have other ratios here")
    compared = room.compare(before.benches, names, within=within, said=say)
    rows = [line.row for line in compared.lines]
    data = {"rows": rows, "failed": compared.failed, "left_out": compared.left_out, "worse": len(compared.worse)}
    emit(data, output, lambda: [table(None, list(rows[0]), [list(row.values()) for row in rows])] if rows else [])
    if compared.left_out:
        say(f"left out for lack of time: {', '.join(compared.left_out)}")
    _exit_on([*_told(compared.failed), *(f"{line.bench}: {line.case} is worse" for line in compared.worse)])


def report(
    out: Annotated[
        Path | None, typer.Option(help=f"The page; its rows go beside it.  [default: {_PAGE} of the source tree]")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Write the page from the rows beside it; measure none.")
    ] = False,
) -> None:
    """Run every bench at its full size, and write the page of figures with its rows beside it (JSON).

    Takes a quarter of an hour and more; other work on the machine shows in what is absolute.

    Examples:

      grid bench report

      grid bench report --out here.md
    """
    from grid.sim.bench import report as room

    page = out or _in_source_tree(_PAGE, "--out")
    if not again:
        folders.writable(page.parent, "--out")
    try:
        room.keep(room.kept(page) if again else room.measured(said=say), page)
    except KeyError as error:
        message = f"cannot make {page} from {room.beside(page)}: it lacks {error}; without --again a run writes it"
        raise typer.BadParameter(message, param_hint="--again") from error
    except (OSError, ValueError) as error:
        message = f"cannot read or write {page} and {room.beside(page).name} beside it: {_why(error)}"
        raise typer.BadParameter(message, param_hint="--again" if again else "--out") from error
    say(f"wrote {page} and {room.beside(page).name}")


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _names(only: str | None, known: list[str]) -> list[str]:
    names = known if only is None else list(dict.fromkeys(name.strip() for name in only.split(",")))
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"benches are {', '.join(known)}, got {name!r}", param_hint="--only")
    return names


def _in_source_tree(name: str, option: str) -> Path:
    top = Path(grid.__file__).parents[1]
    if not (top / "pyproject.toml").exists():
        message = f"{name} is part of the source tree, and this is an installed package; name a file"
        raise typer.BadParameter(message, param_hint=option)
    return top / name


def _told(failed: Mapping[str, str]) -> list[str]:
    return [f"{bench} did not run: {why}" for bench, why in failed.items()]


def _exit_on(faults: Sequence[str]) -> None:
    for fault in faults:
        say(fault)
    if faults:
        raise typer.Exit(1)
