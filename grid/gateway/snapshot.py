"""One document, made ready to pick from. Built when it arrives; a pick only looks things up.

A capability's candidates that admit new work stand in the document's groups, in its order. Within a group those whose
load is known come before those whose load is not (picker ``saturation``); whoever is set back for its health is used
only where nobody else is left. Without groups the first admitted candidate in order is taken, as readers of the plain
form do. What frames, time and failures change is put in place again by :meth:`Snapshot.refresh`, off the request path.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import count, groupby
from typing import NoReturn, Protocol, Self

from grid.gateway import refusals
from grid.gateway.decision import Case, Decision
from grid.gateway.draws import Bits
from grid.gateway.pickers import Deterministic, GroupPicker, Random, RoundRobin, WeightedRandom
from grid.gateway.places import Place
from grid.gateway.saturation import Group, SaturationRoute, choose
from grid.gateway.shedding import retry_after
from grid.gateway.target import Target
from grid.model import AdmissionState, Kind, Picker
from grid.overlay import Envelope, WireCandidate

_Cursors = dict[tuple[Kind, str, int | None], Iterator[int]]
Tiers = tuple[tuple[Place, ...], ...]


class Picks(Protocol):
    """Whatever stands behind a capability's name."""

    def pick(self) -> Decision:
        """The next decision. Raises RoutingError."""
        ...


class Targets:
    """The targets of this process, by site and cluster; they outlive documents, so that counts are never lost."""

    __slots__ = ("_known", "overflow", "spill")

    def __init__(self, *, spill: float = 1.0, overflow: float = 1.25) -> None:
        self.spill = spill
        self.overflow = overflow
        self._known: dict[tuple[str, str], Target] = {}

    def __iter__(self) -> Iterator[Target]:
        return iter(self._known.values())

    def get(self, site: str, cluster: str) -> Target | None:
        """The target, None where no document has named it."""
        return self._known.get((site, cluster))

    def of(self, candidate: WireCandidate) -> Target:
        """The target of a candidate, made where it is new."""
        place = (candidate.site, candidate.cluster)
        target = self._known.get(place)
        if target is None:
            target = self._known[place] = Target(*place, spill=self.spill, overflow=self.overflow)
        return target

    def keep(self, used: Collection[Target]) -> None:
        """Let go of those that no document names and that nothing is in flight to."""
        wanted = {id(target) for target in used}
        self._known = {
            place: target for place, target in self._known.items() if id(target) in wanted or target.own != 0
        }


class Served:
    """One capability of a document: all its places, and those that take new work in the order they are tried."""

    __slots__ = ("kind", "name", "places", "tiers")

    def __init__(self, kind: Kind, name: str) -> None:
        self.kind = kind
        self.name = name
        self.places: list[Place] = []
        self.tiers: Tiers = ()

    def arrange(self, *, by_load: bool) -> None:
        """Put the places that take new work in order; ``by_load`` sets those of unknown load behind in their group."""
        admitted = [place for place in self.places if place.takes_new]
        for place in self.places:
            place.group = place.route = None
            place.first_group = admitted[0].candidate.selection_group if admitted else None
        # Whoever is set back still counts where nobody else is left.
        usable = [place for place in admitted if not place.target.set_back] or admitted
        tiers: list[tuple[Place, ...]] = []
        for _, found in groupby(usable, key=lambda place: place.candidate.selection_group):
            members = tuple(found)
            if by_load:
                split = [place for place in members if place.target.known], [p for p in members if not p.target.known]
                tiers += [tuple(part) for part in split if part]
            else:
                tiers.append(members)
        self.tiers = tuple(tiers)

    def bound(self, stable_id: str) -> Place | None:
        """The place that a session is bound to, where it may still send there."""
        for place in self.places:
            if place.candidate.stable_id == stable_id:
                return (
                    None if place.candidate.admission_state is AdmissionState.NONE or place.target.set_back else place
                )
        return None


class Snapshot:
    """A document's routes. A pick only reads it; ``refresh`` and ``renumber`` belong to whoever follows the bus."""

    __slots__ = ("_bits", "_cursors", "_sheds", "envelope", "routes", "served")

    def __init__(self, envelope: Envelope, bits: Bits, cursors: _Cursors, *, sheds: bool) -> None:
        self.envelope = envelope
        self.served: dict[tuple[Kind, str], Served] = {}
        self.routes: dict[Kind, dict[str, Picks]] = {kind: {} for kind in Kind}
        self._bits = bits
        self._cursors = cursors
        self._sheds = sheds

    @classmethod
    def build(
        cls,
        envelope: Envelope,
        bits: Bits,
        previous: "Snapshot | None" = None,
        *,
        targets: Targets | None = None,
        sheds: bool = True,
    ) -> Self:
        """Make ``envelope`` ready. ``bits`` is like ``random.getrandbits``.

        ``previous`` is what was in use so far: the same revision keeps its round-robin cursors, another one restarts
        them. ``sheds`` False: nothing is refused for load.
        """
        same = previous is not None and None is not envelope.revision == previous.envelope.revision
        made = cls(envelope, bits, previous._cursors if previous is not None and same else {}, sheds=sheds)
        known = targets if targets is not None else Targets()
        for order, candidate in enumerate(envelope.candidates):
            capability = (candidate.kind, candidate.name)
            served = made.served.get(capability)
            if served is None:
                served = made.served[capability] = Served(*capability)
            served.places.append(Place(candidate, envelope, known.of(candidate), order, served))
        made.refresh(previous)
        made._attach()
        return made

    @property
    def revision(self) -> str | None:
        """The document's revision; None in the legacy form."""
        return self.envelope.revision

    @property
    def targets(self) -> list[Target]:
        """The targets that the document names."""
        found = {id(place.target): place.target for served in self.served.values() for place in served.places}
        return list(found.values())

    def pick(self, name: str, kind: Kind = Kind.INFERENCE_MODEL) -> Decision:
        """Who takes the next request for ``name``. Raises RoutingError."""
        try:
            route = self.routes[kind][name]
        except (KeyError, TypeError):
            raise refusals.unknown(kind, name) from None
        return route.pick()

    def refresh(self, previous: "Snapshot | None" = None) -> None:
        """Put every capability in order again, after knowledge or health of a target has changed."""
        by_load = self._picker() is Picker.SATURATION
        for (kind, name), served in self.served.items():
            served.arrange(by_load=by_load)
            old = (previous or self).routes[kind].get(name)
            shedding = isinstance(old, SaturationRoute) and old.shedding
            self.routes[kind][name] = self._route(served, shedding=shedding)

    def renumber(self) -> None:
        """Take over the targets' new numbers."""
        for routes in self.routes.values():
            for route in routes.values():
                if isinstance(route, SaturationRoute):
                    route.renumber()

    def among(self, served: Served, tiers: Tiers) -> Decision:
        """A pick held to ``tiers``, by the document's own rule; needs one place, costs time in their number."""
        if self._picker() is Picker.SATURATION:
            return choose(tiers, self._bits)
        group = tiers[0][0].candidate.selection_group
        picker, case = self._group_picker(tiers[0], served, group)
        return Decision(picker.pick(), None, case)

    def _picker(self) -> Picker:
        grouped = any(candidate.selection_group is not None for candidate in self.envelope.candidates[:1])
        return self.envelope.picker if grouped and self.envelope.picker is not None else Picker.DETERMINISTIC

    def _route(self, served: Served, *, shedding: bool) -> Picks:
        if not served.tiers:
            return _Refused(served, self._bits)
        if self._picker() is Picker.SATURATION:
            groups = [Group(number, tier) for number, tier in enumerate(served.tiers)]
            return SaturationRoute(groups, self._bits, sheds=self._sheds, shedding=shedding)
        first = served.tiers[0]
        return _Plain(*self._group_picker(first, served, first[0].candidate.selection_group))

    def _group_picker(
        self, members: Sequence[Place], served: Served, group: int | None
    ) -> tuple[GroupPicker[Place], Case]:
        match self._picker():
            case Picker.ROUND_ROBIN:
                cursor = self._cursors.setdefault((served.kind, served.name, group), count())
                return RoundRobin(members, cursor), "in_turn"
            case Picker.RANDOM:
                return Random(members, self._bits), "any"
            case Picker.WEIGHTED_RANDOM:
                return WeightedRandom(members, [place.weight for place in members], self._bits), "by_weight"
            case _:
                return Deterministic(members), "in_order"

    def _attach(self) -> None:
        places: dict[int, list[Place]] = {}
        for served in self.served.values():
            for place in served.places:
                places.setdefault(id(place.target), []).append(place)
        for mine in places.values():
            mine[0].target.attach(tuple(mine))


class _Plain:
    """The pickers that need no load, over the first group that takes new work."""

    __slots__ = ("_case", "_picker")

    def __init__(self, picker: GroupPicker[Place], case: Case) -> None:
        self._picker = picker
        self._case = case

    def pick(self) -> Decision:
        return Decision(self._picker.pick(), None, self._case)


class _Refused:
    """Stands where a picker would, for a capability that takes no new work."""

    __slots__ = ("_bits", "_candidate", "_held_back")

    def __init__(self, served: Served, bits: Bits) -> None:
        self._candidate = served.places[0].candidate
        # Those that take nothing at all are no capacity that could come back soon; one that is held back is.
        self._held_back = any(
            place.candidate.admission_state is AdmissionState.EXISTING_ONLY for place in served.places
        )
        self._bits = bits

    def pick(self) -> NoReturn:
        refusal = refusals.held_back if self._held_back else refusals.no_healthy_site
        raise refusal(self._candidate.kind, self._candidate.name, retry_after(self._bits))
