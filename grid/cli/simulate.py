"""``grid simulate``: what choosing and admission do to a fleet, in virtual time on this machine alone."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grid.cli import extras, folders
from grid.cli.output import Output, OutputOption, emit, say, table
from grid.cli.progress import watching

if TYPE_CHECKING:
    from grid.sim.report.run import Report
    from grid.sim.virtual.pictures import Picture, Show

PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot", parser=folders.named, metavar="DIRECTORY", help="Folder for pictures (SVG); needs the extra plots."
    ),
]
_MOST_CLIENTS = 10_000

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
    if not numbers or min(numbers) < 1 or max(numbers) > _MOST_CLIENTS:
        message = f"need whole numbers from 1 to {_MOST_CLIENTS}, parted by commas, got {text!r}"
        raise typer.BadParameter(message, param_hint=name)
    return tuple(dict.fromkeys(numbers))


def _letters(text: str, known: Sequence[str]) -> list[str]:
    """The columns that ``text`` names: letters and spans of them, in any order, parted by commas or not."""
    found: list[str] = []
    for part in text.upper().replace(" ", "").split(","):
        first, dots, last = part.partition("..")
        names = [first, last] if dots else list(part)
        if not names or not set(names) <= set(known) or (dots and first > last):
            message = f"columns are {', '.join(known)}, and spans like A..C, got {part!r} in {text!r}"
            raise typer.BadParameter(message, param_hint="--columns")
        found += [name for name in known if first <= name <= last] if dots else names
    return list(dict.fromkeys(found))


@contextlib.contextmanager
def _gallery(folder: Path | None) -> "Iterator[Show | None]":
    """Draws what it is shown into ``folder``; what cannot work is said before anything is simulated.

    The pictures are written as it is left, and rows belong inside: what becomes of the pictures takes no rows away.
    """
    if folder is None:
        yield None
        return
    with extras.told():
        from grid.sim.virtual import plots
    folders.writable(folder, "--plot")
    pictures: dict[str, Picture] = {}
    yield pictures.__setitem__
    with _written(folder):
        plots.save(folder, pictures)


@contextlib.contextmanager
def _written(where: Path) -> Iterator[None]:
    """Around writing: what fails now, a full disk say, is told in a line."""
    try:
        yield
    except OSError as error:
        say(f"error: cannot write {error.filename or where}: {error.strerror}")
        raise typer.Exit(1) from error


def _show(
    rows: list[dict[str, Any]], output: Output, *, hide: tuple[str, ...] = (), below: tuple[str, ...] = ()
) -> None:
    """``below``: what people are told after the table."""
    columns = [key for key in dict.fromkeys(key for row in rows for key in row) if key not in hide]
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    emit({"rows": rows}, output, lambda: [table(None, columns, cells), *below])


def _cell(value: Any) -> Any:
    """Figures keep three digits that count: a hundredth may be half of what is allowed."""
    from grid.sim.virtual.measure import digits

    if isinstance(value, list):
        return " / ".join(f"{one:.2f}" for one in value)
    return digits(value) if isinstance(value, float) else value


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
    with _gallery(plot) as show:
        with watching() as watch:
            rows = run(numbers, duration=duration, gateways=gateways, progress=watch("partition"), show=show)
        _show(rows, output)


@app.command()
def stale(
    columns: Annotated[str, typer.Option(help="Which columns, A to F: ACE, or A,C,E, or A,C..F.")] = "A..F",
    duration: Annotated[float, typer.Option(min=20.0, max=3600.0, help="Seconds of virtual time per run.")] = 160.0,
    seeds: Annotated[int, typer.Option(min=1, max=20, help="Runs per row.")] = 2,
    plot: PlotOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Choosing by numbers that are seconds old: at random, the usual way, by own counts alone, and Grid.

    The page of the simulations is from --duration 400 --seeds 3.

    Examples:

      grid simulate stale

      grid simulate stale --columns B --duration 400 --seeds 3 -o json
    """
    from grid.sim.virtual.stale import COLUMNS, run

    names = _letters(columns, tuple(COLUMNS))
    with _gallery(plot) as show:
        with watching() as watch:
            rows = run(names, seconds=duration, seeds=seeds, progress=watch("stale"), show=show)
        _show(rows, output, hide=("about",))


class Runs(StrEnum):
    """How many runs each scenario has."""

    SMALL = "small"
    FULL = "full"


@app.command()
def churn(
    only: Annotated[
        str | None, typer.Option(help="Some scenarios, parted by commas.", show_default="all of them")
    ] = None,
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
    from grid.sim.virtual.churn import broken, run, verdict
    from grid.sim.virtual.scenarios import SCENARIOS

    names = list(dict.fromkeys(only.replace(" ", "").split(","))) if only is not None else list(SCENARIOS)
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise typer.BadParameter(f"scenarios are {', '.join(SCENARIOS)}, got {unknown[0]!r}", param_hint="--only")
    with _gallery(plot) as show:
        with watching() as watch:
            rows = run(names, size=size.value, seed=seed, progress=watch("churn"), show=show)
        _show(rows, output, hide=("about",), below=(verdict(rows),))
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
        with extras.told():
            from grid.sim.admission_real import run as measure

        _show_figures(measure(seed=seed), output)
        return
    from grid.sim.virtual.admission import run as simulate

    with _gallery(plot) as show:
        with watching() as watch:
            found = simulate(seed=seed, progress=watch("admission"), show=show)
        _show_figures(found, output)


def _show_figures(found: dict[str, Any], output: Output) -> None:
    emit(found, output, lambda: [table(None, ("figure", "value"), list(found.items()))])


class Size(StrEnum):
    """How much a report runs."""

    SMALL = "small"
    WEEKLY = "weekly"


@app.command()
def report(
    size: Annotated[Size, typer.Option(help="weekly: what the page is published from; small: a look.")] = Size.WEEKLY,
    out: Annotated[
        Path, typer.Option(parser=folders.named, metavar="DIRECTORY", help="Folder for balancing.md and balancing/.")
    ] = Path("docs"),
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
    from grid.sim.report.run import SIZES, simulate

    folder = out / page.FOLDER
    data, written = folder / page.DATA, out / f"{page.FOLDER}.md"
    if render:
        found, text = _kept(data)
    else:
        folders.writable(folder, "--out")
        folders.writable(out, "--out")
        with watching() as watch:
            found = simulate(SIZES[size], size, keep=page.pictures(), watch=watch)
        text = page.render(found)
    with _written(out):
        if not render:
            data.write_text(found.text(), encoding="utf-8")
        written.write_text(text, encoding="utf-8")
        pictures = [str(path) for path in plots.save(folder, found.pictures)]
    told = {
        "size": found.size,
        "page": str(written),
        "data": str(data),
        "pictures": pictures,
        "cpu_s": found.cpu_s,
        "took_s": round(time.perf_counter() - begin, 1),
    }
    shown = told | {"pictures": len(pictures)}
    emit(told, output, lambda: [table(None, ("what", "value"), list(shown.items()))])


def _kept(data: Path) -> "tuple[Report, str]":
    """The report that an earlier run has written, and the page of it."""
    from grid.sim.report import page
    from grid.sim.report.run import read

    try:
        found = read(data.read_text(encoding="utf-8"))
        return found, page.render(found)
    except OSError as error:
        why = error.strerror
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        # Whatever rows are of another kind than a run of today writes: the page cannot be made of them.
        why = f"not what a run writes: {type(error).__name__}: {str(error).splitlines()[0]}"
    message = f"cannot make the page from {data} ({why}); a run without --render writes it"
    raise typer.BadParameter(message, param_hint="--render")
