"""What a gateway sees of a document: frozen views, cheap to build for a thousand candidates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from grid.model import AdmissionState, Kind, Picker

MAX_BYTES: Final = 2 * 1024 * 1024
MAX_CANDIDATES: Final = 1024
MAX_WEIGHT: Final = 1000


@dataclass(frozen=True, slots=True)
class Scope:
    """For whom a document is. As an expectation, None means that any value will do."""

    network: str | None = None
    gateway: str | None = None
    namespace: str | None = None
    local_site: str | None = None

    def mismatch(self, found: "Scope") -> str | None:
        """The first field of ``found`` that is not as expected here, as a sentence; None where all agree."""
        for name in ("network", "gateway", "namespace", "local_site"):
            expected, actual = getattr(self, name), getattr(found, name)
            if expected is not None and expected != actual:
                return f"scope.{name} is {actual!r}, expected {expected!r}"
        return None

    def to_json(self) -> dict[str, str]:
        """As on the wire."""
        fields = {name: getattr(self, name) for name in ("network", "gateway", "namespace", "local_site")}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Publication:
    """Where a document stands in the order of publications: ``(epoch, version)`` orders everything."""

    version: int
    epoch: int
    leader: str | None = None
    published_at: str | None = None
    previous_revision: str | None = None

    @property
    def position(self) -> tuple[int, int]:
        """``(epoch, version)``: the greater is the newer."""
        return (self.epoch, self.version)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Who rendered a document, from what, when."""

    producer: str
    producer_version: str
    source_name: str
    source_uid: str
    source_generation: int
    rendered_at: str


class CredentialReference(NamedTuple):
    """Where a gateway finds the credential for a provider. A reference only: secrets never enter a document."""

    name: str
    namespace: str
    key: str
    strategy: str = "bearer_token"


class WireCandidate(NamedTuple):
    """One candidate of a document, checked, with the contract's defaults filled in.

    ``selection_group`` is the priority class (0 first), ``traffic_weight`` the share inside it (1 to 1000); both are
    None in the plain form. ``selection_tier`` may be any text; Grid itself writes the values of ``grid.model.Tier``.
    """

    kind: Kind
    name: str
    site: str
    cluster: str
    stable_id: str
    admission_state: AdmissionState
    selection_tier: str | None = None
    fresh: bool = True
    rank: int | None = None
    selection_group: int | None = None
    traffic_weight: int | None = None
    credential: CredentialReference | None = None

    @property
    def identity(self) -> tuple[Kind, str, str, str]:
        """``(kind, name, site, cluster)``."""
        return (self.kind, self.name, self.site, self.cluster)


class Excluded(NamedTuple):
    """A provider that a document leaves out. ``reason`` is text: a newer daemon may know more reasons than we do."""

    provider: str
    site: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A document that was accepted.

    ``schema_version``, ``revision`` and ``provenance`` are None for the legacy form, whose scope has a local site only.
    ``publication`` is None where nobody has published it yet (or a foreign producer wrote it). ``picker`` None: no
    selection policy, so the first admitted candidate in order. ``raw`` is the parsed JSON; nobody changes it.
    """

    schema_version: str | None
    scope: Scope
    local_site: str
    revision: str | None
    publication: Publication | None
    candidates: tuple[WireCandidate, ...]
    picker: Picker | None
    excluded: tuple[Excluded, ...]
    provenance: Provenance | None
    raw: Mapping[str, Any]

    @property
    def network(self) -> str | None:
        """The network, None where a legacy document names none."""
        return self.scope.network

    @property
    def position(self) -> tuple[int, int] | None:
        """``(epoch, version)``, None while unpublished."""
        return self.publication.position if self.publication else None
