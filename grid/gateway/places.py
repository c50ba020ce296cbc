"""A candidate's place in one capability of the document in use."""

import math
from typing import TYPE_CHECKING, Final

from grid.gateway.affinity import seed
from grid.gateway.target import Target
from grid.model import AdmissionState
from grid.overlay import Envelope, WireCandidate

if TYPE_CHECKING:
    from grid.gateway.saturation import Group
    from grid.gateway.snapshot import Served

DEFAULT_WEIGHT: Final = 100
"""Traffic weight of a candidate that carries none: the default of ``capacity_weight``."""


class Place:
    """A candidate, the target behind it, and where it stands among the others. Built with the document.

    ``order``: its place in the document. ``group`` and ``spot``: where the picker ``saturation`` has it; None while it
    takes no new work or is set back.
    """

    __slots__ = (
        "_seed", "candidate", "envelope", "group", "order", "served", "spot", "takes_new", "target",
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
        self.group: Group | None = None
        self.spot = 0
        self._seed: int | None = None

    @property
    def seed(self) -> int:
        """Its number in the hashing of sessions."""
        if self._seed is None:
            self._seed = seed(self.candidate.stable_id)
        return self._seed

    @property
    def weight(self) -> int:
        """Its traffic weight: the document's, so that all gateways agree."""
        weight = self.candidate.traffic_weight
        return DEFAULT_WEIGHT if weight is None else weight

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
            self.group.room_changed(has_room)

    def open_changed(self, is_open: bool) -> None:
        """See :class:`grid.gateway.target.Member`."""
        if self.group is not None:
            self.group.open_changed(self, is_open)

    def over_changed(self, is_over: bool) -> None:
        """See :class:`grid.gateway.target.Member`."""
        if self.group is not None:
            self.group.over_changed(self, is_over)

    def sure_changed(self, surely_over: bool) -> None:
        """See :class:`grid.gateway.target.Member`."""
        if self.group is not None:
            self.group.sure_changed(self, surely_over)


def _nowhere() -> Place:
    place = object.__new__(Place)
    place.target = Target("", "")
    place.target.estimate = math.inf
    place.target.has_room = place.target.is_open = False
    return place


NOWHERE: Final = _nowhere()
"""Stands in a cell of a wheel that more than one place shares. It is never open, so the fast path never takes it."""
