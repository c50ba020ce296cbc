"""Judging a document as the contract's own gateway does, in its order of evaluation (overlay contract, section 1.10).

Nothing here raises on any bytes: a document is accepted, accepted as legacy, or rejected with one reason. A rejection
is atomic: one bad candidate rejects the whole document, and the reader keeps the one it has.
"""

import hashlib
import re
from calendar import monthrange
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from grid.model import AdmissionState, Kind, OverlayError, Picker, Reason
from grid.overlay import signing, wire
from grid.overlay.canonical import revision_of
from grid.overlay.envelope import (
    MAX_BYTES,
    MAX_CANDIDATES,
    MAX_WEIGHT,
    SCHEMA_VERSION,
    CredentialReference,
    Envelope,
    Excluded,
    Provenance,
    Publication,
    Scope,
    WireCandidate,
)
from grid.overlay.parse import parse, repeated_member

ENVELOPE_SIGNALS: Final = ("schema_version", "revision", "content_digest", "scope", "provenance")
"""Any of these at the top, even null, makes a document an envelope: there is no way back to the legacy form."""

_NAME_BYTES: Final = 256
_TIER_BYTES: Final = 128

T = TypeVar("T")

_KINDS: Final = {kind.value: kind for kind in Kind}
_ADMISSIONS: Final = {state.value: state for state in AdmissionState}
_PICKERS: Final = {picker.value: picker for picker in Picker}

# White space as Unicode has it; str.isspace would count U+001C to U+001F too.
_BLANK: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_NO_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
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


class _Rejected(Exception):  # noqa: N818  control flow inside this module, never seen outside
    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def verify(data: bytes, *, scope: Scope | None = None, key: bytes | None = None, max_bytes: int = MAX_BYTES) -> Verdict:
    """Judge the bytes of a document.

    ``scope``: what it must be for; given at all, the legacy form is refused, since it says too little. ``key``: an
    Ed25519 public key (32 bytes, or PEM) that must have signed it. Raises ConfigError only where a key is given that
    is none, or the ``signing`` extra is not installed; never because of ``data``.
    """
    judge = _Judge(scope, signing.public_key(key) if key is not None else None)
    try:
        envelope = judge.judge(data, max_bytes)
    except _Rejected as no:
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
            raise _Rejected(Reason.TOO_LARGE, f"{len(data)} bytes, the limit is {max_bytes}")
        raw = _object(data)
        legacy = not any(name in raw for name in ENVELOPE_SIGNALS)
        if legacy and self.expected is not None:
            _malformed("an envelope is needed to check the scope, and this is the legacy form without one")
        self.revision = _claimed(raw)
        if not legacy and "schema_version" not in raw:
            raise _Rejected(Reason.MISSING_SCHEMA_VERSION, "an envelope without schema_version")
        repeated = repeated_member(data, raw, legacy=legacy)
        if repeated is not None:
            _malformed(f"{repeated} comes twice")
        return self._legacy(raw) if legacy else self._envelope(raw)

    def _legacy(self, raw: dict[str, Any]) -> Envelope:
        shape = _typed(wire.OVERLAY, raw)
        self.computed = _digest(raw)
        candidates, picker = _overlay(shape, "")
        if self.key is not None:
            raise _Rejected(Reason.SIGNATURE_MISSING, "the legacy form cannot be signed")
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
            raise _Rejected(Reason.UNSUPPORTED_SCHEMA_VERSION, f"schema_version {version!r}, need {SCHEMA_VERSION!r}")
        _metadata(shape)
        overlay = shape["overlay"]
        self._digests(shape, raw["overlay"])
        self._scopes(shape)
        candidates, picker = _overlay(overlay, "overlay.")
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
        self.computed = _digest(raw_overlay)
        if revision["kind"] != "content_addressed":
            _malformed(f"revision.kind is {revision['kind']!r}, need 'content_addressed'")
        for name, algorithm, value in (
            ("revision", revision["algorithm"], revision["value"]),
            ("content_digest", digest["algorithm"], digest["value"]),
        ):
            if algorithm != "sha256":
                _malformed(f"{name}.algorithm is {algorithm!r}, need 'sha256'")
            if not _HEX_DIGEST.fullmatch(value):
                _malformed(f"{name}.value is not 64 lowercase hex digits: {value[:80]!r}")
        # Where the two disagree, the one that fits the content tells which of them is wrong.
        if revision["value"] not in (digest["value"], self.computed):
            raise _Rejected(
                Reason.REVISION_DIGEST_MISMATCH,
                f"revision is {revision['value']}, content_digest {digest['value']}",
            )
        if digest["value"] != self.computed:
            raise _Rejected(
                Reason.DIGEST_MISMATCH, f"the content hashes to {self.computed}, it claims {digest['value']}"
            )

    def _scopes(self, shape: wire.EnvelopeShape) -> None:
        scope, overlay = shape["scope"], shape["overlay"]
        network = overlay.get("network")
        if network is None:
            _malformed("overlay.network: an envelope must name it")
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


def _malformed(detail: str) -> NoReturn:
    raise _Rejected(Reason.MALFORMED_STRUCTURE, detail)


def _mismatch(detail: str) -> NoReturn:
    raise _Rejected(Reason.SCOPE_MISMATCH, detail)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = parse(data)
    except ValueError as error:
        _malformed(f"not JSON as the contract reads it: {error}")
    if not isinstance(value, dict):
        _malformed(f"the document is a JSON {type(value).__name__}, not an object")
    return value


def _typed(adapter: TypeAdapter[T], raw: dict[str, Any]) -> T:
    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        _malformed(wire.first_fault(error))


def _claimed(raw: dict[str, Any]) -> str | None:
    revision = raw.get("revision")
    value = revision.get("value") if isinstance(revision, dict) else None
    return value if isinstance(value, str) else None


def _digest(overlay: dict[str, Any]) -> str:
    try:
        return revision_of(overlay)
    except OverlayError as error:  # nothing that came out of the parser is without a canonical form
        _malformed(error.message)


# --- bounds of texts --------------------------------------------------------------------------------------------------


def _metadata(shape: wire.EnvelopeShape) -> None:
    provenance = shape["provenance"]
    for where, fields in (("scope", shape["scope"]), ("provenance", provenance)):
        for name, value in fields.items():
            if isinstance(value, str):
                _bounded(f"{where}.{name}", value)
    if provenance["source_generation"] == 0:
        _malformed("provenance.source_generation is 0, need at least 1")
    if not _is_rfc3339(provenance["rendered_at"]):
        _malformed(f"provenance.rendered_at is no RFC 3339 time: {provenance['rendered_at']!r}")


def _bounded(where: str, value: str, limit: int = _NAME_BYTES) -> None:
    size = len(value) if value.isascii() else len(value.encode())
    if size > limit or not value.strip(_BLANK):
        _malformed(f"{where} must be 1 to {limit} bytes and not blank, it is {value[:40]!r} of {size} bytes")


def _is_rfc3339(text: str) -> bool:
    found = _RFC3339.fullmatch(text)
    if found is None:
        return False
    year, month, day, hour, minute, second, offset_hours, offset_minutes = (int(part or 0) for part in found.groups())
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 60 or offset_hours > 23 or offset_minutes > 59:
        return False
    # Year 0 is a leap year of the calendar but none that Python knows; 2000 stands in for it.
    return 1 <= day <= monthrange(year or 2000, month)[1]


# --- candidates -------------------------------------------------------------------------------------------------------


def _overlay(shape: wire.OverlayShape, prefix: str) -> tuple[tuple[WireCandidate, ...], Picker | None]:
    """Candidates and picker, checked, from an overlay whose types are right."""
    _bounded(f"{prefix}local_site", shape["local_site"])
    picker = _picker(shape.get("selection_policy"), prefix)
    entries = shape["candidates"]
    if not entries:
        _malformed(f"{prefix}candidates is empty")
    if len(entries) > MAX_CANDIDATES:
        _malformed(f"{prefix}candidates has {len(entries)} entries, at most {MAX_CANDIDATES} are allowed")
    checked: set[str] = set()
    candidates = tuple(
        _candidate(entry, f"{prefix}candidates[{index}]", checked) for index, entry in enumerate(entries)
    )
    _no_duplicates(candidates, prefix)
    _groups(candidates, picker, prefix)
    return candidates, picker


def _picker(policy: wire.SelectionPolicyShape | None, prefix: str) -> Picker | None:
    if policy is None:
        return None
    picker, mode = policy.get("picker"), policy.get("mode")
    if picker is not None and mode is not None and picker != mode:
        _malformed(f"{prefix}selection_policy: picker is {picker!r}, mode {mode!r}; they mean the same and must agree")
    name = picker or mode
    if name is None:
        _malformed(f"{prefix}selection_policy names neither picker nor mode")
    return _PICKERS[name]


def _candidate(entry: wire.CandidateShape, where: str, checked: set[str]) -> WireCandidate:
    kind = _KINDS.get(entry["kind"])
    if kind is None:
        _malformed(f"{where}.kind is {entry['kind']!r}, need one of {', '.join(_KINDS)}")
    name, site, cluster = entry["name"], entry["site"], entry["cluster"]
    for member, value in (("name", name), ("site", site), ("cluster", cluster)):
        if value not in checked:
            _bounded(f"{where}.{member}", value)
            checked.add(value)
    state = entry.get("admission_state")
    admission = AdmissionState.NEW_AND_EXISTING if state is None else _ADMISSIONS.get(state)
    if admission is None:
        _malformed(f"{where}.admission_state is {state!r}, need one of {', '.join(_ADMISSIONS)}")
    tier = entry.get("selection_tier")
    if tier is not None:
        _bounded(f"{where}.selection_tier", tier, _TIER_BYTES)
    identity = entry.get("stable_id")
    if identity is None:
        identity = default_stable_id(kind, name, site, cluster)
    else:
        _bounded(f"{where}.stable_id", identity)
        if _NO_HEADER.search(identity):
            _malformed(f"{where}.stable_id cannot be an HTTP header value: {identity[:40]!r}")
    weight = entry.get("traffic_weight")
    if weight is not None and not 1 <= weight <= MAX_WEIGHT:
        _malformed(f"{where}.traffic_weight is {weight}, need 1 to {MAX_WEIGHT}")
    return WireCandidate(
        kind,
        name,
        site,
        cluster,
        identity,
        admission,
        tier,
        entry.get("fresh", True),
        entry.get("rank"),
        entry.get("selection_group"),
        weight,
        _credential(entry.get("credential"), where),
    )


def _credential(shape: wire.CredentialShape | None, where: str) -> CredentialReference | None:
    if shape is None:
        return None
    secret = shape.get("secretRef") or shape.get("secret_ref")
    if secret is None or ("secretRef" in shape and "secret_ref" in shape):
        _malformed(f"{where}.credential needs secretRef once")
    if shape["strategy"] != "bearer_token":
        _malformed(f"{where}.credential.strategy is {shape['strategy']!r}, need 'bearer_token'")
    for member in ("name", "namespace", "key"):
        _bounded(f"{where}.credential.secretRef.{member}", secret[member])
    return CredentialReference(secret["name"], secret["namespace"], secret["key"], shape["strategy"])


def default_stable_id(kind: Kind, name: str, site: str, cluster: str) -> str:
    """The identity of a candidate that brings none (overlay contract, section 2.2)."""
    readable = f"{kind}/{name}/{site}/{cluster}"
    if len(readable.encode()) <= _NAME_BYTES and not _NO_HEADER.search(readable):
        return readable
    digest = hashlib.sha256()
    for field in (kind, name, site, cluster):
        digest.update(len(field.encode()).to_bytes(8, "big") + field.encode())
    return f"sha256:{digest.hexdigest()}"


def _no_duplicates(candidates: tuple[WireCandidate, ...], prefix: str) -> None:
    """Ungrouped, the same candidate twice is an error; in groups, each copy is a slot of its own."""
    seen = set()
    for index, candidate in enumerate(candidates):
        if candidate.selection_group is not None:
            continue
        if candidate.identity in seen:
            _malformed(f"{prefix}candidates[{index}] is there twice: {'/'.join(candidate.identity)}")
        seen.add(candidate.identity)


def _groups(candidates: tuple[WireCandidate, ...], picker: Picker | None, prefix: str) -> None:
    """Per capability: grouped or not, all alike; groups from 0 without gaps, never falling; one admission a group."""
    last: dict[tuple[Kind, str], WireCandidate] = {}
    for index, candidate in enumerate(candidates):
        group = candidate.selection_group
        if candidate.traffic_weight is None:
            if picker is Picker.WEIGHTED_RANDOM:
                _malformed(f"{prefix}candidates[{index}] has no traffic_weight, and weightedRandom needs one on each")
        elif group is None:
            _malformed(f"{prefix}candidates[{index}] has a traffic_weight outside of any selection_group")
        previous = last.get((candidate.kind, candidate.name))
        last[candidate.kind, candidate.name] = candidate
        before = previous.selection_group if previous is not None else group
        if (before is None) is not (group is None):
            _malformed(f"{prefix}candidates[{index}]: {candidate.name!r} has candidates in groups and without")
        if group is None or before is None:
            continue
        if previous is None:
            if group != 0:
                _malformed(f"{prefix}candidates[{index}]: the groups of {candidate.name!r} begin at {group}, not 0")
        elif group not in (before, before + 1):
            _malformed(f"{prefix}candidates[{index}]: group {group} of {candidate.name!r} follows group {before}")
        elif group == before and candidate.admission_state is not previous.admission_state:
            _malformed(f"{prefix}candidates[{index}]: group {group} of {candidate.name!r} mixes admission states")


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
        raise _Rejected(Reason.SIGNATURE_MISSING, "a key is given and the document has no signature")
    try:
        signature = wire.SIGNATURE.validate_python(value)
    except ValidationError as error:
        raise _Rejected(Reason.SIGNATURE_INVALID, f"signature.{wire.first_fault(error)}") from None
    if publication is None:
        raise _Rejected(Reason.SIGNATURE_INVALID, "a signature covers epoch and version, and there is no publication")
    message = signing.message(scope, revision, publication.epoch, publication.version)
    if not signing.is_signed(message, signature["value"], key):
        raise _Rejected(Reason.SIGNATURE_INVALID, "the signature does not belong to this content and key")
