"""``grid schema`` and ``grid version``: what a program may rely on."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from grid import PROTOCOL_VERSION, SCHEMA_VERSION, __version__
from grid.cli.output import Output, OutputOption, emit, table


class What(StrEnum):
    """What can be printed."""

    CONFIG = "config"
    ENVELOPE = "envelope"
    SIGNAL = "signal"
    VECTORS = "vectors"
    WRITE = "write"


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("schema", short_help="Print schemas and test vectors.")(schema)
    app.command("version", short_help="Versions of program, schema and protocol.")(version)


def schema(
    what: Annotated[What, typer.Argument(help="write renews schemas/ and the generated docs of a source tree.")],
) -> None:
    """Print the JSON Schema of the configuration, the envelope or the signal frame, or the test vectors.

    Example:

      grid schema config > grid.schema.json
    """
    if what is What.WRITE:
        from grid.cli import generated

        for path in generated.write(Path.cwd()):
            print(path)
        return
    print(json.dumps(_content(what), indent=2, ensure_ascii=False))


def _content(what: What) -> object:
    if what is What.CONFIG:
        from grid.config import json_schema

        return json_schema()
    from grid.overlay import schema as room

    if what is What.ENVELOPE:
        return room.envelope_schema()
    if what is What.SIGNAL:
        return room.signal_schema()
    from grid.gateway import vectors

    return room.vectors() | vectors.vectors()


def version(output: OutputOption = Output.TABLE) -> None:
    """Versions of this program, of the overlay schema and of the bus protocol."""
    data = {"version": __version__, "schema": SCHEMA_VERSION, "protocol": PROTOCOL_VERSION}
    emit(data, output, lambda: [table(None, ("what", "version"), list(data.items()))])
