"""``grid simulate``: what choosing and admission do to a fleet, in virtual time on this machine alone."""

import contextlib
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grid.cli import extras
from grid.cli.output import Output, OutputOption, emit, table
from grid.cli.progress import watching

if TYPE_CHECKING:
    from grid.sim.virtual.pictures import Picture, Show

PlotOption = Annotated[
    Path | None, typer.Option("--plot", file_okay=False, help="Folder for pictures (SVG); needs the extra plots.")
]

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


@contextlib.contextmanager
def _gallery(folder: Path | None) -> "Iterator[Show | None]":
    """Draws what it is shown into ``folder``; what cannot work is said before anything is simulated."""
    if folder is None:
        yield None
        return
    with extras.told():
        from grid.sim.virtual import plots
    _make(folder, "--plot")
    pictures: dict[str, Picture] = {}
    yield pictures.__setitem__
    plots.save(folder, pictures)


def _make(folder: Path, option: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot make the folder {folder}: {error.strerror}", param_hint=option) from error


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
    plot: PlotOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """How sites of 128, 128 and 64 slots share closed-loop clients: nearest first, as published, and Grid.

    Examples:

      grid simulate partition

      grid simulate partition --clients 256 --gateways 4 -o json

      grid simulate partition --plot pictures
    """
    from grid.sim.virtual.partition import run

    numbers = _numbers(clients, "--clients")
    with _gallery(plot) as show, watching() as watch:
        rows = run(numbers, duration=duration, gateways=gateways, progress=watch("partition"), show=show)
    _show(rows, output)


@app.command()
def stale(
    columns: Annotated[str, typer.Option(help="Which columns, A to F: ACE, or A,C,E, or A..F.")] = "A..F",
    duration: Annotated[float, typer.Option(min=20.0, max=3600.0, help="Seconds of virtual time per run.")] = 160.0,
    seeds: Annotated[int, typer.Option(min=1, max=20, help="Runs per row.")] = 2,
    plot: PlotOption = None,
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
    with _gallery(plot) as show, watching() as watch:
        rows = run(dict.fromkeys(names), seconds=duration, seeds=seeds, progress=watch("stale"), show=show)
    _show(rows, output, hide=("about",))


class Runs(StrEnum):
    """How many runs each scenario has."""

    SMALL = "small"
    FULL = "full"


@app.command()
def churn(
    only: Annotated[str, typer.Option(help="Scenarios, parted by commas; none: all.")] = "",
    size: Annotated[Runs, typer.Option(help="full: as published, some minutes; small: a look.")] = Runs.FULL,
    seed: Annotated[int, typer.Option(min=0, help="Another one gives other arrivals and moments.")] = 1,
    plot: PlotOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What befalls a fleet, with a bound on what choosing may let through; exit 1 where Grid breaks one.

    Sites join, die, come back, lie or fail; leaders and frames are lost; traffic is uneven; pages cannot be read.

    Examples:

      grid simulate churn --size small

      grid simulate churn --only join,return --plot pictures -o json
    """
    from grid.sim.virtual.churn import broken, run
    from grid.sim.virtual.scenarios import SCENARIOS

    names = list(dict.fromkeys(only.replace(" ", "").split(","))) if only.strip() else list(SCENARIOS)
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise typer.BadParameter(f"scenarios are {', '.join(SCENARIOS)}, got {unknown[0]!r}", param_hint="--only")
    with _gallery(plot) as show, watching() as watch:
        rows = run(names, size=size.value, seed=seed, progress=watch("churn"), show=show)
    _show(rows, output, hide=("about",))
    if broken(rows):
        raise typer.Exit(1)


@app.command()
def admission(
    seed: Annotated[int, typer.Option(help="Of arrivals and durations.")] = 1,
    real: Annotated[
        bool, typer.Option("--real", help="Over loopback HTTP through the reference gateway; about 40 seconds.")
    ] = False,
    plot: PlotOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What interactive requests wait beside hundreds of batch requests: alone, with admission control, without.

    Examples:

      grid simulate admission -o json

      grid simulate admission --real
    """
    if real:
        if plot is not None:
            raise typer.BadParameter("pictures are of virtual time; leave out --real or --plot", param_hint="--plot")
        from grid.sim.admission_real import run as measure

        found = measure(seed=seed)
    else:
        from grid.sim.virtual.admission import run as simulate

        with _gallery(plot) as show, watching() as watch:
            found = simulate(seed=seed, progress=watch("admission"), show=show)
    emit(found, output, lambda: [table(None, ("figure", "value"), list(found.items()))])


class Size(StrEnum):
    """How much a report runs."""

    SMALL = "small"
    WEEKLY = "weekly"


@app.command()
def report(
    size: Annotated[Size, typer.Option(help="weekly: what the page is published from; small: a look.")] = Size.WEEKLY,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for balancing.md and balancing/.")] = Path("docs"),
    render: Annotated[
        bool, typer.Option("--render", help="Simulate nothing; write the page anew from balancing/report.json.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """All simulations, and the page about them: out/balancing.md, with rows and pictures in out/balancing/.

    Examples:

      grid simulate report

      grid simulate report --size small --out /tmp/balancing
    """
    begin = time.perf_counter()
    with extras.told():
        from grid.sim.virtual import plots
    from grid.sim.report import page
    from grid.sim.report.run import SIZES, read, simulate

    folder = out / page.FOLDER
    _make(folder, "--out")
    data = folder / page.DATA
    if render:
        try:
            found = read(data.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            message = f"cannot read {data} ({str(error).splitlines()[0]}); without --render a run writes it"
            raise typer.BadParameter(message, param_hint="--render") from error
    else:
        with watching() as watch:
            found = simulate(SIZES[size], size, keep=page.pictures(), watch=watch)
        data.write_text(found.text(), encoding="utf-8")
    (out / f"{page.FOLDER}.md").write_text(page.render(found), encoding="utf-8")
    written = {
        "size": found.size,
        "page": str(out / f"{page.FOLDER}.md"),
        "data": str(data),
        "pictures": [str(path) for path in plots.save(folder, found.pictures)],
        "cpu_s": found.cpu_s,
        "took_s": round(time.perf_counter() - begin, 1),
    }
    shown = written | {"pictures": len(found.pictures)}
    emit(written, output, lambda: [table(None, ("what", "value"), list(shown.items()))])
