"""Plans and documents to test with."""

from typing import Any

import orjson

from grid.model import (
    AdmissionState,
    Candidate,
    Contract,
    Exclusion,
    Gateway,
    GatewayPlan,
    Kind,
    Network,
    Picker,
    Tier,
    stable_id,
)
from grid.overlay import Document, Envelope, render, revision_of, verify

NOW = "2026-01-02T03:04:05Z"


def network(**changes: Any) -> Network:
    return Network(**{"name": "acme", "sites": {}, "providers": {}, "gateways": {}, "uid": "u-1", **changes})


def gateway(picker: Picker | None = None, contract: Contract = Contract.GRID, **changes: Any) -> Gateway:
    return Gateway(**{"name": "edge", "site": "east", "picker": picker, "contract": contract, **changes})


def candidate(provider: str = "east-llama", model: str = "llama", rank: int = 0, **changes: Any) -> Candidate:
    site = provider.partition("-")[0]
    fields: dict[str, Any] = {
        "kind": Kind.INFERENCE_MODEL,
        "name": model,
        "site": site,
        "cluster": provider,
        "provider": provider,
        "admission_state": AdmissionState.NEW_AND_EXISTING,
        "selection_tier": Tier.SAME_SITE if site == "east" else Tier.CROSS_REGION,
        "fresh": True,
        "rank": rank,
        **changes,
    }
    identity = stable_id(fields["kind"], fields["name"], fields["site"], fields["cluster"])
    return Candidate(**{"stable_id": identity, **fields})


def plan(
    *candidates: Candidate, picker: Picker | None = None, excluded: tuple[Exclusion, ...] = (), site: str = "east"
) -> GatewayPlan:
    return GatewayPlan("edge", site, picker, candidates, excluded)


def document(*candidates: Candidate, picker: Picker | None = None, **changes: Any) -> Document:
    """The document of a plan with these candidates (one of east and one of west where none is given)."""
    given = candidates or (candidate(), candidate("west-llama", rank=1))
    contract = changes.pop("contract", Contract.GRID)
    return document_of(plan(*given, picker=picker, **changes), contract)


def document_of(planned: GatewayPlan, contract: Contract = Contract.GRID) -> Document:
    return render(network(), gateway(planned.picker, contract), planned, rendered_at=NOW)


def envelope(*candidates: Candidate, picker: Picker | None = None, **changes: Any) -> Envelope:
    """What a gateway sees of that document."""
    return accepted(document(*candidates, picker=picker, **changes).body)


def accepted(data: bytes) -> Envelope:
    verdict = verify(data)
    assert verdict.envelope is not None, (verdict.reason, verdict.detail)
    return verdict.envelope


def resealed(document: dict[str, Any]) -> bytes:
    """The bytes of an envelope whose overlay was changed by hand, with the revision it has now."""
    revision = revision_of(document["overlay"])
    document["revision"]["value"] = document["content_digest"]["value"] = revision
    return orjson.dumps(document)
