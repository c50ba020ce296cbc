"""How one of a group's members is chosen, for the pickers that need no load: pure, lock-free, O(1).

A picker is built when a document arrives and only read afterwards. What it draws from is injected: ``bits(32)`` gives a
word ``u``, and the member is the first whose running total of weights exceeds ``u x total / 2**32``, rounded down
(equal weights for ``random``), so that a gateway in any language picks the same for the same words.
"""

from collections.abc import Callable, Iterator, Sequence
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

    def pick_of(self, fits: Callable[[T], bool]) -> T:
        """The next in turn that ``fits``, of whom there is one at least; those passed over lose their turn."""
        turn = next(self._cursor)
        return next(member for step in range(self._size) if fits(member := self._members[(turn + step) % self._size]))


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
    """Any member, in proportion to its weight (whole, above 0)."""

    __slots__ = ("_bits", "_wheel")

    def __init__(self, members: Sequence[T], weights: Sequence[int], bits: Bits) -> None:
        self._wheel = Wheel(members, weights)
        self._bits = bits

    def pick(self) -> T:
        word = self._bits(WORD)
        return self._wheel.table[word >> WORD - self._wheel.bits] or self._wheel.at(word)
