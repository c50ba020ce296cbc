"""When to scrape whom: pure bookkeeping on the monotonic clock. It starts nothing and waits for nothing.

Every provider has a slot, and with it a phase: the fraction ``slot x golden ratio`` of its interval. Successive
multiples of the golden ratio fall evenly into the unit interval however many there are, so N providers of one interval
are spread over it without anybody having to know N; a newcomer takes the lowest free slot and moves nobody. Beats lie
on the grid ``epoch + (phase + k) x interval`` with the epoch at construction, so a restart keeps the spread.

A source whose page is dear is read less often: its interval is stretched until reading costs it no more than ``budget``
of its time. The cost counted is the median of the last three pages, so one slow page stretches nothing, and two cheap
ones in a row undo a stretch. A stretched provider leaves the grid and returns to it with its first unstretched beat.

A beat that comes while the provider's scrape is still running, or that passes while nobody looks, is skipped and
counted; nothing ever piles up.
"""

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class Beat:
    """How one provider stands in the schedule. Times are monotonic s.

    ``interval`` as configured, ``effective`` as stretched by the scrape budget; ``cost`` is the s of source time
    counted per scrape; ``running_since`` None while no scrape runs; ``skipped`` counts the beats that were left out.
    """

    provider: str
    interval: float
    effective: float
    cost: float
    next_due: float
    running_since: float | None
    skipped: int


@dataclass(slots=True)
class _Entry:
    provider: str
    slot: int
    interval: float
    anchor: float
    """A point of the provider's grid."""
    last: float = 0.0
    """The beat that was taken or skipped last."""
    due: float = 0.0
    costs: tuple[float, float, float] = (0.0, 0.0, 0.0)
    running_since: float | None = None
    skipped: int = 0
    serial: int = 0
    """Which of its items in the heap is the valid one."""


class ScrapeSchedule:
    """Beats of all providers. ``budget`` is the share of a source's time that scraping it may take (0 < budget <= 1).

    The caller asks :meth:`due`, reports every start and every end (a cancelled or failed scrape ends too), and may
    sleep until :meth:`next_due`. Times are monotonic s throughout.
    """

    def __init__(self, *, epoch: float, budget: float = 0.05) -> None:
        if not 0 < budget <= 1:
            raise ValueError(f"budget is a share of the source's time, above 0 and at most 1, not {budget}")
        self._epoch = epoch
        self._budget = budget
        self._entries: dict[str, _Entry] = {}
        self._leaving: dict[str, float] = {}
        self._free: list[int] = []
        self._heap: list[tuple[float, int, str]] = []
        self._serials = count()

    def __contains__(self, provider: object) -> bool:
        return provider in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._entries))

    @property
    def running(self) -> int:
        """Scrapes that have been started and have not ended, those of removed providers included."""
        return len(self._leaving) + sum(entry.running_since is not None for entry in self._entries.values())

    # --- who takes part -------------------------------------------------------------------------------------------

    def add(self, provider: str, interval: float, now: float) -> None:
        """Take a provider in, or change its interval; nobody else's beats move. It is due within one interval."""
        if not (math.isfinite(interval) and interval > 0):
            raise ValueError(f"the scrape interval of {provider!r} must be above 0 s, not {interval}")
        known = self._entries.get(provider)
        if known is not None and known.interval == interval:
            return
        slot = known.slot if known else self._take_slot()
        anchor = self._epoch + (slot * GOLDEN_RATIO % 1.0) * interval
        entry = known or _Entry(provider, slot, interval, anchor, running_since=self._leaving.pop(provider, None))
        entry.interval, entry.anchor = interval, anchor
        self._entries[provider] = entry
        entry.due = anchor + math.ceil((now - anchor) / interval) * interval
        entry.last = entry.due - self._effective(entry)
        self._push(entry)

    def remove(self, provider: str) -> None:
        """Forget a provider. A scrape of it that still runs counts as running until :meth:`finished`."""
        entry = self._entries.pop(provider, None)
        if entry is None:
            return
        heapq.heappush(self._free, entry.slot)
        if entry.running_since is not None:
            self._leaving[provider] = entry.running_since

    def sync(self, intervals: Mapping[str, float], now: float) -> None:
        """Make ``intervals`` (provider: s) the ones that take part; who stays as he was keeps his beats."""
        for provider in self._entries.keys() - intervals.keys():
            self.remove(provider)
        for provider in sorted(intervals):
            self.add(provider, intervals[provider], now)

    # --- beats ----------------------------------------------------------------------------------------------------

    def due(self, now: float) -> list[str]:
        """Return whom to scrape now, longest due first. Beats of providers whose scrape still runs are skipped."""
        ready: list[tuple[float, int, str]] = []
        while (entry := self._top()) is not None and entry.due <= now:
            item = heapq.heappop(self._heap)
            if entry.running_since is None:
                ready.append(item)
            else:
                self._skip(entry, now)
        for item in ready:  # they stay due until they are started
            heapq.heappush(self._heap, item)
        return [provider for _, _, provider in ready]

    def next_due(self, now: float) -> float | None:
        """When the next beat comes, not before ``now``; None without providers."""
        entry = self._top()
        return None if entry is None else max(now, entry.due)

    def started(self, provider: str, now: float) -> None:
        """Note that a scrape begins. Raises RuntimeError where one is running already."""
        entry = self._entries[provider]
        if entry.running_since is not None:
            raise RuntimeError(f"a scrape of {provider!r} has been running for {now - entry.running_since:.3f} s")
        if entry.due <= now:
            late = self._beats_between(entry, now)
            entry.skipped += late
            entry.last = entry.due + late * self._effective(entry)
        entry.running_since = now
        entry.due = self._following(entry)
        self._push(entry)

    def finished(self, provider: str, now: float, *, cost: float | None = None) -> None:
        """Note that the scrape has ended, well or not. ``cost``: s of the source's time, None where it is unknown.

        Failed scrapes have no cost: a source that does not answer is asked as often as ever, so that its return shows.
        """
        if self._leaving.pop(provider, None) is not None:
            return
        entry = self._entries.get(provider)
        if entry is None or entry.running_since is None:
            return
        entry.running_since = None
        if cost is not None and math.isfinite(cost):
            entry.costs = (entry.costs[1], entry.costs[2], max(cost, 0.0))
        entry.due = self._following(entry)
        if entry.due <= now:
            self._skip(entry, now)
        else:
            self._push(entry)

    # --- what it shows --------------------------------------------------------------------------------------------

    def interval(self, provider: str) -> float:
        """Return the interval in force in s: as configured, or as stretched by the scrape budget."""
        return self._effective(self._entries[provider])

    def beat(self, provider: str) -> Beat:
        """Return how the provider stands. Raises KeyError for one that does not take part."""
        entry = self._entries[provider]
        return Beat(
            provider=provider,
            interval=entry.interval,
            effective=self._effective(entry),
            cost=self._cost(entry),
            next_due=entry.due,
            running_since=entry.running_since,
            skipped=entry.skipped,
        )

    # --- within ---------------------------------------------------------------------------------------------------

    def _take_slot(self) -> int:
        return heapq.heappop(self._free) if self._free else len(self._entries)

    @staticmethod
    def _cost(entry: _Entry) -> float:
        return sorted(entry.costs)[1]

    def _effective(self, entry: _Entry) -> float:
        return max(entry.interval, self._cost(entry) / self._budget)

    def _following(self, entry: _Entry) -> float:
        """Return the beat after ``entry.last``: the next one of its grid, or one stretched interval on."""
        effective = self._effective(entry)
        if effective > entry.interval:
            return entry.last + effective
        # At least half an interval on: robust against rounding on the grid, and the way back onto it for the others.
        return entry.anchor + math.ceil((entry.last - entry.anchor) / entry.interval + 0.5) * entry.interval

    def _beats_between(self, entry: _Entry, now: float) -> int:
        """How many beats after the one that is due have passed by ``now``."""
        return math.floor((now - entry.due) / self._effective(entry))

    def _skip(self, entry: _Entry, now: float) -> None:
        late = self._beats_between(entry, now)
        entry.skipped += late + 1
        entry.last = entry.due + late * self._effective(entry)
        entry.due = self._following(entry)
        self._push(entry)

    def _push(self, entry: _Entry) -> None:
        entry.serial = next(self._serials)
        heapq.heappush(self._heap, (entry.due, entry.serial, entry.provider))

    def _top(self) -> _Entry | None:
        while self._heap:
            _, serial, provider = self._heap[0]
            entry = self._entries.get(provider)
            if entry is not None and entry.serial == serial:
                return entry
            heapq.heappop(self._heap)
        return None
