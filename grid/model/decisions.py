"""What the policy made of the samples."""

from dataclasses import dataclass

from grid.model.names import (
    AdmissionState,
    CapacitySource,
    Freshness,
    HeldSource,
    Kind,
    LoadSource,
    Picker,
    ReadySource,
    Tier,
)
from grid.model.reasons import Reason

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619


def stable_id(kind: str, name: str, site: str, cluster: str) -> str:
    """Identity of a candidate on the wire: 8 lowercase hex digits.

    32-bit FNV-1a over the UTF-8 bytes of ``kind/name/site/cluster`` (overlay contract, section 2.2). Collisions are
    possible; whoever renders a document must look for them.
    """
    value = _FNV_OFFSET
    for byte in f"{kind}/{name}/{site}/{cluster}".encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return f"{value:08x}"


@dataclass(frozen=True, slots=True)
class Step:
    """One link in the chain of reasons: which rule looked, what it found, with the numbers it saw."""

    rule: str
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a provider is. None is unknown, never 0.

    ``held`` and ``capacity`` count requests; ``saturation`` = held / capacity; ``load`` is the number providers are
    compared by: the worse of saturation (or its stand-in) and KV pressure, with its ``load_source`` named.
    ``queue`` is requests queued in engines and EPP together; ``kv`` is mean KV-cache use, 0 to 1.
    """

    ready: int | None = None
    ready_source: ReadySource | None = None
    held: float | None = None
    held_source: HeldSource | None = None
    capacity: float | None = None
    capacity_source: CapacitySource | None = None
    saturation: float | None = None
    pool_saturation: float | None = None
    load: float | None = None
    load_source: LoadSource | None = None
    queue: float | None = None
    kv: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What holds for one provider whatever the gateway, and why.

    ``reason`` is the one that decided ``admission``; ``steps`` is the whole chain. ``age`` and ``bound`` in s;
    ``changed_at`` is the monotonic time of the last change of admission.
    """

    provider: str
    freshness: Freshness
    admission: AdmissionState
    reason: Reason
    load: Load
    steps: tuple[Step, ...]
    age: float | None = None
    bound: float | None = None
    demoted: bool = False
    """Behind every ready provider: its first reading of zero ready endpoints."""
    drained: bool = False
    changed_at: float = 0.0

    @property
    def trusted(self) -> bool:
        """Whether it counts as fresh where groups are split: a fresh sample, and not demoted."""
        return self.freshness is Freshness.FRESH and not self.demoted


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve a capability, in one gateway's order."""

    kind: Kind
    name: str
    site: str
    cluster: str
    provider: str
    stable_id: str
    admission_state: AdmissionState
    selection_tier: Tier
    fresh: bool
    rank: int
    selection_group: int | None = None
    traffic_weight: int | None = None

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """``(kind, name, site, cluster)``: no two candidates of a document share it."""
        return (self.kind, self.name, self.site, self.cluster)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A provider that a gateway's document leaves out, and why."""

    provider: str
    site: str
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """The policy's result for one gateway: candidates in their order, and who was left out."""

    gateway: str
    local_site: str
    picker: Picker | None
    candidates: tuple[Candidate, ...]
    excluded: tuple[Exclusion, ...] = ()
    steps: tuple[tuple[str, tuple[Step, ...]], ...] = ()
    """Per provider, what this gateway's pass added to the provider's chain of reasons."""
