"""Layers over the file: environment variables, then overrides of a command.

``GRID_BUS__URL`` sets ``bus.url``: ``GRID_``, then the path in upper case, its parts joined by two underscores, - in
names written as one underscore. A variable without two underscores is no setting (but ``GRID_NETWORK``); an empty one
counts as not set. Its value is read as a plain YAML value; one that begins with [ or { as a YAML list or section.
"""

from collections.abc import Mapping
from typing import Final

from grid.config.document import Path, Tree, dotted, plain_value, read_document
from grid.config.scalars import nearest
from grid.config.structure import Form, Shape
from grid.model.errors import ConfigProblem
from grid.model.reasons import Reason

PREFIX: Final = "GRID_"
_SEPARATOR: Final = "__"


class Layers:
    """Puts values over ``tree`` (in place) and remembers where each came from."""

    def __init__(self, tree: Tree, shape: Shape) -> None:
        self._tree = tree
        self._shape = shape
        self.origins: dict[Path, str] = {}
        self.problems: list[ConfigProblem] = []

    def origin(self, path: Path) -> str | None:
        """Which variable or flag set the value at ``path`` or around it; None where the file did."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return None

    def environment(self, environ: Mapping[str, str]) -> None:
        """Apply every ``GRID_`` variable that is a setting; one that looks like a setting and is none is a problem."""
        for variable in sorted(environ):
            if not variable.startswith(PREFIX) or not environ[variable].strip():
                continue
            words = variable.removeprefix(PREFIX).split(_SEPARATOR)
            top = self._shape.fields.get(words[0].lower())
            if len(words) == 1 and (top is None or top.form is not Form.VALUE):
                continue
            path = self._resolve(variable, words)
            if path is not None:
                self._set(path, self._environment_value(variable, environ[variable].strip()), variable)

    def overrides(self, values: Mapping[str, object]) -> None:
        """Apply ``{"daemon.listen": "127.0.0.1:0"}``; nested sections do as well, None counts as not given."""
        for key, value in values.items():
            self._override(tuple(key.split(".")), value)

    def _override(self, path: Path, value: object) -> None:
        if value is None:
            return
        if isinstance(value, Mapping):
            for key, inner in value.items():
                self._override((*path, str(key)), inner)
            return
        self._set(path, value, f"the override of {dotted(path)}")

    def _environment_value(self, variable: str, text: str) -> object:
        if text[0] not in "[{":
            return plain_value(text)
        document = read_document(f"value: {text}")
        if document.problems:
            problem = document.problems[0]
            self.problems.append(ConfigProblem(problem.reason, variable, problem.detail, hint=problem.hint))
        return document.tree.get("value", text)

    def _resolve(self, variable: str, words: list[str]) -> Path | None:
        """The path that ``words`` mean, given what the file declares; None (and a problem) where nothing matches."""
        shape = self._shape
        node: object = self._tree
        found: Path = ()
        for index, word in enumerate(words):
            shape = shape.of(node)
            known = self._known(shape, node)
            key = known.get(word.upper())
            if key is None:
                near = nearest(word.upper(), known)
                hint = f"known: {', '.join(known)}" if known else ""
                if near is not None:
                    hint = f"did you mean {PREFIX}{_SEPARATOR.join([*words[:index], near, *words[index + 1 :]])}?"
                detail = f"names no setting: {dotted(found) or 'the configuration'} has no {word.lower()}"
                self.problems.append(ConfigProblem(Reason.CONFIG_UNKNOWN_KEY, variable, detail, hint=hint))
                return None
            found = (*found, key)
            node = node.get(key) if isinstance(node, dict) else None
            shape = shape.at(key)
        return found

    @staticmethod
    def _known(shape: Shape, node: object) -> dict[str, str]:
        """Keys possible here, by their form in a variable. Maps know the names that the file declares."""
        keys = [*shape.fields]
        if shape.form is Form.MAP and isinstance(node, dict):
            keys += [key for key in node if isinstance(key, str)]
        return {"".join(c if c.isalnum() else "_" for c in key).upper(): key for key in keys}

    def _set(self, path: Path, value: object, origin: str) -> None:
        node = self._tree
        for part in path[:-1]:
            inner = node.get(str(part))
            if inner is None:
                inner = node[str(part)] = {}
            if not isinstance(inner, dict):
                detail = f"cannot be set by {origin}: what is around it is no section"
                self.problems.append(ConfigProblem(Reason.CONFIG_CONFLICT, dotted(path), detail))
                return
            node = inner
        node[str(path[-1])] = value
        self.origins[path] = origin
