"""One document, made ready to pick from. Built when it arrives; a pick only looks things up.

A capability's candidates that admit new work stand in the document's groups, in its order. Within a group those whose
load is known come before those whose load is not (picker ``saturation``); whoever is set back for its health is used
only where nobody else is left. Without groups the first admitted candidate in order is taken, as readers of the plain
form do. What frames, time and failures change is put in place again by :meth:`Snapshot.refresh`, off the request path.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count, groupby
from typing import NoReturn, Protocol, Self

from grid.gateway import refusals
from grid.gateway.decision import Case, Decision, decided
from grid.gateway.draws import Bits
from grid.gateway.pickers import Deterministic, GroupPicker, Random, RoundRobin, WeightedRandom
from grid.gateway.places import Place
from grid.gateway.saturation import SaturationRoute, choose
from grid.gateway.shedding import retry_after
from grid.gateway.target import Target
from grid.model import AdmissionState, Kind, Picker, RoutingError
from grid.overlay import Envelope, WireCandidate

_Cursors = dict[tuple[Kind, str, int | None], Iterator[int]]
Tiers = tuple[tuple[Place, ...], ...]
Fits = Callable[[Place], bool]


class Picks(Protocol):
    """Whatever stands behind a capability's name."""

    def pick(self) -> Decision:
        """The next decision. Raises RoutingError."""
        ...

    def refusal(self) -> RoutingError | None:
        """Why new work is refused now, whoever asks; None while it is not."""
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

    def of(self, candidate: WireCandidate) -> Target:
        """The target of a candidate, made where it is new."""
        place = (candidate.site, candidate.cluster)
        target = self._known.get(place)
        if target is None:
            target = self._known[place] = Target(*place, spill=self.spill, overflow=self.overflow)
        return target

    def keep(self, used: Collection[Target]) -> None:
        """Let go of those that no document names and that nothing is in flight to."""
        wanted = set(used)
        self._known = {place: target for place, target in self._known.items() if target in wanted or target.own != 0}


class Served:
    """One capability of a document: all its places, and those that take new work in the order they are tried.

    ``targets``: those that take any work. ``picker``: how one of a group is chosen, ``deterministic`` where there are
    no groups. ``tiers``: the groups in use, ``demoted`` those of the places that are set back and used when nobody else
    is left. ``first_group``: number of the first group in use.
    """

    __slots__ = ("_by_id", "demoted", "first_group", "kind", "name", "picker", "places", "targets", "tiers")

    def __init__(self, kind: Kind, name: str) -> None:
        self.kind = kind
        self.name = name
        self.picker = Picker.DETERMINISTIC
        self.places: list[Place] = []
        self.targets: set[Target] = set()
        self.tiers: Tiers = ()
        self.demoted: Tiers = ()
        self.first_group: int | None = None
        self._by_id: dict[str, Place] = {}

    def add(self, place: Place) -> None:
        """Take a candidate in, in the document's order. Of one that is there twice, sessions are bound to the first."""
        if place.candidate.selection_group is not None and place.envelope.picker is not None:
            self.picker = place.envelope.picker
        self.places.append(place)
        if place.candidate.admission_state is not AdmissionState.NONE:
            self.targets.add(place.target)
        self._by_id.setdefault(place.candidate.stable_id, place)

    def arrange(self) -> None:
        """Put the places that take new work in order, by what is known of their health and load now."""
        for place in self.places:
            place.group = None
        admitted = [place for place in self.places if place.takes_new]
        well = [place for place in admitted if not place.target.set_back]
        # Whoever is set back still counts where nobody else is left.
        self.tiers = self._grouped(well or admitted)
        self.demoted = self._grouped([place for place in admitted if place.target.set_back]) if well else ()
        self.first_group = self.tiers[0][0].candidate.selection_group if self.tiers else None

    def _grouped(self, places: Sequence[Place]) -> Tiers:
        tiers: list[tuple[Place, ...]] = []
        for _, found in groupby(places, key=lambda place: place.candidate.selection_group):
            members = tuple(found)
            if self.picker is Picker.SATURATION:
                split = [place for place in members if place.target.known], [p for p in members if not p.target.known]
                tiers += [tuple(part) for part in split if part]
            else:
                tiers.append(members)
        return tuple(tiers)

    def bound(self, stable_id: str) -> Place | None:
        """The place that a session is bound to, where it may still send there."""
        place = self._by_id.get(stable_id)
        if place is None or place.candidate.admission_state is AdmissionState.NONE or place.target.set_back:
            return None
        return place

    def held_to(self, fits: Fits) -> Tiers:
        """The tiers with only those that fit; those set back where nobody else does."""
        kept = [tuple(place for place in tier if fits(place)) for tier in self.tiers]
        if not any(kept):
            kept = [tuple(place for place in tier if fits(place)) for tier in self.demoted]
        return tuple(tier for tier in kept if tier)


class Snapshot:
    """A document's routes. A pick only reads it; ``refresh`` and ``renumber`` belong to whoever follows the bus."""

    __slots__ = ("_bits", "_cursors", "_peers", "_sheds", "envelope", "routes", "served", "takers")

    def __init__(
        self, envelope: Envelope, bits: Bits, previous: "Snapshot | None", targets: Targets, *, sheds: bool = True
    ) -> None:
        self.envelope = envelope
        self.served: dict[tuple[Kind, str], Served] = {}
        self.routes: dict[Kind, dict[str, Picks]] = {kind: {} for kind in Kind}
        self._bits = bits
        self._sheds = sheds
        same = previous is not None and None is not envelope.revision == previous.envelope.revision
        self._cursors: _Cursors = previous._cursors if previous is not None and same else {}
        for order, candidate in enumerate(envelope.candidates):
            capability = (candidate.kind, candidate.name)
            served = self.served.get(capability)
            if served is None:
                served = self.served[capability] = Served(*capability)
            served.add(Place(candidate, envelope, targets.of(candidate), order, served))
        self._peers = self._find_peers()
        self.takers = frozenset(
            place.target for served in self.served.values() for place in served.places if place.takes_new
        )
        """The targets that take new work of some capability."""

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
        made = cls(envelope, bits, previous, targets if targets is not None else Targets(), sheds=sheds)
        made.put_in_use(previous)
        return made

    @property
    def revision(self) -> str | None:
        """The document's revision; None in the legacy form."""
        return self.envelope.revision

    @property
    def targets(self) -> list[Target]:
        """The targets that the document names."""
        return list(self._peers)

    def peers(self, target: Target) -> tuple[Target, ...]:
        """The targets that share a capability with ``target``, itself included; none where the document has it not.

        The same tuple for targets of the same capabilities.
        """
        return self._peers.get(target, ())

    def has_targets_of(self, other: "Snapshot") -> bool:
        """Whether both name the same targets, and each has the same peers; their order makes no difference."""
        if self._peers.keys() != other._peers.keys():
            return False
        # Few tuples are shared by many targets, so each pair of them is compared once.
        pairs = {(id(mine), id(theirs := other._peers[target])): (mine, theirs) for target, mine in self._peers.items()}
        return all(set(mine) == set(theirs) for mine, theirs in pairs.values())

    def pick(self, name: str, kind: Kind = Kind.INFERENCE_MODEL) -> Decision:
        """Who takes the next request for ``name``. Raises RoutingError."""
        try:
            route = self.routes[kind][name]
        except (KeyError, TypeError):
            raise refusals.unknown(kind, name) from None
        return route.pick()

    def _find_peers(self) -> dict[Target, tuple[Target, ...]]:
        capabilities: dict[Target, dict[Served, None]] = {}
        for served in self.served.values():
            for place in served.places:
                capabilities.setdefault(place.target, {})[served] = None
        peers = {
            names: tuple({place.target: None for served in names for place in served.places})
            for names in {tuple(names) for names in capabilities.values()}
        }
        return {target: peers[tuple(names)] for target, names in capabilities.items()}

    def put_in_use(self, previous: "Snapshot | None" = None) -> None:
        """Put everything in order, and let the targets tell these places of changes instead of ``previous``'s."""
        self.refresh(previous)
        places: dict[Target, list[Place]] = {}
        for served in self.served.values():
            for place in served.places:
                places.setdefault(place.target, []).append(place)
        for target, mine in places.items():
            target.attach(tuple(mine))

    def refresh(self, previous: "Snapshot | None" = None) -> None:
        """Put every capability in order again, after knowledge or health of a target has changed."""
        for (kind, name), served in self.served.items():
            served.arrange()
            old = (previous or self).routes[kind].get(name)
            shedding = isinstance(old, SaturationRoute) and old.shedding
            self.routes[kind][name] = self._route(served, shedding=shedding)

    def renumber(self) -> None:
        """Take over the targets' new numbers."""
        for routes in self.routes.values():
            for route in routes.values():
                if isinstance(route, SaturationRoute):
                    route.renumber()

    def rise(self, now: float) -> None:
        """Let the places in that the water level has reached by ``now`` (monotonic s); also after every change."""
        for routes in self.routes.values():
            for route in routes.values():
                if isinstance(route, SaturationRoute):
                    route.rise(now)

    def among(self, served: Served, fits: Fits) -> Decision | None:
        """A pick held to those that fit, at a cost in their number; None where none does."""
        tiers = served.held_to(fits)
        if not tiers:
            return None
        if served.picker is Picker.SATURATION:
            return choose(tiers, self._bits)
        first = tiers[0]
        if served.picker is Picker.ROUND_ROBIN:
            # Turns are counted over the whole group, so that who is passed over disturbs nobody else's share.
            whole = next(tier for tier in (*served.tiers, *served.demoted) if first[0] in tier)
            return decided(self._in_turn(whole, served).pick_of(first.__contains__), None, "in_turn")
        picker, case = self._group_picker(first, served)
        return decided(picker.pick(), None, case)

    def _route(self, served: Served, *, shedding: bool) -> Picks:
        if not served.tiers:
            return _Refused(served, self._bits)
        if served.picker is Picker.SATURATION:
            return SaturationRoute(served.tiers, self._bits, sheds=self._sheds, shedding=shedding)
        return _Plain(*self._group_picker(served.tiers[0], served))

    def _group_picker(self, members: Sequence[Place], served: Served) -> tuple[GroupPicker[Place], Case]:
        match served.picker:
            case Picker.ROUND_ROBIN:
                return self._in_turn(members, served), "in_turn"
            case Picker.RANDOM:
                return Random(members, self._bits), "any"
            case Picker.WEIGHTED_RANDOM:
                return WeightedRandom(members, [place.weight for place in members], self._bits), "by_weight"
            case _:
                return Deterministic(members), "in_order"

    def _in_turn(self, members: Sequence[Place], served: Served) -> RoundRobin[Place]:
        group = members[0].candidate.selection_group
        return RoundRobin(members, self._cursors.setdefault((served.kind, served.name, group), count()))


class _Plain:
    """The pickers that need no load, over the first group that takes new work."""

    __slots__ = ("_case", "_picker")

    def __init__(self, picker: GroupPicker[Place], case: Case) -> None:
        self._picker = picker
        self._case = case

    def pick(self) -> Decision:
        return decided(self._picker.pick(), None, self._case)

    def refusal(self) -> None:
        return None


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
        raise self.refusal()

    def refusal(self) -> RoutingError:
        refusal = refusals.held_back if self._held_back else refusals.no_healthy_site
        return refusal(self._candidate.kind, self._candidate.name, retry_after(self._bits))
