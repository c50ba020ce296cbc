"""Draws in proportion to weight, in constant time.

A draw is a 32-bit word ``u``. It belongs to the first member whose running total of weights exceeds
``u / 2**32 * total``: the inverse of the cumulative distribution, so that a client in any language gives the same
answer for the same word. A table indexed by the word's upper bits answers at once where its cell lies inside one
member's interval; a cell with a boundary in it is left empty and answered by bisection, so the table changes no
probability.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

WORD = 32
"""Bits of one draw."""

SPAN = 1 << WORD
_CELLS_PER_MEMBER = 16
"""At most one draw in this many needs the bisection."""

_SMALL = 16
"""Up to so many members a wheel of the others is kept for each, since the same one is often drawn twice."""

Bits = Callable[[int], int]
"""Like ``random.getrandbits``: the random source, injected so that picks can be replayed."""

T = TypeVar("T")


class Wheel(Generic[T]):
    """Members with weights above 0, to be drawn from. Immutable once built.

    ``table`` and ``shift`` are open to the picker, which reads ``table[u >> shift]`` without a call and falls back to
    :meth:`at` where the cell is empty.
    """

    __slots__ = ("_bounds", "_places", "_rests", "members", "shift", "table", "total", "weights")

    def __init__(self, members: Sequence[T], weights: Sequence[float]) -> None:
        if not members or len(members) != len(weights) or min(weights) <= 0:
            raise ValueError(f"a wheel needs members with weights above 0, got {len(members)} and {list(weights)[:8]}")
        self.members = tuple(members)
        self.weights = tuple(weights)
        self._bounds = list(accumulate(self.weights))
        self.total = self._bounds[-1]
        self._places = {id(member): place for place, member in enumerate(self.members)}
        self._rests: dict[int, Wheel[T]] = {}
        bits = (_CELLS_PER_MEMBER * len(self.members) - 1).bit_length()
        self.shift = WORD - bits
        self.table = self._cells(1 << bits)

    def _cells(self, size: int) -> list[T | None]:
        cells: list[T | None] = [None] * size
        lower = 0.0
        for member, upper in zip(self.members, self._bounds, strict=True):
            # Cells that lie wholly inside [lower, upper). The ends are taken one cell short where rounding could
            # put them on the wrong side: an empty cell is slower, never wrong.
            first = int(lower / self.total * size) + (lower > 0.0)
            last = int(upper / self.total * size)
            if last < size:
                last -= upper / self.total * size - last < 1e-9
            else:
                last = size
            if last > first:
                cells[first:last] = [member] * (last - first)
            lower = upper
        return cells

    def at(self, word: int) -> T:
        """The member that the draw ``word`` (0 to 2**32 - 1) belongs to."""
        cell = self.table[word >> self.shift]
        if cell is not None:
            return cell
        place = bisect_right(self._bounds, word / SPAN * self.total)
        return self.members[min(place, len(self.members) - 1)]

    def at_rest(self, word: int, without: T) -> T:
        """The member that ``word`` belongs to when ``without`` is taken out; needs two members or more."""
        if len(self.members) <= _SMALL:
            rest = self._rests.get(id(without))
            if rest is None:
                rest = self._rests[id(without)] = self._without(self._places[id(without)])
            return rest.table[word >> rest.shift] or rest.at(word)
        place = self._places[id(without)]
        weight = self.weights[place]
        mark = word / SPAN * (self.total - weight)
        if mark >= self._bounds[place] - weight:
            mark += weight
        found = min(bisect_right(self._bounds, mark), len(self.members) - 1)
        if found == place:  # a rounding error away from the gap
            found = place + 1 if place + 1 < len(self.members) else place - 1
        return self.members[found]

    def _without(self, place: int) -> "Wheel[T]":
        return Wheel(self.members[:place] + self.members[place + 1 :], self.weights[:place] + self.weights[place + 1 :])
