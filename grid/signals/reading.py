"""From the wanted series of a page to the reading of one pool, with every problem named. Pure.

The rules, each from how EPPs behave:

- The pool gauges (ready count, means) are rewritten every 5 s and kept for ever when the last endpoint goes, so means
  count only while the page's own ready count and the count in use are above 0.
- The per-endpoint series are written at the moment of the scrape, for all endpoints the EPP knows, answering or not.
  Less the stale endpoints, they give the ready count of now, where flow control keeps that number. That none is listed
  says something only beside a ready gauge that can be read; without either, names have changed, and nothing is known.
- An EPP serves one pool. What it counts itself belongs to that pool, whatever the label ``inference_pool`` says;
  only on a page that joins several pools must the label match.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from grid.model import Problem, Reading, ReadySource, Reason
from grid.signals.dialects import (
    DIALECTS,
    FLOW_CONTROL_QUEUE,
    IN_FLIGHT,
    POLL_ERRORS,
    POOL_SATURATION,
    STALE_ENDPOINTS,
    STARTED,
    TRUSTED_DETECTOR,
    Dialect,
)
from grid.signals.tally import Group, Key, Tally

_NAMES_SHOWN: Final = 8
_NOTHING: Final[Mapping[Key, Group]] = MappingProxyType({})


def read_pool(tally: Tally, pool: str | None) -> tuple[Reading, tuple[Problem, ...]]:
    """The signals of ``pool`` (None: the only one) and what is wrong with them.

    Where the pool cannot be told (``pool_missing``, ``pool_ambiguous``) or has no ready count (``metric_missing``)
    that problem comes first, and the signals that depend on it are None.
    """
    pools = tally.pools
    if pool is None and len(pools) > 1:
        return Reading(), (Problem(Reason.POOL_AMBIGUOUS, f"the page has {_listed(sorted(pools))}"),)
    if pool is not None and pools and pool not in pools:
        detail = f"{pool!r} is not on the page; it has {_listed(sorted(pools))}"
        return Reading(), (Problem(Reason.POOL_MISSING, detail),)
    return _PoolReader(tally, pool if pool is not None else next(iter(pools), None)).read()


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:80]) for name in names[:_NAMES_SHOWN])
    return shown + (f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else "")


class _PoolReader:
    """Reads one pool out of a tally and notes what was wrong."""

    def __init__(self, tally: Tally, pool: str | None) -> None:
        self.groups: Mapping[str, Mapping[Key, Group]] = tally.groups
        self.unreadable = tally.unreadable
        self.pool = pool
        self.key: Key = (pool or "",)
        self.alone = len(tally.pools) < 2
        self.problems: list[Problem] = []
        self.saturation_name = self.present(POOL_SATURATION)
        self.stages = self.saturation_stages()

    def read(self) -> tuple[Reading, tuple[Problem, ...]]:
        dialect = self.dialect()
        ready = by_epp = live = source = queue = running = kv = None
        if dialect is None:
            self.note(Reason.METRIC_MISSING, next(iter(self.unreadable.values()), ""))
        else:
            by_epp = self.count(dialect.ready, self.key)
            queue = self.first(dialect.queue, self.key)
            running = self.first(dialect.running, self.key)
            kv = self.first(dialect.kv, self.key)
            listed = self.listed(dialect)
            live = self.live(listed) if listed or by_epp is not None else None
            ready, source = (live, ReadySource.LIVE) if live is not None else (by_epp, ReadySource.EPP)
            if self.deleted(dialect, by_epp, listed):
                # The list is made at the moment of the scrape: none is known, so none can be ready.
                ready, source = 0, ReadySource.LIVE
            self.judge(dialect, ready, by_epp, live, listed)
        trusted = bool(by_epp) and bool(ready)
        reading = Reading(
            dialect=dialect.name if dialect else None,
            pool=self.pool,
            ready=ready,
            ready_source=source if ready is not None else None,
            ready_endpoints=by_epp,
            ready_live=live,
            average_queue_size=queue if trusted else None,
            average_running_requests=running if trusted else None,
            kv_cache_utilization=kv if trusted else None,
            in_flight=self.total(IN_FLIGHT) if self.alone else None,
            flow_control_queue=self.total(FLOW_CONTROL_QUEUE),
            pool_saturation=self.saturation(),
            started_at=self.first(STARTED, ()) if self.alone else None,
            poll_errors=self.total(POLL_ERRORS),
        )
        if self.unreadable:
            self.note_unreadable(dialect)
        return reading, tuple(self.problems)

    def dialect(self) -> Dialect | None:
        """The first family with a gauge of the pool; else, as in an EPP's first seconds, the first that lists it."""
        for dialect in DIALECTS:
            if self.has(dialect.ready) or self.has_mean(dialect):
                return dialect
        return next((dialect for dialect in DIALECTS if self.has(dialect.per_endpoint)), None)

    # --- ready endpoints ----------------------------------------------------------------------------------------------
    def listed(self, dialect: Dialect) -> int:
        """How many endpoints the EPP lists."""
        group = self.groups.get(dialect.per_endpoint, _NOTHING).get(self.key)
        if group is None:
            return 0
        self.check(group)
        return group.series

    def live(self, listed: int) -> int | None:
        """Endpoints listed less stale ones, where flow control keeps that number for the pool as a whole."""
        name = self.present(STALE_ENDPOINTS)
        if name is None:
            return None
        detectors = [key[0] for key in self.groups[name]]
        doubt = ""
        if detectors != [TRUSTED_DETECTOR]:
            doubt = f"stale endpoints are counted by {_listed(sorted(detectors))}"
        elif not self.stages:
            doubt = "there is no pool saturation beside it, so flow control seems to be off"
        elif "prefill" in self.stages and "decode" in self.stages:
            doubt = "prefill and decode are judged in turn, and the number of stale endpoints is of either"
        elif not self.alone:
            doubt = "the page joins several pools"
        if doubt:
            self.note(Reason.LIVE_READY_HINT, doubt)
            return None
        stale = self.count(name, (TRUSTED_DETECTOR,))
        if stale:
            self.note(Reason.ENDPOINTS_STALE, f"{stale} of {listed}")
        return None if stale is None else max(listed - stale, 0)

    def deleted(self, dialect: Dialect, by_epp: int | None, listed: int) -> bool:
        """Whether gauges stand on the page that nobody rewrites any more, since the pool is gone."""
        if listed or not by_epp or not self.has_mean(dialect):
            return False
        # Before it had a mean of running requests, the oldest family did not always list endpoints.
        if not dialect.always_lists and not self.has(dialect.running):
            return False
        self.note(Reason.POOL_DELETED, f"the EPP says {by_epp} ready and lists none")
        return True

    def judge(self, dialect: Dialect, ready: int | None, by_epp: int | None, live: int | None, listed: int) -> None:
        """Name what the counts say when they are laid side by side."""
        if not self.has(dialect.ready):
            self.problems.insert(0, Problem(Reason.METRIC_MISSING, f"no {dialect.ready} on the page"))
        if live is None and by_epp is not None and listed > by_epp:
            self.note(Reason.ENDPOINTS_STALE, f"{listed - by_epp} of {listed}")
        if ready == 0:
            self.note(Reason.NO_READY_ENDPOINTS, f"{listed} listed")
        if by_epp is not None and not (by_epp and ready) and self.has_mean(dialect):
            self.note(Reason.MEANS_FROZEN, f"ready {ready} now, {by_epp} when the EPP last wrote them")
        if by_epp and ready:
            for name in self.missing_means(dialect):
                self.note(Reason.METRIC_MISSING, f"no {name} on the page")
        if not dialect.always_lists and self.has(dialect.queue) and not self.has(dialect.running):
            self.note(Reason.MEANS_FLOORED, f"no {dialect.running} on the page")
            if by_epp:
                self.note(Reason.READY_MAYBE_FROZEN, f"{by_epp} ready, which nothing else on the page confirms")

    # --- what the EPP counts itself -----------------------------------------------------------------------------------
    def saturation_stages(self) -> dict[str, Key]:
        """The pool's saturation by stage (one of ``""`` where stages are not told apart); empty where there is none."""
        if self.saturation_name is None:
            return {}
        return {key[1]: key for key in self.groups[self.saturation_name] if self.ours(self.saturation_name, key)}

    def saturation(self) -> float | None:
        """``stage="effective"`` where stages are told apart, else the single series."""
        key = self.stages.get("effective") or self.stages.get("")
        return self.first(self.saturation_name, key) if self.saturation_name and key else None

    def ours(self, name: str, key: Key) -> bool:
        """Whether a series of ``name`` is the pool's: its label says so, or none does and the page has no other."""
        if not key or key[0] == self.pool:
            return True
        return self.alone and not any(other[0] == self.pool for other in self.groups[name])

    def total(self, twins: Iterable[str]) -> float | None:
        """The pool's sum, not below 0; None where there is no series, or one of them has no value."""
        name = self.present(twins)
        if name is None:
            return None
        groups = [group for key, group in self.groups[name].items() if self.ours(name, key)]
        known = bool(groups) and name not in self.unreadable
        total = 0.0
        for group in groups:
            self.check(group)
            if group.value is None:
                known = False
            else:
                total += group.value
        return max(total, 0.0) if known else None

    # --- looking things up --------------------------------------------------------------------------------------------
    def present(self, twins: Iterable[str]) -> str | None:
        """The first of ``twins`` on the page."""
        for name in twins:
            if name in self.groups:
                return name
        return None

    def has(self, name: str) -> bool:
        return self.key in self.groups.get(name, _NOTHING)

    def missing_means(self, dialect: Dialect) -> list[str]:
        """Means that an EPP of this family writes beside the others, and that are not there.

        The oldest family had no mean of running requests at first, which has a reason of its own.
        """
        means = (dialect.queue, dialect.running, dialect.kv) if dialect.always_lists else (dialect.queue, dialect.kv)
        return [name for name in means if not self.has(name) and name not in self.unreadable]

    def has_mean(self, dialect: Dialect) -> bool:
        return self.has(dialect.queue) or self.has(dialect.running) or self.has(dialect.kv)

    def first(self, name: str, key: Key) -> float | None:
        group = self.groups.get(name, _NOTHING).get(key)
        if group is None:
            return None
        if group.bad or group.repeated:
            self.check(group)
        return group.value + 0.0 if group.value is not None else None  # no -0

    def count(self, name: str, key: Key) -> int | None:
        value = self.first(name, key)
        if value is not None and not value.is_integer():
            self.note(Reason.BAD_VALUE, f"{name} is {value}, which counts nothing")
            return None
        return None if value is None else int(value)

    def check(self, group: Group) -> None:
        if group.bad:
            self.note(Reason.BAD_VALUE, group.bad)
        if group.repeated:
            self.note(Reason.DUPLICATE_SERIES, group.repeated)

    def note_unreadable(self, dialect: Dialect | None) -> None:
        twins = (IN_FLIGHT, FLOW_CONTROL_QUEUE, POOL_SATURATION, STALE_ENDPOINTS, POLL_ERRORS)
        read = {self.present(names) for names in twins} | {STARTED}
        read |= {*dialect.gauges, dialect.per_endpoint} if dialect else set()
        for name, line in self.unreadable.items():
            if name in read:
                self.note(Reason.BAD_VALUE, f"cannot be read: {line}")

    def note(self, code: Reason, detail: str) -> None:
        self.problems.append(Problem(code, detail))
