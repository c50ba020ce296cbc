"""Documents and frames to publish."""

from datetime import UTC, datetime

from grid.model import (
    AdmissionState,
    Candidate,
    Gateway,
    GatewayPlan,
    Kind,
    Network,
    Picker,
    Site,
    Tier,
    stable_id,
)
from grid.overlay import Document, ProviderSignal, SignalFrame, render

NETWORK = Network("acme", {"east": Site("east")}, {}, {"edge": Gateway("edge", "east")})


def document(tag: int | str = 0, *, gateway: str = "edge", candidates: int = 3) -> Document:
    """A document of ``candidates`` candidates; its revision depends on ``tag``."""
    made = tuple(_candidate(f"model-{tag}", number) for number in range(candidates))
    return render(
        NETWORK,
        Gateway(gateway, "east", picker=Picker.WEIGHTED_RANDOM),
        GatewayPlan(gateway, "east", Picker.WEIGHTED_RANDOM, made),
        rendered_at=datetime(2026, 1, 2, tzinfo=UTC).isoformat(),
    )


def published(tag: int | str, epoch: int, version: int, *, gateway: str = "edge", candidates: int = 3) -> bytes:
    """The bytes of ``document(tag)`` at a place in the order."""
    return document(tag, gateway=gateway, candidates=candidates).published(
        version, epoch, leader="daemon-1", published_at="2026-01-02T00:00:00.000+00:00"
    )


def frame(
    epoch: int, sequence: int, *, interval: float = 1.0, documents: dict[str, tuple[int, int]] | None = None
) -> SignalFrame:
    """A signal frame with one provider."""
    return SignalFrame(
        "acme",
        epoch,
        sequence,
        interval,
        1_700_000_000.0,
        documents or {},
        {"east-llama": ProviderSignal("east", "east-llama", held=3, capacity=64, load=0.05, load_source="saturation")},
    )


def _candidate(model: str, number: int) -> Candidate:
    cluster = f"cluster-{number}"
    return Candidate(
        Kind.INFERENCE_MODEL,
        model,
        "east",
        cluster,
        f"provider-{number}",
        stable_id("inference_model", model, "east", cluster),
        AdmissionState.NEW_AND_EXISTING,
        Tier.SAME_SITE,
        fresh=True,
        rank=number,
        selection_group=0,
        traffic_weight=100,
    )
