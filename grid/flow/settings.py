"""What an admission policy is made of. Durations are seconds, ceilings pool saturations (1.0: healthy limit)."""

from dataclasses import dataclass
from typing import Self

from grid.config import AdmissionConfig
from grid.config.gateways import TenantCost
from grid.model import ConfigError, Reason


@dataclass(frozen=True, slots=True)
class Band:
    """A priority class.

    ``ceiling``: pool saturation that a grant may not go above. ``kv``: KV pressure (KV use / KV ceiling) above which
    nothing is granted; None: the ceiling, since pool saturation is the worse of queue and KV.
    """

    name: str
    ceiling: float = 1.0
    kv: float | None = None

    @property
    def kv_limit(self) -> float:
        """KV pressure above which nothing is granted."""
        return self.ceiling if self.kv is None else self.kv


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """Bands from the most important down, and the bounds of their queues.

    ``max_queued`` counts waiting requests per band and model; ``max_wait`` is the longest wait. ``by_cost``: tenants
    take turns by expected cost, ``quantum`` of it a turn, instead of by requests. ``lease``: how long a granted slot
    counts that nobody starts. ``settle``: how long a started request may take to show in what its pool reports.
    ``idle_tenants``: tenants without a waiting request that are remembered, per band and model.

    Raises ConfigError (``config_conflict``) where ceilings rise downward, a name is taken twice or no band is there.
    """

    bands: tuple[Band, ...] = (Band("default"),)
    max_queued: int = 1000
    max_wait: float = 30.0
    by_cost: bool = False
    quantum: int = 1000
    lease: float = 10.0
    settle: float = 0.25
    idle_tenants: int = 1024

    def __post_init__(self) -> None:
        if not self.bands:
            raise ConfigError("an admission policy without bands", reason=Reason.CONFIG_CONFLICT)
        if len({band.name for band in self.bands}) < len(self.bands):
            names = ", ".join(band.name for band in self.bands)
            raise ConfigError(f"two bands of one name among {names}", reason=Reason.CONFIG_CONFLICT)
        for above, below in zip(self.bands, self.bands[1:], strict=False):
            if below.ceiling > above.ceiling or below.kv_limit > above.kv_limit:
                raise ConfigError(
                    f"band {below.name} may fill a pool further (ceiling {below.ceiling:g}, KV {below.kv_limit:g}) "
                    f"than the more important {above.name} ({above.ceiling:g}, {above.kv_limit:g}), so room would "
                    f"stay unused while {above.name} waits",
                    reason=Reason.CONFIG_CONFLICT,
                )

    @classmethod
    def from_config(cls, config: AdmissionConfig) -> Self:
        """The policy that a section of ``admission:`` describes."""
        return cls(
            bands=tuple(Band(band.name, band.ceiling) for band in config.bands),
            max_queued=config.max_queued,
            max_wait=config.max_wait,
            by_cost=config.tenant is not None and config.tenant.cost is TenantCost.TOKENS,
        )
