"""From a gateway's plan to the document it reads.

The candidates are serialised once, in canonical form: those bytes are hashed for the revision and sent as they are, and
a publication is spliced behind them. ``fresh`` and ``rank`` are part of every candidate in the contract, so they are
hashed too; neither makes a revision of its own, since a provider that turns stale moves to another place or group
anyway, and the rank is the place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from grid import SCHEMA_VERSION, __version__
from grid.model import Candidate, Contract, Exclusion, Gateway, GatewayPlan, Network, OverlayError, Picker, Reason
from grid.overlay import signing
from grid.overlay.canonical import canonical_bytes, digest_of
from grid.overlay.envelope import MAX_BYTES, MAX_CANDIDATES, CredentialReference, Scope

PRODUCER = "grid"


@dataclass(frozen=True, slots=True)
class Document:
    """One gateway's document, not yet published.

    ``envelope`` is the document as JSON values, without ``publication`` and ``signature``; ``body`` its bytes, which
    a gateway would accept as they are. Nobody changes ``envelope``: ``body`` would not follow.
    """

    gateway: str
    revision: str
    scope: Scope
    envelope: Mapping[str, Any]
    body: bytes

    def published(
        self,
        version: int,
        epoch: int,
        *,
        leader: str,
        published_at: str,
        previous_revision: str | None = None,
        sign: signing.Sign | None = None,
    ) -> bytes:
        """The bytes as stored and sent: the same content with its place in the order of publications, and signed."""
        publication: dict[str, Any] = {
            "version": version,
            "epoch": epoch,
            "leader": leader,
            "published_at": published_at,
        }
        if previous_revision is not None:
            publication["previous_revision"] = previous_revision
        beside: dict[str, Any] = {"publication": publication}
        if sign is not None:
            signature = sign(signing.message(self.scope, self.revision, epoch, version))
            beside["signature"] = {"algorithm": "ed25519", "value": signature}
        return self.body[:-1] + b"," + orjson.dumps(beside)[1:]


def render(
    network: Network,
    gateway: Gateway,
    plan: GatewayPlan,
    *,
    rendered_at: str,
    credentials: Mapping[str, CredentialReference] | None = None,
) -> Document:
    """The document of one gateway, from its plan.

    ``rendered_at``: RFC 3339. ``credentials``: references by provider, for gateways that look secrets up by them.
    Raises OverlayError: ``no_candidates``, ``too_many_candidates``, ``stable_id_collision``, ``too_large``, or
    ``config_conflict`` where the gateway's contract lacks what the plan needs.
    """
    policy = _policy(gateway, plan.picker)
    _check_candidates(gateway, plan)
    candidates = _candidates(gateway, plan, policy is not None, credentials or {})
    hashed: dict[str, Any] = {"candidates": candidates, "local_site": plan.local_site, "network": network.name}
    if policy is not None:
        hashed["selection_policy"] = policy
    canonical = canonical_bytes(hashed)
    revision = digest_of(canonical)
    overlay = {**hashed, "excluded": [_excluded(entry) for entry in plan.excluded]} if plan.excluded else hashed
    scope = Scope(network.name, gateway.name, gateway.namespace, plan.local_site)
    head = {
        "schema_version": SCHEMA_VERSION,
        "revision": {"kind": "content_addressed", "algorithm": "sha256", "value": revision},
        "content_digest": {"algorithm": "sha256", "value": revision},
        "scope": scope.to_json(),
        "provenance": {
            "producer": PRODUCER,
            "producer_version": __version__,
            "source_name": network.name,
            "source_uid": network.uid or network.name,
            "source_generation": max(1, network.generation),
            "rendered_at": rendered_at,
        },
    }
    body = _body(head, canonical, overlay)
    return Document(gateway.name, revision, scope, {**head, "overlay": overlay}, body)


def _body(head: Mapping[str, Any], canonical: bytes, overlay: Mapping[str, Any]) -> bytes:
    if "excluded" in overlay:
        canonical = canonical[:-1] + b"," + orjson.dumps({"excluded": overlay["excluded"]})[1:]
    body = orjson.dumps({**head, "overlay": orjson.Fragment(canonical)})
    if len(body) > MAX_BYTES:
        raise OverlayError(
            f"the document of gateway {head['scope']['gateway']} has {len(body)} bytes, readers take {MAX_BYTES}",
            reason=Reason.TOO_LARGE,
            hint="shorten model and cluster names, or limit providers by access",
        )
    return body


def _policy(gateway: Gateway, picker: Picker | None) -> dict[str, str] | None:
    """The selection policy in the words of the gateway's contract; None for the plain form."""
    if picker in (None, Picker.DETERMINISTIC) or gateway.contract is Contract.PRAXIS_ORDERED:
        return None
    if gateway.contract is Contract.GRID:
        return {"picker": picker.value}
    if picker is Picker.SATURATION:
        raise OverlayError(
            f"gateway {gateway.name}: contract {gateway.contract} has no picker {picker}",
            reason=Reason.CONFIG_CONFLICT,
            hint="choose contract: grid, or another picker (grid check says so before it runs)",
        )
    return {"mode": picker.value}


def _candidates(
    gateway: Gateway, plan: GatewayPlan, grouped: bool, credentials: Mapping[str, CredentialReference]
) -> list[dict[str, Any]]:
    weighted = grouped and (gateway.contract is Contract.GRID or plan.picker is Picker.WEIGHTED_RANDOM)
    entries = []
    for candidate in plan.candidates:
        entry: dict[str, Any] = {
            "admission_state": candidate.admission_state.value,
            "cluster": candidate.cluster,
            "fresh": candidate.fresh,
            "kind": candidate.kind.value,
            "name": candidate.name,
            "rank": candidate.rank,
            "selection_tier": candidate.selection_tier.value,
            "site": candidate.site,
            "stable_id": candidate.stable_id,
        }
        if grouped:
            entry["selection_group"] = candidate.selection_group
        if weighted:
            entry["traffic_weight"] = candidate.traffic_weight
        reference = credentials.get(candidate.provider)
        if reference is not None:
            entry["credential"] = {
                "strategy": reference.strategy,
                "secretRef": {"name": reference.name, "namespace": reference.namespace, "key": reference.key},
            }
        entries.append(entry)
    return entries


def _check_candidates(gateway: Gateway, plan: GatewayPlan) -> None:
    if not plan.candidates:
        excluded = ", ".join(f"{entry.provider} ({entry.reason})" for entry in plan.excluded) or "none is configured"
        raise OverlayError(
            f"gateway {gateway.name} at {plan.local_site} has no candidate at all; left out: {excluded}",
            reason=Reason.NO_CANDIDATES,
        )
    if len(plan.candidates) > MAX_CANDIDATES:
        raise OverlayError(
            f"gateway {gateway.name} would get {len(plan.candidates)} candidates, readers take {MAX_CANDIDATES}",
            reason=Reason.TOO_MANY_CANDIDATES,
        )
    owners: dict[str, Candidate] = {}
    for candidate in plan.candidates:
        owner = owners.setdefault(candidate.stable_id, candidate)
        if owner is not candidate:
            raise OverlayError(
                f"gateway {gateway.name}: {'/'.join(owner.identity)} of provider {owner.provider} and "
                f"{'/'.join(candidate.identity)} of provider {candidate.provider} share the stable id "
                f"{candidate.stable_id}",
                reason=Reason.STABLE_ID_COLLISION,
            )


def _excluded(entry: Exclusion) -> dict[str, str]:
    return {"provider": entry.provider, "site": entry.site, "reason": entry.reason.value, "detail": entry.detail}
