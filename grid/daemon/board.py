"""What the daemon knows now. Every value is immutable and replaced as one reference; nothing here waits or decides."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from grid.bus.lease import Leader
from grid.bus.reports import Report
from grid.config import Config
from grid.daemon.drains import Ends
from grid.daemon.planner import Planned
from grid.model import Drain, Network
from grid.policy import PolicyMemory, PreviousCandidate


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """How the last attempt to load the configuration went. ``at``: wall-clock s."""

    ok: bool = True
    at: float = field(default_factory=time.time)
    detail: str = ""


@dataclass(slots=True)
class Board:
    """The daemon's knowledge. Times are monotonic s where nothing else is said."""

    config: Config
    network: Network
    loaded: LoadedConfig = field(default_factory=LoadedConfig)
    memory: PolicyMemory = field(default_factory=PolicyMemory)
    memory_urgent: bool = False
    """Whether the memory holds a change that must not be lost with this process."""
    planned: Planned | None = None
    cycled_at: float = 0.0
    drains: Mapping[str, Drain] = field(default_factory=dict)
    """By target; those that have ended may still be in it."""
    ends: Ends = field(default_factory=Ends)
    """When they end."""
    previous: Mapping[str, tuple[PreviousCandidate, ...]] = field(default_factory=dict)
    reports: tuple[Report, ...] = ()
    reported_at: float = 0.0
    leader: Leader | None = None
    leader_at: float = 0.0
    stopping: bool = False

    def drained(self) -> dict[str, Drain]:
        """The drains in force now, by target."""
        return self.ends.in_force(self.drains.values())

    @property
    def interval(self) -> float:
        """S between scrapes as configured; also the longest time between cycles."""
        return self.config.daemon.scrape_interval

    def with_network(self, config: Config, network: Network) -> None:
        """Put a new configuration in force."""
        self.config, self.network = config, network
        self.previous = {name: one for name, one in self.previous.items() if name in network.gateways}
