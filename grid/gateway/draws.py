"""Draws in proportion to weight: exact, with whole numbers only, so that every language gives the same answer.

A draw is a 32-bit word ``u``. It belongs to the first member whose running total of weights exceeds
``u x total / 2**32``, rounded down: the inverse of the cumulative distribution. :class:`Line` finds it by bisection.
:class:`Wheel` has a table beside it, indexed by the word's upper bits: a cell that lies inside one member's share
answers at once, and only for one with a boundary in it the word's lower bits are needed. :class:`Odds` is for weights
that change one at a time, as members gain and lose room.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

WORD = 32
"""Bits of one draw."""

SPAN = 1 << WORD
_CELLS_PER_MEMBER = 32
"""At most one draw in this many needs the word's lower bits."""

_SMALL = 16
"""Up to so many members a wheel of the others is kept for each, since the same one is often drawn twice."""

_FINE = 1024
"""Parts of one request that weights made of capacities tell apart."""

Bits = Callable[[int], int]
"""Like ``random.getrandbits``: the random source, injected so that picks can be replayed."""

T = TypeVar("T")


def weight_of(capacity: float) -> int:
    """A capacity (requests, above 0) as a whole weight: in 1/1024 of a request, at least 1."""
    return max(1, round(capacity * _FINE))


class Line(Generic[T]):
    """Members with whole weights above 0, to be drawn from. Immutable."""

    __slots__ = ("_bounds", "members", "total", "weights")

    def __init__(self, members: Sequence[T], weights: Sequence[int]) -> None:
        if not members or len(members) != len(weights) or min(weights) <= 0:
            raise ValueError(f"a draw needs members with weights above 0, got {len(members)} and {list(weights)[:8]}")
        self.members = tuple(members)
        self.weights = tuple(weights)
        self._bounds = list(accumulate(self.weights))
        self.total = self._bounds[-1]

    def at(self, word: int) -> T:
        """The member that the draw ``word`` (0 to 2**32 - 1) belongs to."""
        return self.members[bisect_right(self._bounds, word * self.total >> WORD)]

    def at_rest(self, word: int, spot: int) -> T:
        """The member that ``word`` belongs to when the one at ``spot`` is taken out; needs two members or more."""
        weight = self.weights[spot]
        mark = word * (self.total - weight) >> WORD
        if mark >= self._bounds[spot] - weight:
            mark += weight
        return self.members[bisect_right(self._bounds, mark)]


class Wheel(Line[T]):
    """A line with a table of ``2**bits`` cells. ``undecided`` stands in the cells that more than one member shares.

    ``table`` and ``bits`` are open to the picker, which draws two indices at once and reads them without a call.
    """

    __slots__ = ("_low", "_rests", "bits", "table", "undecided")

    def __init__(self, members: Sequence[T], weights: Sequence[int], undecided: Any = None) -> None:
        super().__init__(members, weights)
        self.undecided = undecided
        self.bits = (_CELLS_PER_MEMBER * len(self.members) - 1).bit_length()
        self._low = WORD - self.bits
        self.table: list[Any] = self._cells()
        self._rests: list[Wheel[T] | None] = [None] * len(self.members) if len(self.members) <= _SMALL else []

    def _cells(self) -> list[Any]:
        cells = [self.undecided] * (1 << self.bits)
        total, low = self.total, self._low
        begin = 0
        for member, upper in zip(self.members, self._bounds, strict=True):
            end = -(-(upper << WORD) // total)
            first, last = -(-begin >> low), end >> low
            if last > first:
                cells[first:last] = [member] * (last - first)
            begin = end
        return cells

    def settle(self, index: int, bits: Bits) -> T:
        """The member of an undecided cell, after drawing the lower bits of the word."""
        return self.at(index << self._low | bits(self._low))

    def at_rest(self, word: int, spot: int) -> T:
        """The member that ``word`` belongs to when the one at ``spot`` is taken out; needs two members or more."""
        if not self._rests:
            return super().at_rest(word, spot)
        rest = self._rests[spot]
        if rest is None:
            rest = self._rests[spot] = self._without(spot)
        cell: T | None = rest.table[word >> rest._low]
        return rest.at(word) if cell is None else cell

    def _without(self, spot: int) -> "Wheel[T]":
        return Wheel(self.members[:spot] + self.members[spot + 1 :], self.weights[:spot] + self.weights[spot + 1 :])


class Odds(Generic[T]):
    """Members with whole weights that change: a tree of sums, so a change and a draw cost log2 of their number.

    A weight of 0 is never drawn. Draws need a total above 0.
    """

    __slots__ = ("_size", "_sums", "members")

    def __init__(self, members: Sequence[T], weights: Sequence[int]) -> None:
        self.members = members
        self._size = size = 1 << (len(members) - 1).bit_length()
        self._sums = sums = [0] * size + list(weights) + [0] * (size - len(members))
        for node in range(size - 1, 0, -1):
            sums[node] = sums[2 * node] + sums[2 * node + 1]

    @property
    def total(self) -> int:
        """Sum of all weights."""
        return self._sums[1]

    def put(self, spot: int, weight: int) -> None:
        """Change the weight of the member at ``spot``."""
        sums, node = self._sums, self._size + spot
        change = weight - sums[node]
        while node:
            sums[node] += change
            node >>= 1

    def at(self, word: int) -> T:
        """The member that the draw ``word`` belongs to."""
        return self.members[self._spot(word * self._sums[1] >> WORD)]

    def at_rest(self, word: int, without: int) -> T:
        """The member that ``word`` belongs to when the one at spot ``without`` is taken out; needs weight beside it."""
        sums, node = self._sums, self._size + without
        weight, before = sums[node], 0
        while node > 1:
            if node & 1:
                before += sums[node - 1]
            node >>= 1
        mark = word * (sums[1] - weight) >> WORD
        return self.members[self._spot(mark if mark < before else mark + weight)]

    def ends(self) -> tuple[T, T]:
        """The first and the last member with a weight above 0."""
        return self.members[self._spot(0)], self.members[self._spot(self._sums[1] - 1)]

    def _spot(self, mark: int) -> int:
        sums, size, node = self._sums, self._size, 1
        while node < size:
            node <<= 1
            if mark >= sums[node]:
                mark -= sums[node]
                node += 1
        return node - size
