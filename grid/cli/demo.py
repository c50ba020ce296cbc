"""``grid demo``: everything on one machine."""

from typing import Annotated

import typer

from grid.cli import extras
from grid.cli.output import Output, OutputOption, console, emit, table


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("demo", short_help="A whole network on this machine, with something happening.")(demo)


def demo(
    duration: Annotated[float, typer.Option(min=5, max=3600, help="Seconds; it ends by itself.")] = 40.0,
    sites: Annotated[int, typer.Option(min=2, max=12, help="How many simulated sites.")] = 3,
    scenario: Annotated[str, typer.Option(help="What happens during the run; --list names them all.")] = (
        "fill-kill-return"
    ),
    list_scenarios: Annotated[bool, typer.Option("--list", help="List the scenarios and stop.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Everything on one machine: bus, simulated sites with real-looking EPP pages, the daemon, gateways, load.

    Ends by itself with a summary of where traffic went. Needs no GPU.

    Examples:

      grid demo

      grid demo --scenario redis-restart --duration 60

      grid demo --duration 20 -o json
    """
    from grid.sim.scenario import SCENARIOS

    if list_scenarios:
        listed = [{"name": one.name, "summary": one.summary} for one in SCENARIOS.values()]
        rows = [(one["name"], one["summary"]) for one in listed]
        emit({"scenarios": listed}, output, lambda: [table(None, ("scenario", "what happens"), rows)])
        return
    with extras.told():
        from grid.sim.demo import run_demo
    summary = run_demo(duration, sites=sites, scenario=scenario, console=console() if output is Output.TABLE else None)
    if output is not Output.TABLE:
        emit(summary, output, list)
    if summary["errors"]:
        raise typer.Exit(1)
