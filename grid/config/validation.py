"""From the tree of plain values to the models, with every fault said once, in the operator's words.

pydantic finds all faults of types and ranges in one go. So that what the sections say about each other is checked in
the same run, the faulty parts then get stand-ins and the whole is validated again; ``damaged`` tells the checks where
not to look.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic import ValidationError

from grid.config.document import Document, Path, Tree, dotted
from grid.config.layers import Layers
from grid.config.root import Config
from grid.config.scalars import describe, did_you_mean
from grid.config.structure import Form, Shape, shape_of
from grid.model.errors import ConfigProblem
from grid.model.reasons import Reason

_KEY = "[key]"
_URL = "http://stand-in.invalid/"
_STAND_INS: Final[dict[str, Any]] = {
    "network": "stand-in",
    "site": "stand-in",
    "cluster": "stand-in",
    "source": {"epp": _URL},
    "epp": _URL,
    "prometheus": _URL,
    "probe": _URL,
    "envoy_admin": _URL,
    "bands": [{"name": "stand-in"}],
    "name": "stand-in",
    "header": "x-stand-in",
    "value": "stand-in",
}
"""Values for required settings that are missing or faulty, by their key."""

_SECRETS = ("password", "passwd", "token", "bearer_token", "secret", "api_key")


@dataclass(frozen=True, slots=True)
class Validated:
    """The faults, the paths that were mended, and ``config`` with stand-ins there (the true one without faults)."""

    config: Config
    problems: tuple[ConfigProblem, ...]
    damaged: frozenset[Path]


class Places:
    """Says where in the file, or in which variable, a path was set."""

    def __init__(self, document: Document, layers: Layers) -> None:
        self._document = document
        self._layers = layers

    def problem(self, reason: Reason, path: Path, detail: str, hint: str = "") -> ConfigProblem:
        """The problem with its line, or with the variable that set the value."""
        origin = self._layers.origin(path)
        if origin is not None:
            return ConfigProblem(reason, dotted(path), f"{detail} (set by {origin})", hint=hint)
        return ConfigProblem(reason, dotted(path), detail, self._document.line(path), hint)


def validate(tree: Tree, places: Places, base: FilePath | None) -> Validated:
    """Validate ``tree``; relative file names in it start at ``base``."""
    context = {"base": base}
    try:
        return Validated(Config.model_validate(tree, context=context), (), frozenset())
    except ValidationError as error:
        faults = error.errors(include_url=False)
    problems = tuple(_problem(fault, tree, places) for fault in faults)
    mended = copy.deepcopy(tree)
    # The innermost first: what is around them may get a stand-in that no longer has them.
    innermost = sorted(faults, key=lambda fault: -len(fault["loc"]))
    damaged = frozenset(_mend(mended, _path(fault["loc"]), fault["type"]) for fault in innermost)
    return Validated(Config.model_validate(mended, context=context), problems, damaged)


def _path(loc: Iterable[str | int]) -> Path:
    """``loc`` of a pydantic error as a path in the file: without the marks of keys and of kinds of a section."""
    path: Path = ()
    shape = shape_of(Config)
    for part in loc:
        if part == _KEY or (shape.variants and part not in shape.fields and str(part).startswith("(")):
            continue
        path = (*path, part)
        shape = shape.at(part)
    return path


def _mend(tree: Tree, path: Path, kind: str) -> Path:
    """Make ``tree`` usable at ``path``: a stand-in where a setting is required, else the default.

    Returns the path that was changed.
    """
    if isinstance(path[-1], int):
        path = path[:-1]  # without one entry, the others of a list would move
    node: Any = tree
    shape = shape_of(Config)
    for part in path[:-1]:
        node, shape = node[part], shape.at(part)
    key = path[-1]
    if kind != "extra_forbidden" and shape.form is Form.SECTION and key in _STAND_INS:
        node[key] = copy.deepcopy(_STAND_INS[str(key)])
    else:
        node.pop(key, None)
    return path


def _problem(fault: Any, tree: Tree, places: Places) -> ConfigProblem:
    path = _path(fault["loc"])
    kind: str = fault["type"]
    context = fault.get("ctx", {})
    value = fault["input"]
    match kind:
        case "missing":
            return places.problem(Reason.CONFIG_MISSING_KEY, path, "the required setting is missing")
        case "extra_forbidden":
            return _unknown_key(path, tree, places)
        case "tuple_type":
            detail, hint = f"wants a list, not {describe(value)}", ""
            if isinstance(value, str | int | float):
                hint = f"write [{value}]"
            return places.problem(Reason.CONFIG_WRONG_TYPE, path, detail, hint)
        case "too_short":
            return places.problem(Reason.CONFIG_OUT_OF_RANGE, path, f"wants {context['min_length']} entry at least")
        case "too_long":
            detail = f"has more than {context['max_length']} entries, which is the most allowed"
            return places.problem(Reason.CONFIG_OUT_OF_RANGE, path, detail)
        case _ if "detail" in context:
            return places.problem(context["reason"], path, context["detail"], context["hint"])
        case _:
            # Only sections and maps are left to pydantic's own judgement.
            detail = f"wants a section of settings, not {describe(value)}"
            return places.problem(Reason.CONFIG_WRONG_TYPE, path, detail, "indent its settings below it, one a line")


def _unknown_key(path: Path, tree: Tree, places: Places) -> ConfigProblem:
    around = [shape_of(Config)]
    node: Any = tree
    for part in path[:-1]:
        around.append(around[-1].at(part))
        node = node[part]
    key = str(path[-1])
    if key in around[-1].fields:
        kind = "prometheus" if "prometheus" in node else "epp"
        return places.problem(Reason.CONFIG_UNKNOWN_KEY, path, f"is no setting of a source that names {kind}")
    return places.problem(Reason.CONFIG_UNKNOWN_KEY, path, "no such setting", _hint(key, around, path, node))


def _hint(key: str, around: list[Shape], path: Path, node: object) -> str:
    """Where a key that is none at ``path`` may belong. ``around`` are the places down to the one it is in."""
    known = around[-1].of(node).fields
    if key.lower().replace("-", "_") in _SECRETS:
        file = next((name for name in ("password_file", "token_file") if name in known), None)
        if file is not None:
            return f"secrets are only given as files: {file}"
    inner = next((name for name, shape in known.items() if key in shape.fields), None)
    if inner is not None:
        return f"it belongs under {inner}:, one level further in"
    for depth in range(len(around) - 2, -1, -1):
        if key in around[depth].fields:
            return f"it belongs to {dotted(path[:depth]) or 'the top level'}: check the indentation"
    return did_you_mean(key, known)
