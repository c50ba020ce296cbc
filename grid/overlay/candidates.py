"""The candidates of a document: bounds of texts, closed vocabularies, groups; judged once their types are right."""

import hashlib
import re
from typing import Final, NoReturn

from grid.model import AdmissionState, Kind, Picker, Reason, Tier
from grid.overlay import wire
from grid.overlay.envelope import MAX_CANDIDATES, MAX_WEIGHT, CredentialReference, WireCandidate

_NAME_BYTES: Final = 256
_TIER_BYTES: Final = 128

_KINDS: Final = {kind.value: kind for kind in Kind}
_ADMISSIONS: Final = {state.value: state for state in AdmissionState}
_TIERS: Final = frozenset(Tier)
_PICKERS: Final = {picker.value: picker for picker in Picker}

# White space as Unicode has it; str.isspace would count U+001C to U+001F too.
_BLANK: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_NO_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Rejected(Exception):  # noqa: N818  control flow of the judgement, never seen outside of it
    """The judgement ends here: ``reason``, and ``detail`` with the place and the value."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def malformed(detail: str) -> NoReturn:
    """End the judgement: not built as the contract says."""
    raise Rejected(Reason.MALFORMED_STRUCTURE, detail)


def bounded(where: str, value: str, limit: int = _NAME_BYTES) -> None:
    """Refuse a text that is blank or longer than ``limit`` bytes of UTF-8."""
    size = len(value) if value.isascii() else len(value.encode())
    if size > limit or not value.strip(_BLANK):
        malformed(f"{where} must be 1 to {limit} bytes and not blank, it is {value[:40]!r} of {size} bytes")


def overlay_parts(shape: wire.OverlayShape, prefix: str) -> tuple[tuple[WireCandidate, ...], Picker | None]:
    """Candidates and picker, checked, from an overlay whose types are right."""
    bounded(f"{prefix}local_site", shape["local_site"])
    picker = _picker(shape.get("selection_policy"), prefix)
    entries = shape["candidates"]
    if not entries:
        malformed(f"{prefix}candidates is empty")
    if len(entries) > MAX_CANDIDATES:
        malformed(f"{prefix}candidates has {len(entries)} entries, at most {MAX_CANDIDATES} are allowed")
    checked: set[str] = set()
    candidates = []
    for index, entry in enumerate(entries):
        try:
            candidates.append(_candidate(entry, checked))
        except Rejected as no:
            raise Rejected(no.reason, f"{prefix}candidates[{index}].{no.detail}") from None
    _no_duplicates(candidates, prefix)
    _groups(candidates, picker, prefix)
    return tuple(candidates), picker


def _picker(policy: wire.SelectionPolicyShape | None, prefix: str) -> Picker | None:
    if policy is None:
        return None
    picker, mode = policy.get("picker"), policy.get("mode")
    if picker is not None and mode is not None and picker != mode:
        malformed(f"{prefix}selection_policy: picker is {picker!r}, mode {mode!r}; they mean the same and must agree")
    name = picker or mode
    if name is None:
        malformed(f"{prefix}selection_policy names neither picker nor mode")
    return _PICKERS[name]


def _candidate(entry: wire.CandidateShape, checked: set[str]) -> WireCandidate:
    """One candidate, checked; ``checked`` holds the texts already known to be within bounds."""
    kind = _KINDS.get(entry["kind"])
    if kind is None:
        malformed(f"kind is {entry['kind']!r}, need one of {', '.join(_KINDS)}")
    name, site, cluster = entry["name"], entry["site"], entry["cluster"]
    for member, value in (("name", name), ("site", site), ("cluster", cluster)):
        if value not in checked:
            bounded(member, value)
            checked.add(value)
    state = entry.get("admission_state")
    admission = AdmissionState.NEW_AND_EXISTING if state is None else _ADMISSIONS.get(state)
    if admission is None:
        malformed(f"admission_state is {state!r}, need one of {', '.join(_ADMISSIONS)}")
    tier = entry.get("selection_tier")
    if tier is not None and tier not in _TIERS:
        bounded("selection_tier", tier, _TIER_BYTES)
    identity = entry.get("stable_id")
    if identity is None:
        identity = default_stable_id(kind, name, site, cluster)
    else:
        bounded("stable_id", identity)
        if _NO_HEADER.search(identity):
            malformed(f"stable_id cannot be an HTTP header value: {identity[:40]!r}")
    weight = entry.get("traffic_weight")
    if weight is not None and not 1 <= weight <= MAX_WEIGHT:
        malformed(f"traffic_weight is {weight}, need 1 to {MAX_WEIGHT}")
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
        _credential(entry.get("credential")),
    )


def _credential(shape: wire.CredentialShape | None) -> CredentialReference | None:
    if shape is None:
        return None
    secret = shape.get("secretRef") or shape.get("secret_ref")
    if secret is None or ("secretRef" in shape and "secret_ref" in shape):
        malformed("credential needs secretRef once")
    if shape["strategy"] != "bearer_token":
        malformed(f"credential.strategy is {shape['strategy']!r}, need 'bearer_token'")
    for member in ("name", "namespace", "key"):
        bounded(f"credential.secretRef.{member}", secret[member])
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


def _no_duplicates(candidates: list[WireCandidate], prefix: str) -> None:
    """Ungrouped, the same candidate twice is an error; in groups, each copy is a slot of its own."""
    seen = set()
    for index, candidate in enumerate(candidates):
        if candidate.selection_group is not None:
            continue
        if candidate.identity in seen:
            malformed(f"{prefix}candidates[{index}] is there twice: {'/'.join(candidate.identity)}")
        seen.add(candidate.identity)


def _groups(candidates: list[WireCandidate], picker: Picker | None, prefix: str) -> None:
    """Per capability: grouped or not, all alike; groups from 0 without gaps, never falling; one admission a group."""
    last: dict[tuple[Kind, str], WireCandidate] = {}
    for index, candidate in enumerate(candidates):
        group = candidate.selection_group
        if candidate.traffic_weight is None:
            if picker is Picker.WEIGHTED_RANDOM:
                malformed(f"{prefix}candidates[{index}] has no traffic_weight, and weightedRandom needs one on each")
        elif group is None:
            malformed(f"{prefix}candidates[{index}] has a traffic_weight outside of any selection_group")
        previous = last.get((candidate.kind, candidate.name))
        last[candidate.kind, candidate.name] = candidate
        before = previous.selection_group if previous is not None else group
        if (before is None) is not (group is None):
            malformed(f"{prefix}candidates[{index}]: {candidate.name!r} has candidates in groups and without")
        if group is None or before is None:
            continue
        if previous is None:
            if group != 0:
                malformed(f"{prefix}candidates[{index}]: the groups of {candidate.name!r} begin at {group}, not 0")
        elif group not in (before, before + 1):
            malformed(f"{prefix}candidates[{index}]: group {group} of {candidate.name!r} follows group {before}")
        elif group == before and candidate.admission_state is not previous.admission_state:
            malformed(f"{prefix}candidates[{index}]: group {group} of {candidate.name!r} mixes admission states")
