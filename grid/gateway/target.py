"""One provider as one gateway sees it: what this gateway has sent there, and its estimate of the load there now.

The number in a signal frame is as old as the sample behind it. What this gateway did since is known exactly, and the
other gateways are taken to behave alike, so

    estimate = max(0, KV pressure, (held + scale x (own now - own when the sample was taken)) / capacity)

with ``scale`` = 1 / (this gateway's share of the fleet). Local estimates that are corrected by one's own sends are
known as Local Shortest Queue (Vargaftik, Keslassy, Orda, 2020), which stays stable as long as the error is bounded.
Above the cap of the scale one's own change counts once: it tells nothing of the others. Once the sample is past its
bound, or where no frame tells the load,

    estimate = scale x own now / capacity

remains. What picks compare is the *cost*, the same with a margin for what nobody has seen yet:

    cost = max(KV pressure, (held + gain x (own now - own when sampled)) / capacity) + sqrt(scale) / capacity

The margin is the one request on its way, which is the standard way to compare servers of unequal size, and, since it
stands for ``scale`` of the fleet, as much as these differ by chance: at equal load a small site is sooner full.
``gain`` = 1 + 1.25 x (scale - 1): what the others are supposed to do counts a quarter more than it is likely to be,
which keeps their swings down. A site that has just joined costs at least what its peers do on average. Above the cap
of the scale the cost is that of own requests alone, (own + 1/4) / capacity; who may be drawn is left to the water level
then (:mod:`grid.gateway.level`).

Both sums are kept up to date at every start and end of a request, so a pick only compares ready numbers.
"""

import math
from typing import Final, Protocol

from grid.gateway.draws import weight_of
from grid.gateway.health import ObservedHealth

MAX_SCALE: Final = 16.0
"""Above this a gateway is too small a part of the fleet for its own changes to tell what the others do."""

DAMPING: Final = 1.25
"""By how much the supposed changes of the others count in the comparison of two."""


class Member(Protocol):
    """A place of the target in one group, told when the target gains or loses room."""

    def room_changed(self, has_room: bool) -> None:
        """The target gained or lost room."""

    def open_changed(self, is_open: bool) -> None:
        """The target may be drawn again, or no more."""

    def over_changed(self, is_over: bool) -> None:
        """The target went above the overflow bound, or came back below it."""

    def sure_changed(self, surely_over: bool) -> None:
        """It has become certain that the target is above that bound, or it no longer is."""


class Target:
    """Mutable state of one provider in one gateway process; outlives documents and frames.

    ``own``: requests of this gateway in flight there; ``begun``: requests ever sent there. ``estimate``: its load;
    ``cost``: what picks compare; ``has_room``: whether the estimate is below ``spill``; ``is_open``: whether it may be
    drawn while another of its group has room; ``is_over``: whether its estimate, KV pressure
    aside, is above ``overflow``; ``surely_over``: whether it is so by what is certain. ``known``: a frame within the
    freshness bound tells its load; ``trusted``: and the scale is below its cap, or this is the only gateway.
    ``capacity`` in requests, ``weight`` the same for draws; ``sized``: whether that is more than the 1 which stands in
    where nobody's capacity is known; ``firm``: whether it is a limit too, which a capacity is not that was only learned
    from what ran, until something queues at it. Without a size, or where that is not firm, nothing is full.
    ``sampled``: its load when it was sampled, at ``sampled_at`` (monotonic s, None without a sample), which passes its
    bound when ``expires``; ``arrivals``: requests a second that the fleet is taken to send there. ``dead``: the newest
    frame says that nothing is ready there; ``set_back``: used last, for that or its ``health``. ``joined``: monotonic s
    since when it is one of the others again, where it was missing or dead before.
    """

    __slots__ = (
        "_ahead",
        "_base",
        "_draw_below",
        "_floor",
        "_high",
        "_least",
        "_low",
        "_members",
        "_overflow",
        "_pull",
        "_ramp",
        "_reserve",
        "_spill",
        "_step",
        "_sure_at",
        "arrivals",
        "begun",
        "brim",
        "capacity",
        "cluster",
        "cost",
        "dead",
        "estimate",
        "expires",
        "firm",
        "has_room",
        "health",
        "is_open",
        "is_over",
        "joined",
        "known",
        "own",
        "queue",
        "sampled",
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
        self.joined = -math.inf
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
            cost = self._ahead + self._pull * own
            self.cost = cost if cost > self._least else self._least  # noqa: FURB136
        else:
            self._crossed()

    def end(self) -> None:
        """One of its requests has ended, whatever way."""
        self.own = own = self.own - 1
        load = self._base + self._step * own
        if self._low <= load < self._high:
            self.estimate = load if load > self._floor else self._floor  # noqa: FURB136 - max() costs 60 ns
            cost = self._ahead + self._pull * own
            self.cost = cost if cost > self._least else self._least  # noqa: FURB136
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
        turnover: float | None = None,
    ) -> None:
        """Take over what a frame says. ``held`` in requests; ``kv_pressure``: KV / ceiling; ``capacity`` None: unknown.

        Being surely over goes by ``proven``, as far as this gateway's own change counts towards it (None: by all of
        ``scale``), and by ``told``, the requests it starts from (None: ``held``): nobody is refused for what others are
        merely supposed to do. ``turnover``: the part of what is under way that ends per second, None where nothing was
        seen of that.
        Places are not told: whoever calls this puts the snapshot's numbers in order afterwards.
        """
        self._size(capacity)
        counted = scale if trusted else 1.0
        self._step = counted / self.capacity
        self._base = (held - counted * own_at_sample) / self.capacity
        self._sure_at = self._overflow
        certain, start = scale if proven is None else proven, held if told is None else told
        if (certain, start) != (counted, held):
            own_at_overflow = own_at_sample + (self._overflow * self.capacity - start) / certain
            self._sure_at = max(self._overflow, self._base + self._step * own_at_overflow)
        self._floor = max(0.0, kv_pressure)
        self._ramp = self._reserve = 0.0
        self.sampled = held / self.capacity
        self.arrivals = None if turnover is None else turnover * held
        self.trusted = trusted
        self.known = True
        self.saturation = saturation
        self.queue = queue
        self.expires = expires
        self.sampled_at = sampled_at
        # How full a site may seem and still be drawn beside one that has room: nothing is left to guess for whoever is
        # all of the fleet, and leaving out those that only seem full sends everybody to the rest.
        self._draw_below = self._spill + max(0.0, self._overflow - self._spill) * (1 - 1 / scale)
        margin = math.sqrt(scale) / self.capacity
        if trusted:
            self._pull = (1 + DAMPING * (scale - 1)) / self.capacity
            self._ahead = self.sampled - self._pull * own_at_sample + margin
            self._least = self._floor + margin
        else:
            self._pull = 1 / self.capacity
            self._ahead = margin / scale
            self._least = 0.0
        self.brim = max(1.0, self.sampled)
        self._settle()

    def forget(self, scale: float, capacity: float | None = None, *, trusted: bool = False) -> None:
        """No load is known: only what this gateway has in flight still counts, against ``capacity`` (None: unknown).

        Places are not told, as with :meth:`rebase`.
        """
        self._size(capacity)
        self._step = scale / self.capacity
        self._base = self._floor = self._ramp = self._reserve = self.sampled = 0.0
        self.trusted = trusted
        self.known = False
        self.saturation = self.queue = self.sampled_at = self.arrivals = None
        self.expires = math.inf
        self._draw_below = self._spill
        self._pull = self._step
        self._ahead = self._least = math.sqrt(scale) / self.capacity
        self.brim = 1.0
        self._settle()

    def ramp(self, load: float) -> None:
        """It has just joined: picks compare it as if its load were ``load`` at least. Places are not told."""
        self._ramp = load
        if self.trusted:
            self._least += max(0.0, load - self._floor)
        self._settle()

    def hold_back(self, load: float) -> None:
        """It has room only while its estimate is ``load`` below ``spill``. Places are not told."""
        self._reserve = load
        self._settle()

    @property
    def level(self) -> float:
        """The load that it starts from when the fleet's arrivals are shared out by water level."""
        return max(self.sampled, self._floor, self._ramp)

    @property
    def spent(self) -> bool:
        """Whether nothing speaks for sending more there: surely over, or over where no load is told to doubt it."""
        return self.surely_over or (self.is_over and not self.known)

    @property
    def backlog(self) -> float:
        """Its queue against its capacity as far as is known: as told, and what has come since beyond what was free.

        Where no load is known it goes by own requests alone; infinite where only the queue is not known.
        """
        if self.queue is None and self.known:
            return math.inf
        return (self.queue or 0.0) / self.capacity + self._base + self._step * self.own - self.brim

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
        spill = self._spill - self._reserve if limited else math.inf
        drawn = self._draw_below if self.trusted and limited else math.inf
        overflow = self._overflow if limited else math.inf
        sure = self._sure_at if limited and self.known else math.inf
        self.estimate = max(load, self._floor)
        self.cost = max(self._ahead + self._pull * self.own, self._least)
        self.has_room = self.estimate < spill
        self.is_open = not self.trusted or (load < drawn and self._floor < spill)
        self.is_over = load > overflow
        self.surely_over = load > sure
        marks = (spill, drawn, math.nextafter(overflow, math.inf), math.nextafter(sure, math.inf))
        self._low = max((mark for mark in marks if mark <= load), default=-math.inf)
        self._high = min((mark for mark in marks if mark > load), default=math.inf)

    def _crossed(self) -> None:
        had_room, was_open, was_over, was_sure = self.has_room, self.is_open, self.is_over, self.surely_over
        self._settle()
        if self.is_open is not was_open:
            for member in self._members:
                member.open_changed(self.is_open)
        if self.has_room is not had_room:
            for member in self._members:
                member.room_changed(self.has_room)
        if self.is_over is not was_over:
            for member in self._members:
                member.over_changed(self.is_over)
        if self.surely_over is not was_sure:
            for member in self._members:
                member.sure_changed(self.surely_over)
