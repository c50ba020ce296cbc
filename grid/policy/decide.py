"""One pass: everything that is known in, a decision per provider and a plan per gateway out.

A pass is a pure function of its input. It takes one immutable view of the world and ends in one sentence that says
what was decided and why; the memory it returns goes into the next pass.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from grid.model import (
    AdmissionState,
    Capability,
    Decision,
    Drain,
    Freshness,
    Gateway,
    GatewayPlan,
    Network,
    Placement,
    Sample,
)
from grid.policy import order, weights
from grid.policy.judge import Judged, Offer, judge, seen_by
from grid.policy.judge import changes as judge_changes
from grid.policy.memory import PolicyMemory, ProviderMemory, WeightBook
from grid.policy.order import PreviousCandidate
from grid.policy.words import several

_OPEN, _NONE = AdmissionState.NEW_AND_EXISTING, AdmissionState.NONE
_NO_PROBES: Mapping[str, bool | None] = MappingProxyType({})
_NO_DRAINS: Mapping[str, Drain] = MappingProxyType({})
_NO_DOCUMENTS: Mapping[str, tuple[PreviousCandidate, ...]] = MappingProxyType({})

SPOKEN = 3
"""Changes, or models, that the sentence names; of more it gives the number."""


@dataclass(frozen=True, slots=True)
class PolicyInput:
    """What one pass looks at. ``now`` and the times of samples are s of one monotonic clock.

    ``probes``: what readiness probes say now (None: cannot tell); a provider that is not in it counts with what its
    sample says. ``drains``: those in force, by target (a provider or a site). ``round_complete``: every provider has
    been tried at least once by this daemon. ``previous``: the newest published document of each gateway, whoever
    published it; to be given on every pass.
    """

    network: Network
    samples: Mapping[str, Sample]
    memory: PolicyMemory
    now: float
    probes: Mapping[str, bool | None] = field(default_factory=lambda: _NO_PROBES)
    drains: Mapping[str, Drain] = field(default_factory=lambda: _NO_DRAINS)
    round_complete: bool = True
    previous: Mapping[str, tuple[PreviousCandidate, ...]] = field(default_factory=lambda: _NO_DOCUMENTS)


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """What one pass decided. ``changes``: one short sentence each, empty when nothing changed.

    ``dark``: names of capabilities that no provider takes new work for, sorted.
    """

    decisions: Mapping[str, Decision]
    plans: Mapping[str, GatewayPlan]
    memory: PolicyMemory
    sentence: str
    changes: tuple[str, ...] = ()
    dark: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Work:
    """What a pass worked out, for the next one to do again only what changed. Nothing in it decides anything.

    ``said``: the counts at the head of the sentence; ``dark`` as in the outcome.
    """

    network: Network
    guarded: bool
    judged: Mapping[str, Judged]
    shares: Mapping[tuple[Placement, Capability], weights.Weights]
    plans: Mapping[str, GatewayPlan]
    all_stale: Mapping[tuple[str, Capability], int]
    said: str
    dark: tuple[str, ...]


def decide(given: PolicyInput) -> PolicyOutcome:
    """One pass over all providers and gateways. The order of mappings in the input makes no difference."""
    work = given.memory.work if isinstance(given.memory.work, _Work) else None
    if work is not None and (work.network is not given.network or work.guarded or not given.round_complete):
        work = None
    judged, changes = _judge_all(given, work)
    moved = work is None or _moved(given.network, judged, work.judged)
    shares = _shares(given, judged, work)
    if work is not None and not moved and not work.all_stale and _same(shares, work.shares):
        plans, all_stale = work.plans, work.all_stale
    else:
        plans, all_stale = order.arrange(
            given.network,
            tuple(judged.values()),
            shares,
            all_stale=given.memory.all_stale,
            previous=given.previous,
            first_round=not given.round_complete,
            number=given.memory.passes + 1,
        )
    changes += _moves(given, plans, shares)
    if work is not None and not moved:
        said, dark = work.said, work.dark
    else:
        dark = _dark(judged.values())
        said = _counts(tuple(judged.values()), dark)
    work = _Work(given.network, not given.round_complete, judged, shares, plans, all_stale, said, dark)
    memory = PolicyMemory(
        providers=MappingProxyType({name: entry.memory for name, entry in judged.items()}),
        books=MappingProxyType({key: found.book for key, found in shares.items() if key[0] is not Placement.STATIC}),
        all_stale=MappingProxyType(all_stale),
        passes=given.memory.passes + 1,
        work=work,
    )
    return PolicyOutcome(
        decisions=MappingProxyType({name: entry.decision for name, entry in judged.items()}),
        plans=MappingProxyType(plans),
        memory=memory,
        sentence=_sentence(said, changes),
        changes=tuple(changes),
        dark=dark,
    )


def _moved(network: Network, judged: Mapping[str, Judged], before: Mapping[str, Judged]) -> bool:
    """Whether anything that orders look at is different from the pass before."""
    by_load = any(not gateway.grouped for gateway in network.gateways.values())
    return any(
        entry.memory is not before[name].memory and entry.place(by_load) != before[name].place(by_load)
        for name, entry in judged.items()
    )


def _same(
    shares: Mapping[tuple[Placement, Capability], weights.Weights],
    before: Mapping[tuple[Placement, Capability], weights.Weights],
) -> bool:
    """Whether the weights and what is said of them are those of the pass before."""
    return all(found.steps == before[key].steps for key, found in shares.items())


# --- providers --------------------------------------------------------------------------------------------------------


def _judge_all(given: PolicyInput, work: _Work | None) -> tuple[dict[str, Judged], list[str]]:
    """Every provider in the order of ids, and what changed."""
    known = given.memory.providers
    guarded = not given.round_complete
    offers = _offers(given.previous) if guarded or not known.keys() >= given.network.providers.keys() else {}
    judged: dict[str, Judged] = {}
    changes: list[str] = []
    for name in sorted(given.network.providers):
        seen = seen_by(given.network.providers[name], given.samples, given.probes, given.drains)
        before = known.get(name)
        entry = None if work is None else work.judged[name].again(seen, before, given.now)
        if entry is None:
            before = before or ProviderMemory()
            entry = judge(
                seen,
                before,
                offer=offers.get((seen.provider.site, seen.provider.cluster)),
                guarded=guarded,
                number_of_pass=given.memory.passes + 1,
                now=given.now,
            )
            changes += judge_changes(before, entry)
        judged[name] = entry
    changes += [f"{name}: no longer configured" for name in sorted(known.keys() - judged.keys())]
    return judged, changes


def _offers(previous: Mapping[str, Sequence[PreviousCandidate]]) -> dict[tuple[str, str], Offer]:
    offers: dict[tuple[str, str], Offer] = {}
    for candidates in previous.values():
        for candidate in candidates:
            if candidate.admission_state is _NONE:
                continue
            key = (candidate.site, candidate.cluster)
            known = offers.get(key)
            if known is None:
                offers[key] = Offer(candidate.admission_state, candidate.fresh)
            else:
                best = min(known.admission, candidate.admission_state, key=lambda state: state.rank)
                offers[key] = Offer(best, known.fresh or candidate.fresh)
    return offers


# --- weights ----------------------------------------------------------------------------------------------------------


def _shares(
    given: PolicyInput, judged: Mapping[str, Judged], work: _Work | None
) -> dict[tuple[Placement, Capability], weights.Weights]:
    """Weights for every placement that a grouped gateway uses, by capability."""
    found: dict[tuple[Placement, Capability], weights.Weights] = {}
    for placement in sorted({gateway.placement for gateway in given.network.gateways.values() if gateway.grouped}):
        if placement is Placement.STATIC and work is not None:
            found.update((key, shares) for key, shares in work.shares.items() if key[0] is placement)
            continue
        claims = {name: _claim(entry, placement, given) for name, entry in judged.items()}
        for capability, entries in order.by_capability(judged.values()):
            if placement is Placement.STATIC:
                found[placement, capability] = weights.static(claims[entry.provider.id] for entry in entries)
                continue
            present = [claims[entry.provider.id] for entry in entries if entry.decision.admission is not _NONE]
            book = given.memory.books.get((placement, capability), WeightBook())
            found[placement, capability] = weights.live(placement, present, book, given.now)
    return found


def _claim(entry: Judged, placement: Placement, given: PolicyInput) -> weights.Claim:
    provider, load = entry.provider, entry.decision.load
    requests = load.capacity if placement is Placement.CAPACITY else entry.memory.free
    before = given.memory.providers.get(provider.id)
    return weights.Claim(
        provider=provider.id,
        declared=provider.capacity_weight,
        requests=requests if load.capacity else None,
        capacity=load.capacity,
        joins=before is None or before.admission in (None, _NONE),
    )


# --- words ------------------------------------------------------------------------------------------------------------


def _moves(
    given: PolicyInput,
    plans: Mapping[str, GatewayPlan],
    shares: Mapping[tuple[Placement, Capability], weights.Weights],
) -> list[str]:
    """Changes of weights, and of who comes first in plain documents."""
    said = [
        f"{capability.name}: {placement} weights move: {', '.join(found.moved)}"
        for (placement, capability), found in shares.items()
        if found.moved
    ]
    for name, plan in plans.items():
        said += _first_choices(given.network.gateways[name], plan, given.previous.get(name, ()))
    return said


def _first_choices(gateway: Gateway, plan: GatewayPlan, previous: Sequence[PreviousCandidate]) -> list[str]:
    """Where a plain document, of which gateways take the first, now begins with another provider than before."""
    if gateway.grouped or not previous:
        return []
    before: dict[tuple[str, str], tuple[str, str]] = {}
    for entry in previous:
        before.setdefault((entry.kind, entry.name), (entry.site, entry.cluster))
    after: dict[tuple[str, str], tuple[str, str]] = {}
    for candidate in plan.candidates:
        after.setdefault((candidate.kind, candidate.name), (candidate.site, candidate.cluster))
    return [
        f"{gateway.name}: {key[1]} goes to {'/'.join(first)} first, was {'/'.join(before[key])}"
        for key, first in after.items()
        if before.get(key, first) != first
    ]


def _dark(judged: Iterable[Judged]) -> tuple[str, ...]:
    served, taken = set[str](), set[str]()
    for entry in judged:
        names = {capability.name for capability in entry.provider.capabilities}
        served |= names
        if entry.decision.admission is _OPEN:
            taken |= names
    return tuple(sorted(served - taken))


def _counts(judged: Sequence[Judged], dark: Sequence[str]) -> str:
    if not judged:
        return "no provider is configured"
    states = Counter(entry.decision.admission for entry in judged)
    ages = Counter(entry.decision.freshness for entry in judged)
    counts = [f"{states[_OPEN]} of {several(len(judged), 'provider')} open"]
    counts += [f"{states[state]} {state}" for state in AdmissionState if states[state] and state is not _OPEN]
    counts += [f"{ages[kind]} {kind}" for kind in Freshness if ages[kind] and kind is not Freshness.FRESH]
    said = ", ".join(counts)
    if dark:
        said += f"; nobody takes new work for {', '.join(dark[:SPOKEN])}"
        said += f" and {len(dark) - SPOKEN} more" * (len(dark) > SPOKEN)
    return said


def _sentence(said: str, changes: Sequence[str]) -> str:
    if not changes:
        return f"{said}; nothing changed"
    said += "; " + "; ".join(changes[:SPOKEN])
    return said + f"; and {len(changes) - SPOKEN} more changes" * (len(changes) > SPOKEN)
