"""The YAML file as plain values, each with the lines of its key and value.

YAML is narrowed to what a configuration needs: the plain values of YAML 1.2 (``true`` and ``false`` are the only
booleans; ``yes``, ``no``, ``on``, ``off``, ``010`` and ``12:30`` are what they look like), keys that are text and
stand once, no tags of programming languages. Anchors, aliases and ``<<`` work, but the document they expand to is
bounded, so a few lines cannot grow to gigabytes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

from grid.model.errors import ConfigProblem
from grid.model.reasons import Reason

MAX_BYTES: Final = 8 << 20
MAX_VALUES: Final = 500_000
MAX_DEPTH: Final = 32

Tree = dict[str, object]
Path = tuple[str | int, ...]

_PLAIN: Final = "!plain"
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]{1,300}")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


class _Composer(yaml.CSafeLoader):
    """libyaml's parser; every plain value keeps a mark of its own, so that this module decides what it means."""

    yaml_implicit_resolvers = {None: [(_PLAIN, re.compile(""))]}  # noqa: RUF012 - the name and shape PyYAML reads


@dataclass(slots=True)
class Document:
    """What a file says: ``tree`` of dicts, lists and scalars; ``lines`` by path, 1-based; faults found on the way."""

    tree: Tree = field(default_factory=dict)
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)

    def line(self, path: Path) -> int | None:
        """Line of the value at ``path``, or of the nearest thing around it that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


class _TooMuchError(Exception):
    """The document expands beyond its bounds."""


def dotted(path: Path) -> str:
    """``path`` as people write it: ``admission.interactive.bands[1].ceiling``."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += f".{part}" if out else part
    return out


def plain_value(text: str) -> object:
    """What unquoted ``text`` means in YAML 1.2 (core schema)."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL_OR_HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text) or _SPECIAL_FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def too_large() -> ConfigProblem:
    """The problem of a file beyond ``MAX_BYTES``."""
    detail = f"has more than {MAX_BYTES >> 20} MiB, which is the most that is read"
    return ConfigProblem(Reason.TOO_LARGE, "", detail, hint="is it the right file?")


def read_document(text: str) -> Document:
    """Read ``text``; faults of YAML itself are in ``problems`` of the result, never raised."""
    document = Document()
    if len(text) > MAX_BYTES:
        document.problems.append(too_large())
        return document
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        detail = f"a character that no text file has (U+{ord(control.group()):04X})"
        document.problems.append(ConfigProblem(Reason.CONFIG_SYNTAX, "", detail, line, "is it the right file?"))
        return document
    try:
        root = yaml.compose(text, Loader=_Composer)
    except yaml.MarkedYAMLError as error:  # all that is left once the characters are those of a text file
        document.problems.append(_syntax_problem(error, text))
        return document
    if root is None:
        return document
    _Builder(document).build_root(root)
    return document


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> ConfigProblem:
    mark = error.problem_mark
    line, column = (mark.line + 1, mark.column) if mark is not None else (1, 0)
    source = text.splitlines()
    detail, hint = f"not YAML: {' '.join(filter(None, (error.context, error.problem)))}", ""
    if error.context_mark is not None and error.context_mark.line + 1 != line:
        hint = f"what it belongs to began on line {error.context_mark.line + 1}"
    at = source[line - 1] if line <= len(source) else ""
    if "\t" in at[: column + 1]:
        hint = "indent with spaces; YAML allows no tabs there"
    elif "another document" in detail:
        hint = "one file holds one configuration: remove the line ---"
    elif "mapping values" in detail:
        hint = "put a text that has ': ' in it into quotes, or look for a missing line break"
    return ConfigProblem(Reason.CONFIG_SYNTAX, "", detail, line, hint)


class _Builder:
    """Turns YAML nodes into values. Aliases are expanded (each use counts), never shared."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._values = 0
        self._open: set[int] = set()

    def build_root(self, root: yaml.Node) -> None:
        if isinstance(root, yaml.ScalarNode) and root.tag == _PLAIN and plain_value(root.value) is None:
            return
        if not isinstance(root, yaml.MappingNode):
            self._problem(root, (), Reason.CONFIG_WRONG_TYPE, "no settings in this file", "begin with network: NAME")
            return
        try:
            self._document.tree = self._mapping(root, ())
        except _TooMuchError as error:
            # What was read until then would only give faults that are none.
            self._document.tree = {}
            self._problem(root, (), Reason.TOO_LARGE, str(error), "look for aliases (*name) that multiply")

    def _problem(self, node: yaml.Node, path: Path, reason: Reason, detail: str, hint: str = "") -> None:
        line = node.start_mark.line + 1
        self._document.problems.append(ConfigProblem(reason, dotted(path), detail, line, hint))

    def _value(self, node: yaml.Node, path: Path) -> object:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _TooMuchError(f"the file expands to more than {MAX_VALUES} values")
        if len(path) > MAX_DEPTH:
            raise _TooMuchError(f"{dotted(path[:3])}...: nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self._problem(node, path, Reason.CONFIG_SYNTAX, "an alias that contains itself", "remove the alias")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return self._sequence(node, path)
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        text: str = node.value
        if node.tag == _PLAIN:
            return plain_value(text)
        if node.tag == f"{_TAG}str":
            return text
        self._refuse_tag(node, path)
        return text

    def _refuse_tag(self, node: yaml.Node, path: Path) -> None:
        shown = node.tag.replace(_TAG, "!!")
        self._problem(node, path, Reason.CONFIG_SYNTAX, f"the tag {shown} means nothing here", "remove the tag")

    def _sequence(self, node: yaml.Node, path: Path) -> list[object]:
        if node.tag != f"{_TAG}seq":
            self._refuse_tag(node, path)
        values = []
        for index, item in enumerate(node.value):
            self._document.lines[(*path, index)] = item.start_mark.line + 1
            values.append(self._value(item, (*path, index)))
        return values

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Tree:
        if node.tag != f"{_TAG}map":
            self._refuse_tag(node, path)
        tree: Tree = {}
        first: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == _PLAIN and key_node.value == _MERGE:
                merged.append(value_node)
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            line = key_node.start_mark.line + 1
            if key in first:
                hint = f"first on line {first[key]}; keep one of them"
                self._problem(key_node, (*path, key), Reason.CONFIG_DUPLICATE_KEY, f"{key} stands here twice", hint)
                continue
            first[key] = line
            self._document.lines[(*path, key)] = line
            tree[key] = self._value(value_node, (*path, key))
        for value_node in merged:
            self._merge(value_node, path, tree)
        return tree

    def _key(self, node: yaml.Node, path: Path) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.tag in (_PLAIN, f"{_TAG}str") and node.value:
            return str(node.value)
        self._problem(node, path, Reason.CONFIG_SYNTAX, "a key that is no text", "a key is a word before a colon")
        return None

    def _merge(self, node: yaml.Node, path: Path, tree: Tree) -> None:
        """``<<``: what ``node`` has and ``tree`` has not; explicit keys win, earlier maps win over later ones."""
        for source in _merge_sources(node):
            if not isinstance(source, yaml.MappingNode):
                self._problem(node, path, Reason.CONFIG_SYNTAX, "<< wants another section", "write <<: *name")
                continue
            # Lines are noted only for what is taken over: the rest was overridden here.
            inner = _Builder(Document())
            inner._values, inner._open = self._values, self._open
            values = inner._value(source, path)
            self._values = inner._values
            self._document.problems.extend(inner._document.problems)
            if not isinstance(values, dict):
                continue
            taken = {key: value for key, value in values.items() if key not in tree}
            tree.update(taken)
            depth = len(path)
            for at, line in inner._document.lines.items():
                if at[depth] in taken:
                    self._document.lines[at] = line


def _merge_sources(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    else:
        yield node
