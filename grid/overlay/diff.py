"""What changed between two documents, in the sentences an operator reads."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from grid.model import Kind
from grid.overlay.envelope import Envelope, WireCandidate

_NAMED = 8
"""Candidates named in one sentence at most."""

_Slot = tuple[Kind, str, str, str, int]
"""Identity of a candidate and which copy of it this is, from 0: the grouped form may hold several."""


def describe(old: Envelope | None, new: Envelope) -> list[str]:
    """Sentences for everything that differs in meaning; empty where nothing does. ``old`` None: the first document.

    Times, versions and who published are no part of the meaning.
    """
    if old is None:
        return [_summary(new), *_excluded(None, new)]
    before, after = _slots(old), _slots(new)
    label = _labels(old, new)
    sentences = [
        *_settings(old, new),
        *(f"{label(before[slot])} is removed" for slot in before if slot not in after),
        *(f"{label(after[slot])} is added{_place(after[slot])}" for slot in after if slot not in before),
    ]
    for slot, candidate in after.items():
        if slot in before:
            sentences.extend(_changes(before[slot], candidate, label(candidate)))
    sentences.extend(_orders(before, after, label))
    sentences.extend(_excluded(old, new))
    if not sentences and old.revision != new.revision:
        return ["the two differ in members that this version of Grid does not know"]
    return sentences


def _summary(new: Envelope) -> str:
    capabilities = len({(candidate.kind, candidate.name) for candidate in new.candidates})
    sites = len({candidate.site for candidate in new.candidates})
    return (
        f"first document: {_count(len(new.candidates), 'candidate')} for {_count(capabilities, 'model or tool')} "
        f"at {_count(sites, 'site')}, picker {new.picker or 'none'}"
    )


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} " + ("models and tools" if noun == "model or tool" else f"{noun}s")


def _settings(old: Envelope, new: Envelope) -> Iterator[str]:
    if old.network != new.network:
        yield f"network changes {old.network} -> {new.network}"
    if old.local_site != new.local_site:
        yield f"the gateway's site changes {old.local_site} -> {new.local_site}"
    if old.picker is not new.picker:
        yield f"picker changes {old.picker or 'none'} -> {new.picker or 'none'}"


def _slots(envelope: Envelope) -> dict[_Slot, WireCandidate]:
    copies: Counter[tuple[Kind, str, str, str]] = Counter()
    slots = {}
    for candidate in envelope.candidates:
        slots[*candidate.identity, copies[candidate.identity]] = candidate
        copies[candidate.identity] += 1
    return slots


def _labels(*envelopes: Envelope) -> Callable[[WireCandidate], str]:
    """How a candidate is called: ``cluster (model)``, with its site in front where the cluster has several."""
    sites: dict[str, set[str]] = defaultdict(set)
    for envelope in envelopes:
        for candidate in envelope.candidates:
            sites[candidate.cluster].add(candidate.site)

    def label(candidate: WireCandidate) -> str:
        site = f"{candidate.site}/" if len(sites[candidate.cluster]) > 1 else ""
        return f"{site}{candidate.cluster} ({candidate.name})"

    return label


def _place(candidate: WireCandidate) -> str:
    group = "" if candidate.selection_group is None else f" to group {candidate.selection_group}"
    weight = "" if candidate.traffic_weight is None else f" with weight {candidate.traffic_weight}"
    return f"{group}{weight}, admission {candidate.admission_state}"


def _changes(old: WireCandidate, new: WireCandidate, label: str) -> Iterator[str]:
    if old.selection_group != new.selection_group:
        yield f"{label} moves from {_group(old)} to {_group(new)}"
    if old.admission_state is not new.admission_state:
        yield f"admission of {label} changes {old.admission_state} -> {new.admission_state}"
    if old.fresh is not new.fresh:
        yield f"{label} is fresh again" if new.fresh else f"{label} turns stale"
    for what, was, now in (
        ("weight", old.traffic_weight, new.traffic_weight),
        ("tier", old.selection_tier, new.selection_tier),
        ("stable id", old.stable_id, new.stable_id),
    ):
        if was != now:
            yield f"{what} of {label} changes {_known(was)} -> {_known(now)}"
    if old.credential != new.credential:
        yield f"credential reference of {label} changes"


def _group(candidate: WireCandidate) -> str:
    return "no group" if candidate.selection_group is None else f"group {candidate.selection_group}"


def _known(value: object) -> str:
    return "none" if value is None else str(value)


def _orders(
    before: Mapping[_Slot, WireCandidate], after: Mapping[_Slot, WireCandidate], label: Callable[[WireCandidate], str]
) -> Iterator[str]:
    """Changed order of what stayed, group by group; a move between groups is told by itself."""
    was, now = _by_group(before), _by_group(after)
    for group, slots in now.items():
        earlier = [slot for slot in was[group] if slot in slots]
        later = [slot for slot in slots if slot in was[group]]
        if earlier != later:
            _, name, number = group
            where = name if number is None else f"{name} in group {number}"
            more = f" and {len(later) - _NAMED} more" if len(later) > _NAMED else ""
            yield f"order of {where} changes to {', '.join(label(after[slot]) for slot in later[:_NAMED])}{more}"


def _by_group(slots: Mapping[_Slot, WireCandidate]) -> dict[tuple[Kind, str, int | None], dict[_Slot, None]]:
    groups: dict[tuple[Kind, str, int | None], dict[_Slot, None]] = defaultdict(dict)
    for slot, candidate in slots.items():
        groups[candidate.kind, candidate.name, candidate.selection_group][slot] = None
    return groups


def _excluded(old: Envelope | None, new: Envelope) -> Iterator[str]:
    before = {entry.provider: entry for entry in old.excluded} if old is not None else {}
    after = {entry.provider: entry for entry in new.excluded}
    for provider, entry in after.items():
        known = before.get(provider)
        if known is None or known.reason != entry.reason:
            yield f"provider {provider} is left out: {entry.reason}" + (f" ({entry.detail})" if entry.detail else "")
    for provider in sorted(before.keys() - after.keys()):
        yield f"provider {provider} is no longer left out"
