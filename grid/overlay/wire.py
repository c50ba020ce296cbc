"""The shapes of a document on the wire: what the typed parse demands, and what the JSON Schema is generated from.

A shape fixes names and JSON types, as the typed parse of the contract's own gateway does. Bounds of texts, agreement
between fields and the rules for groups are judged afterwards, in the contract's order (``grid.overlay.verify``); the
schema says the bounds all the same. Unknown members are ignored everywhere but in credentials.
"""

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic.types import FailFast
from typing_extensions import TypedDict

from grid import SCHEMA_VERSION
from grid.overlay.envelope import MAX_CANDIDATES, MAX_WEIGHT

_OPEN = ConfigDict(strict=True, extra="ignore")
_CLOSED = ConfigDict(strict=True, extra="forbid")

_U32_MAX: Final = 2**32 - 1
_U64_MAX: Final = 2**64 - 1

# A length of JSON Schema counts characters, the contract bytes: whatever fits the one fits the other.
_NAME_BOUNDS: dict[str, Any] = {"minLength": 1, "maxLength": 256}
_DIGEST_BOUNDS: dict[str, Any] = {"pattern": "^[0-9a-f]{64}$"}

U32 = Annotated[int, Field(ge=0, le=_U32_MAX)]
Text = Annotated[str, Field(json_schema_extra=_NAME_BOUNDS)]
Digest = Annotated[str, Field(json_schema_extra=_DIGEST_BOUNDS)]
Sha256 = Annotated[str, Field(json_schema_extra={"const": "sha256"})]
PickerName = Literal["deterministic", "roundRobin", "random", "weightedRandom", "saturation"]


@with_config(_CLOSED)
class SecretReferenceShape(TypedDict):
    """Where the secret lies. Unknown members are refused, so that no secret rides along."""

    name: Text
    namespace: Text
    key: Text


@with_config(_CLOSED)
class CredentialShape(TypedDict):
    """A reference to a credential, never the credential."""

    strategy: Annotated[str, Field(json_schema_extra={"const": "bearer_token"})]
    secretRef: NotRequired[SecretReferenceShape]
    secret_ref: NotRequired[Annotated[SecretReferenceShape, Field(deprecated="write secretRef")]]


@with_config(_OPEN)
class CandidateShape(TypedDict):
    """One way to serve a capability. Every member present is hashed, known or not."""

    kind: Annotated[str, Field(json_schema_extra={"enum": ["inference_model", "mcp_tool"]})]
    name: Text
    site: Text
    cluster: Text
    fresh: NotRequired[bool]
    credential: NotRequired[CredentialShape | None]
    stable_id: NotRequired[Text | None]
    admission_state: NotRequired[
        Annotated[str | None, Field(json_schema_extra={"enum": ["new_and_existing", "existing_only", "none", None]})]
    ]
    selection_tier: NotRequired[Annotated[str, Field(json_schema_extra={**_NAME_BOUNDS, "maxLength": 128})] | None]
    rank: NotRequired[U32 | None]
    selection_group: NotRequired[Annotated[U32 | None, Field(description="Priority class; group 0 is tried first.")]]
    traffic_weight: NotRequired[
        Annotated[
            U32, Field(json_schema_extra={"minimum": 1, "maximum": MAX_WEIGHT}, description="Share in the group.")
        ]
        | None
    ]


@with_config(_OPEN)
class SelectionPolicyShape(TypedDict):
    """How a gateway chooses inside a group. ``picker`` and ``mode`` mean the same; one at least is there."""

    picker: NotRequired[PickerName]
    mode: NotRequired[PickerName]


class _OverlayMembers(TypedDict):
    local_site: Text
    candidates: Annotated[
        list[CandidateShape], FailFast(), Field(json_schema_extra={"minItems": 1, "maxItems": MAX_CANDIDATES})
    ]
    selection_policy: NotRequired[SelectionPolicyShape | None]
    generated_at: NotRequired[str | None]


@with_config(_OPEN)
class OverlayShape(_OverlayMembers):
    """What the legacy form is whole, and what an envelope carries."""

    network: NotRequired[str | None]


@with_config(_OPEN)
class RevisionShape(TypedDict):
    """The revision: a hash of what changes routing."""

    kind: Annotated[str, Field(json_schema_extra={"const": "content_addressed"})]
    algorithm: Sha256
    value: Digest


@with_config(_OPEN)
class DigestShape(TypedDict):
    """The same hash again."""

    algorithm: Sha256
    value: Digest


@with_config(_OPEN)
class ScopeShape(TypedDict):
    """For whom the document is."""

    network: Text
    gateway: Text
    namespace: Text
    local_site: Text


@with_config(_OPEN)
class ProvenanceShape(TypedDict):
    """Who rendered it, from what, when."""

    producer: Text
    producer_version: Text
    source_name: Text
    source_uid: Text
    source_generation: Annotated[int, Field(ge=0, le=_U64_MAX, json_schema_extra={"minimum": 1})]
    rendered_at: Annotated[str, Field(json_schema_extra={**_NAME_BOUNDS, "format": "date-time"})]


class _EnvelopeMembers(TypedDict):
    schema_version: Annotated[str, Field(json_schema_extra={"const": SCHEMA_VERSION})]
    revision: RevisionShape
    content_digest: DigestShape
    scope: ScopeShape
    provenance: ProvenanceShape


@with_config(_OPEN)
class EnvelopeShape(_EnvelopeMembers):
    """A routing document in its envelope, as far as the contract's gateway reads it."""

    overlay: OverlayShape


@with_config(_OPEN)
class PublicationShape(TypedDict):
    """Where the document stands in the order of publications. Not hashed."""

    version: Annotated[int, Field(ge=1, le=_U64_MAX)]
    epoch: Annotated[int, Field(ge=0, le=_U64_MAX)]
    leader: NotRequired[str | None]
    published_at: NotRequired[str | None]
    previous_revision: NotRequired[str | None]


@with_config(_OPEN)
class SignatureShape(TypedDict):
    """Ed25519 over scope, revision, epoch and version; base64."""

    algorithm: Literal["ed25519"]
    value: str


@with_config(_OPEN)
class ExcludedShape(TypedDict):
    """A provider left out and why."""

    provider: str
    site: str
    reason: str
    detail: NotRequired[str]


@with_config(_OPEN)
class PublishedOverlayShape(_OverlayMembers):
    """What changes routing, and who was left out."""

    network: Text
    excluded: NotRequired[Annotated[list[ExcludedShape], Field(description="Not hashed, for people only.")]]


@with_config(_OPEN)
class PublishedShape(_EnvelopeMembers):
    """A routing document as Grid publishes it, schema version 1.0.0."""

    overlay: PublishedOverlayShape
    publication: NotRequired[PublicationShape]
    signature: NotRequired[SignatureShape]


ENVELOPE: Final = TypeAdapter(EnvelopeShape)
OVERLAY: Final = TypeAdapter(OverlayShape)
PUBLISHED: Final = TypeAdapter(PublishedShape)
PUBLICATION: Final = TypeAdapter(PublicationShape)
SIGNATURE: Final = TypeAdapter(SignatureShape)
EXCLUDED: Final = TypeAdapter(ExcludedShape)


def first_fault(error: ValidationError) -> str:
    """What a failed parse says first: ``path: message``."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{path_of(fault['loc'])}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def path_of(parts: tuple[int | str, ...]) -> str:
    """``overlay.candidates[3].name``."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".") or "document"
