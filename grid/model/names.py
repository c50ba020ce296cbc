"""Closed vocabularies. Their values are what configuration, JSON and metrics say."""

from enum import StrEnum


class Kind(StrEnum):
    """What a capability is: a model that answers prompts, or a tool behind MCP."""

    INFERENCE_MODEL = "inference_model"
    MCP_TOOL = "mcp_tool"


class AdmissionState(StrEnum):
    """Who may send to a provider: everyone, sessions already bound to it, nobody."""

    NEW_AND_EXISTING = "new_and_existing"
    EXISTING_ONLY = "existing_only"
    NONE = "none"

    @property
    def rank(self) -> int:
        """0 for the most open state; the first key of every order."""
        return _ADMISSION_RANK[self]


_ADMISSION_RANK = {
    AdmissionState.NEW_AND_EXISTING: 0,
    AdmissionState.EXISTING_ONLY: 1,
    AdmissionState.NONE: 2,
}


class Freshness(StrEnum):
    """Sample younger than the freshness bound, older, or never had one."""

    FRESH = "fresh"
    STALE = "stale"
    ABSENT = "absent"


class Tier(StrEnum):
    """How near a candidate's site is to the gateway's. Zones count only inside an equal region."""

    SAME_SITE = "same_site"
    SAME_ZONE = "same_zone"
    SAME_REGION = "same_region"
    CROSS_REGION = "cross_region"
    UNKNOWN = "unknown"

    @property
    def rank(self) -> int:
        """0 for the nearest."""
        return _TIER_RANK[self]


_TIER_RANK = {tier: index for index, tier in enumerate(Tier)}


class Picker(StrEnum):
    """How a gateway chooses inside a group."""

    DETERMINISTIC = "deterministic"
    ROUND_ROBIN = "roundRobin"
    RANDOM = "random"
    WEIGHTED_RANDOM = "weightedRandom"
    SATURATION = "saturation"


class Order(StrEnum):
    """Which key comes first after admission: geography or load."""

    GEOGRAPHY_FIRST = "geographyFirst"
    SCORE_FIRST = "scoreFirst"


class Placement(StrEnum):
    """Where traffic weights come from: declared shares, live capacity, free capacity."""

    STATIC = "static"
    CAPACITY = "capacity"
    HEADROOM = "headroom"


class Contract(StrEnum):
    """Which vocabulary a gateway's document is written in."""

    GRID = "grid"
    PRAXIS_GROUPED = "praxis-grouped"
    PRAXIS_ORDERED = "praxis-ordered"


class HeldSource(StrEnum):
    """Where ``held`` comes from: the EPP's in-flight series, or the engines' means times ready endpoints."""

    LIVE = "live"
    ENGINE = "engine"


class CapacitySource(StrEnum):
    """Declared ``max_running`` times ready endpoints, or the learned high-water mark times ready endpoints."""

    DECLARED = "declared"
    LEARNED = "learned"


class LoadSource(StrEnum):
    """Which signal gave the load that providers are compared by."""

    SATURATION = "saturation"
    POOL_SATURATION = "pool_saturation"
    QUEUE = "queue"
    KV = "kv"


class ReadySource(StrEnum):
    """Who counted the ready endpoints."""

    LIVE = "live"
    EPP = "epp"
    PROBE = "probe"
