"""The picker ``saturation``: spread by estimate, keep near sites full, spill when they are.

Within the first group that has a provider with room:

- three or more with room: draw two distinct ones by capacity, keep the lower estimate;
- two: the lower estimate; where one cannot be trusted, one draw weighted by capacity / (1 + saturation), the shares
  held within 0.1 and 0.9;
- one: that one;

and where no group has room, one draw by capacity among the healthy of all groups that tie on the best known queue.
Two choices on a corrected number beat the least stale number and every ranking (``docs/gateway.md`` has the figures).

Order of the random words, so that picks can be replayed anywhere: the two draws are the lower and the upper half of one
64-bit number; every further draw takes 32 bits; a tie of two takes one bit.
"""

from collections.abc import Sequence
from typing import Literal

from grid.gateway.draws import SPAN, WORD, Bits, Wheel
from grid.gateway.target import Target

Case = Literal["two_drawn", "lower_of_two", "weighted_of_two", "only_one", "last_resort"]
"""Which of the five cases chose; ``Decision.case`` and the conformance vectors name them so."""

_LOWER = SPAN - 1
_REDRAWS = 8
"""Further draws spent on finding one with room by capacity before the list of those with room is asked."""

_FEW = 8
"""Up to so many with room among more without are drawn from by a walk, which is exact and no slower."""

_LEAST, _MOST = 0.1, 0.9
"""Bounds of a share where estimates cannot be trusted."""


class Place:
    """A candidate's place in one capability: its target, its group, its order in the document."""

    __slots__ = ("group", "order", "route", "target")

    def __init__(self, target: Target, order: int) -> None:
        self.target = target
        self.order = order
        self.group: Group | None = None
        self.route: SaturationRoute | None = None

    def room_changed(self, has_room: bool) -> None:
        """See :class:`grid.gateway.target.Member`."""
        if self.group is not None:
            if has_room:
                self.group.opened(self)
            else:
                self.group.closed(self)

    def over_changed(self, is_over: bool) -> None:
        """See :class:`grid.gateway.target.Member`."""
        if self.route is not None:
            self.route.over += 1 if is_over else -1


class Group:
    """The places of one group that may take new work; knows at any time which of them have room."""

    __slots__ = ("_spots", "number", "open", "total", "wheel")

    def __init__(self, number: int, places: Sequence[Place]) -> None:
        self.number = number
        self.total = len(places)
        self.wheel: Wheel[Place] = Wheel(places, [place.target.capacity for place in places])
        self.open = [place for place in places if place.target.has_room]
        self._spots = {id(place): spot for spot, place in enumerate(self.open)}
        for place in places:
            place.group = self

    def reweigh(self) -> None:
        """Take over changed capacities."""
        places = self.wheel.members
        weights = tuple(place.target.capacity for place in places)
        if weights != self.wheel.weights:
            self.wheel = Wheel(places, weights)

    def opened(self, place: Place) -> None:
        """``place`` has room again."""
        self._spots[id(place)] = len(self.open)
        self.open.append(place)

    def closed(self, place: Place) -> None:
        """``place`` has no room left; the last of the list takes its spot, so this costs the same at any size."""
        spot = self._spots.pop(id(place))
        last = self.open.pop()
        if last is not place:
            self.open[spot] = last
            self._spots[id(last)] = spot

    def two(self, first: Place, second: Place, bits: Bits) -> tuple[Place, Place]:
        """Two distinct places with room, by capacity, when the first two draws were not that already."""
        if self.total > len(self.open) <= _FEW:
            return self._walk(bits)
        wheel = self.wheel
        for _ in range(_REDRAWS):
            if first.target.has_room:
                break
            first = wheel.at(bits(WORD))
        else:
            first = self._any(bits)
        for _ in range(_REDRAWS):
            if second is not first and second.target.has_room:
                return first, second
            second = wheel.at_rest(bits(WORD), first)
        spot = self._spots[id(first)]
        other = bits(WORD) * (len(self.open) - 1) >> WORD
        return first, self.open[other + (other >= spot)]

    def _walk(self, bits: Bits) -> tuple[Place, Place]:
        chosen: list[Place] = []
        rest = sorted(self.open, key=_order)
        for _ in range(2):
            mark = bits(WORD) / SPAN * sum(place.target.capacity for place in rest)
            for place in rest[:-1]:
                mark -= place.target.capacity
                if mark < 0:
                    break
            else:
                place = rest[-1]
            chosen.append(place)
            rest.remove(place)
        return chosen[0], chosen[1]

    def _any(self, bits: Bits) -> Place:
        """One with room, by capacity as far as a few tries allow; each try takes a place and a chance to keep it."""
        most = max(self.wheel.weights)
        place = self.open[bits(WORD) * len(self.open) >> WORD]
        for _ in range(_REDRAWS):
            if bits(WORD) / SPAN * most < place.target.capacity:
                break
            place = self.open[bits(WORD) * len(self.open) >> WORD]
        return place


def _order(place: Place) -> int:
    return place.order


class SaturationRoute:
    """The groups of one capability in their order, with what is needed when none has room.

    ``over`` counts the healthy places above the overflow bound, of ``total``.
    """

    __slots__ = ("_resort", "groups", "over", "places", "total")

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = tuple(groups)
        self.places = tuple(place for group in self.groups for place in group.wheel.members)
        self.total = len(self.places)
        self.over = sum(place.target.is_over for place in self.places)
        for place in self.places:
            place.route = self
        self._resort = self._last_resort()

    def renumber(self) -> None:
        """A frame has changed the targets' numbers: weights, and who ties on the best queue."""
        for group in self.groups:
            group.reweigh()
        self._resort = self._last_resort()

    def _last_resort(self) -> Wheel[Place]:
        known = [place for place in self.places if place.target.queue is not None]
        best = min((place.target.queue for place in known if place.target.queue is not None), default=None)
        tied = [place for place in known if place.target.queue == best] or list(self.places)
        return Wheel(tied, [place.target.capacity for place in tied])

    def pick(self, bits: Bits) -> tuple[Place, Place | None, Case]:
        """Who takes the next request, against whom, by which case. Never waits, never locks, same cost at any size."""
        for group in self.groups:
            room = len(group.open)
            if room > 2:
                wheel = group.wheel
                word = bits(64)
                first = wheel.table[(word & _LOWER) >> wheel.shift] or wheel.at(word & _LOWER)
                second = wheel.table[word >> (WORD + wheel.shift)] or wheel.at(word >> WORD)
                if first is second:
                    second = wheel.at_rest(bits(WORD), first)
                if not first.target.has_room or not second.target.has_room:
                    first, second = group.two(first, second, bits)
                if second.target.estimate < first.target.estimate:
                    return second, first, "two_drawn"
                return first, second, "two_drawn"
            if room == 2:
                return _of_two(group.open[0], group.open[1], bits)
            if room:
                return group.open[0], None, "only_one"
        return self._resort.at(bits(WORD)), None, "last_resort"


def _of_two(first: Place, second: Place, bits: Bits) -> tuple[Place, Place, Case]:
    if first.order > second.order:
        first, second = second, first
    one, two = first.target, second.target
    if one.trusted and two.trusted:
        lower = one.estimate < two.estimate or (one.estimate == two.estimate and not bits(1))
        return (first, second, "lower_of_two") if lower else (second, first, "lower_of_two")
    weight, against = _weight(one), _weight(two)
    share = min(_MOST, max(_LEAST, weight / (weight + against)))
    if bits(WORD) / SPAN < share:
        return first, second, "weighted_of_two"
    return second, first, "weighted_of_two"


def _weight(target: Target) -> float:
    return target.capacity / (1.0 + (target.estimate if target.saturation is None else target.saturation))
