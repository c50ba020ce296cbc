import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.model import LoadSource, OverlayError, Reason
from grid.overlay import GatewaySignal, ProviderSignal, SignalFrame
from grid.overlay.frames import MAX_FRAME_BYTES
from grid.overlay.schema import vectors

FRAME = SignalFrame(
    network="acme",
    epoch=7,
    sequence=42,
    interval_s=1.0,
    sent_at=1_767_323_045.25,
    documents={"edge": (7, 3), "core": (6, 9)},
    providers={
        "east-llama": ProviderSignal(
            "east", "east-llama", 12.0, 64.0, 0.3, LoadSource.KV, 0.1875, 0.0, 0.27, 4, 0.4, 5.0, 5.0, 0.9
        ),
        "west-llama": ProviderSignal("west", "west-llama"),
    },
    gateways={"edge": GatewaySignal(2, {"east/east-llama": 5}), "core": GatewaySignal(1, {})},
)


def changed(**members: Any) -> bytes:
    return orjson.dumps({**orjson.loads(FRAME.encode()), **members})


def refused(data: bytes) -> Reason:
    with pytest.raises(OverlayError) as caught:
        SignalFrame.decode(data)
    assert "signal frame" in caught.value.message
    return caught.value.reason


def test_a_frame_comes_back_as_it_was_sent() -> None:
    assert SignalFrame.decode(FRAME.encode()) == FRAME
    assert FRAME.instances == 3


amounts = st.none() | st.floats(0, 1e9)
signals = st.builds(
    ProviderSignal, st.text("ab", max_size=3), st.text("ab", max_size=3), amounts, amounts, amounts,
    st.none() | st.sampled_from(LoadSource), amounts, amounts, amounts, st.none() | st.integers(0, 2**40),
    amounts, amounts, amounts, amounts,
)  # fmt: skip


@given(st.dictionaries(st.text("abc", max_size=3), signals, max_size=4), st.integers(0, 2**63))
def test_any_frame_comes_back(providers: dict[str, ProviderSignal], sequence: int) -> None:
    frame = SignalFrame("n", 1, sequence, 1.0, 2.0, providers=providers)
    assert SignalFrame.decode(frame.encode()) == frame


def test_unknown_is_null_on_the_wire_and_never_0() -> None:
    raw = json.loads(FRAME.encode())
    assert raw["protocol"] == 1
    assert raw["documents"] == {"edge": {"epoch": 7, "version": 3}, "core": {"epoch": 6, "version": 9}}
    assert {name for name, value in raw["providers"]["west-llama"].items() if value is None} == set(
        ProviderSignal._fields
    ) - {"site", "cluster"}


def test_a_number_that_is_not_finite_goes_out_as_unknown() -> None:
    frame = SignalFrame("n", 1, 1, 1.0, 2.0, providers={"p": ProviderSignal("s", "c", math.nan, math.inf)})
    assert SignalFrame.decode(frame.encode()).providers["p"] == ProviderSignal("s", "c")


def test_unknown_members_and_absent_numbers_are_tolerated() -> None:
    frame = SignalFrame.decode(changed(later=[1], providers={"p": {"site": "s", "cluster": "c", "later": {}}}))
    assert frame.providers == {"p": ProviderSignal("s", "c")}
    frame = SignalFrame.decode(changed(providers={"p": {"site": "s", "cluster": "c", "load_source": "later"}}))
    assert frame.providers["p"].load_source == "later"


@pytest.mark.parametrize(
    "members",
    [
        {"network": 1},
        {"epoch": 1.0},
        {"epoch": True},
        {"epoch": "1"},
        {"sequence": -1},
        {"interval_s": None},
        {"interval_s": -1},
        {"documents": []},
        {"documents": {"edge": [1, 2]}},
        {"documents": {"edge": {"epoch": 1}}},
        {"providers": {"p": {"site": "s"}}},
        {"providers": {"p": {"site": "s", "cluster": "c", "held": -0.5}}},
        {"providers": {"p": {"site": "s", "cluster": "c", "held": True}}},
        {"providers": {"p": {"site": "s", "cluster": "c", "ready": 1.5}}},
        {"providers": {"p": {"site": "s", "cluster": "c", "load_source": 1}}},
        {"gateways": {"edge": {"instances": 1}}},
        {"gateways": {"edge": {"instances": 1, "in_flight": {"a/b": -1}}}},
        {"protocol": "1"},
        {"protocol": None},
    ],
)
def test_wrong_types_and_numbers_are_refused(members: dict[str, Any]) -> None:
    assert refused(changed(**members)) is Reason.MALFORMED_STRUCTURE


def test_another_protocol_is_refused_by_name() -> None:
    assert refused(changed(protocol=2)) is Reason.UNSUPPORTED_PROTOCOL
    assert refused(changed(protocol=0, network=1)) is Reason.UNSUPPORTED_PROTOCOL


def test_a_frame_without_end_is_refused() -> None:
    assert refused(b" " * (MAX_FRAME_BYTES + 1)) is Reason.TOO_LARGE


@pytest.mark.parametrize("case", vectors()["frames"]["cases"], ids=lambda case: case["name"])
def test_the_vectors(case: dict[str, Any]) -> None:
    if case["ok"]:
        assert SignalFrame.decode(case["text"].encode()).network == "vectors"
    else:
        assert refused(case["text"].encode()) == case["reason"]
