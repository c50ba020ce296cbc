"""``grid run``: the daemon. ``grid replay``: recorded scrapes through the policy, offline."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("run")(run)


def run(
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")],
    record: Annotated[Path | None, typer.Option(help="Write every scrape to this file, for grid replay.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and log, publish nothing.")] = False,
    log_level: Annotated[LogLevel, typer.Option(envvar="GRID_LOG_LEVEL", help="How much is logged.")] = LogLevel.INFO,
) -> None:
    """The daemon: scrapes every source, decides, publishes a document for each gateway.

    SIGHUP loads the configuration again, whole or not at all. SIGTERM or Ctrl-C ends it in order; a second one at once.

    Examples:

      grid run -c grid.yaml

      grid run -c grid.yaml --dry-run --record today.jsonl
    """
    from grid.daemon import main

    raise typer.Exit(main(config, record=record, dry_run=dry_run, log_level=log_level.value))
