"""What a command says: data on stdout in the form asked for, words on stderr.

JSON is one document with stable keys (``docs/configuration.md`` lists them); tables are for people and may change.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_PIPE_WIDTH = 4096
_GAP = 3
_LAST = 24
"""Columns that the last cell of a row has to have at least, to be folded rather than put below."""


class Output(StrEnum):
    """Forms of a listing."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="table for people; json or yaml with stable keys for programs.")
]


def say(text: str) -> None:
    """One line of words, on stderr."""
    print(text, file=sys.stderr, flush=True)


def console() -> "Console":
    """A console on stdout that honours NO_COLOR; a pipe has no width, so nothing is cut there."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows for people. As a table where the terminal is wide enough, else one row below the other."""

    title: str | None
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def parts(self, width: int) -> "Iterator[Table | str]":
        """What to print on a terminal of ``width`` columns."""
        if self.title is not None:
            yield self.title
        widths = [
            max([len(name), *(len(row[place]) for row in self.rows)]) + _GAP for place, name in enumerate(self.columns)
        ]
        if sum(widths[:-1]) + min(widths[-1], _LAST) <= width:
            yield self._table()
        else:
            yield self._records()

    def _table(self) -> "Table":
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        made = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in self.columns[:-1]:
            made.add_column(name, no_wrap=True)
        # The last column is the one with sentences: it folds where the line ends.
        made.add_column(self.columns[-1], overflow="fold")
        for row in self.rows:
            made.add_row(*row)
        return made

    def _records(self) -> str:
        indent = max(map(len, self.columns)) + _GAP
        blocks = (
            "\n".join(f"{name:<{indent}}{cell}" for name, cell in zip(self.columns, row, strict=True) if cell != "-")
            for row in self.rows
        )
        return "\n" + "\n\n".join(blocks) + "\n"


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Listing:
    """Rows to be shown to people; cells of any kind."""
    return Listing(title, tuple(columns), [[plain(show(cell)) for cell in row] for row in rows])


def emit(data: object, output: Output, as_table: "Callable[[], Iterable[Listing | str]]") -> None:
    """Write ``data`` in the form asked for; ``as_table`` builds what people see."""
    if output is Output.JSON:
        print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False, default=str))
    elif output is Output.YAML:
        import yaml

        print(yaml.safe_dump(json.loads(json.dumps(data, default=str)), sort_keys=False, allow_unicode=True), end="")
    else:
        out = console()
        with out.capture() as shown:
            for part in as_table():
                for piece in part.parts(out.width) if isinstance(part, Listing) else (plain(part),):
                    out.print(piece, markup=False, soft_wrap=isinstance(piece, str))
        # Tables are padded to their width; copied or grepped lines should not end in blanks.
        print("\n".join(line.rstrip() for line in shown.get().strip("\n").split("\n")))


def plain(text: str) -> str:
    """``text`` without control characters: what others wrote must not steer the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def show(cell: object) -> str:
    """A cell of a table: unknown is a dash, numbers are short."""
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.2f}".rstrip("0").rstrip(".")
    if isinstance(cell, list | tuple):
        return ", ".join(show(item) for item in cell)
    return str(cell)


def ago(seconds: float | None) -> str:
    """``3.2s ago``; a dash where unknown."""
    if seconds is None:
        return "-"
    for limit, unit in ((60, 1), (3600, 60), (86400, 3600)):
        if seconds < limit:
            value, name = seconds / unit, {1: "s", 60: "m", 3600: "h"}[unit]
            return f"{value:.1f}{name} ago" if value < 10 else f"{value:.0f}{name} ago"
    return f"{seconds / 86400:.0f}d ago"


def since(stamp: str | None) -> str:
    """How long ago a UTC ISO-8601 time was."""
    if not stamp:
        return "-"
    return ago(max(0.0, (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds()))
