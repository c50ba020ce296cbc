"""What the requests of one gateway have in common."""

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grid.gateway import Decision, Router, Target
from grid.gateway.draws import Bits
from grid.gateway.shedding import retry_after
from grid.proxy.entrance import Entrance
from grid.proxy.gateway_metrics import FirstBytes, GatewayMetrics
from grid.proxy.inbound import BodyLimits
from grid.proxy.upstreams import Upstreams

if TYPE_CHECKING:
    from grid.proxy.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Rules:
    """What the configuration says of this gateway. Names of header and cookie as bytes, the header's in lower case.

    ``retry_on``: ``connect`` and statuses.
    """

    retry_on: frozenset[str | int] = frozenset(("connect", 503, 429))
    rescue: bool = True
    session_header: bytes | None = None
    session_cookie: bytes | None = None
    limits: BodyLimits = field(default_factory=BodyLimits)


@dataclass(slots=True)
class Shared:
    """One of these per gateway.

    ``waiting``: requests that wait for the head of an answer, by target. ``serial`` counts requests, ``in_progress``
    those that have not ended.
    """

    router: Router
    upstreams: Upstreams
    rules: Rules
    metrics: GatewayMetrics
    entrance: Entrance | None = None
    first_bytes: FirstBytes = field(default_factory=FirstBytes)
    waiting: dict[Target, set["Exchange"]] = field(default_factory=dict)
    bits: Bits = field(default_factory=lambda: random.Random().getrandbits)
    serial: int = 0
    in_progress: int = 0

    def rescue(self) -> None:
        """Send elsewhere what waits at a provider that has nothing ready."""
        if not self.rules.rescue:
            return
        for target in [target for target in self.waiting if target.dead]:
            for exchange in tuple(self.waiting[target]):
                exchange.rescue()

    def connect_failed(self, decision: Decision) -> None:
        """No connection could be made."""
        was = decision.place.target.set_back
        self.router.connect_failed(decision)
        self._judged(decision, was=was)

    def answered(self, decision: Decision, *, failed: bool) -> None:
        """A provider answered, or ``failed`` by a fault of its own."""
        was = decision.place.target.set_back
        self.router.answered(decision, failed=failed)
        self._judged(decision, was=was)

    def _judged(self, decision: Decision, *, was: bool) -> None:
        if self.entrance is not None and decision.place.target.set_back is not was:
            self.entrance.routes_changed()

    def retry_after(self) -> int:
        """Whole s for a Retry-After header, spread."""
        return retry_after(self.bits)
