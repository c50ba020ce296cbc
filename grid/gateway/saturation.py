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

from grid.gateway import refusals
from grid.gateway.decision import Decision
from grid.gateway.draws import SPAN, WORD, Bits, Wheel
from grid.gateway.places import Place
from grid.gateway.shedding import judge, retry_after
from grid.gateway.target import Target
from grid.model import RoutingError

_LOWER = SPAN - 1
_REDRAWS = 8
"""Further draws spent on finding one with room by capacity before the list of those with room is asked."""

_FEW = 8
"""Up to so many with room among more without are drawn from by a walk, which is exact and no slower."""

_LEAST, _MOST = 0.1, 0.9
"""Bounds of a share where estimates cannot be trusted."""


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

    ``over`` counts the places above the overflow bound, of ``total``; all are healthy, or none of the capability is.
    ``sheds`` False: nothing is ever refused for load here, because admission control in front does that.
    """

    __slots__ = ("_bits", "_resort", "groups", "over", "places", "shedding", "sheds", "total")

    def __init__(self, groups: Sequence[Group], bits: Bits, *, sheds: bool = True, shedding: bool = False) -> None:
        self.groups = tuple(groups)
        self.places = tuple(place for group in self.groups for place in group.wheel.members)
        self._bits = bits
        self.sheds = sheds
        self.shedding = shedding
        self.total = len(self.places)
        self.over = sum(place.target.is_over for place in self.places)
        for place in self.places:
            place.route = self
        self._resort = last_resort(self.places)

    def renumber(self) -> None:
        """A frame has changed the targets' numbers: weights, who ties on the best queue, whether to shed."""
        for group in self.groups:
            group.reweigh()
        self._resort = last_resort(self.places)
        if self.sheds:
            self.shedding = judge(self.shedding, (place.target for place in self.places))

    @property
    def refuses(self) -> bool:
        """Whether new work is refused now, whoever asks."""
        return self.shedding or (self.sheds and self.over >= self.total)

    def pick(self) -> Decision:
        """Who takes the next request. Never waits, never locks, same cost at any size. Raises RoutingError."""
        if self.shedding:
            raise self._shed()
        bits = self._bits
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
                    return Decision(second, first, "two_drawn")
                return Decision(first, second, "two_drawn")
            if room == 2:
                return of_two(group.open[0], group.open[1], bits)
            if room:
                return Decision(group.open[0], None, "only_one")
        if self.sheds and self.over >= self.total:
            raise self._shed()
        return Decision(self._resort.at(bits(WORD)), None, "last_resort")

    def _shed(self) -> RoutingError:
        candidate = self.places[0].candidate
        return refusals.shed(candidate.kind, candidate.name, retry_after(self._bits))


def last_resort(places: Sequence[Place]) -> Wheel[Place]:
    """Those that tie on the best known queue, by capacity; all of them where no queue is known."""
    best = min((place.target.queue for place in places if place.target.queue is not None), default=None)
    tied = [place for place in places if place.target.queue == best]
    return Wheel(tied, [place.target.capacity for place in tied])


def of_two(first: Place, second: Place, bits: Bits) -> Decision:
    """The case of two with room."""
    if first.order > second.order:
        first, second = second, first
    one, two = first.target, second.target
    if one.trusted and two.trusted:
        if one.estimate < two.estimate or (one.estimate == two.estimate and not bits(1)):
            return Decision(first, second, "lower_of_two")
        return Decision(second, first, "lower_of_two")
    weight, against = _weight(one), _weight(two)
    share = min(_MOST, max(_LEAST, weight / (weight + against)))
    if bits(WORD) / SPAN < share:
        return Decision(first, second, "weighted_of_two")
    return Decision(second, first, "weighted_of_two")


def _weight(target: Target) -> float:
    return target.capacity / (1.0 + (target.estimate if target.saturation is None else target.saturation))


def choose(groups: Sequence[Sequence[Place]], bits: Bits) -> Decision:
    """The same rule over any places, without anything prepared: for a retry, or a pick held to some of them.

    Costs time in proportion to their number. Needs one place at least.
    """
    for group in groups:
        room = [place for place in group if place.target.has_room]
        if len(room) > 2:
            wheel = Wheel(room, [place.target.capacity for place in room])
            first = wheel.at(bits(WORD))
            second = wheel.at_rest(bits(WORD), first)
            if second.target.estimate < first.target.estimate:
                first, second = second, first
            return Decision(first, second, "two_drawn")
        if len(room) == 2:
            return of_two(room[0], room[1], bits)
        if room:
            return Decision(room[0], None, "only_one")
    return Decision(last_resort([place for group in groups for place in group]).at(bits(WORD)), None, "last_resort")
