"""One document, made ready to pick from. Built when it arrives; a pick only looks things up.

For each capability the first group with a candidate that admits new work is chosen once, here: nothing in a document
changes between two of them. Without groups the first admitted candidate in order is taken, as readers of the plain
form do. Picker ``saturation`` needs the estimates of live load; this version draws by traffic weight within the group
instead, and every pick says so (``picker_used``).
"""

from collections.abc import Iterable, Iterator
from itertools import count, groupby
from typing import Final, NoReturn, Self

from grid.gateway import refusals
from grid.gateway.draws import Bits
from grid.gateway.pick import Pick
from grid.gateway.pickers import Deterministic, GroupPicker, Random, RoundRobin, WeightedRandom
from grid.gateway.shedding import retry_after
from grid.model import AdmissionState, Kind, Picker
from grid.overlay import Envelope, WireCandidate

DEFAULT_WEIGHT: Final = 100
"""Traffic weight of a candidate that carries none: the default of ``capacity_weight``."""

_Cursors = dict[tuple[Kind, str, int | None], Iterator[int]]


class Snapshot:
    """A document's routes. Never changed once built, but for its round-robin cursors, which count."""

    __slots__ = ("_cursors", "_routes", "envelope")

    def __init__(self, envelope: Envelope, cursors: _Cursors, routes: dict[Kind, dict[str, GroupPicker[Pick]]]) -> None:
        self.envelope = envelope
        self._cursors = cursors
        self._routes = routes

    @classmethod
    def build(cls, envelope: Envelope, bits: Bits, previous: "Snapshot | None" = None) -> Self:
        """Make ``envelope`` ready. ``bits`` is like ``random.getrandbits``.

        ``previous`` is what was in use so far: the same revision keeps its round-robin cursors, another one restarts
        them.
        """
        cursors: _Cursors = {}
        if previous is not None and envelope.revision is not None and envelope.revision == previous.revision:
            cursors = previous._cursors
        candidates: dict[tuple[Kind, str], list[WireCandidate]] = {}
        for candidate in envelope.candidates:
            candidates.setdefault((candidate.kind, candidate.name), []).append(candidate)
        routes: dict[Kind, dict[str, GroupPicker[Pick]]] = {kind: {} for kind in Kind}
        for (kind, name), served in candidates.items():
            routes[kind][name] = _route(envelope, served, bits, cursors)
        return cls(envelope, cursors, routes)

    @property
    def revision(self) -> str | None:
        """The document's revision; None in the legacy form."""
        return self.envelope.revision

    def pick(self, name: str, kind: Kind = Kind.INFERENCE_MODEL) -> Pick:
        """Who takes the next request for ``name``. Raises RoutingError."""
        try:
            route = self._routes[kind][name]
        except (KeyError, TypeError):
            raise refusals.unknown(kind, name) from None
        return route.pick()


def _route(envelope: Envelope, served: list[WireCandidate], bits: Bits, cursors: _Cursors) -> GroupPicker[Pick]:
    """The picker over the first group of one capability that admits new work."""
    for group, members in groupby(served, key=lambda candidate: candidate.selection_group):
        admitted = [one for one in members if one.admission_state is AdmissionState.NEW_AND_EXISTING]
        if admitted:
            return _picker(envelope, group, admitted, bits, cursors)
    return _Refused(served, bits)


def _picker(
    envelope: Envelope, group: int | None, admitted: list[WireCandidate], bits: Bits, cursors: _Cursors
) -> GroupPicker[Pick]:
    used = Picker.DETERMINISTIC if group is None or envelope.picker is None else envelope.picker
    if used is Picker.SATURATION:
        used = Picker.WEIGHTED_RANDOM
    picks = [_pick(envelope, candidate, used) for candidate in admitted]
    match used:
        case Picker.ROUND_ROBIN:
            cursor = cursors.setdefault((picks[0].kind, picks[0].name, group), count())
            return RoundRobin(picks, cursor)
        case Picker.RANDOM:
            return Random(picks, bits)
        case Picker.WEIGHTED_RANDOM:
            return WeightedRandom(picks, _weights(admitted), bits)
        case _:
            return Deterministic(picks)


def _weights(candidates: Iterable[WireCandidate]) -> list[int]:
    return [DEFAULT_WEIGHT if one.traffic_weight is None else one.traffic_weight for one in candidates]


def _pick(envelope: Envelope, candidate: WireCandidate, used: Picker) -> Pick:
    epoch, version = envelope.position or (None, None)
    return Pick(
        kind=candidate.kind,
        name=candidate.name,
        site=candidate.site,
        cluster=candidate.cluster,
        stable_id=candidate.stable_id,
        admission_state=candidate.admission_state,
        tier=candidate.selection_tier,
        fresh=candidate.fresh,
        rank=candidate.rank,
        group=candidate.selection_group,
        weight=candidate.traffic_weight,
        revision=envelope.revision,
        epoch=epoch,
        version=version,
        picker=envelope.picker,
        picker_used=used,
    )


class _Refused:
    """Stands where a picker would, for a capability that takes no new work."""

    __slots__ = ("_bits", "_candidate", "_held_back")

    def __init__(self, served: list[WireCandidate], bits: Bits) -> None:
        self._candidate = served[0]
        # Those that take nothing at all are no capacity that could come back soon; one that is held back is.
        self._held_back = any(one.admission_state is AdmissionState.EXISTING_ONLY for one in served)
        self._bits = bits

    def pick(self) -> NoReturn:
        refusal = refusals.held_back if self._held_back else refusals.no_healthy_site
        raise refusal(self._candidate.kind, self._candidate.name, retry_after(self._bits))
