"""Verdicts: the contract's own fixtures where they lie beside the repository, our vectors, and what neither says."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from grid.model import AdmissionState, Contract, Kind, Picker, Reason, Tier
from grid.overlay import MAX_BYTES, CredentialReference, Excluded, Outcome, Publication, Scope, WireCandidate, verify
from grid.overlay.schema import vectors
from tests.overlay import build

CASES = {case["name"]: case for case in vectors()["overlays"]["cases"]}


def judged(document: Any, **options: Any) -> tuple[str, str | None]:
    verdict = verify(document if isinstance(document, bytes) else orjson.dumps(document), **options)
    assert verdict.accepted is (verdict.reason is None) is (verdict.envelope is not None)
    assert bool(verdict.detail) is not verdict.accepted
    return verdict.verdict, verdict.reason


def as_json(**changes: Any) -> dict[str, Any]:
    """A good envelope as JSON that may be changed."""
    loaded: dict[str, Any] = orjson.loads(build.document(**changes).body)
    return loaded


def test_the_contracts_own_fixtures(shared_fixtures: Path) -> None:
    folder = shared_fixtures / "overlay-contract" / "v1"
    manifest = json.loads((folder / "manifest.json").read_bytes())["fixtures"]
    assert len(manifest) == 12
    for name, expected in manifest.items():
        verdict = verify((folder / name).read_bytes())
        assert (name, verdict.verdict, verdict.reason) == (name, expected["expected"], expected.get("reason"))
        if "revision" in expected:
            assert verdict.revision == verdict.computed == expected["revision"]


def test_the_edges_as_the_contracts_gateway_judged_them(shared_fixtures: Path) -> None:
    folder = shared_fixtures / "overlay-contract" / "edges"
    verdicts = json.loads((folder / "manifest.json").read_bytes())["verdicts"]
    assert len(verdicts) == 32
    judgements = {name: verify((folder / f"{name}.json").read_bytes()).verdict for name in verdicts}
    assert judgements == verdicts


@pytest.mark.parametrize("name", CASES)
def test_the_vectors(name: str) -> None:
    case = CASES[name]
    verdict = verify(
        case["text"].encode(),
        scope=Scope(**case["scope"]) if "scope" in case else None,
        key=base64.b64decode(case["key"]) if "key" in case else None,
    )
    assert (verdict.verdict, verdict.reason) == (case["verdict"], case.get("reason")), verdict.detail
    if case["verdict"] == "accept":
        assert verdict.revision == verdict.computed == case["revision"]


def test_vectors_that_differ_in_what_is_not_hashed_have_one_revision() -> None:
    same = ("plain", "published", "indented", "escaped", "unreadable-beside", "excluded", "excluded-unhashed", "signed")
    assert len({CASES[name]["revision"] for name in same}) == 1


def test_the_view_of_a_plain_document() -> None:
    seen = build.envelope(build.candidate(), build.candidate("west-llama", rank=1, fresh=False))
    first, second = seen.candidates
    assert first == WireCandidate(
        Kind.INFERENCE_MODEL,
        "llama",
        "east",
        "east-llama",
        build.candidate().stable_id,
        AdmissionState.NEW_AND_EXISTING,
        Tier.SAME_SITE,
        True,
        0,
    )
    assert (second.fresh, second.selection_tier, second.selection_group) == (False, Tier.CROSS_REGION, None)
    assert first.identity == ("inference_model", "llama", "east", "east-llama")
    assert seen.scope == Scope("acme", "edge", "default", "east")
    assert (seen.network, seen.local_site, seen.picker) == ("acme", "east", None)
    assert (seen.publication, seen.position, seen.excluded) == (None, None, ())
    assert seen.provenance is not None
    assert (seen.provenance.producer, seen.provenance.source_uid, seen.provenance.rendered_at) == (
        "grid",
        "u-1",
        build.NOW,
    )


def test_the_view_of_a_published_document() -> None:
    body = build.document().published(3, 2, leader="d-1", published_at=build.NOW, previous_revision="0" * 64)
    seen = build.accepted(body)
    assert seen.publication == Publication(3, 2, "d-1", build.NOW, "0" * 64)
    assert seen.position == (2, 3)


def test_the_defaults_of_the_contract_are_filled_in() -> None:
    bare = {"kind": "mcp_tool", "name": "search", "site": "s", "cluster": "c"}
    seen = build.accepted(orjson.dumps({"local_site": "s", "candidates": [bare]}))
    assert seen.candidates == (
        WireCandidate(Kind.MCP_TOOL, "search", "s", "c", "mcp_tool/search/s/c", AdmissionState.NEW_AND_EXISTING),
    )
    assert (seen.revision, seen.schema_version, seen.provenance, seen.network) == (None, None, None, None)


def test_a_default_identity_that_is_no_header_value_is_hashed() -> None:
    def identity(name: str) -> str:
        bare = {"kind": "inference_model", "name": name, "site": "s", "cluster": "c"}
        return build.accepted(orjson.dumps({"local_site": "s", "candidates": [bare]})).candidates[0].stable_id

    assert identity("a b") == "inference_model/a b/s/c"
    assert identity("a\x01b").startswith("sha256:")
    assert len(identity("n" * 250)) == len("sha256:") + 64
    # Each field is preceded by its length, so moving a letter between fields makes another identity.
    assert identity("a\x01b") != identity("a\x01bs")


def test_credentials_are_references_and_secret_ref_is_the_same_name() -> None:
    document = as_json()
    secret = {"name": "a", "namespace": "b", "key": "c"}
    for spelling in ("secretRef", "secret_ref"):
        document["overlay"]["candidates"][0]["credential"] = {"strategy": "bearer_token", spelling: secret}
        seen = build.accepted(build.resealed(document))
        assert seen.candidates[0].credential == CredentialReference("a", "b", "c")
    both = {"strategy": "bearer_token", "secretRef": secret, "secret_ref": secret}
    for wrong in (
        both,
        {"strategy": "bearer_token"},
        {"strategy": "bearer_token", "secretRef": {**secret, "key": " "}},
    ):
        document["overlay"]["candidates"][0]["credential"] = wrong
        assert judged(build.resealed(document)) == ("reject", "malformed_structure")


def test_both_names_of_the_picker_are_read() -> None:
    def grouped(contract: Contract) -> Picker | None:
        one = build.candidate(selection_group=0, traffic_weight=7)
        return build.envelope(one, picker=Picker.ROUND_ROBIN, contract=contract).picker

    assert grouped(Contract.GRID) is grouped(Contract.PRAXIS_GROUPED) is Picker.ROUND_ROBIN


def test_excluded_providers_are_read_where_they_can_be() -> None:
    document = as_json()
    document["overlay"]["excluded"] = [
        {"provider": "p", "site": "s", "reason": "drained", "detail": "by hand", "later": 1},
        {"provider": "q", "site": "s", "reason": "a_reason_of_tomorrow"},
        {"site": "s"},
        "p",
    ]
    seen = build.accepted(orjson.dumps(document))
    assert seen.excluded == (Excluded("p", "s", "drained", "by hand"), Excluded("q", "s", "a_reason_of_tomorrow"))


@pytest.mark.parametrize(
    "publication",
    [{}, {"version": 1}, {"version": 0, "epoch": 1}, {"version": True, "epoch": 1}, {"version": 1, "epoch": -1}, [], 1],
)
def test_a_publication_nobody_can_read_is_none(publication: Any) -> None:
    seen = build.accepted(orjson.dumps({**as_json(), "publication": publication}))
    assert seen.publication is None


@pytest.mark.parametrize("field", ["network", "gateway", "namespace", "local_site"])
def test_every_field_of_the_scope_can_be_expected(field: str) -> None:
    body = build.document().body
    right = getattr(build.accepted(body).scope, field)
    assert judged(body, scope=Scope(**{field: right})) == ("accept", None)
    verdict = verify(body, scope=Scope(**{field: right.upper()}))
    assert verdict.reason is Reason.SCOPE_MISMATCH
    assert right.upper() in verdict.detail
    assert field in verdict.detail


def test_an_expectation_of_nothing_still_wants_an_envelope() -> None:
    legacy = orjson.dumps(as_json()["overlay"])
    assert judged(legacy) == ("accept_legacy", None)
    assert judged(legacy, scope=Scope()) == ("reject", "malformed_structure")


def test_a_verdict_on_a_changed_document_says_both_hashes() -> None:
    document = as_json()
    document["overlay"]["candidates"].reverse()
    verdict = verify(orjson.dumps(document))
    assert verdict.reason is Reason.DIGEST_MISMATCH
    assert verdict.revision == document["revision"]["value"] != verdict.computed
    assert verdict.computed is not None
    assert verdict.computed in verdict.detail
    document["revision"]["value"] = verdict.computed
    assert verify(orjson.dumps(document)).reason is Reason.DIGEST_MISMATCH  # the digest is the wrong one of the two
    document["content_digest"]["value"] = verdict.computed
    assert verify(orjson.dumps(document)).verdict is Outcome.ACCEPT


def test_the_order_of_judgement_is_the_contracts() -> None:
    document = as_json()
    document["overlay"]["candidates"][0]["kind"] = "agent"  # judged after the digest
    document["scope"]["network"] = "other"  # judged after the digest, before the candidates
    document["schema_version"] = "2.0.0"  # judged before both
    document["provenance"]["source_generation"] = -1  # a type, judged before all
    assert judged(document) == ("reject", "malformed_structure")
    document["provenance"]["source_generation"] = 1
    assert judged(document) == ("reject", "unsupported_schema_version")
    document["schema_version"] = "1.0.0"
    assert judged(document) == ("reject", "digest_mismatch")
    assert judged(build.resealed(document)) == ("reject", "scope_mismatch")
    document["scope"]["network"] = "acme"
    verdict = verify(build.resealed(document))
    assert (verdict.reason, verdict.detail[:26]) == (Reason.MALFORMED_STRUCTURE, "overlay.candidates[0].kind")


def test_size_is_judged_first() -> None:
    body = build.document().body
    assert judged(body, max_bytes=len(body)) == ("accept", None)
    assert judged(body, max_bytes=len(body) - 1) == ("reject", "too_large")
    assert judged(b"[" * (MAX_BYTES + 1)) == ("reject", "too_large")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"schema_version": "\xff"}',
        b"[" * 5000 + b"]" * 5000,
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b'{"scope": ' + b"9" * 5000 + b"}",
        b'{"scope": -1e999}',
        b'{"scope": "\\ud800"}',
        b'{"scope": Infinity}',
        b"\x00",
    ],
)
def test_garbage_is_rejected_and_never_raises(data: bytes) -> None:
    assert judged(data)[0] == "reject"


def test_depth_is_bounded_where_the_contracts_parser_bounds_it() -> None:
    good = build.document().body
    for depth, outcome in ((126, "accept"), (127, "reject")):
        nested = b',"later":' + b'{"a":' * (depth - 1) + b"[]" + b"}" * (depth - 1) + b"}"
        assert judged(good[:-1] + nested)[0] == outcome


def test_members_that_come_twice() -> None:
    text = build.document().body
    assert judged(text.replace(b'"rank":0', b'"rank":1,"rank":0')) == ("reject", "malformed_structure")
    assert "candidates[0].rank" in verify(text.replace(b'"rank":0', b'"rank":1,"rank":0')).detail
    beside = text[:-1] + b',"later":{"a":1,"a":[{}]},"later":{"b":[{"rank":1,"rank":2}]}}'
    assert judged(beside) == ("accept", None)
    legacy = orjson.dumps(as_json()["overlay"])
    assert judged(legacy.replace(b'"network"', b'"network":"x","network"')) == ("reject", "malformed_structure")
    assert judged(legacy[:-1] + b',"later":1,"later":2}') == ("accept_legacy", None)


def test_a_repeated_member_in_something_ill_typed_is_still_only_malformed() -> None:
    text = b'{"schema_version":"1.0.0","overlay":{"candidates":[1,{"a":1,"a":2},[{"rank":1}]],"x":1}}'
    assert judged(text) == ("reject", "malformed_structure")


@pytest.mark.parametrize(
    "filler",
    [
        b'{"later":{' + b",".join(b'"%d":0' % number for number in range(140_000)) + b',"0":1}}',
        b'{"scope":[' + b",".join([b"{}"] * 600_000) + b"]}",
        b'{"scope":[' + b",".join([b"-1.5"] * 400_000) + b"]}",
        b'{"scope":"' + b"\\u00e9" * 300_000 + b'"}',
        b'{"scope":0,"overlay":{"candidates":[' + b",".join([b"{}"] * 600_000) + b"]}}",
    ],
    ids=["repeated", "objects", "numbers", "escapes", "candidates"],
)
def test_two_megabytes_of_anything_are_judged_in_bounded_time(filler: bytes) -> None:
    assert MAX_BYTES // 2 < len(filler) <= MAX_BYTES
    started = time.process_time()
    assert judged(filler)[0] == "reject"
    assert time.process_time() - started < 10  # 0.5 s here; anything quadratic takes minutes


def test_blank_means_white_space_of_unicode() -> None:
    document = as_json()
    for text, outcome in (("\u2003\u3000", "reject"), ("\x85", "reject"), ("\x1f", "accept"), ("\ufeff", "accept")):
        document["provenance"]["producer"] = text
        assert judged(build.resealed(document))[0] == outcome, repr(text)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("2026-01-02T03:04:05Z", True),
        ("2026-01-02t03:04:05.123456789z", True),
        ("2026-12-31T23:59:60+14:00", True),
        ("2024-02-29T00:00:00-00:00", True),
        ("0000-02-29T00:00:00Z", True),
        ("2026-02-29T00:00:00Z", False),
        ("2026-00-01T00:00:00Z", False),
        ("2026-13-01T00:00:00Z", False),
        ("2026-04-31T00:00:00Z", False),
        ("2026-01-00T00:00:00Z", False),
        ("2026-01-02T24:00:00Z", False),
        ("2026-01-02T00:60:00Z", False),
        ("2026-01-02T00:00:61Z", False),
        ("2026-01-02T00:00:00+24:00", False),
        ("2026-01-02T00:00:00+00:60", False),
        ("2026-01-02T00:00:00", False),
        ("2026-01-02T00:00:00.Z", False),
        ("2026-01-02", False),
        ("20260102T030405Z", False),
        ("\u0662026-01-02T03:04:05Z", False),
    ],
)
def test_times_are_rfc_3339(text: str, good: bool) -> None:
    document = as_json()
    document["provenance"]["rendered_at"] = text
    assert judged(document)[0] == ("accept" if good else "reject")


def test_stable_ids_need_not_be_ascii_nor_unique() -> None:
    document = as_json()
    for entry in document["overlay"]["candidates"]:
        entry["stable_id"] = "é\t1"
    assert judged(build.resealed(document)) == ("accept", None)


def test_a_tier_may_be_any_text() -> None:
    document = as_json()
    document["overlay"]["candidates"][0]["selection_tier"] = "same_rack"
    assert build.accepted(build.resealed(document)).candidates[0].selection_tier == "same_rack"
