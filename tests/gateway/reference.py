"""The picker ``saturation`` by the book: slow, without tables, trees or anything kept between two picks."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from grid.gateway.draws import Bits


@dataclass(frozen=True)
class Provider:
    """One healthy provider that takes new work, as the rules see it."""

    site: str
    group: int
    weight: int
    capacity: float
    estimate: float
    cost: float
    has_room: bool
    is_open: bool
    is_over: bool
    surely_over: bool
    known: bool
    trusted: bool
    saturation: float | None
    queue: float | None
    brim: float
    backlog: float


def drawn(members: Sequence[Provider], word: int) -> Provider:
    bounds = list(accumulate(member.weight for member in members))
    return members[bisect_right(bounds, word * bounds[-1] >> 32)]


def draw(members: Sequence[Provider], bits: Bits) -> Provider:
    return drawn(members, bits(32))


def without(members: Sequence[Provider], out: Provider) -> list[Provider]:
    return [member for member in members if member is not out]


def tiers(providers: Sequence[Provider]) -> list[list[Provider]]:
    """The document's groups; in each those of known load before the others."""
    found = []
    for group in sorted({provider.group for provider in providers}):
        for known in (True, False):
            part = [one for one in providers if one.group == group and one.known is known]
            found += [part] if part else []
    return found


def choose(
    providers: Sequence[Provider], bits: Bits, below: Callable[[Sequence[Provider], Provider], bool] | None = None
) -> tuple[str, str]:
    """Case and site; ``below`` says who of a group the water level has reached."""
    for tier in tiers(providers):
        room = [one for one in tier if one.has_room]
        if not room:
            continue
        by_level = below is not None and tier[0].known and not tier[0].trusted and len(tier) > 2
        eligible = [one for one in tier if (below(tier, one) if below and by_level else one.is_open)]
        if len(eligible) >= 3:
            if by_level:
                first = draw(eligible, bits)
                second = draw(without(eligible, first), bits)
            else:
                first, second = two(tier, eligible, bits)
            return "two_drawn", (second if second.cost < first.cost else first).site
        if len(eligible) == 2:
            return of_two(eligible, bits, trusted=by_level or all(one.trusted for one in tier))
        return "only_one", eligible[0].site
    known = [one.queue for one in providers if one.queue is not None]
    best = min(known) if known else None
    everybody = [one for tier in tiers(providers) for one in tier]
    found = draw([one for one in everybody if one.queue == best], bits)
    under = [one for one in everybody if not one.is_over]
    unspent = [one for one in everybody if not (one.surely_over or (one.is_over and not one.known))]
    if found.is_over and under:
        found = draw(under, bits)
    elif found.surely_over and unspent:
        found = draw(unspent, bits)
    elif found.estimate > found.brim and len(everybody) > 1:
        other = draw(without(everybody, found), bits)
        found = other if other.backlog < found.backlog else found
    return "last_resort", found.site


def two(tier: Sequence[Provider], eligible: Sequence[Provider], bits: Bits) -> tuple[Provider, Provider]:
    width = (32 * len(tier) - 1).bit_length()
    pair = bits(2 * width)
    first, second = (settled(tier, index, width, bits) for index in (pair & (1 << width) - 1, pair >> width))
    if first not in eligible:
        first = draw(eligible, bits)
    if second is first or second not in eligible:
        second = draw(without(eligible, first), bits)
    return first, second


def settled(tier: Sequence[Provider], index: int, width: int, bits: Bits) -> Provider:
    low = 32 - width
    lowest, highest = drawn(tier, index << low), drawn(tier, (index + 1 << low) - 1)
    return lowest if lowest is highest else drawn(tier, index << low | bits(low))


def of_two(pair: Sequence[Provider], bits: Bits, *, trusted: bool) -> tuple[str, str]:
    one, other = pair
    if trusted:
        if one.cost == other.cost:
            return "lower_of_two", (other if bits(1) else one).site
        return "lower_of_two", (one if one.cost < other.cost else other).site
    worth = [p.capacity / (1 + (p.estimate if p.saturation is None else p.saturation)) for p in pair]
    share = min(0.9, max(0.1, worth[0] / sum(worth)))
    return "weighted_of_two", (one if bits(32) / 2**32 < share else other).site
