"""One pass: everything that is known in, a decision per provider and a plan per gateway out.

A pass is a pure function of its input. It takes one immutable view of the world and ends in one sentence that says
what was decided and why; the memory it returns goes into the next pass.
"""

from collections.abc import Mapping, Sequence
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
    Provider,
    Sample,
)
from grid.policy import admission, freshness, order, weights
from grid.policy.load import assess
from grid.policy.memory import PolicyMemory, ProviderMemory, WeightBook
from grid.policy.order import Judged, PreviousCandidate
from grid.policy.words import number, several

_OPEN, _NONE = AdmissionState.NEW_AND_EXISTING, AdmissionState.NONE
_NO_PROBES: Mapping[str, bool | None] = MappingProxyType({})
_NO_DRAINS: Mapping[str, Drain] = MappingProxyType({})
_NO_DOCUMENTS: Mapping[str, tuple[PreviousCandidate, ...]] = MappingProxyType({})

SPOKEN_CHANGES = 3
"""Changes that the sentence names; of more it gives the number."""


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
    """What one pass decided. ``changes``: one short sentence each, empty when nothing changed."""

    decisions: Mapping[str, Decision]
    plans: Mapping[str, GatewayPlan]
    memory: PolicyMemory
    sentence: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Offer:
    """How the documents of the predecessor offered a provider: the most open state and the best place of all."""

    admission: AdmissionState
    fresh: bool


def decide(given: PolicyInput) -> PolicyOutcome:
    """One pass over all providers and gateways. The order of mappings in the input makes no difference."""
    network = given.network
    offers = _offers(given.previous)
    judged = []
    changes = []
    for name in sorted(network.providers):
        entry, change = _judge(network.providers[name], given, offers)
        judged.append(entry)
        changes.extend(change)
    changes += [
        f"{name}: no longer configured" for name in sorted(given.memory.providers) if name not in network.providers
    ]
    serving = order.by_capability(judged)
    shares = _shares(given, judged, serving)
    plans, all_stale = order.arrange(
        network,
        judged,
        serving,
        shares,
        all_stale=given.memory.all_stale,
        previous=given.previous,
        first_round=not given.round_complete,
        number=given.memory.passes + 1,
    )
    for (placement, capability), book in shares.items():
        if book.moved:
            changes.append(f"{capability.name}: {placement} weights move: {', '.join(book.moved)}")
    for name, plan in plans.items():
        changes += _first_choices(network.gateways[name], plan, given.previous.get(name, ()))
    memory = PolicyMemory(
        providers=MappingProxyType({entry.provider.id: entry.memory for entry in judged}),
        books=MappingProxyType({key: found.book for key, found in shares.items() if key[0] is not Placement.STATIC}),
        all_stale=MappingProxyType(all_stale),
        passes=given.memory.passes + 1,
    )
    return PolicyOutcome(
        decisions=MappingProxyType({entry.provider.id: entry.decision for entry in judged}),
        plans=MappingProxyType(plans),
        memory=memory,
        sentence=_sentence(judged, changes),
        changes=tuple(changes),
    )


# --- one provider -----------------------------------------------------------------------------------------------------


def _judge(
    provider: Provider, given: PolicyInput, offers: Mapping[tuple[str, str], _Offer]
) -> tuple[Judged, list[str]]:
    now, sample = given.now, given.samples.get(provider.id)
    before = given.memory.providers.get(provider.id, ProviderMemory())
    offer = offers.get((provider.site, provider.cluster))
    probe = given.probes.get(provider.id, sample.healthy if sample else None)
    fresh, age, bound, fresh_step = freshness.judge(provider, sample, now)
    load, memory, load_steps = assess(provider, sample, before, now)
    hysteresis = admission.settle(memory.hysteresis, provider.pressure, now)
    if sample is not None and before.counts(sample):
        seen = admission.observation(load.ready, probe)
        hysteresis = admission.advance(hysteresis, seen, load, provider.pressure, now)
    was_trusted = before.trusted if before.admission is not None else offer is not None and offer.fresh
    guarded = not given.round_complete
    drain = given.drains.get(provider.id) or given.drains.get(provider.site)
    ruling = admission.rule(
        provider,
        hysteresis,
        load,
        fresh,
        probe=probe,
        drain=drain,
        before=before.admission,
        floor=offer.admission if guarded and offer is not None else None,
        keeps_place=guarded and offer is not None and was_trusted,
        now=now,
    )
    waits = guarded and was_trusted and (offer is not None or fresh is Freshness.ABSENT)
    trusted = ruling.admission is not _NONE and not ruling.demoted and (fresh is Freshness.FRESH or waits)
    changed = ruling.admission is not before.admission
    memory = ProviderMemory(
        sequence=memory.sequence,
        counted_at=memory.counted_at,
        observed=memory.observed,
        hysteresis=hysteresis,
        level=memory.level,
        free=memory.free,
        free_at=memory.free_at,
        admission=ruling.admission,
        changed_at=now if changed else before.changed_at,
        freshness=fresh,
        demoted=ruling.demoted,
        trusted=trusted,
        untrusted_in=None if trusted else given.memory.passes + 1 if was_trusted else before.untrusted_in,
    )
    decision = Decision(
        provider=provider.id,
        freshness=fresh,
        admission=ruling.admission,
        reason=ruling.reason,
        load=load,
        steps=(fresh_step, *load_steps, *ruling.steps),
        age=age,
        bound=bound,
        demoted=ruling.demoted,
        drained=drain is not None,
        changed_at=memory.changed_at,
    )
    return Judged(provider, decision, memory), _changes(before, decision, ruling.why)


def _offers(previous: Mapping[str, Sequence[PreviousCandidate]]) -> dict[tuple[str, str], _Offer]:
    offers: dict[tuple[str, str], _Offer] = {}
    for candidates in previous.values():
        for candidate in candidates:
            if candidate.admission_state is _NONE:
                continue
            key = (candidate.site, candidate.cluster)
            known = offers.get(key)
            if known is None:
                offers[key] = _Offer(candidate.admission_state, candidate.fresh)
            else:
                best = min(known.admission, candidate.admission_state, key=lambda state: state.rank)
                offers[key] = _Offer(best, known.fresh or candidate.fresh)
    return offers


# --- weights ----------------------------------------------------------------------------------------------------------


def _shares(
    given: PolicyInput, judged: Sequence[Judged], serving: Sequence[tuple[Capability, Sequence[Judged]]]
) -> dict[tuple[Placement, Capability], weights.Weights]:
    """Weights for every placement that a grouped gateway uses, by capability."""
    found: dict[tuple[Placement, Capability], weights.Weights] = {}
    for placement in sorted({gateway.placement for gateway in given.network.gateways.values() if gateway.grouped}):
        claims = {entry.provider.id: _claim(entry, placement, given) for entry in judged}
        for capability, entries in serving:
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


def _changes(before: ProviderMemory, decision: Decision, why: str) -> list[str]:
    name = decision.provider
    if before.admission is None:
        return [f"{name}: {decision.admission}, {decision.freshness}" + (f" ({why})" if why else "")]
    if before.admission is not decision.admission:
        return [f"{name}: {before.admission} to {decision.admission} ({why})"]
    if before.demoted is not decision.demoted:
        return [f"{name}: {'behind every ready provider' if decision.demoted else 'back in its place'} ({why})"]
    if before.freshness is not decision.freshness:
        age = (
            "" if decision.age is None else f" (sample {number(decision.age)} s old, bound {number(decision.bound)} s)"
        )
        return [f"{name}: {before.freshness} to {decision.freshness}{age}"]
    return []


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


def _sentence(judged: Sequence[Judged], changes: Sequence[str]) -> str:
    if not judged:
        return "no provider is configured"
    decisions = [entry.decision for entry in judged]
    opened = sum(decision.admission is _OPEN for decision in decisions)
    counts = [f"{opened} of {several(len(decisions), 'provider')} open"]
    for state in AdmissionState:
        count = sum(decision.admission is state for decision in decisions)
        if count and state is not _OPEN:
            counts.append(f"{count} {state}")
    for kind in Freshness:
        count = sum(decision.freshness is kind for decision in decisions)
        if count and kind is not Freshness.FRESH:
            counts.append(f"{count} {kind}")
    dark = sorted(
        {capability.name for entry in judged for capability in entry.provider.capabilities}
        - {
            capability.name
            for entry in judged
            if entry.decision.admission is _OPEN
            for capability in entry.provider.capabilities
        }
    )
    said = ", ".join(counts)
    if dark:
        said += f"; nobody takes new work for {', '.join(dark[:SPOKEN_CHANGES])}"
        said += f" and {len(dark) - SPOKEN_CHANGES} more" * (len(dark) > SPOKEN_CHANGES)
    if not changes:
        return f"{said}; nothing changed"
    said += "; " + "; ".join(changes[:SPOKEN_CHANGES])
    return said + f"; and {len(changes) - SPOKEN_CHANGES} more changes" * (len(changes) > SPOKEN_CHANGES)
