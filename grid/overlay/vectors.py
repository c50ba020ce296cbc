"""Test vectors, so that a gateway in another language can prove itself.

Documents with their verdicts, canonical forms, signal frames. Everything is text, since what makes a document bad is
sometimes its text (a member that comes twice). What is expected is stated here by hand; only revisions are computed,
and the tests hold ``verify`` to all of it.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from grid import PROTOCOL_VERSION, SCHEMA_VERSION
from grid.overlay.canonical import canonical_bytes, digest_of, revision_of

_Change = Callable[[dict[str, Any]], object]

# The public half of a key made for this page, and its signature of the ``signed`` document below.
_PUBLIC_KEY: Final = "mMkCoQSUtM4Eg0CV8kc4/T9t2UB8pZEQFlsIA/5o6Qs="
_SIGNATURE: Final = "NPUTs5zI9hSyaTXJtNVMnbt7g+CDNeO6QsMcdjvIWpiXZMa0vcCW3hRanrDQnNLee/c7KI683p+B+E+AvE8TDQ=="


def vectors() -> dict[str, Any]:
    """All vectors by the name of their file: ``overlays``, ``canonical``, ``frames``."""
    return {
        "overlays": {
            "about": "Judge text with scope (what it must be for) and key (Ed25519, base64), where given. "
            "A bounded reason is given on reject; revision is what the content hashes to.",
            "cases": [*_accepted(), *_rejected()],
        },
        "canonical": {
            "about": "The RFC 8785 form of the JSON in text, and its SHA-256.",
            "cases": [_canonical(name, text) for name, text in _CANONICAL],
        },
        "frames": {
            "about": "Signal frames to take or to refuse.",
            "cases": list(_frames()),
        },
    }


# --- documents --------------------------------------------------------------------------------------------------------


def _candidate(number: int, **members: Any) -> dict[str, Any]:
    return {
        "kind": "inference_model",
        "name": "small-model",
        "site": f"site-{number}",
        "cluster": f"cluster-{number}",
        "stable_id": f"0000000{number}",
        "admission_state": "new_and_existing",
        "selection_tier": "same_site" if number == 0 else "cross_region",
        "fresh": True,
        "rank": number,
        **members,
    }


def _credential(strategy: str = "bearer_token", **more: str) -> dict[str, Any]:
    return {"strategy": strategy, "secretRef": {"name": "a", "namespace": "b", "key": "c", **more}}


def _overlay(*candidates: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {
        "candidates": list(candidates or (_candidate(0), _candidate(1))),
        "local_site": "site-0",
        "network": "vectors",
        **members,
    }


def _grouped(policy: dict[str, str], *groups: int, **members: Any) -> dict[str, Any]:
    """An overlay with one candidate per entry of ``groups``, in that group."""
    entries = [_candidate(number, selection_group=group, **members) for number, group in enumerate(groups)]
    return _overlay(*entries, selection_policy=policy)


def _seal(overlay: dict[str, Any]) -> dict[str, Any]:
    """The envelope around an overlay, with its revision."""
    revision = revision_of(overlay)
    return {
        "schema_version": SCHEMA_VERSION,
        "revision": {"kind": "content_addressed", "algorithm": "sha256", "value": revision},
        "content_digest": {"algorithm": "sha256", "value": revision},
        "scope": {"network": "vectors", "gateway": "edge", "namespace": "default", "local_site": "site-0"},
        "provenance": {
            "producer": "grid",
            "producer_version": "vectors",
            "source_name": "vectors",
            "source_uid": "vectors",
            "source_generation": 1,
            "rendered_at": "2026-01-02T03:04:05Z",
        },
        "overlay": overlay,
    }


def _case(name: str, why: str, text: str, verdict: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
    expected: dict[str, Any] = {"name": name, "why": why, "text": text, "verdict": verdict, "reason": reason, **more}
    return {member: value for member, value in expected.items() if value is not None}


def _text(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def _accept(name: str, why: str, envelope: dict[str, Any], text: str | None = None, **more: Any) -> dict[str, Any]:
    revision = envelope["revision"]["value"]
    return _case(name, why, text or _text(envelope), "accept", revision=revision, **more)


def _accepted() -> Iterator[dict[str, Any]]:
    yield _accept("plain", "the first form: order is the whole policy", _seal(_overlay()))
    for name, why, overlay in (
        ("all-none", "nobody may send to anyone", _overlay(_candidate(0, admission_state="none"))),
        ("tool", "the other kind of capability", _overlay(_candidate(0, kind="mcp_tool", name="search"))),
        ("fresh-absent", "absent means fresh, and is hashed absent", _overlay(_without(_candidate(0), "fresh"))),
        ("rank-null", "null stands for absent, and is hashed as null", _overlay(_candidate(0, rank=None))),
        ("two-byte-name", "256 bytes are the limit, not 256 characters", _overlay(_candidate(0, name="é" * 128))),
        ("beyond-the-bmp", "text goes into the hash as UTF-8, unchanged", _overlay(_candidate(0, name="m-\U0001f600"))),
        ("unknown-member", "hashed like every other", _overlay(_candidate(0, later={"a": [1, None, "x"]}))),
        ("scores", "numbers are hashed as ECMAScript prints them", _overlay(_candidate(0, score=1e-7, total=1.0))),
        ("great-integer", "and lose what a double cannot hold", _overlay(_candidate(0, note=2**53 + 1))),
        ("credential", "a reference", _overlay(_candidate(0, credential=_credential()))),
        ("picker", "groups; the policy is hashed too", _grouped({"picker": "saturation"}, 0, 0, 1, traffic_weight=100)),
        ("mode", "the same thing by its other name", _grouped({"mode": "roundRobin"}, 0, 0, 1)),
        ("weights", "a weight on each", _grouped({"mode": "weightedRandom"}, 0, 1, 2, traffic_weight=1000)),
        ("both-names", "picker and mode agree", _grouped({"mode": "random", "picker": "random"}, 0, 1)),
        (
            "no-groups",
            "a policy without groups has nothing to choose in",
            _overlay(selection_policy={"mode": "random"}),
        ),
        (
            "slots",
            "in groups, a candidate that is there twice has two slots",
            _overlay(*(_candidate(0, selection_group=0) for _ in range(2)), selection_policy={"mode": "random"}),
        ),
        (
            "interleaved",
            "groups are counted per capability",
            _overlay(
                *(
                    _candidate(n, name=name, selection_group=g)
                    for n, (name, g) in enumerate((("a", 0), ("b", 0), ("a", 1), ("b", 0), ("b", 1)))
                ),
                selection_policy={"picker": "roundRobin"},
            ),
        ),
        (
            "excluded",
            "for people, not hashed",
            _overlay(excluded=[{"provider": "p", "site": "s", "reason": "drained"}]),
        ),
        ("unreadable-excluded", "passed over, not hashed", _overlay(excluded=17)),
    ):
        yield _accept(name, why, _seal(overlay))
    yield _accept(
        "excluded-unhashed", "the same revision as plain", _seal(_overlay(excluded=[], generated_at="yesterday"))
    )
    sealed = _seal(_overlay())
    yield _accept("published", "where it stands in the order", {**sealed, "publication": {"version": 3, "epoch": 2}})
    yield _accept("unreadable-beside", "passed over", {**sealed, "publication": 1, "signature": {}, "later": []})
    yield _accept("indented", "white space means nothing", sealed, json.dumps(sealed, indent=2))
    yield _accept("escaped", "nor does how text is escaped", sealed, _text(sealed).replace("small", "\\u0073mall"))
    yield _accept(
        "unknown-repeated",
        "of an unknown member that comes twice, the last counts",
        _seal(_overlay(_candidate(0, later=2))),
        _text(_seal(_overlay(_candidate(0, later=2)))).replace('"later":2', '"later":1,"later":2'),
    )
    yield _accept("as-expected", "it is for whom it must be", sealed, scope=sealed["scope"])
    yield _accept("signed", "and the signature belongs to it", _signed(), key=_PUBLIC_KEY)
    yield _case("legacy", "the overlay alone, without a revision", _text(_overlay()), "accept_legacy")
    yield _case("legacy-bare", "no network either", _text(_without(_overlay(), "network")), "accept_legacy")


def _without(members: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name not in names}


def _signed(**changes: Any) -> dict[str, Any]:
    publication = {"version": 3, "epoch": 2, "leader": "vectors", "published_at": "2026-01-02T03:04:05Z"}
    signature = {"algorithm": "ed25519", "value": _SIGNATURE}
    return {**_seal(_overlay()), "publication": publication, "signature": signature, **changes}


def _changed(change: _Change) -> dict[str, Any]:
    """A good envelope after ``change``; its revision still that of the good one."""
    envelope = copy.deepcopy(_seal(_overlay()))
    change(envelope)
    return envelope


_HEAD: Final[tuple[tuple[str, str, str, _Change], ...]] = (
    (
        "version-later",
        "no other version is read",
        "unsupported_schema_version",
        lambda e: e.update(schema_version="1.1.0"),
    ),
    ("version-missing", "an envelope needs one", "missing_schema_version", lambda e: e.pop("schema_version")),
    ("version-null", "null is no version", "malformed_structure", lambda e: e.update(schema_version=None)),
    ("scope-missing", "every part is needed", "malformed_structure", lambda e: e.pop("scope")),
    ("scope-text", "and has its type", "malformed_structure", lambda e: e.update(scope="edge")),
    ("gateway-blank", "blank is nothing", "malformed_structure", lambda e: e["scope"].update(gateway=" \u2003")),
    ("producer-long", "257 bytes", "malformed_structure", lambda e: e["provenance"].update(producer="p" * 257)),
    ("generation-0", "counted from 1", "malformed_structure", lambda e: e["provenance"].update(source_generation=0)),
    ("generation-float", "an integer", "malformed_structure", lambda e: e["provenance"].update(source_generation=1.0)),
    (
        "rendered-at",
        "RFC 3339",
        "malformed_structure",
        lambda e: e["provenance"].update(rendered_at="2026-02-29T00:00:00Z"),
    ),
    ("revision-kind", "only this kind", "malformed_structure", lambda e: e["revision"].update(kind="counter")),
    (
        "digest-algorithm",
        "only sha256",
        "malformed_structure",
        lambda e: e["content_digest"].update(algorithm="sha512"),
    ),
    ("digest-short", "64 digits", "malformed_structure", lambda e: e["content_digest"].update(value="abc")),
    ("digests-differ", "they must agree", "revision_digest_mismatch", lambda e: e["revision"].update(value="0" * 64)),
    ("content-changed", "the hash finds it", "digest_mismatch", lambda e: e["overlay"]["candidates"].reverse()),
    ("source-name", "is the network", "scope_mismatch", lambda e: e["provenance"].update(source_name="other")),
    ("scope-network", "is the overlay's", "scope_mismatch", lambda e: e["scope"].update(network="other")),
    ("scope-site", "is the overlay's", "scope_mismatch", lambda e: e["scope"].update(local_site="site-9")),
)

_CANDIDATE: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("kind-unknown", "a closed vocabulary", {"kind": "agent"}),
    ("name-long", "257 bytes", {"name": "n" * 257}),
    ("name-long-in-bytes", "258 bytes in 129 characters", {"name": "é" * 129}),
    ("site-blank", "blank is nothing", {"site": "\t"}),
    ("cluster-number", "text", {"cluster": 7}),
    ("fresh-null", "true, false or absent", {"fresh": None}),
    ("admission-unknown", "a closed vocabulary", {"admission_state": "some"}),
    ("tier-long", "129 bytes", {"selection_tier": "t" * 129}),
    ("stable-id-control", "it becomes a header value", {"stable_id": "a\nb"}),
    ("rank-negative", "unsigned", {"rank": -1}),
    ("credential-secret", "a reference carries no secret", {"credential": _credential(value="s")}),
    ("credential-strategy", "only bearer_token", {"credential": _credential("basic")}),
    ("weight-0", "1 to 1000", {"selection_group": 0, "traffic_weight": 0}),
    ("weight-1001", "1 to 1000", {"selection_group": 0, "traffic_weight": 1001}),
    ("weight-alone", "a weight is a share in a group", {"traffic_weight": 5}),
    ("group-from-1", "groups are counted from 0", {"selection_group": 1}),
    ("group-negative", "unsigned", {"selection_group": -1}),
)

_BARE: Final = {"kind": "inference_model", "name": "m", "site": "s", "cluster": "c"}

_OVERLAYS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("none-at-all", "never empty", {**_overlay(), "candidates": []}),
    ("too-many", "1024 at most", _overlay(*({**_BARE, "name": f"m{number}"} for number in range(1025)))),
    ("network-missing", "needed inside an envelope", _without(_overlay(), "network")),
    ("twice", "without groups a candidate is there once", _overlay(_candidate(0), _candidate(0, rank=1))),
    ("group-gap", "no gaps", _grouped({"picker": "random"}, 0, 2)),
    ("group-falls", "never falling", _grouped({"picker": "random"}, 0, 1, 0)),
    ("mixed", "all of a capability in groups, or none", _overlay(_candidate(0, selection_group=0), _candidate(1))),
    (
        "mixed-admission",
        "one admission a group",
        _overlay(_candidate(0, selection_group=0), _candidate(1, selection_group=0, admission_state="existing_only")),
    ),
    ("picker-unknown", "a closed vocabulary", _grouped({"picker": "leastLatency"}, 0)),
    ("picker-missing", "a policy names one", _grouped({}, 0)),
    ("names-differ", "picker and mode mean the same", _grouped({"picker": "random", "mode": "roundRobin"}, 0)),
    ("weights-missing", "weightedRandom needs one on each", _grouped({"picker": "weightedRandom"}, 0, 1)),
)


def _rejected() -> Iterator[dict[str, Any]]:
    malformed = "malformed_structure"
    for name, why, reason, change in _HEAD:
        yield _case(name, why, _text(_changed(change)), "reject", reason)
    for name, why, members in _CANDIDATE:
        yield _case(name, why, _text(_seal(_overlay(_candidate(0, **members)))), "reject", malformed)
    for name, why, overlay in _OVERLAYS:
        yield _case(name, why, _text(_seal(overlay)), "reject", malformed)
    good = _text(_seal(_overlay()))
    for name, why, text in (
        ("trailing", "one value and no more", good + "]"),
        ("byte-order-mark", "UTF-8 without one", "\ufeff" + good),
        ("nan", "no JSON", good.replace('"rank":0', '"rank":NaN')),
        ("infinite", "a number that no double holds", good.replace('"rank":0', '"later":1e999')),
        ("lone-surrogate", "no Unicode text", good.replace("small-model", "\\ud800")),
        ("repeated", "a known member that comes twice", good.replace('"rank":0', '"rank":1,"rank":0')),
        ("deep", "at most 127 containers inside each other", good[:-1] + ',"later":' + "[" * 127 + "]" * 127 + "}"),
        ("not-an-object", "a document is an object", "[]"),
        ("signal-null", "schema_version, even null, makes it an envelope", '{"schema_version":null,' + good[1:]),
        ("legacy-siteless", "the local site is needed", _text(_without(_overlay(), "local_site"))),
    ):
        yield _case(name, why, text, "reject", malformed)
    other = {"network": "vectors", "gateway": "other"}
    yield _case("for-another", "another gateway's", good, "reject", "scope_mismatch", scope=other)
    yield _case("legacy-scope", "too little to check", _text(_overlay()), "reject", malformed, scope=other)
    yield _case("unsigned", "a key is given", good, "reject", "signature_missing", key=_PUBLIC_KEY)
    replayed = _signed(publication={"version": 4, "epoch": 2})
    yield _case("replayed", "another version", _text(replayed), "reject", "signature_invalid", key=_PUBLIC_KEY)


# --- canonical forms --------------------------------------------------------------------------------------------------

_CANONICAL: Final = (
    ("order", '{"b": 1, "a": {"d": [3, 2], "c": null}}'),
    ("order-utf16", '{"\\ue000": 1, "\\ud83d\\ude00": 2, "z": 3}'),
    ("text", '"\\u0000\\u001f\\b\\f\\n\\r\\t\\"\\\\\\/\\u007f\\u00e9\\u20ac\\ud83d\\ude00"'),
    ("literals", "[true, false, null]"),
    ("integral", "[1.0, -0.0, 0, -0, 1e2, 100, 1e21, 1e20, 123456789012345680000]"),
    ("fractions", "[0.5, 0.1, 0.30000000000000004, 1e-6, 1e-7, 0.00001, 1.5e300, 5e-324, 1.7976931348623157e308]"),
    ("integers", "[9007199254740991, 9007199254740992, 9007199254740993, -9007199254740993, 18446744073709551615]"),
    ("empty", '{"a": [], "b": {}, "": ""}'),
)


def _canonical(name: str, text: str) -> dict[str, str]:
    written = canonical_bytes(json.loads(text))
    return {"name": name, "text": text, "canonical": written.decode(), "sha256": digest_of(written)}


# --- signal frames ----------------------------------------------------------------------------------------------------


def _frame(**changes: Any) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL_VERSION,
        "network": "vectors",
        "epoch": 2,
        "sequence": 17,
        "interval_s": 1.0,
        "sent_at": 1767323045.0,
        "documents": {"edge": {"epoch": 2, "version": 3}},
        "providers": {"p0": {"site": "site-0", "cluster": "cluster-0", "held": 3, "capacity": 8, "load": 0.375}},
        "gateways": {"edge": {"instances": 1, "in_flight": {"site-0/cluster-0": 2}}},
        **changes,
    }


def _frames() -> Iterator[dict[str, Any]]:
    unknown = {"site": "site-0", "cluster": "cluster-0", "held": None}
    for name, why, frame in (
        ("plain", "absent and null are unknown", _frame()),
        ("unknown-members", "are passed over", _frame(later=1, providers={"p0": {**unknown, "later": 1}})),
        ("empty", "nothing configured yet", _frame(documents={}, providers={}, gateways={})),
    ):
        yield {"name": name, "why": why, "text": _text(frame), "ok": True}
    for name, why, text, reason in (
        ("protocol", "another protocol", _text(_frame(protocol=PROTOCOL_VERSION + 1)), "unsupported_protocol"),
        ("protocol-missing", "no protocol", _text(_without(_frame(), "protocol")), "malformed_structure"),
        ("held-text", "a number", _text(_frame(providers={"p0": {**unknown, "held": "3"}})), "malformed_structure"),
        (
            "held-negative",
            "never below 0",
            _text(_frame(providers={"p0": {**unknown, "held": -1}})),
            "malformed_structure",
        ),
        ("nan", "no JSON", _text(_frame()).replace("0.375", "NaN"), "malformed_structure"),
        ("list", "an object", "[]", "malformed_structure"),
    ):
        yield {"name": name, "why": why, "text": text, "ok": False, "reason": reason}
