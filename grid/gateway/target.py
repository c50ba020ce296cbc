"""One provider as one gateway sees it: what this gateway has sent there, and its estimate of the load there now.

The number in a signal frame is as old as the sample behind it. What this gateway did since is known exactly, and the
other gateways are taken to behave alike, so

    estimate = max(KV pressure, (held + scale x (own now - own when the sample was taken)) / capacity)

with ``scale`` = 1 / (this gateway's share of the fleet). Local estimates that are corrected by one's own sends are
known as Local Shortest Queue (Vargaftik, Keslassy, Orda, 2020), which stays stable as long as the error is bounded.
The sum is kept up to date at every start and end of a request, so a pick only compares ready numbers.
"""

import math
from typing import Protocol

from grid.gateway.health import ObservedHealth

MAX_SCALE = 16.0
"""Above this a gateway is too small a part of the fleet for its own changes to tell what the others do."""


class Member(Protocol):
    """A place of the target in one group, told when the target gains or loses room."""

    def room_changed(self, has_room: bool) -> None:
        """The target gained or lost room."""

    def over_changed(self, is_over: bool) -> None:
        """The target went above the overflow bound, or came back below it."""


class Target:
    """Mutable state of one provider in one gateway process; outlives documents and frames.

    ``own``: requests of this gateway in flight there. ``estimate``: its load as compared by picks. ``has_room``:
    estimate below ``spill``. ``is_over``: saturation alone above ``overflow``. ``trusted``: a frame within the
    freshness bound backs the estimate and the scale is below its cap. ``known``: its load is known at all.
    ``expires``: monotonic s at which the sample passes its bound. ``dead``: the newest frame says that nothing is ready
    there. ``set_back``: used last, for being dead or for its ``health``. ``begun`` counts requests ever sent there.
    """

    __slots__ = (
        "_base",
        "_floor",
        "_members",
        "_overflow",
        "_spill",
        "_step",
        "begun",
        "capacity",
        "cluster",
        "dead",
        "estimate",
        "expires",
        "has_room",
        "health",
        "is_over",
        "known",
        "own",
        "queue",
        "saturation",
        "set_back",
        "site",
        "trusted",
    )

    def __init__(self, site: str, cluster: str, *, spill: float = 1.0, overflow: float = 1.25) -> None:
        self.site = site
        self.cluster = cluster
        self.own = 0
        self.begun = 0
        self.expires = math.inf
        self.dead = False
        self.health: ObservedHealth | None = None
        self.set_back = False
        self.capacity = 1.0
        self.estimate = 0.0
        self.saturation: float | None = None
        self.queue: float | None = None
        self.has_room = True
        self.is_over = False
        self.trusted = False
        self.known = False
        self._base = 0.0
        self._step = 1.0
        self._floor = 0.0
        self._spill = spill
        self._overflow = overflow
        self._members: tuple[Member, ...] = ()

    def begin(self) -> None:
        """One more request of this gateway is in flight there."""
        self.own += 1
        self.begun += 1
        load = self._base + self._step * self.own
        self.estimate = load if load > self._floor else self._floor  # noqa: FURB136 - max() costs 60 ns
        if (load < self._spill > self._floor) is not self.has_room or (load > self._overflow) is not self.is_over:
            self._crossed()

    def end(self) -> None:
        """One of its requests has ended, whatever way."""
        self.own -= 1
        load = self._base + self._step * self.own
        self.estimate = load if load > self._floor else self._floor  # noqa: FURB136 - max() costs 60 ns
        if (load < self._spill > self._floor) is not self.has_room or (load > self._overflow) is not self.is_over:
            self._crossed()

    def rebase(
        self,
        *,
        capacity: float,
        held: float,
        own_at_sample: float,
        scale: float,
        kv_pressure: float = 0.0,
        trusted: bool,
        known: bool,
        saturation: float | None = None,
        queue: float | None = None,
        expires: float = math.inf,
    ) -> None:
        """Take over what a frame says; ``capacity`` above 0, ``held`` in requests, ``kv_pressure``: KV / ceiling."""
        self.capacity = capacity
        self._step = scale / capacity
        self._base = (held - scale * own_at_sample) / capacity
        self._floor = kv_pressure
        self.trusted = trusted
        self.known = known
        self.saturation = saturation
        self.queue = queue
        self.expires = expires
        self._settle()

    def at(self, own: float) -> float:
        """What the estimate says, KV pressure aside, for ``own`` requests of this gateway in flight."""
        return self._base + self._step * own

    def forget(self, scale: float, capacity: float | None = None) -> None:
        """The sample is past its bound: only what this gateway has in flight still counts."""
        self.capacity = capacity or self.capacity
        self.expires = math.inf
        self._base = 0.0
        self._step = scale / self.capacity
        self._floor = 0.0
        self.trusted = False
        self.known = False
        self.saturation = None
        self.queue = None
        self._settle()

    def attach(self, members: tuple[Member, ...]) -> None:
        """The places that this target has in the groups of the snapshot in use."""
        self._members = members

    def judge(self, now: float) -> bool:
        """Set ``set_back`` as of ``now``; whether that changed it."""
        set_back = self.dead or (self.health is not None and not self.health.healthy(now))
        changed = set_back is not self.set_back
        self.set_back = set_back
        return changed

    def limits(self, spill: float, overflow: float) -> None:
        """Change the bounds (a reload)."""
        self._spill, self._overflow = spill, overflow
        self._settle()

    def _settle(self) -> None:
        load = self._base + self._step * self.own
        self.estimate = max(load, self._floor)
        self._crossed()

    def _crossed(self) -> None:
        load = self._base + self._step * self.own
        room = self.estimate < self._spill
        if room is not self.has_room:
            self.has_room = room
            for member in self._members:
                member.room_changed(room)
        over = load > self._overflow
        if over is not self.is_over:
            self.is_over = over
            for member in self._members:
                member.over_changed(over)
