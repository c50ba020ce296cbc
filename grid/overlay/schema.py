"""JSON Schemas (2020-12) of the envelope and the signal frame, from the same shapes that parse them.

A schema says less than the judgement: digests, agreement between fields and the rules for groups are not in it, so what
it takes still needs ``grid.overlay.verify``. For ``publication``, ``signature`` and ``excluded`` it says more: how Grid
writes them, where a reader passes over what it cannot read.
"""

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema

from grid import PROTOCOL_VERSION, SCHEMA_VERSION
from grid.overlay import frames, wire
from grid.overlay import vectors as room


class _Untitled(GenerateJsonSchema):
    """Without a title on every member that only says its name again."""

    def field_title_should_be_set(self, schema: CoreSchema) -> bool:  # noqa: ARG002
        return False


def envelope_schema() -> dict[str, Any]:
    """The schema of a document in its envelope, as Grid publishes it."""
    return _schema(wire.PUBLISHED, f"Grid overlay envelope {SCHEMA_VERSION}")


def signal_schema() -> dict[str, Any]:
    """The schema of a signal frame."""
    return _schema(frames.FRAME, f"Grid signal frame, bus protocol {PROTOCOL_VERSION}")


def vectors() -> dict[str, Any]:
    """The test vectors by the name of their file."""
    return room.vectors()


def files() -> dict[str, str]:
    """Everything that this package generates into ``schemas/``: path below it, and text."""
    contents = {"envelope.schema.json": envelope_schema(), "signal.schema.json": signal_schema()}
    contents |= {f"vectors/{name}.json": content for name, content in vectors().items()}
    return {path: json.dumps(content, indent=2, ensure_ascii=True) + "\n" for path, content in contents.items()}


def _schema(adapter: TypeAdapter[Any], title: str) -> dict[str, Any]:
    schema = adapter.json_schema(schema_generator=_Untitled)
    # The shapes' names without their suffix, in definitions and in the references to them.
    named = json.loads(json.dumps(schema).replace('Shape"', '"'))
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": title,
        **{k: v for k, v in named.items() if k != "title"},
    }
