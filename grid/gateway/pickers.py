"""How one of a group's members is chosen, for the pickers that need no load: pure, lock-free, O(1).

A picker is built when a document arrives and only read afterwards. What it draws from is injected: ``bits(32)`` gives a
word ``u``, and the member is the first whose running total of weights exceeds ``u / 2**32 * total`` (equal weights for
``random``), so that a gateway in any language picks the same for the same words.
"""

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from grid.gateway.draws import WORD, Bits, Wheel

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class GroupPicker(Protocol[T_co]):
    """Chooses among the members of one group. Safe to call from several threads at once."""

    def pick(self) -> T_co:
        """The member that takes the next request."""
        ...


class Deterministic(Generic[T]):
    """Always the first member: the order of the document is the whole policy."""

    __slots__ = ("_first",)

    def __init__(self, members: Sequence[T]) -> None:
        self._first = members[0]

    def pick(self) -> T:
        return self._first


class RoundRobin(Generic[T]):
    """Each member in turn. ``cursor`` counts requests; it may have been counting before (the same document again)."""

    __slots__ = ("_cursor", "_members", "_size")

    def __init__(self, members: Sequence[T], cursor: Iterator[int]) -> None:
        self._members = tuple(members)
        self._size = len(self._members)
        self._cursor = cursor

    def pick(self) -> T:
        # One step of itertools.count is atomic, so callers at the same moment never share a turn.
        return self._members[next(self._cursor) % self._size]


class Random(Generic[T]):
    """Any member, all alike."""

    __slots__ = ("_bits", "_members", "_size")

    def __init__(self, members: Sequence[T], bits: Bits) -> None:
        self._members = tuple(members)
        self._size = len(self._members)
        self._bits = bits

    def pick(self) -> T:
        return self._members[self._bits(WORD) * self._size >> WORD]


class WeightedRandom(Generic[T]):
    """Any member, in proportion to its weight (above 0)."""

    __slots__ = ("_bits", "_wheel")

    def __init__(self, members: Sequence[T], weights: Sequence[float], bits: Bits) -> None:
        self._wheel = Wheel(members, weights)
        self._bits = bits

    def pick(self) -> T:
        return self._wheel.at(self._bits(WORD))
