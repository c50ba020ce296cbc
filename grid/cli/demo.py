"""``grid demo``: everything on one machine."""

from typing import Annotated

import typer

from grid.cli.output import Output, OutputOption, emit


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("demo")(demo)


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

    Ends by itself with a summary of where traffic went. Needs nothing installed but Python (and no GPU).

    Examples:

      grid demo

      grid demo --scenario redis-restart --duration 60

      grid demo --duration 20 -o json
    """
    from grid.sim import demo as room

    room.command(
        duration=duration, sites=sites, scenario=scenario, list_scenarios=list_scenarios, output=output, emit=emit
    )
