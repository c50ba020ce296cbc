import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from grid.overlay import verify, wire
from grid.overlay.schema import envelope_schema, files, signal_schema, vectors

SCHEMAS = Path(__file__).resolve().parent.parent.parent / "schemas"


@pytest.mark.parametrize("name", files())
def test_what_lies_in_schemas_is_what_the_code_says(name: str) -> None:
    assert (SCHEMAS / name).read_text(encoding="utf-8") == files()[name], "renew it with: make schemas"


def test_no_vector_is_left_behind() -> None:
    ours = {path.name for path in (SCHEMAS / "vectors").glob("*.json")}
    assert {name.removeprefix("vectors/") for name in files() if name.startswith("vectors/")} <= ours


def test_the_schema_names_every_bound() -> None:
    schema = envelope_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    candidates = schema["$defs"]["PublishedOverlay"]["properties"]["candidates"]
    assert (candidates["minItems"], candidates["maxItems"]) == (1, 1024)
    candidate = schema["$defs"]["Candidate"]["properties"]
    assert (candidate["name"]["minLength"], candidate["name"]["maxLength"]) == (1, 256)
    assert candidate["traffic_weight"]["anyOf"][0] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 1000,
        "description": "Share in the group.",
    }
    assert schema["$defs"]["Credential"]["additionalProperties"] is False
    assert schema["properties"]["schema_version"]["const"] == "1.0.0"
    assert set(schema["required"]) == set(schema["properties"]) - {"publication", "signature"}
    assert signal_schema()["properties"]["protocol"]["const"] == 1
    assert "Shape" not in json.dumps([schema, signal_schema()])


def test_the_shapes_take_what_the_judgement_takes() -> None:
    published: TypeAdapter[Any] = wire.PUBLISHED
    for case in vectors()["overlays"]["cases"]:
        if case["verdict"] == "accept" and "unreadable" not in case["name"]:
            published.validate_python(json.loads(case["text"]))


def test_vectors_have_names_of_their_own_and_say_why() -> None:
    for content in vectors().values():
        names = [case["name"] for case in content["cases"]]
        assert len(set(names)) == len(names)
        assert content["about"]
    outcomes = {case["verdict"] for case in vectors()["overlays"]["cases"]}
    assert outcomes == {"accept", "accept_legacy", "reject"}
    assert all(case["why"] for case in vectors()["overlays"]["cases"])


def test_every_reason_of_the_judgement_has_a_vector() -> None:
    reasons = {case["reason"] for case in vectors()["overlays"]["cases"] if case["verdict"] == "reject"}
    assert reasons == {
        "malformed_structure",
        "missing_schema_version",
        "unsupported_schema_version",
        "revision_digest_mismatch",
        "digest_mismatch",
        "scope_mismatch",
        "signature_missing",
        "signature_invalid",
    }  # too_large needs 2 MiB of text; it is tested elsewhere


@pytest.mark.parametrize("case", vectors()["canonical"]["cases"], ids=lambda case: case["name"])
def test_canonical_vectors_are_fixed_points(case: dict[str, str]) -> None:
    assert json.loads(case["canonical"]) == json.loads(case["text"]) or case["name"] == "integers"
    assert not verify(case["text"].encode()).accepted
