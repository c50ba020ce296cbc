"""A decision in words: who was looked at, at which step, with which numbers, and why each was taken or not.

The steps are those of a decision, in their order: admission (who may take this request at all), health, affinity,
group, picker. Every candidate of the capability stands at the step that settled it, and the one taken comes last.
"""

from collections.abc import Iterator
from typing import Final

from grid.gateway.affinity import Bound
from grid.gateway.decision import Case, Consideration, Decision, SteeredDecision
from grid.gateway.places import Place

_RULES: Final[dict[Case, str]] = {
    "in_order": "first of the document's order",
    "in_turn": "its turn",
    "any": "drawn, all alike",
    "by_weight": "drawn by weight",
    "two_drawn": "the lower of two drawn by capacity",
    "lower_of_two": "the lower of the two with room",
    "weighted_of_two": "drawn of the two with room; their estimates cannot be relied on now",
    "only_one": "the only one with room in its group",
    "last_resort": "nobody has room: drawn by capacity among the shortest queues",
    "bound": "the session is bound to it",
    "hashed": "the session's hash prefers it within its load bound",
}
_SESSIONS: Final = {
    Bound.CREATED: "; the session is bound to it from now on",
    Bound.FAILOVER: "; the session could not stay where it was and is bound to it from now on",
}
_BLIND: Final = frozenset({"in_order", "in_turn", "any", "by_weight"})
_STEPS: Final = ("admission", "health", "affinity", "group", "picker")


def considerations(decision: Decision) -> list[Consideration]:
    """See :meth:`grid.gateway.decision.Decision.explain`."""
    lines = list(_others(decision))
    lines.sort(key=lambda line: _STEPS.index(line.step))
    if decision.other is not None:
        verdict = "the other of the two" if decision.case == "weighted_of_two" else "compared, and not lower"
        lines.append(_line("picker", decision.other, decision.other_estimate, verdict))
    lines.append(
        _line("affinity" if decision.case == "bound" else "picker", decision.place, decision.estimate, _taken(decision))
    )
    return lines


def _others(decision: Decision) -> Iterator[Consideration]:
    usable = {id(place) for tier in decision.place.served.tiers for place in tier}
    for place in decision.place.served.places:
        if place is not decision.place and place is not decision.other:
            step, verdict = _settled(place, decision, used=id(place) in usable)
            yield _line(step, place, place.target.estimate, verdict)


def _settled(place: Place, decision: Decision, *, used: bool) -> tuple[str, str]:
    """At which step a candidate that was neither taken nor compared fell out, and why."""
    if isinstance(decision, SteeredDecision):
        if place.target.key in decision.failed:
            return "admission", "it failed this request already"
        if decision.allowed is not None and place.target not in decision.allowed:
            return "admission", "admission control holds the request to others"
    if decision.case == "bound":
        return "affinity", "not asked"
    if not place.takes_new:
        return "admission", f"takes no new work: {place.candidate.admission_state}"
    if place.target.set_back and not used:
        if place.target.dead:
            return "health", "its newest signal says that nothing is ready there"
        return "health", "set back: its connections fail, its answers are errors, or its cluster is reported down"
    if decision.case == "last_resort":
        return "picker", "not drawn, or a longer queue, or past the overflow bound"
    return _by_group(place, decision)


def _by_group(place: Place, decision: Decision) -> tuple[str, str]:
    mine, taken = place.candidate.selection_group, decision.group
    if mine is not None and taken is not None and mine != taken:
        return "group", f"group {mine} was not reached" if mine > taken else f"group {mine} has no room"
    if decision.case in _BLIND:
        return "picker", "not its turn" if decision.case == "in_turn" else "not drawn"
    if place.target.known is not decision.place.target.known:
        return "group", "its load is unknown, and one of known load has room"
    if decision.case == "hashed":
        return "picker", "the session's hash prefers another, or it is past its load bound"
    return "picker", "not drawn" if place.target.has_room else "no room: its estimate is at or above the spill bound"


def _line(step: str, place: Place, load: float | None, verdict: str) -> Consideration:
    one, target = place.candidate, place.target
    return Consideration(step, one.site, one.cluster, one.selection_group, load, target.own, verdict, target.capacity)


def _taken(decision: Decision) -> str:
    text = _RULES[decision.case]
    if decision.spilled and decision.attempt == 1:
        text += f"; group {decision.place.served.first_group} has no room"
    if decision.attempt > 1:
        text += f"; attempt {decision.attempt}"
    if decision.demoted:
        text += "; set back for its health, and nobody else is left"
    return text + _SESSIONS.get(decision.affinity, "")
