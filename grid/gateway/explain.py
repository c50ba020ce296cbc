"""A decision in words: who was looked at, in which order, with which numbers, and why each was taken or not."""

from grid.gateway.decision import Consideration, Decision
from grid.gateway.places import Place

_RULES = {
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


def considerations(decision: Decision) -> list[Consideration]:
    """See :meth:`grid.gateway.decision.Decision.explain`."""
    place = decision.place
    lines = [_line("taken", place, decision.estimate, _taken(decision))]
    if decision.other is not None:
        other, load = decision.other, decision.other_estimate
        verdict = "compared, higher estimate" if decision.case != "weighted_of_two" else "the other of the two"
        lines.append(_line("compared", other, load, verdict))
    served = place.served
    shown = {id(place), id(decision.other)}
    tiers = [member for tier in served.tiers for member in tier]
    lines += [
        _line("passed", member, member.target.estimate, _passed(member, decision))
        for member in tiers
        if id(member) not in shown
    ]
    listed = shown | {id(member) for member in tiers}
    lines += [
        _line("left out", member, member.target.estimate, _left_out(member))
        for member in served.places
        if id(member) not in listed
    ]
    return lines


def _line(step: str, place: Place, load: float | None, verdict: str) -> Consideration:
    one = place.candidate
    return Consideration(step, one.site, one.cluster, one.selection_group, load, place.target.own, verdict)


def _taken(decision: Decision) -> str:
    text = _RULES[decision.case]
    if decision.spilled:
        text += f"; group {decision.place.first_group} has no room"
    if decision.attempt > 1:
        text += f"; attempt {decision.attempt}"
    if decision.demoted:
        text += "; set back for its health, and nobody else is left"
    return text


def _passed(place: Place, decision: Decision) -> str:
    mine, taken = place.candidate.selection_group, decision.group
    if decision.case == "last_resort":
        return "not drawn, or a longer queue"
    if mine is not None and taken is not None and mine > taken:
        return f"group {mine} was not reached"
    if not place.target.has_room:
        return "no room: its estimate is at or above the spill bound"
    return "not drawn"


def _left_out(place: Place) -> str:
    if not place.takes_new:
        return f"takes no new work: {place.candidate.admission_state}"
    if place.target.dead:
        return "its newest signal says that nothing is ready there"
    return "set back: its connections fail, or most of its answers are errors"
