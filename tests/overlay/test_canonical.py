import hashlib
import json
import math
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from grid.model import OverlayError, Reason
from grid.overlay import canonical_bytes, revision_of

SAFE = 2**53 - 1

texts = st.text(st.characters(codec="utf-8"), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.sampled_from([0.0, -0.0, 1.0, 1e16, 1e21, 1e-6, 1e-7, 5e-324, 1.7976931348623157e308])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)


@given(values)
def test_it_is_rfc_8785_whatever_the_value(value: Any) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


@given(st.dictionaries(texts, st.integers(-SAFE, SAFE) | texts | st.booleans(), max_size=6))
def test_what_has_no_float_and_no_null_comes_straight_from_the_encoder(value: dict[str, Any]) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


@given(values)
def test_it_is_the_same_after_a_round_trip(value: Any) -> None:
    canonical = canonical_bytes(value)
    assert canonical_bytes(orjson.loads(canonical)) == canonical


@given(st.integers(-(2**70), 2**70))
def test_integers_are_doubles(value: int) -> None:
    assert canonical_bytes([value, {"a": value}]) == rfc8785.dumps(
        [float(value), {"a": float(value)}] if abs(value) > SAFE else [value, {"a": value}]
    )


# Written by hand from the rules of ECMAScript's Number::toString, so that the library is held to them as well.
@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (1 / 3, "0.3333333333333333"),
        (1e-5, "0.00001"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-9, "1.5e-9"),
        (1e16, "10000000000000000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (-1.25e30, "-1.25e+30"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (2**53 + 1, "9007199254740992"),
        (2**64 - 1, "18446744073709552000"),
        (-(2**63), "-9223372036854776000"),
    ],
)
def test_numbers_are_printed_as_ecmascript_does(value: float, written: str) -> None:
    assert canonical_bytes({"n": value}) == b'{"n":' + written.encode() + b"}"
    assert canonical_bytes([1, value]) == b"[1," + written.encode() + b"]"
    assert canonical_bytes([value]) == b"[" + written.encode() + b"]"
    assert canonical_bytes(value) == written.encode()


def test_keys_are_ordered_by_utf_16() -> None:
    assert canonical_bytes({"\ue000": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ue000":1}'.encode()
    assert canonical_bytes({"\U0001f600": 2, "é": 1}) == '{"é":1,"\U0001f600":2}'.encode()


def test_text_that_looks_like_a_float_or_null_is_text() -> None:
    assert canonical_bytes({"a": "x:1.5,2e3,null"}) == b'{"a":"x:1.5,2e3,null"}'


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        [math.inf],
        {"a": -math.inf},
        "\ud800",
        {"\udc00": 1},
        {1: 2},
        {"a": object()},
        10**400,
        {"a": [10**400]},
    ],
)
def test_what_json_cannot_carry_is_refused(value: Any) -> None:
    with pytest.raises(OverlayError) as caught:
        canonical_bytes(value)
    assert caught.value.reason is Reason.MALFORMED_STRUCTURE


def test_endless_nesting_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(OverlayError):
        canonical_bytes(value)


def test_a_revision_covers_four_members_and_no_more() -> None:
    overlay = {"network": "n", "local_site": "s", "candidates": [{"b": 1, "a": 2}]}
    text = '{"candidates":[{"a":2,"b":1}],"local_site":"s","network":"n"}'
    assert revision_of(overlay) == hashlib.sha256(text.encode()).hexdigest()
    assert revision_of({**overlay, "excluded": [], "generated_at": "x"}) == revision_of(overlay)
    assert revision_of({**overlay, "selection_policy": {"mode": "random"}}) != revision_of(overlay)
    assert revision_of({**overlay, "selection_policy": None}) != revision_of(overlay)
    assert revision_of({"candidates": []}) == hashlib.sha256(b'{"candidates":[]}').hexdigest()


def test_order_of_candidates_counts_and_order_of_members_does_not() -> None:
    one, two = {"name": "a", "site": "s"}, {"name": "b", "site": "s"}
    turned = json.loads(json.dumps({"site": "s", "name": "a"}))
    assert revision_of({"candidates": [one, two]}) != revision_of({"candidates": [two, one]})
    assert revision_of({"candidates": [one, two]}) == revision_of({"candidates": [turned, two]})
