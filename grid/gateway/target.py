"""One provider as one gateway sees it: what this gateway has sent there, and its estimate of the load there now.

The number in a signal frame is as old as the sample behind it. What this gateway did since is known exactly, and the
other gateways are taken to behave alike, so

    estimate = max(0, KV pressure, (held + scale x (own now - own when the sample was taken)) / capacity)

with ``scale`` = 1 / (this gateway's share of the fleet). Local estimates that are corrected by one's own sends are
known as Local Shortest Queue (Vargaftik, Keslassy, Orda, 2020), which stays stable as long as the error is bounded.
Once the sample is past its bound, or where no frame tells the load,

    estimate = scale x own now / capacity

remains. The sum is kept up to date at every start and end of a request, so a pick only compares ready numbers.
"""

import math
from typing import Final, Protocol

from grid.gateway.draws import weight_of
from grid.gateway.health import ObservedHealth

MAX_SCALE: Final = 16.0
"""Above this a gateway is too small a part of the fleet for its own changes to tell what the others do."""


class Member(Protocol):
    """A place of the target in one group, told when the target gains or loses room."""

    def room_changed(self, has_room: bool) -> None:
        """The target gained or lost room."""

    def over_changed(self, is_over: bool) -> None:
        """The target went above the overflow bound, or came back below it."""

    def sure_changed(self, surely_over: bool) -> None:
        """It has become certain that the target is above that bound, or it no longer is."""


class Target:
    """Mutable state of one provider in one gateway process; outlives documents and frames.

    ``own``: requests of this gateway in flight there; ``begun``: requests ever sent there. ``estimate``: its load as
    picks compare it; ``has_room``: whether that is below ``spill``; ``is_over``: whether its saturation alone, KV
    pressure aside, is known and above ``overflow``; ``surely_over``: whether it is so by what is certain. ``known``: a
    frame within the freshness bound tells its load; ``trusted``: and the scale is below its cap, or this is the only
    gateway. ``capacity`` in requests, ``weight`` the same for draws; ``sized``: whether that is more than the 1 which
    stands in where nobody's capacity is known; ``firm``: whether it is a limit too, which a capacity is not that was
    only learned from what ran, until something queues at it. Without a size, or where that is not firm, nothing is
    full. ``expires``: monotonic s at which the sample passes its bound; ``sampled_at``: when it was taken, None without
    one. ``dead``: the newest frame says that nothing is ready there; ``set_back``: used last, for that or its
    ``health``.
    """

    __slots__ = (
        "_base",
        "_floor",
        "_high",
        "_low",
        "_members",
        "_overflow",
        "_spill",
        "_step",
        "_sure_at",
        "begun",
        "capacity",
        "cluster",
        "dead",
        "estimate",
        "expires",
        "firm",
        "has_room",
        "health",
        "is_over",
        "known",
        "own",
        "queue",
        "sampled_at",
        "saturation",
        "set_back",
        "site",
        "sized",
        "surely_over",
        "trusted",
        "weight",
    )

    def __init__(self, site: str, cluster: str, *, spill: float = 1.0, overflow: float = 1.25) -> None:
        self.site = site
        self.cluster = cluster
        self.own = 0
        self.begun = 0
        self.dead = False
        self.firm = True
        self.health: ObservedHealth | None = None
        self.set_back = False
        self._spill = spill
        self._overflow = overflow
        self._members: tuple[Member, ...] = ()
        self._low = self._high = 0.0
        self._sure_at = overflow
        self.forget(1.0)

    @property
    def key(self) -> str:
        """``site/cluster``: how reports and frames name it."""
        return f"{self.site}/{self.cluster}"

    def begin(self) -> None:
        """One more request of this gateway is in flight there."""
        self.own = own = self.own + 1
        self.begun += 1
        load = self._base + self._step * own
        if self._low <= load < self._high:
            self.estimate = load if load > self._floor else self._floor  # noqa: FURB136 - max() costs 60 ns
        else:
            self._crossed()

    def end(self) -> None:
        """One of its requests has ended, whatever way."""
        self.own = own = self.own - 1
        load = self._base + self._step * own
        if self._low <= load < self._high:
            self.estimate = load if load > self._floor else self._floor  # noqa: FURB136 - max() costs 60 ns
        else:
            self._crossed()

    def rebase(
        self,
        *,
        capacity: float | None,
        held: float,
        own_at_sample: float,
        scale: float,
        proven: float | None = None,
        told: float | None = None,
        kv_pressure: float = 0.0,
        trusted: bool = True,
        saturation: float | None = None,
        queue: float | None = None,
        expires: float = math.inf,
        sampled_at: float | None = None,
    ) -> None:
        """Take over what a frame says. ``held`` in requests; ``kv_pressure``: KV / ceiling; ``capacity`` None: unknown.

        Being surely over goes by ``proven``, as far as this gateway's own change counts towards it (None: by all of
        ``scale``), and by ``told``, the requests it starts from (None: ``held``): nobody is refused for what others are
        merely supposed to do.
        Places are not told: whoever calls this puts the snapshot's numbers in order afterwards.
        """
        self._size(capacity)
        self._step = scale / self.capacity
        self._base = (held - scale * own_at_sample) / self.capacity
        self._sure_at = self._overflow
        certain, start = scale if proven is None else proven, held if told is None else told
        if (certain, start) != (scale, held):
            own_at_overflow = own_at_sample + (self._overflow * self.capacity - start) / certain
            self._sure_at = max(self._overflow, self._base + self._step * own_at_overflow)
        self._floor = max(0.0, kv_pressure)
        self.trusted = trusted
        self.known = True
        self.saturation = saturation
        self.queue = queue
        self.expires = expires
        self.sampled_at = sampled_at
        self._settle()

    def forget(self, scale: float, capacity: float | None = None, *, trusted: bool = False) -> None:
        """No load is known: only what this gateway has in flight still counts, against ``capacity`` (None: unknown).

        Places are not told, as with :meth:`rebase`.
        """
        self._size(capacity)
        self._step = scale / self.capacity
        self._base = self._floor = 0.0
        self.trusted = trusted
        self.known = False
        self.saturation = self.queue = self.sampled_at = None
        self.expires = math.inf
        self._settle()

    def load_at(self, own: float) -> float:
        """What the estimate says, KV pressure aside, for ``own`` requests of this gateway in flight."""
        return max(0.0, self._base + self._step * own)

    def attach(self, members: tuple[Member, ...]) -> None:
        """The places that this target has in the groups of the snapshot in use."""
        self._members = members

    def judge(self, now: float) -> bool:
        """Set ``set_back`` as of ``now``; whether that changed it."""
        set_back = self.dead or (self.health is not None and not self.health.healthy(now))
        changed = set_back is not self.set_back
        self.set_back = set_back
        return changed

    def _size(self, capacity: float | None) -> None:
        self.sized = capacity is not None
        self.capacity = 1.0 if capacity is None else capacity
        self.weight = weight_of(self.capacity)

    def _settle(self) -> None:
        """Work out what follows from base, step and floor, and the band of sums within which it stays so."""
        load = self._base + self._step * self.own
        limited = self.sized and self.firm
        spill = self._spill if limited else math.inf
        overflow, sure = (self._overflow, self._sure_at) if self.known and limited else (math.inf, math.inf)
        self.estimate = max(load, self._floor)
        self.has_room = self.estimate < spill
        self.is_over = load > overflow
        self.surely_over = load > sure
        marks = (spill, math.nextafter(overflow, math.inf), math.nextafter(sure, math.inf))
        self._low = max((mark for mark in marks if mark <= load), default=-math.inf)
        self._high = min((mark for mark in marks if mark > load), default=math.inf)

    def _crossed(self) -> None:
        had_room, was_over, was_sure = self.has_room, self.is_over, self.surely_over
        self._settle()
        if self.has_room is not had_room:
            for member in self._members:
                member.room_changed(self.has_room)
        if self.is_over is not was_over:
            for member in self._members:
                member.over_changed(self.is_over)
        if self.surely_over is not was_sure:
            for member in self._members:
                member.sure_changed(self.surely_over)
