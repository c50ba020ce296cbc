"""``grid simulate``: what choosing and admission do to a fleet, in virtual time on this machine alone."""

from pathlib import Path
from typing import Annotated, Any

import typer

from grid.cli.output import Output, OutputOption, emit, table

app = typer.Typer(
    help="Event simulations of a fleet in virtual time, with the code that runs in production.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(parent: typer.Typer) -> None:
    """Add the commands of this family."""
    parent.add_typer(app, name="simulate")


def _numbers(text: str, name: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"need whole numbers above 0, parted by commas, got {text!r}", param_hint=name)
    return numbers


def _show(rows: list[dict[str, Any]], output: Output, *, hide: tuple[str, ...] = ()) -> None:
    columns = [key for key in dict.fromkeys(key for row in rows for key in row) if key not in hide]
    emit({"rows": rows}, output, lambda: [table(None, columns, [[_cell(row[c]) for c in columns] for row in rows])])


def _cell(value: Any) -> Any:
    return " / ".join(f"{one:.2f}" for one in value) if isinstance(value, list) else value


@app.command()
def partition(
    clients: Annotated[str, typer.Option(help="Numbers of closed-loop clients, parted by commas.")] = "64,128,256",
    duration: Annotated[float, typer.Option(min=1.0, max=3600.0, help="Seconds of virtual time.")] = 45.0,
    gateways: Annotated[int, typer.Option(min=1, max=64, help="Gateways that the clients are spread over.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Folder for a picture (SVG) of each run.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """How sites of 128, 128 and 64 slots share closed-loop clients: nearest first, as published, and Grid.

    Examples:

      grid simulate partition

      grid simulate partition --clients 256 --gateways 4 -o json
    """
    from grid.sim.virtual.partition import run

    _show(run(_numbers(clients, "--clients"), duration=duration, gateways=gateways, plot=plot), output)


@app.command()
def stale(
    columns: Annotated[str, typer.Option(help="Which columns, A to F: ACE, or A,C,E, or A..F.")] = "A..F",
    duration: Annotated[float, typer.Option(min=20.0, max=3600.0, help="Seconds of virtual time per run.")] = 160.0,
    seeds: Annotated[int, typer.Option(min=1, max=20, help="Runs per row.")] = 2,
    output: OutputOption = Output.TABLE,
) -> None:
    """Choosing by numbers that are seconds old: at random, the usual way, by own counts alone, and Grid.

    Examples:

      grid simulate stale

      grid simulate stale --columns B --duration 400 --seeds 3 -o json
    """
    from grid.sim.virtual.stale import COLUMNS, run

    first, dots, last = columns.upper().partition("..")
    names = [name for name in COLUMNS if first <= name <= last] if dots else list(first.replace(",", ""))
    if not names or not set(names) <= set(COLUMNS):
        raise typer.BadParameter(f"columns are {', '.join(COLUMNS)}, got {columns!r}", param_hint="--columns")
    _show(run(dict.fromkeys(names), seconds=duration, seeds=seeds), output, hide=("about",))


@app.command()
def admission(
    seed: Annotated[int, typer.Option(help="Of arrivals and durations.")] = 1,
    real: Annotated[
        bool, typer.Option("--real", help="Over loopback HTTP through the reference gateway; about 40 seconds.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """What interactive requests wait beside hundreds of batch requests: alone, with admission control, without.

    Examples:

      grid simulate admission -o json

      grid simulate admission --real
    """
    if real:
        from grid.sim.admission_real import run as measure
    else:
        from grid.sim.virtual.admission import run as simulate

    found = measure(seed=seed) if real else simulate(seed=seed)
    emit(found, output, lambda: [table(None, ("figure", "value"), list(found.items()))])
