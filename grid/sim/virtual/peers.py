"""Other ways of choosing, to hold ours against: each sees the same samples at the same times as our gateways do.

They count, retry and refuse nothing: a request goes to one site and stays there.
"""

from collections.abc import Callable, Mapping, Sequence

from grid.overlay import SignalFrame
from grid.sim.virtual.site import Site
from grid.sim.virtual.work import Done, Outcome, Request
from grid.sim.virtual.world import World

Rule = Callable[["Peer"], Site]


class Peer:
    """A gateway that goes by ``rule``.

    ``polled``: saturation and queue of each site as the newest frame has them, sites in their order; ``own``: requests
    of this gateway in flight there.
    """

    def __init__(self, world: World, rule: Rule, number: int) -> None:
        self._clock = world.clock
        self.sites = tuple(world.sites)
        self.rule = rule
        self.rng = world.rng(f"peer {number}")
        self.polled: dict[Site, tuple[float, float]] = dict.fromkeys(self.sites, (0.0, 0.0))
        self.own: dict[Site, int] = dict.fromkeys(self.sites, 0)
        self._by_name: Mapping[str, Site] = {site.name: site for site in self.sites}
        world.plane.listen(self.frame)

    def frame(self, frame: SignalFrame) -> None:
        """Hear a signal frame."""
        for name, signal in frame.providers.items():
            if signal.saturation is not None:
                self.polled[self._by_name[name]] = (signal.saturation, signal.queue or 0.0)

    def send(self, request: Request, done: Done) -> None:
        """A client's request; ``done`` hears how it ends."""
        site = self.rule(self)
        self.own[site] += 1

        def left(request: Request, outcome: Outcome) -> None:
            self.own[site] -= 1
            done(request, outcome)

        request.born = self._clock.now
        request.left = left
        site.send(request)


def nearest(peer: Peer) -> Site:
    """The first site, whatever its load: a polled number only orders sites that are equally near."""
    return peer.sites[0]


def published(peer: Peer) -> Site:
    """Two sites drawn by capacity, the one of lower polled saturation, as published gateways do it.

    Of two that have room one draw weighted by capacity / (1 + saturation), within 0.1 and 0.9; with none, by capacity
    among the shortest queues. Between two samples nothing is corrected.
    """
    polled = peer.polled
    room = [site for site in peer.sites if polled[site][0] < 1.0]
    if len(room) > 2:
        first = _drawn(peer, room)
        second = _drawn(peer, [site for site in room if site is not first])
        return first if polled[first][0] <= polled[second][0] else second
    if len(room) == 2:
        worth = [site.capacity / (1 + polled[site][0]) for site in room]
        share = min(0.9, max(0.1, worth[0] / sum(worth)))
        return room[0] if peer.rng.random() < share else room[1]
    if room:
        return room[0]
    least = min(queue for _, queue in polled.values())
    return _drawn(peer, [site for site in peer.sites if polled[site][1] == least])


def perfect(peer: Peer) -> Site:
    """The site that is least filled at this very moment, as if everything were known at once."""
    least = min(site.held / site.capacity for site in peer.sites)
    return _drawn(peer, [site for site in peer.sites if site.held / site.capacity == least])


def _drawn(peer: Peer, among: Sequence[Site]) -> Site:
    return peer.rng.choices(among, [site.capacity for site in among])[0]
