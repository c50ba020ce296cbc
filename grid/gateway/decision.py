"""What a pick gives: where the request goes, and how that was decided."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from grid.gateway.affinity import Bound
from grid.model import AdmissionState, Kind, Picker

if TYPE_CHECKING:
    from grid.gateway.places import Place

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


@dataclass(frozen=True, slots=True)
class Consideration:
    """One line of an explanation: a candidate, its numbers, and what became of it. Loads are estimates, 1 is full."""

    step: str
    site: str
    cluster: str
    group: int | None
    estimate: float | None
    own: int
    verdict: str


class Decision:
    """One decision. Nobody changes it once it is made.

    ``place`` is the candidate taken; ``other`` the one it was compared with (None where there was none); ``estimate``
    and ``other_estimate`` are their estimated loads at that moment. ``case`` names the rule. ``affinity`` says what
    the session did to it; ``attempt`` counts from 1.
    """

    __slots__ = ("case", "estimate", "other", "other_estimate", "place")

    affinity: Bound = Bound.NONE
    attempt: int = 1

    def __init__(self, place: "Place", other: "Place | None", case: Case) -> None:
        self.place = place
        self.other = other
        self.case = case
        self.estimate = place.target.estimate
        self.other_estimate = None if other is None else other.target.estimate

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
    def spilled(self) -> bool:
        """Whether a nearer group was passed over because it had no room."""
        first = self.place.first_group
        return self.case != "last_resort" and first is not None and self.group is not None and self.group > first

    def explain(self) -> "Sequence[Consideration]":
        """Why this one, and why not each other: the candidates in the order they were looked at.

        Made only when asked, so the numbers of candidates that were not compared are those of now.
        """
        from grid.gateway.explain import considerations  # noqa: PLC0415 - explanations import decisions

        return considerations(self)

    def __repr__(self) -> str:
        return f"<Decision {self.name} -> {self.site}/{self.cluster} ({self.case}, load {self.estimate:.3f})>"


class SteeredDecision(Decision):
    """A decision that a session or an earlier attempt had a hand in."""

    __slots__ = ("affinity", "attempt")

    def __init__(self, place: "Place", other: "Place | None", case: Case, affinity: Bound, attempt: int) -> None:
        super().__init__(place, other, case)
        self.affinity = affinity
        self.attempt = attempt
