"""Judging a document as the contract's own gateway does, in its order of evaluation (overlay contract, section 1.10).

Nothing here raises on any bytes: a document is accepted, accepted as legacy, or rejected with one reason. A rejection
is atomic: one bad candidate rejects the whole document, and the reader keeps the one it has.
"""

import re
from calendar import monthrange
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from grid import SCHEMA_VERSION
from grid.model import Reason
from grid.overlay import signing, wire
from grid.overlay.candidates import Rejected, bounded, malformed, overlay_parts
from grid.overlay.canonical import revision_of
from grid.overlay.envelope import (
    MAX_BYTES,
    Envelope,
    Excluded,
    Provenance,
    Publication,
    Scope,
)
from grid.overlay.parse import parse, repeated_member

ENVELOPE_SIGNALS: Final = ("schema_version", "revision", "content_digest", "scope", "provenance")
"""Any of these at the top, even null, makes a document an envelope: there is no way back to the legacy form."""

T = TypeVar("T")

_HEX_DIGEST = re.compile(r"[0-9a-f]{64}")
_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|[+-](\d\d):(\d\d))", re.ASCII)


class Outcome(StrEnum):
    """What became of a document."""

    ACCEPT = "accept"
    ACCEPT_LEGACY = "accept_legacy"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one document.

    ``reason`` and ``detail`` say why it was rejected. ``revision`` is the one it claims (None where it claims none that
    is readable); ``computed`` the one its content hashes to, None where the judgement ended before that.
    """

    verdict: Outcome
    reason: Reason | None = None
    detail: str = ""
    revision: str | None = None
    computed: str | None = None
    envelope: Envelope | None = None

    @property
    def accepted(self) -> bool:
        """Whether a gateway would take it."""
        return self.envelope is not None


def verify(data: bytes, *, scope: Scope | None = None, key: bytes | None = None, max_bytes: int = MAX_BYTES) -> Verdict:
    """Judge the bytes of a document.

    ``scope``: what it must be for; given at all, the legacy form is refused, since it says too little. ``key``: an
    Ed25519 public key (32 bytes, or PEM) that must have signed it. Raises ConfigError only where a key is given that
    is none, or the ``signing`` extra is not installed; never because of ``data``.
    """
    judge = _Judge(scope, signing.public_key(key) if key is not None else None)
    try:
        envelope = judge.judge(data, max_bytes)
    except Rejected as no:
        return Verdict(Outcome.REJECT, no.reason, no.detail, judge.revision, judge.computed)
    outcome = Outcome.ACCEPT if envelope.revision is not None else Outcome.ACCEPT_LEGACY
    return Verdict(outcome, None, "", judge.revision, judge.computed, envelope)


class _Judge:
    """One judgement; remembers the digests seen so far for a verdict that ends early."""

    def __init__(self, expected: Scope | None, key: bytes | None) -> None:
        self.expected = expected
        self.key = key
        self.revision: str | None = None
        self.computed: str | None = None

    def judge(self, data: bytes, max_bytes: int) -> Envelope:
        if len(data) > max_bytes:
            raise Rejected(Reason.TOO_LARGE, f"{len(data)} bytes, the limit is {max_bytes}")
        raw = _object(data)
        legacy = not any(name in raw for name in ENVELOPE_SIGNALS)
        if legacy and self.expected is not None:
            malformed("an envelope is needed to check the scope, and this is the legacy form without one")
        self.revision = _claimed(raw)
        if not legacy and "schema_version" not in raw:
            raise Rejected(Reason.MISSING_SCHEMA_VERSION, "an envelope without schema_version")
        repeated = repeated_member(data, raw, legacy=legacy)
        if repeated is not None:
            malformed(f"{repeated} comes twice")
        return self._legacy(raw) if legacy else self._envelope(raw)

    def _legacy(self, raw: dict[str, Any]) -> Envelope:
        shape = _typed(wire.OVERLAY, raw)
        self.computed = revision_of(raw)
        candidates, picker = overlay_parts(shape, "")
        if self.key is not None:
            raise Rejected(Reason.SIGNATURE_MISSING, "the legacy form cannot be signed")
        return Envelope(
            schema_version=None,
            scope=Scope(network=shape.get("network"), local_site=shape["local_site"]),
            local_site=shape["local_site"],
            revision=None,
            publication=None,
            candidates=candidates,
            picker=picker,
            excluded=_excluded(raw),
            provenance=None,
            raw=raw,
        )

    def _envelope(self, raw: dict[str, Any]) -> Envelope:
        shape = _typed(wire.ENVELOPE, raw)
        if shape["schema_version"] != SCHEMA_VERSION:
            version = shape["schema_version"]
            raise Rejected(Reason.UNSUPPORTED_SCHEMA_VERSION, f"schema_version {version!r}, need {SCHEMA_VERSION!r}")
        _metadata(shape)
        overlay = shape["overlay"]
        self._digests(shape, raw["overlay"])
        self._scopes(shape)
        candidates, picker = overlay_parts(overlay, "overlay.")
        publication = _publication(raw.get("publication"))
        scope = Scope(**shape["scope"])
        if self.key is not None:
            _signature(raw.get("signature"), self.key, scope, shape["revision"]["value"], publication)
        return Envelope(
            schema_version=SCHEMA_VERSION,
            scope=scope,
            local_site=overlay["local_site"],
            revision=shape["revision"]["value"],
            publication=publication,
            candidates=candidates,
            picker=picker,
            excluded=_excluded(raw["overlay"]),
            provenance=Provenance(**shape["provenance"]),
            raw=raw,
        )

    def _digests(self, shape: wire.EnvelopeShape, raw_overlay: dict[str, Any]) -> None:
        revision, digest = shape["revision"], shape["content_digest"]
        self.computed = revision_of(raw_overlay)
        if revision["kind"] != "content_addressed":
            malformed(f"revision.kind is {revision['kind']!r}, need 'content_addressed'")
        for name, algorithm, value in (
            ("revision", revision["algorithm"], revision["value"]),
            ("content_digest", digest["algorithm"], digest["value"]),
        ):
            if algorithm != "sha256":
                malformed(f"{name}.algorithm is {algorithm!r}, need 'sha256'")
            if not _HEX_DIGEST.fullmatch(value):
                malformed(f"{name}.value is not 64 lowercase hex digits: {value[:80]!r}")
        # Where the two disagree, the one that fits the content tells which of them is wrong.
        if revision["value"] not in (digest["value"], self.computed):
            raise Rejected(
                Reason.REVISION_DIGEST_MISMATCH,
                f"revision is {revision['value']}, content_digest {digest['value']}",
            )
        if digest["value"] != self.computed:
            raise Rejected(
                Reason.DIGEST_MISMATCH, f"the content hashes to {self.computed}, it claims {digest['value']}"
            )

    def _scopes(self, shape: wire.EnvelopeShape) -> None:
        scope, overlay = shape["scope"], shape["overlay"]
        network = overlay.get("network")
        if network is None:
            malformed("overlay.network: an envelope must name it")
        if scope["network"] != network:
            _mismatch(f"scope.network is {scope['network']!r}, overlay.network {network!r}")
        if scope["local_site"] != overlay["local_site"]:
            _mismatch(f"scope.local_site is {scope['local_site']!r}, overlay.local_site {overlay['local_site']!r}")
        source = shape["provenance"]["source_name"]
        if source != scope["network"]:
            _mismatch(f"provenance.source_name is {source!r}, scope.network {scope['network']!r}")
        wrong = self.expected.mismatch(Scope(**scope)) if self.expected is not None else None
        if wrong is not None:
            _mismatch(wrong)


def _mismatch(detail: str) -> NoReturn:
    raise Rejected(Reason.SCOPE_MISMATCH, detail)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = parse(data)
    except ValueError as error:
        malformed(f"not JSON as the contract reads it: {error}")
    if not isinstance(value, dict):
        malformed(f"the document is a JSON {type(value).__name__}, not an object")
    return value


def _typed(adapter: TypeAdapter[T], raw: dict[str, Any]) -> T:
    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        malformed(wire.first_fault(error))


def _claimed(raw: dict[str, Any]) -> str | None:
    revision = raw.get("revision")
    value = revision.get("value") if isinstance(revision, dict) else None
    return value if isinstance(value, str) else None


# --- bounds of texts --------------------------------------------------------------------------------------------------


def _metadata(shape: wire.EnvelopeShape) -> None:
    provenance = shape["provenance"]
    for where, fields in (("scope", shape["scope"]), ("provenance", provenance)):
        for name, value in fields.items():
            if isinstance(value, str):
                bounded(f"{where}.{name}", value)
    if provenance["source_generation"] == 0:
        malformed("provenance.source_generation is 0, need at least 1")
    if not _is_rfc3339(provenance["rendered_at"]):
        malformed(f"provenance.rendered_at is no RFC 3339 time: {provenance['rendered_at']!r}")


def _is_rfc3339(text: str) -> bool:
    found = _RFC3339.fullmatch(text)
    if found is None:
        return False
    year, month, day, hour, minute, second, offset_hours, offset_minutes = (int(part or 0) for part in found.groups())
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 60 or offset_hours > 23 or offset_minutes > 59:
        return False
    # Year 0 is a leap year of the calendar but none that Python knows; 2000 stands in for it.
    return 1 <= day <= monthrange(year or 2000, month)[1]


# --- what lies beside -------------------------------------------------------------------------------------------------


def _publication(value: Any) -> Publication | None:
    """The publication, None where there is none we can read: to the contract it is an unknown member."""
    try:
        return Publication(**wire.PUBLICATION.validate_python(value))
    except ValidationError:
        return None


def _excluded(overlay: dict[str, Any]) -> tuple[Excluded, ...]:
    """Who was left out, for people: what cannot be read is passed over."""
    entries = overlay.get("excluded")
    readable = []
    for entry in entries if isinstance(entries, list) else ():
        try:
            readable.append(Excluded(**wire.EXCLUDED.validate_python(entry)))
        except ValidationError:
            continue
    return tuple(readable)


def _signature(value: Any, key: bytes, scope: Scope, revision: str, publication: Publication | None) -> None:
    if value is None:
        raise Rejected(Reason.SIGNATURE_MISSING, "a key is given and the document has no signature")
    try:
        signature = wire.SIGNATURE.validate_python(value)
    except ValidationError as error:
        raise Rejected(Reason.SIGNATURE_INVALID, f"signature.{wire.first_fault(error)}") from None
    if publication is None:
        raise Rejected(Reason.SIGNATURE_INVALID, "a signature covers epoch and version, and there is no publication")
    message = signing.message(scope, revision, publication.epoch, publication.version)
    if not signing.is_signed(message, signature["value"], key):
        raise Rejected(Reason.SIGNATURE_INVALID, "the signature does not belong to this content and key")
