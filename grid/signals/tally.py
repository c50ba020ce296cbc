"""What is kept of a page's wanted lines: a few numbers per metric and pool, however many series there are."""

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from grid.signals.dialects import DIALECTS, WANTED, Fold
from grid.signals.exposition import Line, is_labels, label_text, parse_labels, parse_rest

MAX_GROUPS: Final = 1024
"""Pools (or stages of them) kept apart per metric. A page has one; a proxy that joins pages may have some dozens."""

MAX_REMEMBERED: Final = 65_536
"""Series per page that are recognised when they come again; beyond, a sum would count them twice."""

_SHOWN: Final = 120
_INFINITY: Final = float("inf")
_COUNT: Final = Fold.COUNT

Key = tuple[str, ...]


class Group:
    """The series of one metric with equal labels of interest, folded. ``series`` counts them.

    ``value`` is their first or their sum, None where any of them has no usable value (NaN, infinite, no number; below
    0, unless they are summed): part of a sum is no sum. ``bad`` then says what stood there. ``repeated`` names a series
    that came twice. Where only their number is asked for, the value is that of the first.
    """

    __slots__ = ("bad", "first", "others", "repeated", "series", "value")

    def __init__(self, value: float | None, first: int) -> None:
        self.value = value
        self.series = 1
        self.bad = ""
        self.repeated = ""
        self.first = first
        self.others: set[int] | None = None


_POOL_GAUGES: Final = frozenset(name for dialect in DIALECTS for name in (*dialect.gauges, dialect.per_endpoint))
_METRICS: Final = {
    name.encode(): (name, wanted.fold, tuple(label.encode() for label in wanted.labels), name in _POOL_GAUGES)
    for name, wanted in WANTED.items()
}


class Tally:
    """Folds wanted lines as they are found, with a bound on what it keeps.

    With ``pool`` given, pool gauges of other pools are dropped; only their names are noted.
    """

    def __init__(self, pool: str | None = None) -> None:
        self._pool = pool
        self._memory = MAX_REMEMBERED
        self.groups: defaultdict[str, dict[Key, Group]] = defaultdict(dict)
        """What was kept, by the name of the metric and the values of its labels of interest."""
        self.pools: set[str] = set()
        """Pools named by pool gauges, at most :data:`MAX_GROUPS`."""
        self.unreadable: dict[str, str] = {}
        """Metrics with a malformed line, with the first such line's start."""

    def add(self, lines: Iterable[Line]) -> None:
        """Take in wanted lines."""
        # One long loop with little in it, since this and the search are what a page costs.
        kept, pools, asked = self.groups, self.pools, self._pool
        for raw_name, block, text, rest in lines:
            name, fold, labels, is_pool_gauge = _METRICS[raw_name]
            groups = kept[name]
            try:
                value = float(text)
                place = _place(labels, block)
            except ValueError:
                place = None
            if place is None:
                sample = parse_rest(rest or block + b" " + text)
                if sample is None:
                    self.unreadable.setdefault(name, shown(raw_name, block, text, rest))
                    continue
                value = sample.value
                place = parsed(labels, sample.block)
            key, series = place
            group = groups.get(key)
            if group is not None:
                others = group.others
                if others is None:
                    others = group.others = {group.first}
                if series in others:
                    group.repeated = group.repeated or shown(raw_name, block, text, rest)
                    continue
                if self._memory:
                    self._memory -= 1
                    others.add(series)
                group.series += 1
                if fold is not _COUNT:
                    _fold(group, fold, value, (raw_name, block, text, rest))
                continue
            if is_pool_gauge:
                pool = key[0]
                if pool not in pools and (pool == asked or len(pools) < MAX_GROUPS):
                    pools.add(pool)
                if asked is not None and pool != asked:
                    continue
            if len(groups) < MAX_GROUPS:
                group = groups[key] = Group(value, series)
                if not 0.0 <= value < _INFINITY:
                    _mark(group, fold, value, (raw_name, block, text, rest))


def _mark(group: Group, fold: Fold, value: float, line: Line) -> None:
    """Take the value of a group's first series away where it is none."""
    if fold is Fold.FIRST or (fold is Fold.SUM and not -_INFINITY < value < _INFINITY):
        group.value = None
        group.bad = shown(*line)


def _fold(group: Group, fold: Fold, value: float, line: Line) -> None:
    """Take the value of one more series into a group."""
    if fold is Fold.FIRST:
        group.repeated = group.repeated or shown(*line)
    elif not -_INFINITY < value < _INFINITY:
        group.bad = group.bad or shown(*line)
        group.value = None
    elif group.value is not None:
        group.value += value


def parsed(names: tuple[bytes, ...], block: bytes) -> tuple[Key, int]:
    """Which group a series belongs to, and a number that tells it from the others of its metric."""
    pairs = parse_labels(block)
    labels = dict(pairs) if names else {}
    return tuple([label_text(labels.get(name, b'""')) for name in names]), hash(frozenset(pairs))


@lru_cache(maxsize=16_384)
def _place(names: tuple[bytes, ...], block: bytes) -> tuple[Key, int] | None:
    """The same for a short block as it stands on a page; None where that is no well-formed block."""
    return parsed(names, block) if is_labels(block) else None


def shown(name: bytes, block: bytes = b"", text: bytes = b"", rest: bytes = b"") -> str:
    """A short, printable form of a line that anybody may have written."""
    line = name + (block[:_SHOWN] + b" " + text if text else rest[:_SHOWN])
    clear = "".join(char if char.isprintable() else "?" for char in line[:_SHOWN].decode("utf-8", "replace"))
    return clear + ("..." if len(line) > _SHOWN else "")
