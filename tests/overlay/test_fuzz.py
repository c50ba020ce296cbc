"""Whatever the bytes, a verdict comes out; and what is accepted is sound."""

import copy
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from grid.model import OverlayError, Picker
from grid.overlay import Envelope, SignalFrame, revision_of, verify
from grid.overlay.frames import ProviderSignal
from tests.overlay import build

GOOD = orjson.loads(
    build.document(
        build.candidate(selection_group=0, traffic_weight=100),
        build.candidate("west-llama", rank=1, selection_group=1, traffic_weight=50),
        build.candidate("west-mistral", "mistral", rank=2, selection_group=0, traffic_weight=1),
        picker=Picker.SATURATION,
    ).published(3, 2, leader="d-1", published_at=build.NOW)
)
FRAME = SignalFrame("acme", 1, 2, 1.0, 3.0, {"edge": (1, 2)}, {"p": ProviderSignal("s", "c", 1.0)}).encode()

texts = st.text(st.characters(codec="utf-8"), max_size=5)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for name, member in members for path in paths(member, (*at, name)))]


PATHS = [path for path in paths(GOOD) if path]


def sound(seen: Envelope, data: bytes) -> None:
    """What every accepted document has."""
    raw = orjson.loads(data)
    overlay = raw["overlay"] if seen.revision is not None else raw
    assert len(seen.candidates) == len(overlay["candidates"]) > 0
    if seen.revision is not None:
        assert seen.revision == revision_of(overlay)
        assert seen.network == overlay["network"]
    for candidate in seen.candidates:
        for text in (candidate.name, candidate.site, candidate.cluster, candidate.stable_id):
            assert 1 <= len(text.encode()) <= 256
        assert candidate.traffic_weight is None or 1 <= candidate.traffic_weight <= 1000
        assert candidate.traffic_weight is None or candidate.selection_group is not None
    for capability in {(candidate.kind, candidate.name) for candidate in seen.candidates}:
        of_it = [candidate for candidate in seen.candidates if (candidate.kind, candidate.name) == capability]
        groups = [candidate.selection_group for candidate in of_it]
        if None in groups:
            assert set(groups) == {None}
            assert len({candidate.identity for candidate in of_it}) == len(of_it)
        else:
            numbers = [group for group in groups if group is not None]
            assert numbers == sorted(numbers)
            assert set(numbers) == set(range(max(numbers) + 1))
            assert len({(c.selection_group, c.admission_state) for c in of_it}) == max(numbers) + 1


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    assert not verify(data).accepted


@given(json_values)
def test_any_json(value: Any) -> None:
    verdict = verify(orjson.dumps(value))
    assert not verdict.accepted


@settings(max_examples=400)
@given(st.data())
def test_a_good_document_with_members_replaced_and_sealed_again(data: st.DataObject) -> None:
    document = copy.deepcopy(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(PATHS))
        node = document
        try:
            for step in parents:
                node = node[step]
            if data.draw(st.booleans()):
                node[last] = data.draw(json_values | st.sampled_from([0, 1, 2, "random", "existing_only", "llama"]))
            else:
                del node[last]
        except (TypeError, KeyError, IndexError, AttributeError):
            continue  # an earlier change took the way there
    try:
        text = build.resealed(document)
    except (TypeError, KeyError, AttributeError):
        text = orjson.dumps(document)
    verdict = verify(text)
    if verdict.envelope is not None:
        sound(verdict.envelope, text)
    else:
        assert verdict.reason is not None
        assert verdict.detail


@settings(max_examples=400)
@given(st.data())
def test_a_good_document_with_bytes_changed(data: st.DataObject) -> None:
    text = bytearray(orjson.dumps(GOOD))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        length = data.draw(st.integers(0, 3))
        text[at : at + length] = data.draw(st.binary(max_size=3) | st.sampled_from([b'"', b",", b"{", b"]", b"\\"]))
    verdict = verify(bytes(text))
    if verdict.envelope is not None:
        sound(verdict.envelope, bytes(text))


@given(st.data())
def test_a_frame_with_bytes_changed_is_read_or_refused(data: st.DataObject) -> None:
    text = bytearray(FRAME)
    at = data.draw(st.integers(0, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        frame = SignalFrame.decode(bytes(text))
    except OverlayError:
        return
    for signal in frame.providers.values():
        assert signal.held is None or signal.held >= 0


@given(st.binary(max_size=200) | json_values.map(orjson.dumps))
def test_any_bytes_as_a_frame_are_refused(data: bytes) -> None:
    try:
        frame = SignalFrame.decode(data)
    except OverlayError:
        return
    raise AssertionError(frame)
