"""The control plane in virtual time: a bus, and whoever leads on it."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from grid.bus.order import Position
from grid.bus.reports import Report
from grid.daemon.planner import Planned
from grid.model import Drain, Network
from grid.overlay import SignalFrame
from grid.sim.virtual.bus import LEASE, Bus, Follower
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.daemon import Daemon
from grid.sim.virtual.gauges import Epp


class Plane:
    """One network's control plane. Scrapes begin, passes run and frames go out by themselves once it is made.

    ``scrape``: s a scrape takes.
    """

    def __init__(
        self,
        clock: Clock,
        network: Network,
        epps: Mapping[str, Epp],
        *,
        scrape: float = 0.02,
        rng: random.Random | None = None,
    ) -> None:
        self.network = network
        self.epps = dict(epps)
        self.bus = Bus(clock, rng or random.Random(0))
        self._clock = clock
        self._scrape = scrape
        self._terms = 1
        self.daemon = self._start_daemon()
        """The process that leads, or is about to."""
        self.daemon.lead(self._terms)

    def _start_daemon(self) -> Daemon:
        name = f"daemon-{self._terms}"
        return Daemon(self._clock, self.bus, self.network, self.epps, name=name, scrape=self._scrape)

    # --- what it shows ------------------------------------------------------------------------------------------------

    @property
    def published(self) -> list[tuple[float, str, Position]]:
        """Every publication: when, for which gateway, as which version."""
        return self.bus.published

    @property
    def planned(self) -> Planned | None:
        """The newest pass; None before the first."""
        return self.daemon.planned

    @property
    def passes(self) -> int:
        """Passes of the process that leads."""
        return self.daemon.passes

    # --- who listens --------------------------------------------------------------------------------------------------

    def follow(self, follower: Follower) -> None:
        """A gateway appears: it gets the newest document, and every one after that."""
        self.bus.follow(follower)

    def listen(self, frame: Callable[[SignalFrame], None]) -> None:
        """Somebody who only wants to hear frames, as soon as they are sent."""
        self.bus.listen(frame)

    def heard(self, report: Report) -> None:
        """A gateway has reported."""
        self.bus.heard(report)

    # --- what may be done to it ---------------------------------------------------------------------------------------

    def drain(self, target: str) -> None:
        """No new work for a provider or a site."""
        self.bus.drains = {**self.bus.drains, target: Drain(target, target)}
        self.daemon.ask()

    def undrain(self, target: str) -> None:
        """The end of that."""
        self.bus.drains = {name: one for name, one in self.bus.drains.items() if name != target}
        self.daemon.ask()

    def configure(self, network: Network, epps: Mapping[str, Epp]) -> None:
        """Another configuration: providers come and go."""
        self.network, self.epps = replace(network, generation=self.network.generation + 1), dict(epps)
        self.daemon.configure(self.network, self.epps)

    def cut_off(self, seconds: float) -> None:
        """The bus is away for ``seconds``."""
        self.bus.cut_off(seconds)

    def change_leader(self, *, gap: float = LEASE) -> None:
        """The leader dies; ``gap`` s later (the life of a lease) another takes over, with the memory that was saved.

        The other one starts to read pages, at moments of its own, when the first dies. Where it takes over before it
        has tried them all, it is held to what the first one published until it has.
        """
        self.daemon.die()
        self._terms = max(self._terms, self.daemon.epoch) + 1
        self.daemon = self._start_daemon()
        self._clock.after(gap, self.daemon.lead, self._terms)
