"""Traffic weights: integers from 1 to 1000, a provider's share inside its group.

``static`` is the declared ``capacity_weight``. The live placements weigh by requests: ``capacity`` by what a provider
can run, ``headroom`` by what of that is free (smoothed, see ``grid.policy.load``). All gateways of one placement see
the same weights, since a weight depends on the provider and the capability alone.

From requests to weights: weight = requests x unit. The unit is a power of two per capability, chosen so that the
largest capacity gets a weight from 251 to 500; it stays until a capacity would pass 1000 or the largest falls to a
sixteenth of that. So one provider's change moves no other's weight; a change of unit scales all of them alike, which
is no change of shares.

How a live weight moves:
- only where the wanted weight is off by more than 10 % (dead band);
- by at most 25 % of itself at a time, but by at least 1;
- not sooner than 10 s after it last moved (dwell);
- an unknown number holds it. Where nothing is held yet, the mean of the known weights stands in until the number is
  known (then the weight takes its place at once), or, where no number of the capability is known, the declared
  weights;
- a provider that closes (``none``) leaves at once. One that comes back, or is added to others, starts at a tenth of
  its share and climbs by the same steps, so that a cold or failing provider is not flooded.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from grid.model import Placement, Reason, Step
from grid.policy.memory import GRACE, Share, WeightBook
from grid.policy.words import number, percent

LOWEST: Final = 1
HIGHEST: Final = 1000
DEAD_BAND: Final = 0.10
STEP_LIMIT: Final = 0.25
DWELL: Final = 10.0
START: Final = 0.1
"""Part of its share at which a provider joins others."""

_LARGEST: Final = 500.0
_COARSEST: Final = HIGHEST / 16


@dataclass(frozen=True, slots=True)
class Claim:
    """What a provider may ask for: its requests (capacity or headroom), its capacity, its declared weight.

    ``joins``: it was closed, or not configured, in the pass before.
    """

    provider: str
    declared: int
    requests: float | None
    capacity: float | None
    joins: bool = False


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of one capability under one placement, the step that explains each, and what moved since the last."""

    weights: Mapping[str, int]
    steps: Mapping[str, Step]
    book: WeightBook
    moved: tuple[str, ...] = ()


def clamp(weight: float) -> int:
    """The nearest weight on the wire."""
    return min(HIGHEST, max(LOWEST, round(weight)))


def static(claims: Iterable[Claim]) -> Weights:
    """The declared shares."""
    weights = {claim.provider: clamp(claim.declared) for claim in claims}
    steps = {name: _declared_step(weight) for name, weight in weights.items()}
    return Weights(weights, steps, WeightBook())


@lru_cache(maxsize=HIGHEST)
def _declared_step(weight: int) -> Step:
    return Step("weight", Reason.WEIGHTED, f"{weight} as declared")


def live(placement: Placement, claims: Iterable[Claim], book: WeightBook, now: float) -> Weights:
    """The shares after this pass. ``claims`` are the providers that are not closed; who is missing has left."""
    present = sorted(claims, key=lambda claim: claim.provider)
    capacities = [claim.capacity for claim in present if claim.capacity]
    shares = {claim.provider: book.shares[claim.provider] for claim in present if claim.provider in book.shares}
    heaviest = max((share.weight for share in shares.values()), default=0)
    unit = _unit(book.unit, max(capacities, default=None), heaviest)
    if unit is None:
        return static(present)
    if book.unit is not None and unit != book.unit:
        shares = {
            name: replace(share, weight=clamp(share.weight * (unit / book.unit))) for name, share in shares.items()
        }
    wanted = {claim.provider: None if claim.requests is None else clamp(claim.requests * unit) for claim in present}
    known = [weight for weight in wanted.values() if weight is not None]
    mean = clamp(math.fsum(known) / len(known)) if known else None
    others = bool(shares)
    steps: dict[str, Step] = {}
    moved = []
    for claim in present:
        held, target = shares.get(claim.provider), wanted[claim.provider]
        if held is None or (held.stand_in and target is not None):
            share, step = _enter(claim, target, mean, others and held is None, now)
        else:
            share, step = _move(held, target, placement, now)
        if held is not None and share.weight != held.weight:
            moved.append(f"{claim.provider} {held.weight} to {share.weight}")
        shares[claim.provider], steps[claim.provider] = share, step
    weights = {claim.provider: shares[claim.provider].weight for claim in present}
    return Weights(weights, steps, WeightBook(unit, MappingProxyType(shares)), tuple(moved))


def _unit(unit: float | None, largest: float | None, heaviest: int) -> float | None:
    if largest is None:
        return unit
    if unit is not None:
        # Held weights may lag behind a capacity that fell; they must fit the new unit too.
        largest = max(largest, heaviest / unit)
        if _COARSEST < largest * unit <= HIGHEST:
            return unit
    return 2.0 ** math.floor(math.log2(_LARGEST / largest))


def _enter(claim: Claim, target: int | None, mean: int | None, others: bool, now: float) -> tuple[Share, Step]:
    share = target if target is not None else mean
    if share is None:
        weight = clamp(claim.declared)
        said = f"{weight} as declared, no number is known"
        return Share(weight, now, stand_in=True), Step("weight", Reason.WEIGHTED, said)
    if claim.joins and others:
        weight = clamp(share * START)
        said = f"{weight}: starts at a tenth of {share}"
        return Share(weight, now), Step("weight", Reason.WEIGHT_LIMITED, said)
    if target is None:
        said = f"{share}, the mean of the others, until its number is known"
        return Share(share, now, stand_in=True), Step("weight", Reason.WEIGHTED, said)
    return Share(share, now), Step("weight", Reason.WEIGHTED, f"{share} at once, nothing to move from")


def _move(held: Share, target: int | None, placement: Placement, now: float) -> tuple[Share, Step]:
    weight = held.weight
    if target is None:
        return held, Step("weight", Reason.WEIGHT_HELD, f"{weight} stays: its {placement} is unknown")
    gap = target - weight
    if abs(gap) <= DEAD_BAND * weight:
        return held, Step("weight", Reason.WEIGHTED, f"{weight} by {placement} (now {target})")
    if now - held.moved_at < DWELL - GRACE:
        said = f"{weight} stays: {target} wanted, but it moved less than {number(DWELL)} s ago"
        return held, Step("weight", Reason.WEIGHT_HELD, said)
    limit = max(1, math.floor(weight * STEP_LIMIT))
    if abs(gap) <= limit:
        return Share(target, now), Step("weight", Reason.WEIGHTED, f"{target} by {placement}, was {weight}")
    weight += limit if gap > 0 else -limit
    said = f"{weight} on the way to {target}: at most {percent(STEP_LIMIT)} a step"
    return Share(weight, now), Step("weight", Reason.WEIGHT_LIMITED, said)
