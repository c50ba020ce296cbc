r"""Finding a few metrics on a page of the Prometheus text format, or OpenMetrics, as its bytes stream in.

The page is not parsed. One compiled search, a line feed followed by the trie of the wanted names, runs over each chunk
at more than 1 GB/s, and only the lines it stops at are read. So a page costs what its size costs to search plus about
a microsecond per wanted line, whatever else is on it, and a garbled line elsewhere does no harm.

Nothing grows with the page: of what was read only an unfinished last line is kept, and lines past
:data:`MAX_LINE` are passed over. Any way to cut a page into chunks gives the same lines.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

MAX_LINE: Final = 256 * 1024
"""Bytes. Label values may hold what clients send in headers, of which proxies let pass about 64 kB."""

OVERLONG: Final = b"(a line over the limit)"
"""Stands in for what follows the name on a line longer than :data:`MAX_LINE`."""

_HEAD: Final = 512
_TAIL: Final = 8
_BOM: Final = b"\xef\xbb\xbf"

_LABEL_NAME: Final = rb"[a-zA-Z_][a-zA-Z0-9_]*+"
_LABEL_VALUE: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BLANK: Final = rb"[ \t]*+"

_LABEL: Final = _BLANK + _LABEL_NAME + _BLANK + b"=" + _BLANK + _LABEL_VALUE + _BLANK
_LABELS: Final = rb"(?:\{(?:" + _LABEL + rb"(?:,|(?=\})))*+" + _BLANK + rb"\})?+"
_PAIR: Final = re.compile(rb"(" + _LABEL_NAME + rb")" + _BLANK + rb"=" + _BLANK + rb"(" + _LABEL_VALUE + rb")")
_BLOCK: Final = re.compile(_LABELS)
# labels, value, timestamp, exemplar
_REST: Final = re.compile(
    _BLANK + rb"(" + _LABELS + rb")" + _BLANK + rb"([^ \t\r{}#]++)(?:[ \t]++[-+0-9.eE]++)?+(?:[ \t]++#.*+)?+[ \t\r]*+"
)
_SAMPLE: Final = re.compile(
    rb"\n[a-zA-Z_:][a-zA-Z0-9_:]*+(?:[ \t]*+\{[^\n]*\}[ \t]*+|[ \t]++)[-+]?(?:[0-9.]|nan|inf)[^\n]*+", re.IGNORECASE
)
_CONTENT: Final = re.compile(rb"\n[ \t\r]*+[^# \t\r\n]")
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b'"': b'"', b"\\": b"\\"}

Pairs = tuple[tuple[bytes, bytes], ...]
"""Labels as they stand on the page: values in their quotes, escapes not undone."""

Line = tuple[bytes, bytes, bytes, bytes]
"""A wanted line: name, labels with their braces, number, and nothing, where it has the form that EPPs write; else name,
nothing, nothing, and all that follows the name."""


class Sample(NamedTuple):
    """What follows the name on one line. ``block`` is the text of the labels with its braces."""

    block: bytes
    value: float
    text: bytes


def parse_rest(rest: bytes) -> Sample | None:
    """Labels and value of a line after its name, None where it is malformed; NaN where the value is no number."""
    match = _REST.fullmatch(rest)
    return None if match is None else Sample(match[1], number(match[2]), match[2])


def is_labels(block: bytes) -> bool:
    """Whether ``block`` is a well-formed block of labels, or nothing."""
    return _BLOCK.fullmatch(block) is not None


def parse_labels(block: bytes) -> Pairs:
    """The labels of a well-formed block."""
    return tuple(_PAIR.findall(block))


def label_text(value: bytes) -> str:
    """A label value in clear: quotes off, the escapes of backslash, double quote and line feed undone."""
    value = value[1:-1]
    if b"\\" in value:
        value = _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[0]), value)
    return value.decode("utf-8", "replace")


def number(text: bytes) -> float:
    """A sample's value; NaN where it is none. Python's own spelling of numbers is wider by the underscore."""
    try:
        return float(text) if b"_" not in text else float("nan")
    except ValueError:
        return float("nan")


def line_pattern(names: Iterable[str]) -> re.Pattern[bytes]:
    """What finds the lines of ``names``, each with the line feed before it; its groups make up a :data:`Line`."""
    usual = rb"((?:\{[^\n]{0,512}\})?) ([-+0-9.eE]{1,40})(?=\n|\Z)"
    return re.compile(rb"\n(" + _trie(name.encode() for name in names) + rb")(?:" + usual + rb"|(?=[{ \t])([^\n]*+))")


def _trie(names: Iterable[bytes]) -> bytes:
    """A pattern for any of ``names`` that shares their common beginnings, so that it fails after few comparisons."""
    branches: dict[bytes, list[bytes]] = {}
    for name in names:
        branches.setdefault(name[:1], []).append(name[1:])
    parts = [re.escape(first) + _trie(branches[first]) if first else b"" for first in sorted(branches, reverse=True)]
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"


class LineReader:
    """Finds the lines of wanted metrics on a page fed in chunks; ``pattern`` is :func:`line_pattern` of their names.

    After :meth:`finish`, ``size`` is the page's length in bytes, ``head`` its first bytes, ``has_samples`` whether any
    line at all was a sample, ``has_content`` whether any was neither blank nor a comment, ``cut`` the start of a last
    line without line end (empty where the page ends well), and ``ends_in_eof`` whether it ends in OpenMetrics' mark.
    """

    def __init__(self, pattern: re.Pattern[bytes], *, max_line: int = MAX_LINE) -> None:
        self._find = pattern
        self._max_line = max_line
        # Every line is looked for with the line feed before it; this one stands before the page's first line.
        self._pending = bytearray(b"\n")
        self._skipping = False
        self._at_start = True
        self._tail = b""
        self.size = 0
        self.head = b""
        self.has_samples = False
        self.has_content = False
        self.cut = b""

    @property
    def ends_in_eof(self) -> bool:
        """Whether the last line is ``# EOF``, with or without a line end."""
        return self._tail.rstrip(b"\r\n").endswith(b"# EOF")

    def feed(self, chunk: bytes) -> list[Line]:
        """The wanted lines that end in this chunk."""
        if not chunk:
            return []
        self.size += len(chunk)
        if len(self.head) < _HEAD:
            self.head += chunk[: _HEAD - len(self.head)]
        self._tail = chunk[-_TAIL:] if len(chunk) >= _TAIL else (self._tail + chunk)[-_TAIL:]
        last = chunk.rfind(b"\n")
        if last < 0:
            return self._extend(chunk, 0, len(chunk))
        first, line, lines = 0, b"", list[Line]()
        if not (self._at_start and chunk.startswith(b"#")):
            # The line that began in an earlier chunk is whole now. (None did, and a comment is no wanted line.)
            first = chunk.find(b"\n")
            lines = self._extend(chunk, 0, first)
            line = b"" if self._skipping else self._unfinished()
            lines += self._find.findall(line)
        self._at_start = self._skipping = False
        lines += self._find.findall(chunk, first, last)
        if lines:
            self.has_samples = self.has_content = True
            if last - first > self._max_line:
                lines = [line if self._fits(line) else (line[0], b"", b"", OVERLONG) for line in lines]
        elif not self.has_samples:
            self._look_around(line, 0, len(line))
            self._look_around(chunk, first, last)
        self._pending[:] = b"\n"
        if last + 1 < len(chunk):
            lines += self._extend(chunk, last + 1, len(chunk))
        return lines

    def finish(self) -> None:
        """End of the page. A last line without line end is not read: cut numbers look like numbers."""
        line = self._unfinished()
        if self._skipping or line.strip():
            self.cut = b"" if self.ends_in_eof else line[1:81] or OVERLONG
            self._look_around(line, 0, len(line))
        self._pending[:] = b"\n"

    def _unfinished(self) -> bytes:
        line = bytes(self._pending)
        return b"\n" + line[4:] if self._at_start and line.startswith(_BOM, 1) else line

    def _extend(self, chunk: bytes, start: int, end: int) -> list[Line]:
        """Keep ``chunk[start:end]``, the part of a line whose end has not come yet, unless it grows over the limit."""
        if self._skipping:
            return []
        self._pending += chunk[start : min(end, start + self._max_line + 2)]
        if len(self._pending) <= self._max_line + 1:
            return []
        line = self._unfinished()
        self._skipping = True
        self._pending[:] = b"\n"
        self.has_content = self.has_content or _CONTENT.match(line) is not None
        match = self._find.match(line)
        if match is None:
            return []
        self.has_samples = True
        return [(match[1], b"", b"", OVERLONG)]

    def _fits(self, line: Line) -> bool:
        name, block, text, rest = line
        return len(name) + len(rest or block + b" " + text) <= self._max_line

    def _look_around(self, data: bytes, start: int, end: int) -> None:
        """Note what kind of page this is, from a part without wanted lines."""
        fits = (len(match[0]) - 1 <= self._max_line for match in _SAMPLE.finditer(data, start, end))
        self.has_samples = self.has_samples or any(fits)
        self.has_content = self.has_content or _CONTENT.search(data, start, end) is not None
