"""What is read of a body, against a full parser, cut anywhere."""

import itertools
import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.proxy.request_scan import BadBodyError, RequestScan

_TEXT = st.text(max_size=12)
_LEAF = st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.floats(allow_nan=False) | _TEXT
_VALUE = st.recursive(
    _LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4), max_leaves=12
)
_KEYS = ("store", "background", "previous_response_id", "conversation", "max_tokens", "max_completion_tokens", "stream")
_MEMBERS = st.lists(st.tuples(_TEXT | st.sampled_from(_KEYS), _VALUE), max_size=8)


def scanned(body: bytes, *cuts: int) -> RequestScan:
    scan = RequestScan()
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, stop in itertools.pairwise(edges):
        scan.feed(body[start:stop])
    scan.finish()
    return scan


def written(members: list[tuple[str, Any]], escape: bool, space: bool) -> bytes:
    """JSON of these members in this order; ``escape``: every character of names as an escape."""
    gap = b" \n\t " if space else b""
    parts = []
    for key, value in members:
        name = b'"%b"' % "".join(f"\\u{ord(char):04x}" for char in key).encode() if escape else orjson.dumps(key)
        parts.append(gap + name + gap + b":" + gap + orjson.dumps(value) + gap)
    return gap + b"{" + b",".join(parts) + b"}" + gap


@given(
    members=_MEMBERS, model=st.text(min_size=1, max_size=20).filter(str.strip), place=st.integers(0, 8),
    cuts=st.lists(st.integers(0, 10_000), max_size=6), escape=st.booleans(), space=st.booleans(),
)  # fmt: skip
def test_it_agrees_with_a_full_parser_however_the_body_is_cut(
    members: list[tuple[str, Any]], model: str, place: int, cuts: list[int], escape: bool, space: bool
) -> None:
    if escape and any(ord(char) > 0xFFFF for key, _ in members for char in key):
        escape = False
    kept = [(key, value) for key, value in members if key != "model"]
    kept.insert(place % (len(kept) + 1), ("model", model))
    body = written(kept, escape, space)
    scan = scanned(body, *cuts)
    assert scan.model == orjson.loads(body)["model"] == model
    flags = any(value is True for key, value in kept if key in ("store", "background"))
    bound = any(value is not None for key, value in kept if key in ("previous_response_id", "conversation"))
    assert scan.stateful == (flags or bound)
    limits = [
        value
        for key, value in kept
        if key in ("max_tokens", "max_completion_tokens") and isinstance(value, int) and not isinstance(value, bool)
        and value >= 0
    ]  # fmt: skip
    assert scan.max_tokens == (min(max(limits), 10_000_000) if limits else None)
    assert (scan.complete, scan.size) == (True, len(body))


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=4))
def test_noise_is_refused_and_never_more_than_that(noise: bytes, cuts: list[int]) -> None:
    with pytest.raises(BadBodyError):
        scanned(noise, *cuts)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"hello", "no JSON object"),
        (b"[]", "no JSON object"),
        (b'"model"', "no JSON object"),
        (b"\xef\xbb\xbf{}", "no JSON object"),
        (b"{}", "names no model"),
        (b'{"messages":[]}', "names no model"),
        (b'{"nested":{"model":"a"}}', "names no model"),
        (b'{"list":[{"model":"a"}]}', "names no model"),
        (b'{"Model":"a"}', "names no model"),
        (b'{"model":"a"', "no complete JSON"),
        (b'{"model":"a","b":[1', "no complete JSON"),
        (b'{"model":"a', "no complete JSON"),
        (b'{"model":"a"}}', "something follows"),
        (b'{"model":"a"} x', "something follows"),
        (b'{"model":"a",}', "name of a member"),
        (b'{"model":"a" "b":1}', "a comma or the end"),
        (b'{"model" "a"}', "a colon"),
        (b'{"other":}', "a value was expected"),
        (b'{"model":}', "is no text"),
        (b"{model:1}", "name of a member"),
        (b'{"model":1}', "is no text"),
        (b'{"model":null}', "is no text"),
        (b'{"model":true}', "is no text"),
        (b'{"model":["a"]}', "is no text"),
        (b'{"model":{"a":1}}', "is no text"),
        (b'{"model":""}', "is blank"),
        (b'{"model":"  "}', "is blank"),
        (b'{"model":"\\q"}', "no JSON text"),
        (b'{"model":"\\ud800"}', "no JSON text"),
        (b'{"model":"%b"}' % (b"a" * 257), "257 bytes"),
        (b'{"model":"%b"}' % (b"\xc3\xa9" * 129), "258 bytes"),
        (b'{"model":"%b"}' % (b"\\u00e9" * 129), "258 bytes"),
        (b'{"model":"%b"}' % (b"a" * 100_000), "more than 256"),
        (b'{"model":"a","model":"a"}', "twice"),
        (b'{"model":"a","mod\\u0065l":"b"}', "twice"),
        (b'{"model":"a","x":1,"model":2}', "twice"),
        (b'{"model":"\xff"}', "UTF-8"),
        (b'{"model":"a","text":"\xc3"}', "UTF-8"),
        (b'{"model":"a","text":"\xed\xa0\x80"}', "UTF-8"),
        (b'{"model":"a"}\xc3', "something follows"),
        (b'{%b"model":"a"}' % (b'"a":1,' * 1024), "1024 members"),
    ],
)
def test_what_is_refused_and_in_which_words(body: bytes, said: str) -> None:
    for cuts in ((), range(0, len(body), max(1, len(body) // 200))):
        with pytest.raises(BadBodyError, match=said):
            scanned(body, *cuts)


@pytest.mark.parametrize(
    ("member", "stateful"),
    [
        ('"store":true', True), ('"store":false', False), ('"store":null', False), ('"store":"true"', False),
        ('"background":true', True), ('"previous_response_id":"resp_1"', True), ('"previous_response_id":null', False),
        ('"conversation":"conv_1"', True), ('"conversation":{"id":"conv_1"}', True), ('"conversation":null', False),
        ('"conversation_id":7', True), ('"metadata":{"store":true}', False), ('"st\\u006fre":true', True),
        ('"store":false,"store":true', True), ('"store":true,"store":false', True),
    ],
)  # fmt: skip
def test_what_binds_a_request_to_a_provider(member: str, stateful: bool) -> None:
    body = f'{{"model":"a",{member}}}'.encode()
    assert scanned(body).stateful is scanned(body, *range(len(body))).stateful is stateful


def test_names_of_256_bytes_are_fine_and_odd_ones_too() -> None:
    for name in ("a" * 256, "é" * 128, 'a"b\\c', "модель", "a/b:c d", "\U0001f600"):
        body = orjson.dumps({"model": name})
        assert scanned(body, *range(len(body))).model == name


def test_the_model_is_known_before_the_body_has_ended() -> None:
    scan = RequestScan()
    scan.feed(b'{"model":"a","messages":[')
    assert (scan.model, scan.complete) == ("a", False)
    scan.feed(b'{"content":"x"}')
    with pytest.raises(BadBodyError, match="twice"):
        scan.feed(b'],"model":"b"}')


@pytest.mark.parametrize(
    "body",
    [
        orjson.dumps({"messages": [{"role": "user", "content": "word " * 40}] * 50_000, "model": "a"}),
        b'{"a":[' + b"[[]]," * 400_000 + b'[]],"model":"a"}',
        b'{"a":"' + b"\\n" * 1_000_000 + b'","model":"a"}',
        b'{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b',"model":"a"}',
        b'{"a":[' + b'{"b":"c","d":[1,{}]},' * 100_000 + b'0],"model":"a"}',
    ],
)
def test_the_time_grows_with_the_body_and_no_faster(body: bytes) -> None:
    def took(data: bytes) -> float:
        began = time.process_time()
        scan = RequestScan()
        for at in range(0, len(data), 65536):
            scan.feed(data[at : at + 65536])
        return time.process_time() - began

    # Against the first half of it in the same run: twice the bytes take about twice the time, never four times.
    half, whole = (min(took(part) for _ in range(3)) for part in (body[: len(body) // 2], body))
    assert whole < 3 * half + 0.02
