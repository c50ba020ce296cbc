"""Test vectors of choosing: what a gateway in another language must answer for the same documents, frames and draws.

``schemas/vectors/README.md`` says how to run them. The answers are those of this package, which its tests hold against
an implementation by the book.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from grid.gateway.affinity import bounded, mixed, ranking, seed, session_key
from grid.gateway.decision import Decision
from grid.gateway.router import Affinity, Router, Settings
from grid.model import (
    AdmissionState,
    Candidate,
    Gateway,
    GatewayPlan,
    Kind,
    Network,
    Picker,
    RoutingError,
    Tier,
    stable_id,
)
from grid.overlay import GatewaySignal, ProviderSignal, SignalFrame, render, verify

_MODEL: Final = "vector-model"
_SECRET: Final = b"vectors"


def vectors() -> dict[str, Any]:
    """The vectors by the name of their file."""
    return {"picks": picks(), "affinity": affinity()}


def files() -> dict[str, str]:
    """Path below ``schemas/``, and text, of every file."""
    return {f"vectors/{name}.json": json.dumps(content, indent=1) + "\n" for name, content in vectors().items()}


# --- picks ------------------------------------------------------------------------------------------------------------


def picks() -> dict[str, Any]:
    """Documents, and cases that are steps to take in order with what must come of each."""
    return {
        "about": "Steps to take in order with one gateway; schemas/vectors/README.md says how to read them.",
        "documents": {name: made.body.decode() for name, made in _documents().items()},
        "cases": [case.run() for case in _cases()],
    }


def _candidate(n: int, group: int | None, state: AdmissionState, name: str = _MODEL) -> Candidate:
    kind, site, cluster = Kind.INFERENCE_MODEL, f"site-{n}", f"cluster-{n}"
    return Candidate(
        kind=kind,
        name=name,
        site=site,
        cluster=cluster,
        provider=f"p{n}",
        stable_id=stable_id(kind, name, site, cluster),
        admission_state=state,
        selection_tier=Tier.SAME_REGION,
        fresh=True,
        rank=n,
        selection_group=group,
        traffic_weight=None if group is None else 100 * (n + 1),
    )


def _document(picker: Picker | None, *groups: int | None, states: Sequence[str] = ()) -> Any:
    made = tuple(
        _candidate(n, group, AdmissionState(states[n]) if states else AdmissionState.NEW_AND_EXISTING)
        for n, group in enumerate(groups)
    )
    plan = GatewayPlan("edge", "site-0", picker, made)
    network = Network("vectors", {}, {}, {}, uid="vectors")
    return render(network, Gateway("edge", "site-0", picker=picker), plan, rendered_at="2026-01-02T03:04:05Z")


def _documents() -> dict[str, Any]:
    saturation = Picker.SATURATION
    held = ("new_and_existing", "existing_only", "none")
    return {
        "plain": _document(None, None, None, None),
        "turns": _document(Picker.ROUND_ROBIN, 0, 0, 0),
        "any": _document(Picker.RANDOM, 0, 0, 0),
        "weights": _document(Picker.WEIGHTED_RANDOM, 0, 0, 0),
        "two": _document(saturation, 0, 0),
        "three": _document(saturation, 0, 0, 0),
        "five": _document(saturation, 0, 0, 0, 0, 0),
        "near-far": _document(saturation, 0, 1),
        "near-far-far": _document(saturation, 0, 1, 1),
        "held": _document(saturation, 0, 1, 2, states=held),
        "held-near": _document(saturation, 0, 1, 1, states=(held[1], held[0], held[0])),
        "all-held": _document(saturation, 0, 0, 1, states=(held[1], held[1], held[2])),
        "nobody": _document(saturation, 0, 0, states=(held[2], held[2])),
    }


def _signal(n: int, saturation: float | None, capacity: float | None = 10.0, /, **changes: Any) -> ProviderSignal:
    known = saturation is not None and capacity is not None
    made = ProviderSignal(
        f"site-{n}",
        f"cluster-{n}",
        held=saturation * capacity if saturation is not None and capacity is not None else None,
        capacity=capacity,
        load=saturation,
        load_source=None if saturation is None else "saturation",
        saturation=saturation if known else None,
        queue=None if saturation is None else max(0.0, 10 * saturation - 10),
        kv=0.0,
        ready=1,
        age_s=0.0,
        bound_s=10.0,
        kv_ceiling=0.9,
    )
    return made._replace(**changes)


class _Recorder:
    """A random source that writes down what was drawn, or gives out what it was told to."""

    def __init__(self, name: str) -> None:
        self.drawn: list[list[int]] = []
        self.given: list[int] = []
        self._source = random.Random(name).getrandbits

    def __call__(self, bits: int) -> int:
        value = self.given.pop(0) if self.given else self._source(bits)
        self.drawn.append([bits, value])
        return value


@dataclass
class _Case:
    """One case under way. Every method adds a step, and what must come of it."""

    name: str
    why: str
    document: str
    settings: Settings = field(default_factory=Settings)
    steps: list[dict[str, Any]] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.bits = _Recorder(self.name)
        self.router = Router("edge", settings=self.settings, bits=self.bits, clock=lambda: self.now)
        self.decisions: list[Decision] = []
        self.apply(self.document)

    def run(self) -> dict[str, Any]:
        """The case as it stands in the file."""
        settings: dict[str, Any] = {"spill": self.settings.spill, "overflow": self.settings.overflow}
        if self.settings.affinity is not None:
            settings["affinity"] = {
                "mode": "hash" if self.settings.affinity.hashed else "table",
                "secret_hex": _SECRET.hex(),
                "ttl_s": self.settings.affinity.ttl,
            }
        return {"name": self.name, "why": self.why, "settings": settings, "steps": self.steps}

    def apply(self, name: str) -> "_Case":
        envelope = verify(_documents()[name].body).envelope
        assert envelope is not None  # noqa: S101 - what was just rendered verifies
        self.router.apply(envelope)
        self.steps.append({"at": self.now, "apply": name})
        return self

    def own(self, at: float, *counts: int) -> "_Case":
        """Have ``counts`` requests in flight at site-0, site-1, ..., and let a record of them be kept."""
        self.now = at
        targets = {target.site: target for target in self.router.targets}
        for n, count in enumerate(counts):
            target = targets[f"site-{n}"]
            while target.own < count:
                target.begin()
            while target.own > count:
                target.end()
        self.router.tick(at)
        named = {f"site-{n}/cluster-{n}": count for n, count in enumerate(counts)}
        self.steps.append({"at": at, "own": named, "expect": self._state()})
        return self

    def frame(self, at: float, *signals: ProviderSignal, fleet: Mapping[str, tuple[int, int]] | None = None) -> "_Case":
        """Take over a frame; ``fleet``: instances and requests in flight of other gateways."""
        self.now = at
        gateways = {
            name: GatewaySignal(instances, {"site-0/cluster-0": number})
            for name, (instances, number) in (fleet or {}).items()
        }
        named = {f"p{n}": one for n, one in enumerate(signals)}
        made = SignalFrame("vectors", 1, len(self.steps), 1.0, 1767323045.0, {}, named, gateways)
        self.router.observe(made, at)
        self.steps.append({"at": at, "frame": json.loads(made.encode()), "expect": self._state()})
        return self

    def pick(self, *given: int, **request: Any) -> "_Case":
        """Pick, with the draws ``given`` (then random ones); ``tried``: which picks of this case failed."""
        self.bits.drawn, self.bits.given = [], list(given)
        tried = [self.decisions[n] for n in request.pop("tried", ())]
        allowed = request.pop("allowed", None)
        step: dict[str, Any] = {"pick": {"model": request.pop("model", _MODEL), **request}}
        if tried:
            step["pick"]["tried"] = [f"{one.site}/{one.cluster}" for one in tried]
        targets = None
        if allowed is not None:
            targets = [target for target in self.router.targets if target.site in allowed]
            step["pick"]["allowed"] = [target.key for target in targets]
        try:
            decision = self.router.pick(step["pick"]["model"], tried=tried, allowed=targets, **request)
        except RoutingError as error:
            answer = {"status": error.status, "code": error.reason.value, "retry_after": error.retry_after}
            expect: dict[str, Any] = {"answer": answer}
        else:
            self.decisions.append(decision)
            expect = _decided(decision)
        self.steps.append({"at": self.now, **step, "draws": list(self.bits.drawn), "expect": expect})
        return self

    def _state(self) -> dict[str, Any]:
        snapshot = self.router.snapshot
        route = None if snapshot is None else snapshot.routes[Kind.INFERENCE_MODEL].get(_MODEL)
        return {
            "scale": self.router.scale,
            "shedding": bool(getattr(route, "shedding", False)),
            "providers": {
                target.key: {
                    "estimate": target.estimate,
                    "capacity": target.capacity,
                    "known": target.known,
                    "trusted": target.trusted,
                    "has_room": target.has_room,
                    "past_overflow": target.is_over,
                    "surely_past_overflow": target.surely_over,
                }
                for target in self.router.targets
            },
        }


def _decided(decision: Decision) -> dict[str, Any]:
    other = decision.other
    return {
        "answer": {"status": 200},
        "site": decision.site,
        "cluster": decision.cluster,
        "group": decision.group,
        "case": decision.case,
        "estimate": decision.estimate,
        "other": None if other is None else f"{other.target.site}/{other.target.cluster}",
        "other_estimate": decision.other_estimate,
        "affinity": decision.affinity.value,
        "attempt": decision.attempt,
        "reason": decision.reason.value,
    }


_LARGE: Final = {"others": (63, 0)}


def _cases() -> Iterator[_Case]:
    yield from _blind()
    yield from _five_cases()
    yield from _estimates()
    yield from _overload()
    yield from _steered()


def _blind() -> Iterator[_Case]:
    yield _Case("plain", "the first admitted candidate in order", "plain").pick().pick()
    turns = _Case("turns", "each in turn, the same document again keeps them", "turns")
    yield turns.pick().pick().apply("turns").pick().pick().apply("three").apply("turns").pick()
    yield _Case("any", "u x number / 2^32", "any").pick(0).pick(2**32 // 3).pick(2**32 // 3 + 1).pick(2**32 - 1)
    weights = _Case("weights", "running totals 100, 300, 600 of the traffic weights", "weights")
    yield weights.pick(0).pick(715827882).pick(715827883).pick(2147483647).pick(2147483648).pick(2**32 - 1)


def _five_cases() -> Iterator[_Case]:
    two_drawn = _Case("two-drawn", "three or more with room: two drawn by capacity, the lower estimate", "five")
    two_drawn.frame(100.0, *(_signal(n, 0.1 * n, 8.0 * (n + 1)) for n in range(5)))
    for _ in range(6):
        two_drawn.pick()
    yield two_drawn
    edges = _Case("undecided-cells", "a cell with a boundary in it takes the lower bits of its word", "three")
    edges.frame(100.0, _signal(0, 0.5), _signal(1, 0.5), _signal(2, 0.5))
    yield edges.pick(42 | 42 << 7).pick(42 | 85 << 7, 11184810, 22369621).pick(42 | 85 << 7, 11184811, 22369622).pick(0)
    tie = _Case("tie-of-drawn", "equal estimates: the one drawn first", "five")
    yield tie.frame(100.0, *(_signal(n, 0.5) for n in range(5))).pick().pick().pick()
    closed = _Case("some-without-room", "a draw that hits one without room is followed by one among the rest", "five")
    closed.frame(100.0, *(_signal(n, (0.5, 1.0, 0.7, 1.2, 0.6)[n], 10.0 + n) for n in range(5)))
    for _ in range(6):
        closed.pick()
    yield closed
    lower = _Case("lower-of-two", "two with room: the lower estimate, a bit at a tie", "three")
    lower.frame(100.0, _signal(0, 0.6), _signal(1, 1.0), _signal(2, 0.5)).pick()
    yield lower.own(100.0, 0, 0, 1).pick(0).pick(1)
    weighted = _Case("weighted-of-two", "the fleet is too large for one's own changes to tell", "two")
    weighted.frame(100.0, _signal(0, 0.5), _signal(1, 0.0), fleet=_LARGE)
    yield weighted.pick(0).pick(1717986918).pick(1717986919).pick(2**32 - 1)
    bounds = _Case("share-bounds", "such shares stay within 0.1 and 0.9", "two")
    bounds.frame(100.0, _signal(0, 0.2, 1.0), _signal(1, 0.2, 1000.0), fleet=_LARGE)
    yield bounds.pick(429496729).pick(429496730)
    unseen = _Case("no-frame-yet", "own counts stand for the saturation that nobody told", "two")
    yield unseen.pick(2147483647).own(100.0, 1, 0).pick(1431655765).pick(1431655766)
    only = _Case("only-one", "one with room takes it", "three")
    yield only.frame(100.0, _signal(0, 1.0), _signal(1, 0.99), _signal(2, 1.3)).pick()
    resort = _Case("last-resort", "nobody with room: by capacity among those that tie on the shortest queue", "five")
    queues = (3.0, 2.0, 2.0, None, 2.0)
    resort.frame(100.0, *(_signal(n, 1.0, 10.0 * (n + 1), queue=queues[n]) for n in range(5)))
    yield resort.pick(0).pick(1073741823).pick(1073741824).pick(2**32 - 1)
    over = _Case(
        "last-resort-past-overflow", "a shortest queue past the overflow bound gives way to the others", "three"
    )
    over.frame(100.0, _signal(0, 1.0, queue=0.0), _signal(1, 1.0, queue=4.0), _signal(2, 1.1, queue=9.0))
    yield over.pick().own(100.0, 3, 0, 0).pick(5, 0).pick(5, 2**31).own(100.0, 3, 3, 2).pick()


def _estimates() -> Iterator[_Case]:
    aged = _Case("aged-sample", "own requests before the sample are in it, those after it are added", "two")
    aged.own(99.0, 0, 0).own(100.0, 4, 2).own(101.0, 6, 2)
    yield aged.frame(101.0, _signal(0, 0.5, age_s=1.5), _signal(1, 0.8, age_s=0.25)).pick()
    means = _Case("engine-means", "engines' means are 3.5 s older than their page", "two")
    means.own(95.0, 0, 0).own(99.0, 8, 0).own(100.0, 8, 0)
    yield means.frame(100.0, _signal(0, 0.5, held_source="engine"), _signal(1, 0.9, held_source="live")).pick()
    scaled = _Case("scaled", "four instances: one's own change counts for all", "two")
    yield scaled.frame(100.0, _signal(0, 0.2), _signal(1, 0.4), fleet={"others": (4, 0)}).own(100.0, 1, 0).pick()
    share = _Case("share-by-traffic", "the scale follows what is in flight here against everywhere", "two")
    share.own(99.0, 9, 0).own(100.0, 9, 0)
    yield share.frame(100.0, _signal(0, 0.9), _signal(1, 0.1), fleet={"edge": (1, 9), "others": (1, 38)})
    pressure = _Case("kv-pressure", "KV / ceiling is a floor, and takes the room", "three")
    pressure.frame(100.0, _signal(0, 0.1, kv=0.63), _signal(1, 0.5), _signal(2, 0.1, kv=0.9))
    yield pressure.pick().own(100.0, 7, 0, 0).pick()
    unknown = _Case("unknown-capacity", "counts with the mean of the known ones", "three")
    yield unknown.frame(
        100.0, _signal(0, 0.5, 10.0), _signal(1, 0.5, 30.0), _signal(2, 0.5, None, held=5.0, saturation=None)
    ).pick()
    unsized = _Case("nobody-has-a-size", "1 stands in, and nothing is full", "three")
    yield unsized.frame(100.0, *(_signal(n, None, None) for n in range(3))).own(100.0, 5, 1, 3).pick().pick()
    learned = _Case("learned-capacity", "what was only learned is no limit until something queues", "three")
    known = {"capacity_source": "learned"}
    learned.frame(100.0, *(_signal(n, 1.4 + n / 10, **known) for n in range(3))).pick()
    yield learned.frame(101.0, *(_signal(n, 1.4, queue=1.0, **known) for n in range(3))).pick()
    alone = _Case("only-gateway", "between two records the page says which count was its own", "two")
    alone.own(100.0, 4, 2).own(100.05, 5, 2)
    yield alone.frame(100.05, _signal(0, 0.4, age_s=0.02), _signal(1, None), fleet={"edge": (1, 6)}).pick()
    below = _Case("page-below-reports", "a provider holds at least what gateways have in flight there", "two")
    below.own(98.0, 4, 2).own(100.0, 6, 2).frame(
        100.0, _signal(0, 0.0), _signal(1, 0.8), fleet={"edge": (1, 6), "others": (1, 3)}
    )
    yield below.pick().own(100.0, 8, 2).pick()
    past = _Case("past-the-bound", "only own counts remain, behind those of known load", "three")
    past.frame(100.0, _signal(0, 0.2, age_s=9.0), _signal(1, 0.9, bound_s=60.0), _signal(2, 0.8, bound_s=60.0))
    yield past.pick().own(101.5, 3, 0, 0).pick().own(101.5, 3, 1, 2).pick()
    dead = _Case("nothing-ready", "used last at once", "two")
    dead.frame(100.0, _signal(0, 0.0, ready=0), _signal(1, 0.9)).pick()
    yield dead.frame(101.0, _signal(0, 0.0, ready=0), _signal(1, 0.9, ready=0)).pick().pick()


def _overload() -> Iterator[_Case]:
    spill = _Case("spill", "a full near site spills, and takes back when it has room", "near-far")
    spill.frame(100.0, _signal(0, 0.8), _signal(1, 0.0)).pick().own(100.0, 2, 0).pick().own(100.0, 1, 1)
    yield spill.pick()
    behind = _Case("unknown-behind", "unknown load comes after known load of its group", "near-far-far")
    behind.frame(100.0, _signal(0, 1.0), _signal(1, None), _signal(2, 0.9)).pick()
    yield behind.frame(101.0, _signal(0, 1.0), _signal(1, None), _signal(2, 1.0)).pick()
    sooner = _Case("full-sooner", "of four gateways none fills to the brim what is known, beside unknown load", "two")
    for n, load in enumerate((0.79, 0.81)):
        sooner.frame(100.0 + n, _signal(0, load), _signal(1, None), fleet={"others": (4, 0)}).pick()
    yield sooner
    whole = _Case("whole-group", "without trust all of a group are drawn from while one has room", "three")
    yield whole.frame(100.0, _signal(0, 0.9), _signal(1, 1.0), _signal(2, 1.2), fleet=_LARGE).pick().pick().pick()
    seems = _Case("only-seems-full", "one of four gateways draws from those that may be full by a guess", "three")
    seems.frame(100.0, _signal(0, 0.9), _signal(1, 1.1), _signal(2, 1.19), fleet={"others": (4, 0)})
    yield seems.pick().pick().pick()
    unequal = _Case("unequal-sizes", "at equal load one request more is more for the smaller", "two")
    yield unequal.frame(100.0, _signal(0, 0.5, 8.0), _signal(1, 0.5, 48.0)).pick()
    water = _Case("water-level", "a large fleet: only those that its arrivals have reached by now", "five")
    water.own(90.0, 0, 0, 0, 0, 0).own(91.0, 2, 0, 0, 0, 0).own(92.0, 1, 1, 0, 0, 0).own(94.0, 2, 1, 1, 0, 0)
    sampled = [_signal(n, (0.2, 0.4, 0.7, 0.9, 1.1)[n], age_s=0.1 * n) for n in range(5)]
    water.frame(95.0, *sampled, fleet={"others": (199, 0)}).pick()
    for at in (95.5, 96.0, 97.0, 99.0):
        water.own(at, 2, 1, 1, 0, 0).pick().pick()
    yield water
    joins = _Case("joins", "one that was unknown counts as busy as its peers, less and less", "three")
    joins.frame(100.0, _signal(0, 0.6), _signal(1, 0.6), _signal(2, None))
    for at in (101.0, 131.0, 161.0):
        joins.frame(at, _signal(0, 0.6), _signal(1, 0.5), _signal(2, 0.0)).pick(42 | 106 << 7).pick(106 | 20 << 7)
    yield joins
    sent = _Case("last-resort-got-more", "what was sent to the shortest queue since makes it longer", "three")
    sent.frame(100.0, *(_signal(n, 1.0, 100.0, queue=(2.0, 4.0, 9.0)[n]) for n in range(3)))
    yield sent.pick(0).own(100.0, 5, 0, 0).pick(0, 0).pick(0, 2**32 - 1)
    sink = _Case("last-resort-of-unknown-load", "past overflow by own requests it takes no more than its part", "two")
    sink.frame(100.0, _signal(0, 1.3), _signal(1, None), fleet={"edge": (1, 0)}).pick(0, 0)
    yield sink.own(100.0, 0, 12).pick(0, 0).own(100.0, 0, 13).pick(0, 0).own(100.0, 2, 14).pick(0, 0)
    shed = _Case("shedding", "all above 1.05 starts it, one below 0.95 ends it", "two")
    for n, (one, other) in enumerate(((1.05, 1.2), (1.06, 1.07), (1.0, 0.95), (0.94, 2.0), (1.0, 1.2))):
        shed.frame(100.0 + n, _signal(0, one), _signal(1, other)).pick()
    yield shed
    missing = _Case("not-shed-on-a-missing-number", "an unknown load refuses nobody", "two")
    yield missing.frame(100.0, _signal(0, 2.0), _signal(1, None)).pick()
    between = _Case("overflow", "between frames, all estimates above 1.25", "two")
    yield between.frame(100.0, _signal(0, 1.0), _signal(1, 1.0)).own(100.0, 3, 2).pick().own(100.0, 3, 3).pick(0)
    yield _Case("fallback", "the near group takes no new work", "held-near").frame(100.0, _signal(0, 0.0)).pick()
    yield _Case("held-back", "only sessions that are there already: 429", "all-held").pick(0).pick(2**32 - 1)
    yield _Case("nobody", "nobody at all: 503", "nobody").pick(2**31)
    yield _Case("refused-names", "404, and 400 for what names nothing", "two").pick(model="other").pick(model=" ")


def _steered() -> Iterator[_Case]:
    retry = _Case("retry", "who failed is left out; every draw takes a 32-bit word", "five")
    retry.frame(100.0, *(_signal(n, 0.1 * n, 8.0 * (n + 1)) for n in range(5)))
    yield retry.pick().pick(tried=[0]).pick(tried=[0, 1]).pick(tried=[0, 1, 2]).pick(tried=[0, 1, 2, 3])
    turns = _Case("retry-in-turn", "a retry takes the next turn that fits", "turns")
    yield turns.pick().pick(tried=[0]).pick().pick().pick(tried=[3]).pick(allowed=["site-1"])
    held = _Case("held-to-some", "admission control names who may be chosen", "five")
    held.frame(100.0, *(_signal(n, (0.5, 1.0, 0.7, 1.2, 0.6)[n]) for n in range(5)))
    yield (
        held.pick(allowed=["site-0", "site-2", "site-4"])
        .pick(allowed=["site-1", "site-2"])
        .pick(allowed=["site-1", "site-3"])
        .pick(allowed=[])
    )
    table = Settings(affinity=Affinity(secret=_SECRET, ttl=60.0))
    bound = _Case("sessions", "bound, used again, held back, gone", "three", table)
    bound.frame(100.0, _signal(0, 0.9), _signal(1, 0.1), _signal(2, 0.9)).pick(session="s").pick(session="s")
    bound.apply("held").pick(session="s").pick(session="t").apply("near-far").pick(session="s", tenant="a")
    yield bound.apply("nobody").pick(session="s")
    hashed = Settings(affinity=Affinity(secret=_SECRET, hashed=True))
    agreed = _Case("hashed-sessions", "the same answer in every gateway, within the load bound", "five", hashed)
    agreed.frame(100.0, *(_signal(n, 0.5) for n in range(5)))
    for n in range(4):
        agreed.pick(session=f"s{n}", tenant="a")
    agreed.frame(101.0, *(_signal(n, (0.3, 0.3, 0.3, 0.3, 0.95)[n]) for n in range(5)))
    for n in range(4):
        agreed.pick(session=f"s{n}", tenant="a")
    yield agreed


# --- affinity ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Member:
    seed: int
    weight: int
    capacity: float = 10.0
    estimate: float = 0.0


def affinity() -> dict[str, Any]:
    """Session keys, numbers of candidates, orders of preference, and the load bound."""
    return {
        "about": "Hashing of sessions; schemas/vectors/README.md says how to read it.",
        "keys": [_key(*parts) for parts in _KEYS],
        "seeds": [{"stable_id": one, "seed_hex": f"{seed(one):016x}"} for one in ("811c9dc5", "b0a1c2d3", "x/é", "")],
        "mixed": [
            {"session_hex": f"{a:016x}", "seed_hex": f"{b:016x}", "mixed_hex": f"{mixed(a, b):016x}"}
            for a, b in ((0, 0), (1, 0), (2**64 - 1, 1), (0x0123456789ABCDEF, 0xFEDCBA9876543210))
        ],
        "orders": [_order(n) for n in range(6)],
        "bounds": [_bound(*one) for one in _BOUNDS],
    }


_KEYS: Final = (
    ("", Kind.INFERENCE_MODEL, "m", "s"),
    ("tenant", Kind.INFERENCE_MODEL, "m", "s"),
    ("", Kind.MCP_TOOL, "m", "s"),
    ("a", Kind.INFERENCE_MODEL, "bc", "d"),
    ("ab", Kind.INFERENCE_MODEL, "c", "d"),
    ("", Kind.INFERENCE_MODEL, "模型", "sitzung-é"),
)


def _key(tenant: str, kind: Kind, name: str, session: str) -> dict[str, str]:
    key = session_key(_SECRET, kind, name, session, tenant)
    return {
        "secret_hex": _SECRET.hex(),
        "tenant": tenant,
        "kind": kind.value,
        "name": name,
        "session": session,
        "key_hex": key.hex(),
    }


def _order(number: int) -> dict[str, Any]:
    key = session_key(_SECRET, Kind.INFERENCE_MODEL, "m", f"s{number}")
    names = [f"{n:08x}" for n in range(6)]
    weights = [100, 100, 50, 200, 1000, 1]
    found = ranking(key, [_Member(seed(name), weight) for name, weight in zip(names, weights, strict=True)])
    members = [{"stable_id": name, "weight": weight} for name, weight in zip(names, weights, strict=True)]
    return {"key_hex": key.hex(), "members": members, "order": [names[place] for place in found]}


_BOUNDS: Final = (
    ((0, 1, 2), ((10.0, 0.2), (10.0, 0.2), (10.0, 0.2))),
    ((0, 1, 2), ((10.0, 0.9), (10.0, 0.2), (10.0, 0.2))),
    ((2, 0, 1), ((10.0, 0.3), (10.0, 0.3), (40.0, 0.31))),
    ((1, 2, 0), ((10.0, 0.0), (10.0, 1.5), (10.0, 0.8))),
    ((0, 1), ((1.0, 0.0), (100.0, 0.99))),
)


def _bound(order: Sequence[int], members: Sequence[tuple[float, float]]) -> dict[str, Any]:
    found = bounded(order, [_Member(0, 1, capacity, estimate) for capacity, estimate in members])
    shown = [{"capacity": capacity, "estimate": estimate} for capacity, estimate in members]
    return {"members": shown, "order": list(order), "taken": found}
