"""Admission control in front of the choice: what it knows of the pools, who calls, and what it leaves the pick to."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry

from grid.config import AdmissionConfig
from grid.config.gateways import TenantCost
from grid.flow import Admission, AdmissionPolicy, CallerRules, PoolSignal, Slot, pool_signals
from grid.flow.callers import Block
from grid.gateway import Router, Target
from grid.model import Kind
from grid.overlay import SignalFrame
from grid.proxy.asgi import Headers

BYTES_PER_TOKEN: Final = 4
"""What a prompt's length is guessed from, where tenants take turns by tokens."""

DEFAULT_ANSWER: Final = 256
"""Tokens that an answer without a limit is guessed to have."""


class Entrance:
    """One gateway's admission policy at work. ``declared``: ``max_running`` by provider id, of those that have one.

    ``places``: ``site/cluster`` by provider id. ``phase``: see :class:`grid.flow.AdmissionCore`.
    """

    def __init__(
        self,
        config: AdmissionConfig,
        router: Router,
        *,
        declared: Mapping[str, float],
        places: Mapping[str, str],
        trusted: Sequence[Block] = (),
        phase: float = 0.0,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.admission = Admission(AdmissionPolicy.from_config(config), phase=phase, registry=registry)
        self.callers = CallerRules.from_config(config, trusted)
        self.by_tokens = config.tenant is not None and config.tenant.cost is TenantCost.TOKENS
        self._router = router
        self._declared = declared
        self._places = places
        self._own: Mapping[str, int] = {}
        self._targets: dict[str, Target] = {}
        self._framed = False

    def slot(self, model: str, band: str, tenant: str, size: int, max_tokens: int | None) -> Slot:
        """A slot for a request whose body has ``size`` bytes."""
        cost = size // BYTES_PER_TOKEN + (max_tokens or DEFAULT_ANSWER) if self.by_tokens else 1
        return self.admission.slot(model, band=band, tenant=tenant, cost=cost)

    def allowed(self, slot: Slot) -> Collection[Target] | None:
        """The targets that the pick is held to; None: all."""
        keys = slot.allowed
        return [self._targets[key] for key in keys if key in self._targets] if keys else None

    def headers(self, slot: Slot) -> Headers:
        """What the answer says of the wait."""
        return [
            (b"x-grid-band", slot.band.encode()),
            (b"x-grid-queue-wait-ms", b"%d" % round(slot.waited * 1000)),
        ]

    # --- the world ----------------------------------------------------------------------------------------------------

    def reported(self, in_flight: Mapping[str, int]) -> None:
        """What this process has just reported to have in flight: its share of what the next frames say."""
        self._own = dict(in_flight)

    def routes_changed(self) -> None:
        """A document, or the health of a provider, has changed."""
        snapshot = self._router.snapshot
        if snapshot is None:
            return
        self._targets = {f"{target.site}/{target.cluster}": target for target in snapshot.targets}
        if not self._framed:
            # Nothing is known of the pools but what the configuration declares.
            self.admission.update(
                [
                    PoolSignal(place, max_running=self._declared.get(provider))
                    for provider, place in self._places.items()
                ]
            )
        self.admission.reroute(
            {
                name: [f"{place.target.site}/{place.target.cluster}" for tier in served.tiers for place in tier]
                for (kind, name), served in snapshot.served.items()
                if kind is Kind.INFERENCE_MODEL
            }
        )

    def frame(self, frame: SignalFrame, received_at: float) -> None:
        """A frame has been taken over by the router."""
        self._framed = True
        since = max(0.0, time.monotonic() - received_at)
        self.admission.update(
            pool_signals(frame, own=self._own, declared=self._declared, since=since), turn=frame.sequence
        )
        self.routes_changed()

    # --- what people see ----------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """For ``/v1/admission``."""
        return self.admission.describe()

    def explain(self, model: str) -> dict[str, Any]:
        """How a request for ``model`` would come through admission now, band by band."""
        shown = self.describe()
        keys = {
            f"{place.target.site}/{place.target.cluster}"
            for served in self._served(model)
            for tier in served.tiers
            for place in tier
        }
        pools = [pool for pool in shown.get("pools", ()) if pool["pool"] in keys]
        waiting = {queue["band"]: queue["waiting"] for queue in shown.get("queues", ()) if queue["model"] == model}
        return {
            "bands": [
                {
                    "band": band.name,
                    "ceiling": band.ceiling,
                    "waiting": waiting.get(band.name, 0),
                    "goes_at_once": not pools or any(pool["room"][band.name] > 0 for pool in pools),
                    "allowed": [pool["pool"] for pool in pools if pool["room"][band.name] > 0],
                }
                for band in self.admission.policy.bands
            ],
            "pools": [
                {key: pool[key] for key in ("pool", "state", "saturation", "capacity", "in_flight", "room")}
                for pool in pools
            ],
        }

    def _served(self, model: str) -> list[Any]:
        snapshot = self._router.snapshot
        found = None if snapshot is None else snapshot.served.get((Kind.INFERENCE_MODEL, model))
        return [] if found is None else [found]
