"""What the policy must remember from pass to pass, and how it survives a restart or a change of leader.

Everything is a frozen value; a pass returns a new memory and never changes the old one. As JSON, times are ages in
seconds, since monotonic clocks of two processes have nothing to do with each other. Whoever loads a memory that was
saved some time ago may pass ``now`` less that time, so that the ages go on.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from grid.model import AdmissionState, Capability, Freshness, Kind, Placement, Sample

FORMAT = 1
"""Version of the JSON form; another one is not read."""

GRACE = 1e-6
"""s by which a time that travelled as an age may be off."""

_NO_SHARES: Mapping[str, "Share"] = MappingProxyType({})
_NO_PROVIDERS: Mapping[str, "ProviderMemory"] = MappingProxyType({})
_NO_BOOKS: Mapping[tuple[Placement, Capability], "WeightBook"] = MappingProxyType({})
_NO_VIEWS: Mapping[tuple[str, Capability], int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Observed:
    """What the pages of one provider have taught: see ``grid.policy.load``.

    ``learned``: high-water mark of requests running per endpoint. ``bypass``: traffic reaches the engines past the
    EPP; ``votes`` refreshes in a row have spoken against that verdict. ``means``: running, queue and ready count of the
    last refresh, at ``means_at``. ``in_flight``: (time, requests) that can still be the largest of the window.
    """

    learned: float | None = None
    bypass: bool = False
    votes: int = 0
    means: tuple[float | None, float | None, int | None] | None = None
    means_at: float | None = None
    in_flight: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """Readiness and pressure of one provider: see ``grid.policy.admission``.

    ``since``: when ``state`` began (first sight at the earliest), None before that. The counters count scrapes in a
    row: ``zero`` without a ready endpoint, ``good`` with one, ``pressed`` at or above the entry, ``calm`` at or below
    the exit (the first of them at ``calm_since``).
    """

    state: AdmissionState = AdmissionState.NEW_AND_EXISTING
    since: float | None = None
    pressed: int = 0
    calm: int = 0
    calm_since: float | None = None
    zero: int = 0
    good: int = 0
    demoted: bool = False


@dataclass(frozen=True, slots=True)
class ProviderMemory:
    """All that is remembered of one provider.

    ``sequence`` and ``counted_at`` name the newest sample that was counted. ``level``: the load it is ordered by, in
    steps (``grid.policy.order``). ``free``: smoothed free requests, as of ``free_at``. The rest is what the last pass
    decided, to tell what changes: ``admission`` None means that it has never been decided. ``trusted``: it stood among
    the fresh ones; ``untrusted_in``: the pass in which that ended, None while it lasts or if it never did.
    """

    sequence: int = 0
    counted_at: float | None = None
    observed: Observed = field(default_factory=Observed)
    hysteresis: Hysteresis = field(default_factory=Hysteresis)
    level: int | None = None
    free: float | None = None
    free_at: float | None = None
    admission: AdmissionState | None = None
    changed_at: float = 0.0
    freshness: Freshness = Freshness.ABSENT
    demoted: bool = False
    trusted: bool = False
    untrusted_in: int | None = None

    def counts(self, sample: Sample) -> bool:
        """Whether ``sample`` is news: another scrape than the one counted last, and a later one.

        Scrapes are told apart by number and time, never by value: the same numbers again are a new observation.
        """
        if sample.sequence == self.sequence:
            return False
        return self.counted_at is None or sample.received_at > self.counted_at + GRACE


@dataclass(frozen=True, slots=True)
class Share:
    """A live traffic weight, 1 to 1000, and when it last moved. ``stand_in``: no number of its own was known yet."""

    weight: int
    moved_at: float
    stand_in: bool = False


@dataclass(frozen=True, slots=True)
class WeightBook:
    """Live weights of one capability: see ``grid.policy.weights``. ``unit``: weight per request of capacity."""

    unit: float | None = None
    shares: Mapping[str, Share] = field(default_factory=lambda: _NO_SHARES)


@dataclass(frozen=True, slots=True)
class PolicyMemory:
    """The memory of all passes so far.

    ``passes`` counts them. ``all_stale``: since which pass, for a gateway's site and a capability, none of the admitted
    providers has been fresh. ``work``: what the last pass worked out, so that the next one does again only what
    changed; it decides nothing, does not travel, and a memory without it leads to the same outcomes.
    """

    providers: Mapping[str, ProviderMemory] = field(default_factory=lambda: _NO_PROVIDERS)
    books: Mapping[tuple[Placement, Capability], WeightBook] = field(default_factory=lambda: _NO_BOOKS)
    all_stale: Mapping[tuple[str, Capability], int] = field(default_factory=lambda: _NO_VIEWS)
    passes: int = 0
    work: object = field(default=None, compare=False, repr=False)

    def to_json(self, now: float) -> dict[str, Any]:
        """As JSON values; ``now`` is the monotonic clock in s. Defaults are left out, times are ages."""
        return {
            "format": FORMAT,
            "passes": self.passes,
            "providers": {name: _provider_out(memory, now) for name, memory in self.providers.items()},
            "books": [
                {
                    "placement": placement.value,
                    "kind": capability.kind.value,
                    "name": capability.name,
                    "unit": book.unit,
                    "shares": {
                        name: {"weight": share.weight, "age": _age_out(share.moved_at, now), "stand_in": share.stand_in}
                        for name, share in book.shares.items()
                    },
                }
                for (placement, capability), book in self.books.items()
            ],
            "all_stale": [
                {"site": site, "kind": capability.kind.value, "name": capability.name, "since": since}
                for (site, capability), since in self.all_stale.items()
            ],
        }

    @classmethod
    def from_json(cls, data: Any, now: float) -> "PolicyMemory":
        """Back from JSON values, with ``now`` as the moment they were saved, on the reader's monotonic clock.

        What cannot be read is left out, entry by entry: a memory is a help, and a bad one must not stop a daemon.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            return cls()
        entries = data.get("providers")
        providers = {}
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            try:
                providers[name] = _provider_in(entry, now)
            except (AttributeError, KeyError, TypeError, ValueError):
                continue
        return cls(
            providers=MappingProxyType(providers),
            books=MappingProxyType(dict(_books_in(data.get("books"), now))),
            all_stale=MappingProxyType(dict(_views_in(data.get("all_stale")))),
            passes=_passes_in(data.get("passes")),
        )


def _provider_out(memory: ProviderMemory, now: float) -> dict[str, Any]:
    observed, hysteresis = memory.observed, memory.hysteresis
    out = {
        "counted": _age_out(memory.counted_at, now),
        "learned": observed.learned,
        "bypass": observed.bypass,
        "votes": observed.votes,
        "means": observed.means and list(observed.means),
        "means_age": _age_out(observed.means_at, now),
        "in_flight": [[_age_out(at, now), value] for at, value in observed.in_flight],
        "state": hysteresis.state.value,
        "state_age": _age_out(hysteresis.since, now),
        "pressed": hysteresis.pressed,
        "calm": hysteresis.calm,
        "calm_age": _age_out(hysteresis.calm_since, now),
        "zero": hysteresis.zero,
        "good": hysteresis.good,
        "zero_demoted": hysteresis.demoted,
        "level": memory.level,
        "free": memory.free,
        "free_age": _age_out(memory.free_at, now),
        "admission": memory.admission and memory.admission.value,
        "changed_age": _age_out(memory.changed_at, now),
        "freshness": memory.freshness.value,
        "demoted": memory.demoted,
        "trusted": memory.trusted,
        "untrusted_in": memory.untrusted_in,
    }
    return {key: value for key, value in out.items() if value is not None and value is not False and value != []}


def _provider_in(entry: Any, now: float) -> ProviderMemory:
    means = entry.get("means")
    return ProviderMemory(
        counted_at=_time_in(entry, "counted", now),
        observed=Observed(
            learned=_number_in(entry, "learned"),
            bypass=_flag_in(entry, "bypass"),
            votes=_count_in(entry, "votes"),
            means=None if means is None else _means_in(means),
            means_at=_time_in(entry, "means_age", now),
            in_flight=tuple((now - _finite(age), _finite(value)) for age, value in entry.get("in_flight", ())),
        ),
        hysteresis=Hysteresis(
            state=AdmissionState(entry["state"]),
            since=_time_in(entry, "state_age", now),
            pressed=_count_in(entry, "pressed"),
            calm=_count_in(entry, "calm"),
            calm_since=_time_in(entry, "calm_age", now),
            zero=_count_in(entry, "zero"),
            good=_count_in(entry, "good"),
            demoted=_flag_in(entry, "zero_demoted"),
        ),
        level=None if entry.get("level") is None else _count_in(entry, "level"),
        free=_number_in(entry, "free"),
        free_at=_time_in(entry, "free_age", now),
        admission=None if entry.get("admission") is None else AdmissionState(entry["admission"]),
        changed_at=now - _finite(entry["changed_age"]),
        freshness=Freshness(entry["freshness"]),
        demoted=_flag_in(entry, "demoted"),
        trusted=_flag_in(entry, "trusted"),
        untrusted_in=None if entry.get("untrusted_in") is None else _count_in(entry, "untrusted_in"),
    )


def _books_in(entries: Any, now: float) -> Iterator[tuple[tuple[Placement, Capability], WeightBook]]:
    for entry in entries if isinstance(entries, list) else ():
        try:
            shares = {
                name: Share(
                    weight=min(1000, max(1, _whole(share["weight"]))),
                    moved_at=now - _finite(share["age"]),
                    stand_in=_flag_in(share, "stand_in"),
                )
                for name, share in entry["shares"].items()
            }
            unit = _number_in(entry, "unit")
            yield (Placement(entry["placement"]), _capability_in(entry)), WeightBook(unit, MappingProxyType(shares))
        except (AttributeError, KeyError, TypeError, ValueError):
            continue


def _passes_in(value: Any) -> int:
    try:
        return _whole(value)
    except TypeError:
        return 0


def _views_in(entries: Any) -> Iterator[tuple[tuple[str, Capability], int]]:
    for entry in entries if isinstance(entries, list) else ():
        try:
            yield (str(entry["site"]), _capability_in(entry)), _whole(entry["since"])
        except (KeyError, TypeError, ValueError):
            continue


def _capability_in(entry: Any) -> Capability:
    return Capability(Kind(entry["kind"]), str(entry["name"]))


def _means_in(means: Any) -> tuple[float | None, float | None, int | None]:
    running, queue, ready = means
    return (
        None if running is None else _finite(running),
        None if queue is None else _finite(queue),
        None if ready is None else _whole(ready),
    )


def _age_out(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)


def _time_in(entry: Any, key: str, now: float) -> float | None:
    age = entry.get(key)
    return None if age is None else now - _finite(age)


def _number_in(entry: Any, key: str) -> float | None:
    value = entry.get(key)
    return None if value is None else _finite(value)


def _count_in(entry: Any, key: str) -> int:
    return _whole(entry.get(key, 0))


def _flag_in(entry: Any, key: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise TypeError(f"{key} is {value!r}, need true or false")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is no finite number from 0 on")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is no count")
    return value
