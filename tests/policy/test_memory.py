import json
import math
from typing import Any

import pytest

from grid.model import AdmissionState, Capability, Freshness, Kind, Placement
from grid.policy.memory import (
    Hysteresis,
    Observed,
    PolicyMemory,
    ProviderMemory,
    Share,
    WeightBook,
)

LLAMA = Capability(Kind.INFERENCE_MODEL, "llama")

FULL = PolicyMemory(
    providers={
        "a": ProviderMemory(
            sequence=0,
            counted_at=99.5,
            observed=Observed(7.5, True, 1, (6.25, None, 3), 98.0, ((97.0, 12.0), (99.5, 3.0))),
            hysteresis=Hysteresis(AdmissionState.EXISTING_ONLY, 50.0, 1, 2, 96.0, 1, 2, True),
            level=4,
            free=12.5,
            free_at=99.5,
            admission=AdmissionState.EXISTING_ONLY,
            changed_at=50.0,
            freshness=Freshness.STALE,
            demoted=True,
            trusted=True,
            untrusted_in=11,
        ),
        "b": ProviderMemory(),
    },
    books={(Placement.HEADROOM, LLAMA): WeightBook(0.25, {"a": Share(250, 90.0), "b": Share(1, 99.0, stand_in=True)})},
    all_stale={("east", LLAMA): 11},
    passes=12,
)


def through_json(memory: PolicyMemory, saved: float, loaded: float) -> PolicyMemory:
    return PolicyMemory.from_json(json.loads(json.dumps(memory.to_json(saved), allow_nan=False)), loaded)


def test_everything_survives_and_times_move_to_the_new_clock() -> None:
    back = through_json(FULL, 100.0, 1100.0)
    moved = back.providers["a"]
    assert moved.counted_at == 1099.5
    assert moved.observed.in_flight == ((1097.0, 12.0), (1099.5, 3.0))
    assert moved.hysteresis.since == 1050.0
    assert back.books[Placement.HEADROOM, LLAMA].shares["a"].moved_at == 1090.0
    again = through_json(back, 1100.0, 100.0)
    assert again == FULL


def test_nothing_is_little() -> None:
    assert (
        json.dumps(PolicyMemory().to_json(5.0))
        == '{"format": 1, "passes": 0, "providers": {}, "books": [], "all_stale": []}'
    )
    assert through_json(PolicyMemory(), 5.0, 9.0) == PolicyMemory()


def test_a_time_ahead_of_now_is_no_negative_age() -> None:
    data = FULL.to_json(0.0)
    assert data["providers"]["a"]["counted"] == 0.0
    assert PolicyMemory.from_json(data, 3.0).providers["a"].counted_at == 3.0


@pytest.mark.parametrize(
    "data", [None, [], "memory", 7, {}, {"format": 2}, {"format": 1, "providers": [], "books": {}}]
)
def test_what_is_no_memory_is_an_empty_one(data: Any) -> None:
    assert PolicyMemory.from_json(data, 1.0) == PolicyMemory()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state", "half_open"),
        ("state", None),
        ("freshness", "rotten"),
        ("counted", -1),
        ("counted", math.nan),
        ("counted", True),
        ("counted", "1"),
        ("learned", math.inf),
        ("votes", 1.5),
        ("votes", -1),
        ("bypass", 1),
        ("means", [1, 2]),
        ("means", [1, None, True]),
        ("in_flight", [[1]]),
        ("in_flight", 3),
        ("level", "high"),
    ],
)
def test_a_bad_entry_is_left_out_and_the_others_stay(key: str, value: Any) -> None:
    data = FULL.to_json(100.0)
    data["providers"]["a"][key] = value
    assert set(PolicyMemory.from_json(data, 100.0).providers) == {"b"}


def test_an_entry_that_is_no_mapping_is_left_out() -> None:
    data = FULL.to_json(100.0)
    data["providers"]["a"] = 5
    data["books"] += [5, {"placement": "guess", "kind": "inference_model", "name": "x", "unit": 1, "shares": {}}]
    data["books"] += [{"placement": "capacity", "kind": "inference_model", "name": "x", "unit": 1, "shares": {"a": 5}}]
    data["all_stale"] += [5, {"site": "east", "kind": "song", "name": "x", "since": 1}, {"site": "east"}]
    data["passes"] = "many"
    back = PolicyMemory.from_json(data, 100.0)
    assert set(back.providers) == {"b"}
    assert set(back.books) == {(Placement.HEADROOM, LLAMA)}
    assert back.all_stale == FULL.all_stale
    assert back.passes == 0


def test_a_weight_out_of_range_is_brought_into_it() -> None:
    data = FULL.to_json(100.0)
    data["books"][0]["shares"] = {"a": {"weight": 5000, "age": 1, "stand_in": False}, "b": {"weight": 0, "age": 1}}
    shares = PolicyMemory.from_json(data, 100.0).books[Placement.HEADROOM, LLAMA].shares
    assert {name: share.weight for name, share in shares.items()} == {"a": 1000, "b": 1}
