"""A daemon that never was: the HTTP side's view with values a test can change."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grid.debug import (
    Access,
    Check,
    DocumentView,
    DrainView,
    Event,
    EventFeed,
    GatewayView,
    InstanceView,
    LastError,
    LeaderView,
    ProviderView,
    ReloadResult,
    Which,
)
from grid.model import (
    AdmissionState,
    Candidate,
    Capability,
    CapacitySource,
    DaemonError,
    Decision,
    Drain,
    Exclusion,
    Freshness,
    GatewayPlan,
    HeldSource,
    Kind,
    Load,
    LoadSource,
    Picker,
    Problem,
    Provider,
    Reason,
    Step,
    Tier,
)

REVISION = "ab" * 32
OLDER = "cd" * 32


class FakeFeed:
    def __init__(self, events: list[Event | None], *, lost: int = 0, open_ended: bool = False) -> None:
        self.waiting = events
        self.lost = lost
        self.open_ended = open_ended
        self.closed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Event | None]:
        for event in self.waiting:
            yield event
        while self.open_ended:
            await asyncio.sleep(0.01)
            yield None

    def take_lost(self) -> int:
        lost, self.lost = self.lost, 0
        return lost

    def close(self) -> None:
        self.closed.set()


def make_provider() -> ProviderView:
    declared = Provider(
        "east-llama",
        "east",
        "east-cluster",
        (Capability(Kind.INFERENCE_MODEL, "llama"), Capability(Kind.MCP_TOOL, "search")),
        max_running=64,
    )
    load = Load(
        ready=3,
        held=120.0,
        held_source=HeldSource.LIVE,
        capacity=192.0,
        capacity_source=CapacitySource.DECLARED,
        saturation=0.625,
        load=0.7,
        load_source=LoadSource.KV,
        queue=0.0,
        kv=0.63,
    )
    decision = Decision(
        "east-llama",
        Freshness.FRESH,
        AdmissionState.NEW_AND_EXISTING,
        Reason.ADMITTED,
        load,
        (Step("readiness", Reason.READY, "3 of 3"), Step("freshness", Reason.FRESH, "0.4 s of 6 s")),
        age=0.4,
        bound=6.0,
    )
    error = LastError(Reason.CREDENTIAL_REJECTED, "500 Authentication failed", 1_700_000_000.5)
    return ProviderView(
        declared,
        decision,
        error,
        interval=2.0,
        cost=0.004,
        page_bytes=66_000,
        scrapes=10,
        failures=1,
        age=0.41,
        problems=(Problem(Reason.BAD_VALUE, "llm_d_epp_average_queue_size NaN"),),
    )


def make_plan() -> GatewayPlan:
    candidate = Candidate(
        kind=Kind.INFERENCE_MODEL,
        name="llama",
        site="east",
        cluster="east-cluster",
        provider="east-llama",
        stable_id="0123abcd",
        admission_state=AdmissionState.NEW_AND_EXISTING,
        selection_tier=Tier.SAME_SITE,
        fresh=True,
        rank=0,
        selection_group=0,
        traffic_weight=100,
    )
    return GatewayPlan(
        "edge-east",
        "east",
        Picker.SATURATION,
        (candidate,),
        (Exclusion("west-llama", "west", Reason.ACCESS_DENIED),),
        (("east-llama", (Step("groups", Reason.GROUPED, "group 0 of 1"),)),),
    )


@dataclass
class FakeView:
    access: Access = field(default_factory=Access)
    alive_check: Check = field(default_factory=lambda: Check("loop", True))
    ready_checks: list[Check] = field(
        default_factory=lambda: [
            Check("round", True),
            Check("bus", True, "redis://bus"),
            Check("lease", True, "leader"),
        ]
    )
    drained: dict[str, Drain] = field(default_factory=dict)
    feed: FakeFeed = field(default_factory=lambda: FakeFeed([]))
    fault: Exception | None = None
    asked_after: int | None = None
    instances: tuple[InstanceView, ...] = (
        InstanceView("pod-1", 7, 12, REVISION, 1_700_000_000.0, 0.4, {"east/east-cluster": 3}),
    )
    extended: bool = True
    first: ProviderView = field(default_factory=make_provider)

    def alive(self) -> Check:
        return self.alive_check

    def checks(self) -> Sequence[Check]:
        return self.ready_checks

    async def metrics(self) -> bytes:
        return b"# HELP grid_leader x\n# TYPE grid_leader gauge\ngrid_leader 1.0\n"

    def providers(self) -> Sequence[ProviderView]:
        bare = Provider("west-llama", "west", "west-cluster", (Capability(Kind.INFERENCE_MODEL, "llama"),))
        return [self.first, ProviderView(bare)]

    def provider(self, name: str) -> ProviderView | None:
        return next((one for one in self.providers() if one.provider.id == name), None)

    def plans(self) -> Mapping[str, GatewayPlan]:
        return {"edge-east": make_plan()}

    def gateways(self) -> Sequence[GatewayView]:
        return [
            GatewayView("edge-east", "east", 7, 12, REVISION, "2026-01-01T00:00:00Z", 1, self.instances),
            GatewayView("edge-west", "west", fault="no candidates"),
        ]

    def leader(self) -> LeaderView:
        return LeaderView("leader", "host-1", "host-1", 7, 1_700_000_000.0, 10.0, 6.5)

    def config(self) -> Mapping[str, object]:
        if self.fault is not None:
            raise self.fault
        return {"network": "acme", "bus": {"password_file": "/etc/grid/redis.password"}}

    def drains(self) -> Sequence[DrainView]:
        return [DrainView(one, "provider") for one in self.drained.values()]

    def history(self) -> Sequence[Event]:
        return [Event(n, 1_700_000_000.0 + n, "leader" if n % 2 else "cycle", f"event {n}") for n in range(1, 6)]

    def cycles(self) -> Sequence[Event]:
        return [Event(9, 1_700_000_009.0, "cycle", "nothing changed", {"changed": False})]

    def events(self, after: int | None) -> EventFeed:
        self.asked_after = after
        if self.fault is not None:
            raise self.fault
        return self.feed

    async def document(self, gateway: str) -> DocumentView | None:
        if gateway == "edge-west":
            return None
        return DocumentView(gateway, 7, 12, REVISION, "2026-01-01T00:00:00Z", b'{"schema_version":"1.0.0"}')

    async def past_documents(self, gateway: str, limit: int) -> Sequence[DocumentView]:
        kept = [
            DocumentView(gateway, 7, 12, REVISION, "2026-01-01T00:00:00Z", b"{}", "west is drained"),
            DocumentView(gateway, 7, 11, OLDER, "2026-01-01T00:00:00Z", b'{"older":true}', "first document"),
        ]
        return kept[:limit]

    async def past_document(self, gateway: str, which: Which) -> DocumentView | None:
        return which.choose(await self.past_documents(gateway, 1000))

    async def drain(self, target: str, *, for_s: float | None, reason: str) -> DrainView:
        if target not in ("east-llama", "east"):
            raise self._absent(target)
        until = None if for_s is None else 4_000_000_000.0
        self.drained[target] = Drain(target, target, reason, 1_700_000_000.0, until)
        return DrainView(self.drained[target], "provider" if target == "east-llama" else "site", self.extended)

    async def undrain(self, drain_id: str) -> None:
        if self.drained.pop(drain_id, None) is None:
            raise self._absent(drain_id)

    async def reload(self) -> ReloadResult:
        if self.fault is not None:
            raise self.fault
        return ReloadResult(2, ("provider west-llama added",))

    @staticmethod
    def _absent(name: str) -> DaemonError:
        error = DaemonError(f"no provider or site {name!r}", reason=Reason.NOT_FOUND)
        error.status = 404
        return error

    def with_instances(self, *instances: InstanceView) -> "FakeView":
        return replace(self, instances=instances)
