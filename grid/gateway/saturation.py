"""The picker ``saturation``: spread by estimate, keep near sites full, spill when they are.

Within the first group that has a provider with room:

- three or more that may be drawn: draw two distinct ones by capacity, keep the lower cost, at a tie the first drawn;
- two: the lower cost, ties at random; where they cannot be trusted, one draw weighted by
  capacity / (1 + saturation), the shares held within 0.1 and 0.9;
- one: that one.

Whoever is open may be drawn (:class:`grid.gateway.target.Target`): those that have room, for a gateway that is a part
of its fleet also those that may only seem full, and for a very small part those below the water level
(:mod:`grid.gateway.level`). To leave out those that seem full makes 64 gateways rush to the rest.

Where no group has room: one draw by capacity among the healthy of all groups that tie on the best known queue. When
that one is past the overflow bound, one among all that are not, or that are not spent; when it has got more since
the sample than was free then, the one with the shorter queue of it and another. Two choices on a corrected number beat
the least stale number and every ranking (``grid simulate stale`` shows it).

Order of the random words, so that picks can be replayed anywhere (``schemas/vectors/README.md`` says it in full): one
number holds the cells of both draws, the first in its lower half; a cell that more than one member shares takes the
lower bits of its word, first draw first; a draw that hits one that is not open, or a second one that hits the first, is
followed by one 32-bit draw among those that are left. A tie of two takes one bit, a weighted draw 32.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from grid.gateway import refusals
from grid.gateway.decision import Decision, decided
from grid.gateway.draws import SPAN, WORD, Bits, Line, Odds, Wheel
from grid.gateway.level import WaterLevel
from grid.gateway.places import NOWHERE, Place
from grid.gateway.shedding import judge, retry_after
from grid.gateway.target import Target
from grid.model import RoutingError

_LEAST: Final = 0.1
_MOST: Final = 0.9
"""Bounds of a share where estimates cannot be trusted."""


class Group:
    """The places of one group that may take new work; knows at any time which of them have room, and may be drawn.

    ``trusted``: whether the estimates of all can be relied on. ``room``: how many may be drawn: none while none has
    room, else those that are open, which where estimates cannot be relied on are those below the water level.
    ``pair``: the first and the last of them, where they are two at most. ``table``, ``half``, ``mask`` and ``width``
    are those of the wheel over all places, for the pick to read. ``offset``: places of the capability before these.
    ``water``: None where estimates say who is open; also for two, between which one draw decides.
    """

    __slots__ = (
        "_free", "_open", "_weights", "half", "mask", "odds", "offset", "pair", "places", "room", "route", "table",
        "trusted", "water", "wheel", "width",
    )  # fmt: skip

    def __init__(self, places: Sequence[Place], offset: int, route: "SaturationRoute") -> None:
        self.places = tuple(places)
        self.offset = offset
        self.route = route
        self._weights: tuple[int, ...] = ()
        self.wheel: Wheel[Place]
        self.water: WaterLevel | None
        for spot, place in enumerate(self.places):
            place.group, place.spot = self, spot
        self.renumber()

    def renumber(self) -> None:
        """Take over the targets' new numbers."""
        targets = [place.target for place in self.places]
        weights = tuple([target.weight for target in targets])
        if weights != self._weights:
            self._weights = weights
            self.wheel = wheel = Wheel(self.places, weights, NOWHERE)
            self.table, self.half = wheel.table, wheel.bits
            self.width, self.mask = 2 * wheel.bits, (1 << wheel.bits) - 1
        self.trusted = all(target.trusted for target in targets)
        self._free = sum([target.has_room for target in targets])
        guessed = not self.trusted and targets[0].known and len(targets) > 2
        self.water = WaterLevel(targets) if guessed else None
        opened = [0 if guessed or not target.is_open else target.weight for target in targets]
        self._open = len(opened) - opened.count(0)
        self.odds = Odds(self.places, opened)
        if self.water is not None:
            self._admit(self.water.reached(-math.inf))
        self._count()

    def rise(self, now: float) -> None:
        """Let the places in that the water level has reached by ``now``."""
        if self.water is not None and (spots := self.water.reached(now)):
            self._admit(spots)
            self._count()

    def _admit(self, spots: Sequence[int]) -> None:
        for spot in spots:
            self.odds.put(spot, self._weights[spot])
        self._open += len(spots)

    def _count(self) -> None:
        self.room = self._open if self._free else 0
        self.pair = self.odds.ends() if 0 < self.room <= 2 else (NOWHERE, NOWHERE)

    def room_changed(self, has_room: bool) -> None:
        """One of the places has gained or lost room."""
        self._free += 1 if has_room else -1
        self._count()
        if self._free <= 1:
            self.route.face()

    def open_changed(self, place: Place, is_open: bool) -> None:
        """``place`` may be drawn again, or no more; only where estimates are trusted."""
        self.odds.put(place.spot, place.target.weight if is_open else 0)
        self._open += 1 if is_open else -1
        self._count()

    def over_changed(self, place: Place, is_over: bool) -> None:
        """``place`` went above the overflow bound, or came back below it."""
        spot, weight = self.offset + place.spot, 0 if is_over else place.target.weight
        self.route.over_changed(spot, weight)
        if not place.target.known:
            self.route.spent_changed(spot, weight)

    def sure_changed(self, place: Place, surely_over: bool) -> None:
        """It has become certain that ``place`` is above that bound, or it no longer is."""
        self.route.sure += 1 if surely_over else -1
        self.route.spent_changed(self.offset + place.spot, 0 if surely_over else place.target.weight)

    def two(self, first: Place, second: Place, word: int, bits: Bits) -> tuple[Place, Place]:
        """The two drawn, when what stands in the two cells of ``word`` is not two distinct ones that are open."""
        wheel = self.wheel
        if first is second is not NOWHERE and self._open == len(self.places):
            return first, wheel.at_rest(bits(WORD), first.spot)  # the common one, sooner
        if first is NOWHERE:
            first = wheel.settle(word & self.mask, bits)
        if second is NOWHERE:
            second = wheel.settle(word >> self.half, bits)
        if not first.target.is_open:
            first = self.odds.at(bits(WORD))
        if second is first or not second.target.is_open:
            # Both give the same answer; a wheel of the others gives it sooner where all are open.
            rest = wheel if self.room == len(self.places) else self.odds
            second = rest.at_rest(bits(WORD), first.spot)
        return first, second

    def two_below(self, bits: Bits) -> tuple[Place, Place]:
        """Two drawn of those that the water level has reached."""
        first = self.odds.at(bits(WORD))
        return first, self.odds.at_rest(bits(WORD), first.spot)


def _shut() -> Group:
    group = object.__new__(Group)
    group.room = 0
    return group


SHUT: Final = _shut()
"""Stands for the group to pick from while none has room, or while new work is shed."""


class SaturationRoute:
    """The groups of one capability in their order, with what is needed when none has room.

    ``front``: the first group with room. ``over`` counts the places above the overflow bound, of all ``places``, and
    ``sure`` those that are so by what is certain: only that refuses anybody.
    ``sheds`` False: nothing is ever refused for load here, because admission control in front does that.
    """

    __slots__ = (
        "_all", "_bits", "_tied", "_under", "_unspent", "front", "groups", "over", "places", "shedding", "sheds",
        "sure",
    )  # fmt: skip

    def __init__(
        self, tiers: Sequence[Sequence[Place]], bits: Bits, *, sheds: bool = True, shedding: bool = False
    ) -> None:
        self._bits = bits
        self.sheds = sheds
        self.shedding = shedding
        self.places = tuple(place for tier in tiers for place in tier)
        offsets = accumulate((len(tier) for tier in tiers), initial=0)
        self.groups = tuple(Group(tier, offset, self) for tier, offset in zip(tiers, offsets, strict=False))
        self._settle()

    def renumber(self) -> None:
        """A frame has changed the targets' numbers: weights, who has room, who ties on the best queue, shedding."""
        for group in self.groups:
            group.renumber()
        self._settle()

    def rise(self, now: float) -> None:
        """Let the places in that the water level has reached by ``now``, in every group that goes by it."""
        for group in self.groups:
            group.rise(now)

    def _settle(self) -> None:
        targets = [place.target for place in self.places]
        self._tied = Line(*_shortest(self.places))
        self._all = self.groups[0].wheel if len(self.groups) == 1 else Line(self.places, [t.weight for t in targets])
        self.over = sum([target.is_over for target in targets])
        self.sure = sum([target.surely_over for target in targets])
        self._under = Odds(self.places, [0 if target.is_over else target.weight for target in targets])
        if self.sheds:
            self.shedding = judge(self.shedding, targets)
        self._unspent = Odds(self.places, [0 if target.spent else target.weight for target in targets])
        self.face()

    def face(self) -> None:
        """Find the first group with room."""
        self.front = SHUT if self.shedding else next((group for group in self.groups if group.room), SHUT)

    def over_changed(self, spot: int, weight: int) -> None:
        """The place at ``spot`` may be given ``weight`` where nobody has room: 0 once it is past the overflow bound."""
        self.over += 1 if not weight else -1
        self._under.put(spot, weight)

    def spent_changed(self, spot: int, weight: int) -> None:
        """The place at ``spot`` is spent (``weight`` 0), or no longer."""
        self._unspent.put(spot, weight)

    def refusal(self) -> RoutingError | None:
        """Why new work is refused now, whoever asks; None while it is not."""
        if self.shedding or (self.sheds and self.sure >= len(self.places)):
            candidate = self.places[0].candidate
            return refusals.shed(candidate.kind, candidate.name, retry_after(self._bits))
        return None

    def pick(self) -> Decision:
        """Who takes the next request. Never waits, never locks, same cost at any size. Raises RoutingError."""
        group = self.front
        if group.room > 2:
            if group.water is None:
                word = self._bits(group.width)
                table = group.table
                first = table[word & group.mask]
                second = table[word >> group.half]
                one, two = first.target, second.target
                if first is second or not one.is_open or not two.is_open:
                    first, second = group.two(first, second, word, self._bits)
                    one, two = first.target, second.target
            else:
                first, second = group.two_below(self._bits)
                one, two = first.target, second.target
            decision = Decision()
            decision.case = "two_drawn"
            if two.cost < one.cost:
                decision.place, decision.estimate = second, two.estimate
                decision.other, decision.other_estimate = first, one.estimate
            else:
                decision.place, decision.estimate = first, one.estimate
                decision.other, decision.other_estimate = second, two.estimate
            return decision
        if group.room == 2:
            return of_two(group.pair[0], group.pair[1], group.trusted or group.water is not None, self._bits)
        if group.room:
            return decided(group.pair[0], None, "only_one")
        return self._without_room()

    def _without_room(self) -> Decision:
        refusal = self.refusal()
        if refusal is not None:
            raise refusal
        place = self._tied.at(self._bits(WORD))
        target = place.target
        if target.is_over and self.over < len(self.places):
            place = self._under.at(self._bits(WORD))
        elif target.surely_over and self._unspent.total:
            place = self._unspent.at(self._bits(WORD))
        elif target.estimate > target.brim and (group := place.group) is not None and len(self.places) > 1:
            place = shorter(place, self._all.at_rest(self._bits(WORD), group.offset + place.spot))
        return decided(place, None, "last_resort")


def _shortest(places: Sequence[Place]) -> tuple[list[Place], list[int]]:
    """Those that tie on the best known queue, with their weights; all of them where no queue is known."""
    best = min((place.target.queue for place in places if place.target.queue is not None), default=None)
    tied = [place for place in places if place.target.queue == best]
    return tied, [place.target.weight for place in tied]


def shorter(place: Place, other: Place) -> Place:
    """Whose queue is shorter by now for its capacity; ``place`` had the shortest one told, and got more since."""
    return other if other.target.backlog < place.target.backlog else place


def of_two(first: Place, second: Place, trusted: bool, bits: Bits) -> Decision:
    """The case of two with room, given in the document's order."""
    one, two = first.target, second.target
    if trusted:
        if one.cost < two.cost or (one.cost == two.cost and not bits(1)):
            return decided(first, second, "lower_of_two")
        return decided(second, first, "lower_of_two")
    weight, against = _worth(one), _worth(two)
    share = min(_MOST, max(_LEAST, weight / (weight + against)))
    if bits(WORD) / SPAN < share:
        return decided(first, second, "weighted_of_two")
    return decided(second, first, "weighted_of_two")


def _worth(target: Target) -> float:
    return target.capacity / (1.0 + (target.estimate if target.saturation is None else target.saturation))


def choose(tiers: Sequence[Sequence[Place]], bits: Bits) -> Decision:
    """The same rule over any places, without anything prepared: for a retry, or a pick held to some of them.

    Costs time in proportion to their number. Needs one place at least. Every draw takes a 32-bit word.
    """
    for tier in tiers:
        has_room = any(place.target.has_room for place in tier)
        room = [place for place in tier if place.target.is_open] if has_room else []
        if len(room) > 2:
            line = Line(room, [place.target.weight for place in room])
            first = line.at(bits(WORD))
            second = line.at_rest(bits(WORD), room.index(first))
            if second.target.cost < first.target.cost:
                first, second = second, first
            return decided(first, second, "two_drawn")
        if len(room) == 2:
            return of_two(room[0], room[1], all(place.target.trusted for place in room), bits)
        if room:
            return decided(room[0], None, "only_one")
    places = [place for tier in tiers for place in tier]
    place = Line(*_shortest(places)).at(bits(WORD))
    under = [one for one in places if not one.target.is_over] if place.target.is_over else []
    unspent = [one for one in places if not one.target.spent] if place.target.surely_over else []
    if under or unspent:
        rest = under or unspent
        place = Line(rest, [one.target.weight for one in rest]).at(bits(WORD))
    elif place.target.estimate > place.target.brim and len(places) > 1:
        line = Line(places, [one.target.weight for one in places])
        place = shorter(place, line.at_rest(bits(WORD), places.index(place)))
    return decided(place, None, "last_resort")
