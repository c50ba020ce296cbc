"""Writes a tree as block YAML, one key a line, and says on which line each key landed. Independent of the loader."""

from typing import Any


def emit(tree: dict[str, Any]) -> tuple[str, dict[str, int]]:
    """The text, and the 1-based line of every key by its dotted path."""
    lines: list[str] = []
    where: dict[str, int] = {}
    _section(tree, "", 0, lines, where)
    return "\n".join(lines) + "\n", where


class Raw(str):
    """A value as it is to stand in the file, quotes and all."""

    __slots__ = ()


def _scalar(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "" if value is None else str(value)


def _section(tree: dict[str, Any], path: str, depth: int, lines: list[str], where: dict[str, int]) -> None:
    for key, value in tree.items():
        here = f"{path}.{key}" if path else key
        where[here] = len(lines) + 1
        _entry(value, here, depth, lines, where)


def _entry(value: Any, path: str, depth: int, lines: list[str], where: dict[str, int]) -> None:
    head = "  " * depth + f"{path.rpartition('.')[2]}:"
    if isinstance(value, dict) and value:
        lines.append(head)
        _section(value, path, depth + 1, lines, where)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        lines.append(head)
        for index, item in enumerate(value):
            lines.append("  " * depth + "  -")
            where[f"{path}[{index}]"] = len(lines) + 1  # an entry begins with its first key
            _section(item, f"{path}[{index}]", depth + 2, lines, where)
    elif isinstance(value, list):
        lines.append(f"{head} [{', '.join(_scalar(item) for item in value)}]")
        where |= {f"{path}[{index}]": len(lines) for index in range(len(value))}
    else:
        lines.append(f"{head} {'{}' if value == {} else _scalar(value)}".rstrip())
