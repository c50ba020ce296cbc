"""What a pick gives: where the request goes, and how that was decided."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from grid.gateway.affinity import Bound
from grid.model import AdmissionState, Kind, Picker

if TYPE_CHECKING:
    from grid.gateway.places import Place
    from grid.gateway.target import Target

Case = Literal[
    "in_order",
    "in_turn",
    "any",
    "by_weight",
    "two_drawn",
    "lower_of_two",
    "weighted_of_two",
    "only_one",
    "last_resort",
    "bound",
    "hashed",
]
"""Which rule chose. The five in the middle are those of the picker ``saturation``; ``bound`` and ``hashed`` are
affinity's."""


class Why(StrEnum):
    """Why a request went where it went, in one word: the values of the label ``reason`` of a gateway's metrics."""

    ROUTED = "routed"
    FALLBACK = "fallback"
    SPILLED = "spilled"
    OVERFLOW = "overflow"
    AFFINITY = "affinity"
    DEMOTED = "demoted"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Consideration:
    """One line of an explanation: a candidate, what became of it at which step, and the numbers seen.

    ``step``: admission, health, affinity, group or picker. ``estimate`` is its load (1 is full), ``own`` what this
    gateway has in flight there, ``capacity`` the requests it counts with.
    """

    step: str
    site: str
    cluster: str
    group: int | None
    estimate: float | None
    own: int
    verdict: str
    capacity: float


class Decision:
    """One decision. Nobody changes it once it is made.

    ``place`` is the candidate taken; ``other`` the one it was compared with (None where there was none); ``estimate``
    and ``other_estimate`` are their estimated loads at that moment. ``case`` names the rule. ``affinity`` says what
    the session did to it; ``attempt`` counts from 1.
    """

    # No __init__, which would cost half a pick again: whoever makes one sets every slot (see ``decided``).
    __slots__ = ("case", "estimate", "other", "other_estimate", "place")

    affinity: Bound = Bound.NONE
    attempt: int = 1

    place: "Place"
    other: "Place | None"
    case: Case
    estimate: float
    other_estimate: float | None

    @property
    def kind(self) -> Kind:
        """Kind of the capability asked for."""
        return self.place.candidate.kind

    @property
    def name(self) -> str:
        """Name of the capability asked for."""
        return self.place.candidate.name

    @property
    def site(self) -> str:
        """The site taken."""
        return self.place.candidate.site

    @property
    def cluster(self) -> str:
        """The routing cluster taken."""
        return self.place.candidate.cluster

    @property
    def stable_id(self) -> str:
        """The candidate's identity on the wire."""
        return self.place.candidate.stable_id

    @property
    def admission_state(self) -> AdmissionState:
        """Who may send to it."""
        return self.place.candidate.admission_state

    @property
    def tier(self) -> str | None:
        """How near it is."""
        return self.place.candidate.selection_tier

    @property
    def fresh(self) -> bool:
        """Whether its sample was fresh when the document was made."""
        return self.place.candidate.fresh

    @property
    def rank(self) -> int | None:
        """Its place in the document."""
        return self.place.candidate.rank

    @property
    def group(self) -> int | None:
        """Its selection group; None in the plain form."""
        return self.place.candidate.selection_group

    @property
    def weight(self) -> int | None:
        """Its traffic weight; None in the plain form."""
        return self.place.candidate.traffic_weight

    @property
    def revision(self) -> str | None:
        """The document's revision; None in the legacy form."""
        return self.place.envelope.revision

    @property
    def epoch(self) -> int | None:
        """Epoch of the document's publication; None where it carries none."""
        position = self.place.envelope.position
        return None if position is None else position[0]

    @property
    def version(self) -> int | None:
        """Version of the document's publication; None where it carries none."""
        position = self.place.envelope.position
        return None if position is None else position[1]

    @property
    def picker(self) -> Picker | None:
        """The picker that the document asks for; None: no policy."""
        return self.place.envelope.picker

    @property
    def demoted(self) -> bool:
        """Whether it was set back for its health, and taken for want of another."""
        return self.place.target.set_back

    @property
    def fallback(self) -> bool:
        """Whether all that come before it in the document take no new work, or are set back for their health."""
        served, group = self.place.served, self.group
        if self.case == "bound":
            return False
        return self.place is not served.places[0] if group is None else 0 < group == served.first_group

    @property
    def spilled(self) -> bool:
        """Whether a nearer group was passed over because it had no room."""
        first, group = self.place.served.first_group, self.group
        if first is None or group is None or self.case in {"bound", "last_resort"}:
            return False
        return group > first

    @property
    def reason(self) -> Why:
        """Why it went there, in one word."""
        if self.attempt > 1:
            return Why.RETRY
        if self.affinity is Bound.REUSED:
            return Why.AFFINITY
        if self.demoted:
            return Why.DEMOTED
        if self.case == "last_resort":
            return Why.OVERFLOW
        if self.spilled:
            return Why.SPILLED
        return Why.FALLBACK if self.fallback else Why.ROUTED

    def explain(self) -> "Sequence[Consideration]":
        """Why this one, and why not each other: every candidate at the step that settled it, the one taken last.

        Made only when asked, so the numbers of candidates that were not compared are those of now.
        """
        from grid.gateway.explain import considerations  # noqa: PLC0415 - explanations import decisions

        return considerations(self)

    def __repr__(self) -> str:
        return f"<Decision {self.name} -> {self.site}/{self.cluster} ({self.case}, load {self.estimate:.3f})>"


class SteeredDecision(Decision):
    """A decision that a session, an earlier attempt or admission control had a hand in.

    ``failed``: the ``site/cluster`` of those that failed this request already; ``allowed``: whom it was held to.
    """

    __slots__ = ("affinity", "allowed", "attempt", "failed")

    affinity: Bound
    attempt: int
    failed: frozenset[str]
    allowed: "Collection[Target] | None"


def decided(place: "Place", other: "Place | None", case: Case) -> Decision:
    """The decision for ``place`` rather than ``other``, with their estimates as they are now."""
    decision = Decision()
    decision.place = place
    decision.other = other
    decision.case = case
    decision.estimate = place.target.estimate
    decision.other_estimate = None if other is None else other.target.estimate
    return decision


def steered(
    decision: Decision,
    affinity: Bound,
    attempt: int,
    failed: frozenset[str] = frozenset(),
    allowed: "Collection[Target] | None" = None,
) -> SteeredDecision:
    """The same decision with what the session, earlier attempts and admission control did to it."""
    found = SteeredDecision()
    found.place = decision.place
    found.other = decision.other
    found.case = decision.case
    found.estimate = decision.estimate
    found.other_estimate = decision.other_estimate
    found.affinity = affinity
    found.attempt = attempt
    found.failed = failed
    found.allowed = allowed
    return found
