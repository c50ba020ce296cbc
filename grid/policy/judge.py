"""One provider in one pass: everything that is known of it in, one decision and the memory of it out."""

from collections.abc import Mapping
from dataclasses import dataclass

from grid.model import AdmissionState, Decision, Drain, Freshness, Provider, Reason, Sample
from grid.policy import admission, freshness
from grid.policy.load import assess
from grid.policy.memory import ProviderMemory
from grid.policy.words import number

_OPEN, _NONE = AdmissionState.NEW_AND_EXISTING, AdmissionState.NONE


@dataclass(frozen=True, slots=True)
class Offer:
    """How the documents of the predecessor offered a provider: the most open state and the best place of all."""

    admission: AdmissionState
    fresh: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """What a pass sees of one provider."""

    provider: Provider
    sample: Sample | None
    probe: bool | None
    drain: Drain | None

    def is_same(self, other: "Seen") -> bool:
        """Whether nothing new was seen: the very same values, not only equal ones."""
        return (
            self.provider is other.provider
            and self.sample is other.sample
            and self.probe is other.probe
            and self.drain is other.drain
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """A provider with this pass's decision, its memory after it, and what decided, in words."""

    seen: Seen
    decision: Decision
    memory: ProviderMemory
    why: str

    @property
    def provider(self) -> Provider:
        """The provider as configured."""
        return self.seen.provider

    def place(self, by_load: bool) -> tuple[AdmissionState, Freshness, bool, bool, int | None]:
        """All of it that orders and sentences look at; the load level where something is ordered ``by_load``."""
        memory = self.memory
        level = memory.level if by_load else None
        return (self.decision.admission, memory.freshness, memory.demoted, memory.trusted, level)

    def again(self, seen: Seen, before: ProviderMemory | None, now: float) -> "Judged | None":
        """The same judgement at another ``now``; None where it has to be made anew.

        It holds while nothing new was seen, the sample stays on its side of the bound, and no clock runs: a provider
        under pressure, on its way back, or just back is judged anew in every pass.
        """
        machine = self.memory.hysteresis
        if before is not self.memory or not seen.is_same(self.seen):
            return None
        if machine.state is not _OPEN or machine.pressed or self.decision.reason is Reason.RECOVERED:
            return None
        if seen.sample is None:
            return self
        fresh = freshness.is_fresh(seen.provider, seen.sample, now)
        if fresh is not (self.decision.freshness is Freshness.FRESH):
            return None
        age = max(now - seen.sample.received_at, 0.0)
        return Judged(self.seen, _aged(self.decision, age), self.memory, self.why)


def judge(
    seen: Seen, before: ProviderMemory, *, offer: Offer | None, guarded: bool, number_of_pass: int, now: float
) -> Judged:
    """The decision on one provider. ``guarded``: the first round of scrapes is not over, so the ``offer`` binds."""
    provider, sample = seen.provider, seen.sample
    fresh, age, bound, fresh_step = freshness.judge(provider, sample, now)
    load, memory, load_steps = assess(provider, sample, before, now)
    hysteresis = admission.settle(memory.hysteresis, provider.pressure, now)
    if sample is not None and before.counts(sample):
        observed = admission.observation(load.ready, seen.probe)
        hysteresis = admission.advance(hysteresis, observed, load, provider.pressure, now)
    was_trusted = before.trusted if before.admission is not None else offer is not None and offer.fresh
    ruling = admission.rule(
        provider,
        hysteresis,
        load,
        fresh,
        probe=seen.probe,
        drain=seen.drain,
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
        untrusted_in=None if trusted else number_of_pass if was_trusted else before.untrusted_in,
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
        drained=seen.drain is not None,
        changed_at=memory.changed_at,
    )
    return Judged(seen, decision, memory, ruling.why)


def changes(before: ProviderMemory, entry: Judged) -> list[str]:
    """What is different from the pass before, in words; nothing where only numbers moved."""
    name, decision, why = entry.provider.id, entry.decision, entry.why
    if before.admission is None:
        return [f"{name}: {decision.admission}, {decision.freshness}" + (f" ({why})" if why else "")]
    if before.admission is not decision.admission:
        return [f"{name}: {before.admission} to {decision.admission} ({why})"]
    if before.demoted is not decision.demoted:
        return [f"{name}: {'behind every ready provider' if decision.demoted else 'back in its place'} ({why})"]
    if before.freshness is not decision.freshness:
        age = f" (sample {number(decision.age)} s old, bound {number(decision.bound)} s)"
        return [f"{name}: {before.freshness} to {decision.freshness}" + (age if decision.age is not None else "")]
    return []


def seen_by(
    provider: Provider, samples: Mapping[str, Sample], probes: Mapping[str, bool | None], drains: Mapping[str, Drain]
) -> Seen:
    """What the inputs of a pass say of one provider; without a probe of the pass, what the sample says of it."""
    sample = samples.get(provider.id)
    probe = probes.get(provider.id, sample.healthy if sample is not None else None)
    return Seen(provider, sample, probe, drains.get(provider.id) or drains.get(provider.site))


def _aged(decision: Decision, age: float) -> Decision:
    return Decision(
        provider=decision.provider,
        freshness=decision.freshness,
        admission=decision.admission,
        reason=decision.reason,
        load=decision.load,
        steps=decision.steps,
        age=age,
        bound=decision.bound,
        demoted=decision.demoted,
        drained=decision.drained,
        changed_at=decision.changed_at,
    )
