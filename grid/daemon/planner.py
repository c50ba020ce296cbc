"""One pass: from one immutable view of the world to a document per gateway. Decides without waiting for anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from grid.model import Decision, Gateway, GatewayPlan, Network, OverlayError
from grid.overlay import Document, Envelope, describe, render, verify
from grid.policy import PolicyInput, PolicyOutcome, PreviousCandidate, decide

_DESCRIBED = 3
"""Changed documents up to which each is compared in words; comparing a large one takes some ms."""
_REASON_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Planned:
    """What one pass made. ``faults``: gateways whose document could not be made, the others are unharmed."""

    outcome: PolicyOutcome
    documents: Mapping[str, Document]
    faults: Mapping[str, OverlayError]

    @property
    def decisions(self) -> Mapping[str, Decision]:
        """Per provider."""
        return self.outcome.decisions

    @property
    def plans(self) -> Mapping[str, GatewayPlan]:
        """Per gateway."""
        return self.outcome.plans


@dataclass(frozen=True, slots=True)
class _Rendered:
    plan: GatewayPlan
    gateway: Gateway
    network: tuple[str, str, int]
    document: Document

    def stands_for(self, network: tuple[str, str, int], gateway: Gateway, plan: GatewayPlan) -> bool:
        return (
            self.network == network
            and self.gateway == gateway
            and self.plan.candidates == plan.candidates
            and self.plan.excluded == plan.excluded
            and self.plan.picker == plan.picker
            and self.plan.local_site == plan.local_site
        )


class Planner:
    """Runs passes; keeps each gateway's last document, so that only what changed is rendered again."""

    def __init__(self) -> None:
        self._rendered: dict[str, _Rendered] = {}

    def plan(self, given: PolicyInput, rendered_at: str) -> Planned:
        """One pass over ``given``. ``rendered_at``: RFC 3339, for the documents that are made anew."""
        outcome = decide(given)
        network = given.network
        documents: dict[str, Document] = {}
        faults: dict[str, OverlayError] = {}
        for name, plan in outcome.plans.items():
            try:
                documents[name] = self._document(network, network.gateways[name], plan, rendered_at)
            except OverlayError as error:
                self._rendered.pop(name, None)
                faults[name] = error
        for name in self._rendered.keys() - outcome.plans.keys():
            del self._rendered[name]
        return Planned(outcome, MappingProxyType(documents), MappingProxyType(faults))

    def _document(self, network: Network, gateway: Gateway, plan: GatewayPlan, rendered_at: str) -> Document:
        stamp = (network.name, network.uid, network.generation)
        known = self._rendered.get(gateway.name)
        if known is not None and known.stands_for(stamp, gateway, plan):
            return known.document
        document = render(network, gateway, plan, rendered_at=rendered_at)
        self._rendered[gateway.name] = _Rendered(plan, gateway, stamp, document)
        return document


def previous_of(envelope: Envelope) -> tuple[PreviousCandidate, ...]:
    """The candidates of a published document, as the policy looks at them."""
    return tuple(
        PreviousCandidate(one.kind, one.name, one.site, one.cluster, one.admission_state, one.fresh)
        for one in envelope.candidates
    )


def reasons(
    planned: Planned, changed: Mapping[str, Envelope | None], default: str = "published again"
) -> dict[str, str]:
    """Why each document is published, for its history.

    ``changed``: gateways whose document differs from the published one, with that one (None: the first). Mostly it is
    what the pass decided; where it decided nothing new, the documents themselves are compared.
    """
    said = "; ".join(planned.outcome.changes)
    found = dict.fromkeys(planned.documents, _short(said or default))
    compared = [name for name, old in changed.items() if old is None or not said]
    for name in compared if len(compared) <= _DESCRIBED else ():
        new = verify(planned.documents[name].body).envelope
        if new is not None:
            found[name] = _short("; ".join(describe(changed[name], new)) or default)
    return found


def _short(text: str) -> str:
    return text if len(text) <= _REASON_LENGTH else text[: _REASON_LENGTH - 1] + "…"
