"""Render: wire models, canonical form and revision, building and verifying envelopes, diff. Pure.

- ``canonical``: RFC 8785 and the revision;
- ``wire``: the shapes on the wire; ``envelope``: the frozen views that gateways read;
- ``render``: from a plan to a ``Document``; ``verify``: from bytes to a ``Verdict``;
- ``signing``: Ed25519 over a publication (extra ``signing``);
- ``diff``: what changed, in sentences;
- ``frames``: the signal frame;
- ``schema`` and ``vectors``: what a gateway in another language proves itself with.
"""

from grid.overlay.canonical import canonical_bytes as canonical_bytes
from grid.overlay.canonical import revision_of as revision_of
from grid.overlay.diff import describe as describe
from grid.overlay.envelope import MAX_BYTES as MAX_BYTES
from grid.overlay.envelope import MAX_CANDIDATES as MAX_CANDIDATES
from grid.overlay.envelope import CredentialReference as CredentialReference
from grid.overlay.envelope import Envelope as Envelope
from grid.overlay.envelope import Excluded as Excluded
from grid.overlay.envelope import Provenance as Provenance
from grid.overlay.envelope import Publication as Publication
from grid.overlay.envelope import Scope as Scope
from grid.overlay.envelope import WireCandidate as WireCandidate
from grid.overlay.frames import GatewaySignal as GatewaySignal
from grid.overlay.frames import ProviderSignal as ProviderSignal
from grid.overlay.frames import SignalFrame as SignalFrame
from grid.overlay.render import Document as Document
from grid.overlay.render import render as render
from grid.overlay.verify import Outcome as Outcome
from grid.overlay.verify import Verdict as Verdict
from grid.overlay.verify import verify as verify
