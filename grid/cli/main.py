"""The command ``grid``: its families of commands, and what happens to errors.

Exit codes: 0 fine, 1 ran and found something wrong, 2 usage or configuration, 3 unreachable or timed out, 4 refused,
130 interrupted.
"""

import contextlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from grid.cli import bench, check, demo, documents, gateway, probe, run, schema, simulate, status, sync
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
            _to_nowhere()
            raise typer.Exit(0) from None
        except OSError as error:
            if error.filename is not None:
                raise
            _to_nowhere()
            print(f"error: cannot write to stdout: {error.strerror}", file=sys.stderr)
            raise typer.Exit(1) from error


def _to_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: GridError) -> None:
    problems = error.problems if isinstance(error, ConfigError) else ()
    print(f"error: {error.message} [{error.reason}]", file=sys.stderr)
    if len(problems) > 1:
        for problem in problems:
            print(f"  {problem}", file=sys.stderr)
        return
    hint = problems[0].hint if problems else error.hint
    if hint and hint not in error.message:
        print(f"hint: {hint}", file=sys.stderr)


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
for family in (demo, run, check, probe, status, documents, gateway, sync, simulate, schema, bench):
    family.register(app)


def main() -> None:
    """Run the command of this process's arguments."""
    if sys.stdout is None:  # started with stdout closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - lives as long as the process
    try:
        app()
    finally:
        # What could not be written was told already; the interpreter would tell it again as a traceback.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
