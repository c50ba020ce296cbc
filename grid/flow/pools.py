"""One pool as one gateway's admission control sees it: how many requests of each band it may hold.

For a band with ceiling c, with C requests of batch capacity, Q as the queue limit and H held when the sample was taken:

    room(c) = floor(C + c x Q - H)

is what all gateways together may add to H before pool saturation, max(0, in flight - C) / Q, would pass c. This gateway
takes its share of it, and may from then on hold

    limit(c) = own then + floor(share x room(c) + u)

slots there: requests under way and granted ones that are not yet. Own requests that end make way for as many new ones,
but for one thing: of a full pool a gateway that has more than an even split gives back a little per sample, or one that
comes later would never get anything.
``u`` in [0, 1) differs from gateway to gateway, so that the fractions of all shares add up to whole requests instead of
being lost everywhere (``docs/flow.md`` has the bound). With a share of 1 it is 0 and nothing is rounded.

A limit is one whole number per band, worked out once per sample. So a grant compares two integers.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from grid.flow.history import OwnHistory
from grid.flow.learning import LearnedCapacity
from grid.flow.settings import AdmissionPolicy

if TYPE_CHECKING:
    from grid.flow.routes import Route

GIVE_BACK: Final = 1 / 32
"""Part of what it has beyond an even split that a gateway gives back per sample of a full pool."""

MAX_SCALE: Final = 16.0
"""Cap on 1 / share where numbers are shown; that of the gateway's own estimate."""

_EPS: Final = 1e-6
_SAME_SAMPLE: Final = 0.1
"""s within which equal numbers are one sample that was told twice: ages jitter on their way."""

_GOLDEN: Final = 0.6180339887498949
_CLOSED: Final = -(2**62)


@dataclass(frozen=True, slots=True)
class PoolSignal:
    """What is known of a pool now. None is unknown, never 0.

    ``key`` names it, as the picker does. ``ready`` counts endpoints; ``max_running`` is the declared batch capacity per
    ready endpoint, None where it is to be learned. ``held``: requests in the pool, whoever sent them; ``running`` and
    ``queued`` (in engines and EPP) are what a capacity is learned from. ``queue_capacity``: healthy queue per ready
    endpoint; ``kv``: KV-cache use. ``age``: s since the sample was taken; ``bound``: s of age from which it says
    nothing (None: never); ``lag``: s by which its numbers may be older than the sample itself (7 where ``held`` comes
    from means, which an EPP rewrites every 5 s). ``share``: this gateway's part of the free room, above 0, at most 1;
    ``gateways``: gateway processes that share it.
    """

    key: str
    ready: int | None = None
    max_running: float | None = None
    held: float | None = None
    running: float | None = None
    queued: float | None = None
    kv: float | None = None
    queue_capacity: float = 5.0
    kv_ceiling: float = 0.9
    age: float = 0.0
    bound: float | None = None
    lag: float = 0.0
    share: float = 1.0
    gateways: int = 1


class PoolState(StrEnum):
    """``fresh``: there is a number to act on; ``stale``: it is too old; ``absent``: there never was one."""

    FRESH = "fresh"
    STALE = "stale"
    ABSENT = "absent"


class Pool:
    """Mutable state of one pool; changed by the core alone.

    ``own``: requests of this gateway under way there; ``leases``: slots granted and not under way; ``used``: both.
    ``limits``: how many ``used`` may reach, by band. ``rings``: by band, the models that have requests waiting and may
    use this pool, the next one first.
    """

    __slots__ = (
        "_history",
        "_phase",
        "_policy",
        "_u",
        "capacity",
        "key",
        "kv_pressure",
        "learned",
        "leases",
        "limits",
        "named",
        "own",
        "own_then",
        "queue_limit",
        "rings",
        "routed",
        "signal",
        "stale_at",
        "state",
        "taken_at",
        "used",
    )

    def __init__(self, key: str, policy: AdmissionPolicy, *, phase: float, now: float) -> None:
        self.key = key
        self.signal = PoolSignal(key)
        self.state = PoolState.ABSENT
        self.own = 0
        self.leases = 0
        self.used = 0
        self.own_then = 0
        self.taken_at = -math.inf
        self.stale_at = math.inf
        self.capacity = 0.0
        self.queue_limit = 0.0
        self.kv_pressure: float | None = None
        self.learned = LearnedCapacity()
        self.limits = [0] * len(policy.bands)
        self.rings: list[OrderedDict[Route, None]] = [OrderedDict() for _ in policy.bands]
        self.named = False
        self.routed = 0
        self._policy = policy
        self._phase = phase
        self._u = 0.0
        self._history = OwnHistory(now)
        self._settle()

    # --- what happens to it -------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """A granted slot is under way."""
        self.leases -= 1
        self.own += 1
        self._history.note(now, self.own)

    def take(self, now: float) -> None:
        """One comes under way that had no slot here."""
        self.used += 1
        self.own += 1
        self._history.note(now, self.own)

    def end(self, now: float) -> None:
        """One under way has ended."""
        self.used -= 1
        self.own -= 1
        self._history.note(now, self.own)

    def learn(self, signal: PoolSignal, turn: int, now: float) -> bool:
        """Take over ``signal``; whether any limit may have changed.

        A sample that was told before changes nothing: share and rounding are those of its first telling, since were
        they to move under one sample, gateways could each take the same room in turn.
        """
        taken_at = now - signal.age
        if signal.held is None:
            self.state = PoolState.ABSENT if self.taken_at == -math.inf else PoolState.STALE
            self.stale_at = math.inf
        else:
            if taken_at < self.taken_at or self._told(signal, taken_at):
                return False
            stale_at = math.inf if signal.bound is None else taken_at + signal.bound
            self.state = PoolState.FRESH if now < stale_at else PoolState.STALE
            self.stale_at = stale_at if now < stale_at else math.inf
            self.taken_at = taken_at
            self.own_then = self._history.before(taken_at, self._policy.settle + signal.lag)
            if signal.ready and signal.running is not None:
                queued = None if signal.queued is None else signal.queued / signal.ready
                self.learned.observe(signal.running / signal.ready, queued)
        self.signal = signal
        self._u = 0.0 if signal.share >= 1.0 else (self._phase + turn * _GOLDEN) % 1.0
        self._settle()
        return True

    def expire(self) -> None:
        """The sample is past its bound: it says nothing any more."""
        self.state = PoolState.STALE
        self.stale_at = math.inf
        self._settle()

    # --- what it looks like -------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> float:
        """Requests that all gateways have there or have granted, as far as this one can tell."""
        if self.state is PoolState.FRESH and self.signal.held is not None:
            return max(0.0, self.signal.held + self._scale * (self.used - self.own_then))
        return self._scale * self.used

    @property
    def saturation(self) -> float | None:
        """Pool saturation: the worse of queued / queue limit, leases included, and KV pressure. None without a limit.

        Where there is no number to act on it is what this gateway's own count says.
        """
        if self.queue_limit <= 0:
            return None
        queued = max(0.0, self.in_flight - self.capacity)
        return max(queued / self.queue_limit, self.kv_pressure or 0.0)

    @property
    def _scale(self) -> float:
        return min(MAX_SCALE, 1.0 / self.signal.share)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _told(self, signal: PoolSignal, taken_at: float) -> bool:
        if taken_at - self.taken_at > _SAME_SAMPLE:
            return False
        return replace(signal, age=0.0, share=1.0, gateways=1) == replace(self.signal, age=0.0, share=1.0, gateways=1)

    def _settle(self) -> None:
        signal = self.signal
        fresh = self.state is PoolState.FRESH
        # Without a number at least one endpoint is believed in: stale is not dead, and the route says who is.
        ready = signal.ready if fresh and signal.ready is not None else max(1, signal.ready or 1)
        self.queue_limit = signal.queue_capacity * ready
        each = self.learned.allowance(signal.queue_capacity) if signal.max_running is None else signal.max_running
        self.capacity = each * ready
        self.kv_pressure = signal.kv / signal.kv_ceiling if fresh and signal.kv is not None else None
        held, then = (signal.held or 0.0, self.own_then) if fresh else (0.0, 0)
        free = self.capacity - held + _EPS
        for level, band in enumerate(self._policy.bands):
            if self.kv_pressure is not None and self.kv_pressure > band.kv_limit + _EPS:
                self.limits[level] = _CLOSED
            else:
                room = math.floor(free + band.ceiling * self.queue_limit)
                more = math.floor(signal.share * room + self._u + _EPS)
                even = (self.capacity + band.ceiling * self.queue_limit) / signal.gateways
                if room < 1 and signal.gateways > 1 and then > even:
                    more -= math.ceil((then - even) * GIVE_BACK)
                self.limits[level] = then + more
