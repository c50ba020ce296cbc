"""A candidate's place in one capability of the document in use."""

from typing import TYPE_CHECKING

from grid.gateway.affinity import seed
from grid.gateway.target import Target
from grid.model import AdmissionState
from grid.overlay import Envelope, WireCandidate

if TYPE_CHECKING:
    from grid.gateway.saturation import Group, SaturationRoute
    from grid.gateway.snapshot import Served

DEFAULT_WEIGHT = 100
"""Traffic weight of a candidate that carries none: the default of ``capacity_weight``."""


class Place:
    """A candidate, the target behind it, and where it stands among the others. Built with the document.

    ``order``: its place in the document. ``first_group``: number of the first group of its capability that takes new
    work.
    """

    __slots__ = (
        "_seed", "candidate", "envelope", "first_group", "group", "order", "route", "served", "takes_new", "target",
    )  # fmt: skip

    def __init__(
        self, candidate: WireCandidate, envelope: Envelope, target: Target, order: int, served: "Served"
    ) -> None:
        self.candidate = candidate
        self.envelope = envelope
        self.target = target
        self.order = order
        self.served = served
        self.takes_new = candidate.admission_state is AdmissionState.NEW_AND_EXISTING
        self.first_group: int | None = None
        self.group: Group | None = None
        self.route: SaturationRoute | None = None
        self._seed: int | None = None

    @property
    def seed(self) -> int:
        """Its number in the hashing of sessions."""
        if self._seed is None:
            self._seed = seed(self.candidate.stable_id)
        return self._seed

    @property
    def weight(self) -> float:
        """Its share in the hashing of sessions: the document's weight, so that all gateways agree."""
        weight = self.candidate.traffic_weight
        return float(DEFAULT_WEIGHT if weight is None else weight)

    @property
    def capacity(self) -> float:
        """Requests it can run at once, as estimates go by."""
        return self.target.capacity

    @property
    def estimate(self) -> float:
        """Its estimated load now."""
        return self.target.estimate

    def room_changed(self, has_room: bool) -> None:
        """See :class:`grid.gateway.target.Member`."""
        if self.group is not None:
            if has_room:
                self.group.opened(self)
            else:
                self.group.closed(self)

    def over_changed(self, is_over: bool) -> None:
        """See :class:`grid.gateway.target.Member`."""
        if self.route is not None:
            self.route.over += 1 if is_over else -1
