"""The command ``grid``: its families of commands, and what happens to errors.

Exit codes: 0 fine, 1 ran and found something wrong, 2 usage or configuration, 3 unreachable or timed out, 4 refused,
130 interrupted.
"""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from grid.cli import bench, check, demo, documents, probe, run, schema, simulate, status, sync
from grid.model.errors import ConfigError, GridError

EPILOG = (
    "Exit codes: 0 fine, 1 ran and found something wrong, 2 usage or configuration, 3 unreachable or timed out, "
    "4 refused, 130 interrupted."
)


class _Command(TyperGroup):
    """Turns errors of the family into words on stderr and their exit code; nothing else ends in silence."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except GridError as error:
            if os.environ.get("GRID_DEBUG"):
                raise
            _explain(error)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader of a pipe has left (`grid watch | head`): that is no fault, and stdout is of no more use.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


def _explain(error: GridError) -> None:
    problems = error.problems if isinstance(error, ConfigError) else ()
    print(f"error: {error.message} [{error.reason}]", file=sys.stderr)
    for problem in problems:
        print(f"  {problem}", file=sys.stderr)
    if error.hint and not problems:
        print(f"hint: {error.hint}", file=sys.stderr)


app = typer.Typer(
    name="grid",
    cls=_Command,
    help="The load-aware control plane for LLM inference that spans several sites.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for family in (demo, run, check, probe, status, documents, sync, simulate, schema, bench):
    family.register(app)


def main() -> None:
    """Entry point of the command."""
    app()
