"""Each gateway's order of candidates, and the groups it is cut into.

**Standing.** Fresh before stale before demoted. "Stale" includes providers that were never read; "demoted" ones have
just shown no ready endpoint, or are denied by their probe. Standing comes before everything but admission, in both
orders: a provider that cannot be seen, or has just been seen empty, falls behind *every* provider that is known to
work, however near it is. So with one readable provider among four, that one is group 0 and the other three are
offered behind it: a gateway with picker ``saturation`` fills the first group up to what it can hold and spills the
rest to them, while static pickers (``roundRobin``, ``random``, ``weightedRandom``) stay inside the first group and
know no spilling.

**All stale.** Where none of the admitted providers of a capability is fresh, freshness tells nothing apart any more,
and the last order stays in use: those that were fresh until the moment the last one was lost stand before those that
were stale already, and a plain document keeps the order by load that it had. The same holds until a daemon has tried
every provider once.

**Orders.** ``geographyFirst``: admission, standing, tier, load, identity. ``scoreFirst``: admission, standing, load,
tier, identity. Identity is (site, cluster).

**Load** orders only where the document is the plain first form, of which a gateway takes the first admitted
candidate. There it is the provider's load level, a step of 0.1 that the load must leave by 0.05 before it changes
(``grid.policy.load``): so equal and nearly equal loads keep their order, and a level is the provider's own, so
removing another provider moves nobody. An unknown load comes last. In grouped documents the order inside a group is
identity, and a moving number makes no new revision.

**Groups.** ``geographyFirst`` splits by admission, standing, tier, audience; ``scoreFirst`` by admission, standing,
audience. The audience is the set of sites whose gateways the provider's access rule admits. A group never mixes
audiences: what is left of a shared provider depends on gateways that cannot use its neighbours, so shares inside such
a group would mean different things to different gateways. The narrower audience comes first, so that a gateway uses
up what is reserved for it before it takes from what all share.

Groups are numbered per capability from 0, without gaps. Providers whose access rule does not admit the gateway are
left out of its document; those that are closed stay in it, with admission ``none``, behind all
others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, Final

from grid.model import (
    AdmissionState,
    Candidate,
    Capability,
    Exclusion,
    Freshness,
    Gateway,
    GatewayPlan,
    Kind,
    Network,
    Order,
    Placement,
    Reason,
    Site,
    Step,
    Tier,
    stable_id,
)
from grid.policy.judge import Judged
from grid.policy.weights import LOWEST, Weights

_UNKNOWN_LEVEL: Final = 1 << 30
_LAST_PLACE: Final = 1 << 30

_cached_stable_id = lru_cache(maxsize=65536)(stable_id)


class Standing(IntEnum):
    """How far a provider is trusted to work now."""

    FRESH = 0
    STALE = 1
    DEMOTED = 2


_STANDING_WORDS: Final = {standing: standing.name.lower() for standing in Standing}


@dataclass(frozen=True, slots=True)
class PreviousCandidate:
    """One candidate of the newest published document of a gateway, in that document's order."""

    kind: Kind
    name: str
    site: str
    cluster: str
    admission_state: AdmissionState
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class _Member:
    judged: Judged
    standing: Standing
    tier: Tier
    audience: int


@dataclass(frozen=True, slots=True)
class _View:
    """What gateways at one site may see: members per capability, who is left out, which capabilities are all stale."""

    members: tuple[tuple[Capability, tuple[_Member, ...]], ...]
    excluded: tuple[Exclusion, ...]
    all_stale: Mapping[Capability, int]


@dataclass(frozen=True, slots=True)
class _Arrangement:
    candidates: tuple[Candidate, ...]
    steps: tuple[tuple[str, tuple[Step, ...]], ...]


def by_capability(judged: Iterable[Judged]) -> list[tuple[Capability, list[Judged]]]:
    """Who serves what, sorted by capability."""
    serving: dict[Capability, list[Judged]] = {}
    for entry in judged:
        for capability in entry.provider.capabilities:
            serving.setdefault(capability, []).append(entry)
    return [(capability, serving[capability]) for capability in sorted(serving)]


def arrange(
    network: Network,
    judged: Sequence[Judged],
    weights: Mapping[tuple[Placement, Capability], Weights],
    *,
    all_stale: Mapping[tuple[str, Capability], int],
    previous: Mapping[str, Sequence[PreviousCandidate]],
    first_round: bool,
    number: int,
) -> tuple[dict[str, GatewayPlan], dict[tuple[str, Capability], int]]:
    """The plan of every gateway, and since which pass each (site, capability) has been all stale.

    ``judged`` in the order of provider ids. ``all_stale`` as the pass before left it, ``number`` that of this pass;
    ``previous`` gives the order of plain documents while the ``first_round`` is not over or all are stale.
    """
    serving = by_capability(judged)
    audiences = _audiences(network, judged)
    views: dict[str, _View] = {}
    arrangements: dict[tuple[Any, ...], _Arrangement] = {}
    plans = {}
    for name in sorted(network.gateways):
        gateway = network.gateways[name]
        view = views.get(gateway.site)
        if view is None:
            reach = _reach(network, gateway.site, judged)
            view = views[gateway.site] = _view(
                gateway.site, reach, serving, audiences, all_stale=all_stale, number=number
            )
        last = _last_places(gateway, view, previous.get(name, ()), first_round)
        key = (gateway.site, gateway.order, gateway.grouped, gateway.placement, name if last else None)
        arrangement = arrangements.get(key)
        if arrangement is None:
            arrangement = arrangements[key] = _arrange(gateway, view, weights, last)
        plans[name] = GatewayPlan(
            name, gateway.site, gateway.picker, arrangement.candidates, view.excluded, arrangement.steps
        )
    since = {(site, capability): at for site, view in views.items() for capability, at in view.all_stale.items()}
    return plans, since


# --- what a site may see ----------------------------------------------------------------------------------------------


def _audiences(network: Network, judged: Iterable[Judged]) -> dict[str, int]:
    """A number per provider: equal for those that the same sites may use, rising from the narrowest audience."""
    everyone = tuple(sorted(network.sites))
    sets = {}
    for entry in judged:
        access = entry.provider.access
        sets[entry.provider.id] = (
            everyone if access is None else tuple(name for name in everyone if access.admits(network.sites[name]))
        )
    ranks = {audience: rank for rank, audience in enumerate(sorted(set(sets.values()), key=lambda a: (len(a), a)))}
    return {provider: ranks[audience] for provider, audience in sets.items()}


def _reach(network: Network, site: str, judged: Iterable[Judged]) -> tuple[dict[str, Tier], tuple[Exclusion, ...]]:
    """The tier of every provider that gateways at ``site`` may use, and who is left out."""
    here = network.sites.get(site, Site(site))
    by_site: dict[str, Tier] = {}
    tiers: dict[str, Tier] = {}
    excluded = []
    for entry in judged:
        provider = entry.provider
        if provider.access is not None and not provider.access.admits(here):
            said = f"its access rule does not admit {site}"
            excluded.append(Exclusion(provider.id, provider.site, Reason.ACCESS_DENIED, said))
            continue
        tier = by_site.get(provider.site)
        if tier is None:
            tier = by_site[provider.site] = network.tier(site, provider.site)
        tiers[provider.id] = tier
    return tiers, tuple(excluded)


def _view(
    site: str,
    reach: tuple[Mapping[str, Tier], tuple[Exclusion, ...]],
    serving: Iterable[tuple[Capability, Sequence[Judged]]],
    audiences: Mapping[str, int],
    *,
    all_stale: Mapping[tuple[str, Capability], int],
    number: int,
) -> _View:
    tiers, excluded = reach
    members = []
    since = {}
    for capability, entries in serving:
        seen = [entry for entry in entries if entry.provider.id in tiers]
        blind = _blind_since(seen, all_stale.get((site, capability)), number)
        if blind is not None:
            since[capability] = blind
        placed = tuple(
            _Member(entry, _standing(entry, blind), tiers[entry.provider.id], audiences[entry.provider.id])
            for entry in seen
        )
        members.append((capability, placed))
    return _View(tuple(members), excluded, since)


def _blind_since(seen: Sequence[Judged], before: int | None, number: int) -> int | None:
    """Since which pass no admitted provider has been fresh; None while one is, or where none is admitted."""
    admitted = [entry for entry in seen if entry.decision.admission is not AdmissionState.NONE]
    if not admitted or any(entry.memory.trusted for entry in admitted):
        return None
    return number if before is None else before


def _standing(entry: Judged, blind: int | None) -> Standing:
    if entry.memory.trusted:
        return Standing.FRESH
    if entry.memory.demoted or entry.decision.admission is AdmissionState.NONE:
        return Standing.DEMOTED
    if blind is not None and entry.memory.untrusted_in == blind:
        return Standing.FRESH
    return Standing.STALE


# --- one gateway's order ----------------------------------------------------------------------------------------------


def _last_places(
    gateway: Gateway, view: _View, previous: Sequence[PreviousCandidate], first_round: bool
) -> dict[Capability, dict[tuple[str, str], int]]:
    """Per capability, the places of (site, cluster) in the last plain document, where its order stays in use."""
    places: dict[Capability, dict[tuple[str, str], int]] = {}
    if gateway.grouped or not (first_round or view.all_stale):
        return places
    for index, entry in enumerate(previous):
        capability = Capability(entry.kind, entry.name)
        if first_round or capability in view.all_stale:
            places.setdefault(capability, {})[entry.site, entry.cluster] = index
    return places


def _arrange(
    gateway: Gateway,
    view: _View,
    weights: Mapping[tuple[Placement, Capability], Weights],
    last: Mapping[Capability, Mapping[tuple[str, str], int]],
) -> _Arrangement:
    candidates: list[Candidate] = []
    steps: dict[str, list[Step]] = {}
    for capability, members in view.members:
        ordered = _ordered(gateway, members, last.get(capability, {}))
        blind = capability in view.all_stale
        shares = weights.get((gateway.placement, capability)) if gateway.grouped else None
        for place, (member, group) in enumerate(ordered, start=1):
            candidate = _candidate(capability, member, len(candidates), group, shares)
            candidates.append(candidate)
            chain = steps.setdefault(candidate.provider, [])
            chain.append(_place_step(candidate, member, place, len(ordered)))
            if blind and candidate.admission_state is not AdmissionState.NONE:
                chain.append(Step("order", Reason.ALL_STALE, f"{capability.name}: the last order stays in use"))
            if shares is not None and candidate.provider in shares.steps:
                chain.append(shares.steps[candidate.provider])
    return _Arrangement(tuple(candidates), tuple((name, tuple(chain)) for name, chain in sorted(steps.items())))


def _ordered(
    gateway: Gateway, members: Iterable[_Member], last: Mapping[tuple[str, str], int]
) -> list[tuple[_Member, int | None]]:
    """The members in their order, with their groups where the document has them.

    The last two parts of a key, the identity, only order; all before them also cut a grouped document into groups.
    """
    make = _grouped_key if gateway.grouped else partial(_plain_key, last)
    geography_first = gateway.order is Order.GEOGRAPHY_FIRST
    keyed = sorted(((make(member, geography_first), member) for member in members), key=itemgetter(0))
    if not gateway.grouped:
        return [(member, None) for _, member in keyed]
    found: list[tuple[_Member, int | None]] = []
    group, before = -1, None
    for key, member in keyed:
        cut = key[:-2]
        if cut != before:
            group, before = group + 1, cut
        found.append((member, group))
    return found


def _grouped_key(member: _Member, geography_first: bool) -> tuple[Any, ...]:
    provider = member.judged.provider
    admission = member.judged.decision.admission.rank
    if geography_first:
        return (admission, member.standing, member.tier.rank, member.audience, provider.site, provider.cluster)
    return (admission, member.standing, member.audience, provider.site, provider.cluster)


def _plain_key(last: Mapping[tuple[str, str], int], member: _Member, geography_first: bool) -> tuple[Any, ...]:
    """Closed providers get no traffic, so no load moves them either."""
    provider, level = member.judged.provider, member.judged.memory.level
    admission = member.judged.decision.admission
    if admission is AdmissionState.NONE:
        place, load = 0, 0
    else:
        place = last.get((provider.site, provider.cluster), _LAST_PLACE)
        load = _UNKNOWN_LEVEL if level is None else level
    tier = member.tier.rank
    ranks = (tier, place, load) if geography_first else (place, load, tier)
    return (admission.rank, member.standing, *ranks, provider.site, provider.cluster)


def _candidate(
    capability: Capability, member: _Member, rank: int, group: int | None, shares: Weights | None
) -> Candidate:
    provider = member.judged.provider
    return Candidate(
        capability.kind,
        capability.name,
        provider.site,
        provider.cluster,
        provider.id,
        _cached_stable_id(capability.kind, capability.name, provider.site, provider.cluster),
        member.judged.decision.admission,
        member.tier,
        member.judged.memory.trusted,
        rank,
        group,
        None if shares is None else shares.weights.get(provider.id, LOWEST),
    )


def _place_step(candidate: Candidate, member: _Member, place: int, count: int) -> Step:
    standing = _STANDING_WORDS[member.standing]
    if member.standing is Standing.FRESH and member.judged.decision.freshness is not Freshness.FRESH:
        standing = "keeps its place"
    group, level, load = candidate.selection_group, member.judged.memory.level, ""
    if group is not None:
        where = f"group {group}"
    else:
        where = "plain form"
        load = "" if level is None else f", load level {level}"
    said = (
        f"{candidate.name}: {where}, place {place} of {count}; {candidate.admission_state.value}, {standing}, "
        f"{candidate.selection_tier.value}{load}"
    )
    return Step("order", Reason.GROUPED, said)
