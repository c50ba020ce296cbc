"""The shape of the configuration, read from its models: which settings exist where.

Used to name the nearest right key, and to find the setting that an environment variable means.
"""

import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from pydantic import BaseModel


class Form(Enum):
    """What can stand at a place."""

    SECTION = auto()
    MAP = auto()
    LIST = auto()
    VALUE = auto()


@dataclass(frozen=True, slots=True)
class Shape:
    """One place in the configuration. ``fields`` of a section; ``item``: what a map or list holds."""

    form: Form
    fields: Mapping[str, "Shape"]
    item: "Shape | None" = None
    variants: tuple["Shape", ...] = ()
    """Of a section that comes in several kinds: each of them; ``fields`` then has those of all."""

    def of(self, tree: object) -> "Shape":
        """The kind of section that ``tree`` is: the one that knows most of its keys."""
        if not self.variants or not isinstance(tree, dict):
            return self
        return max(self.variants, key=lambda variant: len(tree.keys() & variant.fields.keys()))

    def at(self, part: str | int) -> "Shape":
        """The place one step in; a plain value where nothing is known."""
        return self.fields.get(str(part)) or self.item or _VALUE


_VALUE = Shape(Form.VALUE, {})


@functools.cache
def shape_of(model: type[BaseModel]) -> Shape:
    """The shape of ``model`` and everything inside it."""
    hints = typing.get_type_hints(model, include_extras=True)
    return Shape(Form.SECTION, {key: _shape(hints[key]) for key in model.model_fields})


def _shape(annotation: object) -> Shape:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return _shape(arguments[0])
    if origin in (typing.Union, types.UnionType):
        kinds = [shape for shape in map(_shape, arguments) if shape.form is not Form.VALUE]
        if len(kinds) > 1:
            merged = {key: inner for kind in kinds for key, inner in kind.fields.items()}
            return Shape(Form.SECTION, merged, variants=tuple(kinds))
        return kinds[0] if kinds else _VALUE
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return Shape(Form.MAP, {}, _shape(arguments[1]))
    if origin is tuple:
        return Shape(Form.LIST, {}, _shape(arguments[0]))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return shape_of(annotation)
    return _VALUE
