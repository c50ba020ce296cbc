"""The JSON Schema of the configuration file, for editors and pipelines: descriptions, units, defaults, bounds."""

from collections.abc import Callable
from typing import Any, Final

from grid.config.root import Config
from grid.config.scalars import Listen
from grid.config.units import format_duration, format_percent, format_size

_FORMATS: Final[dict[str, Callable[[Any], str]]] = {
    "duration": format_duration,
    "bytes": format_size,
    "percent": format_percent,
}
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the file.

    Values with units say theirs in ``x-unit`` and their bounds in ``x-minimum`` and ``x-maximum``. A schema cannot say
    what sections demand of each other; ``grid check`` can.
    """
    schema = Config.model_json_schema(mode="validation")
    schema = {"$schema": DIALECT, **schema, "title": "Grid configuration"}
    _tidy(schema)
    return schema


def _default(node: dict[str, Any]) -> None:
    """The default as a file would have it; none where the setting is simply not set."""
    value, unit = node["default"], node.get("x-unit")
    if value is None and {"const": "auto"} in node.get("anyOf", ()):
        node["default"] = "auto"
    elif value is None:
        del node["default"]
    elif isinstance(value, dict):
        node["default"] = {}
    elif unit == "host:port":
        node["default"] = str(Listen(*value))
    elif unit is not None:
        node["default"] = _FORMATS[unit](value)


def _tidy(node: Any) -> None:
    """What the file cannot have goes: nothing as a value, and titles that repeat the key."""
    if isinstance(node, list):
        for item in node:
            _tidy(item)
        return
    if not isinstance(node, dict):
        return
    if "default" in node:
        _default(node)
    if "anyOf" in node:
        kinds = [kind for kind in node["anyOf"] if kind != {"type": "null"}]
        if len(kinds) == 1:
            del node["anyOf"]
            node.update(kinds[0])
    if isinstance(node.get("description"), str):
        node["description"] = " ".join(node["description"].replace("``", "`").split())
    if "patternProperties" in node:
        [(key_pattern, inner)] = node.pop("patternProperties").items()
        node |= {"propertyNames": {"pattern": key_pattern}, "additionalProperties": inner}
    for key, value in node.items():
        _tidy(value)
        if key == "properties":
            for inner in value.values():
                inner.pop("title", None)
