"""The published partition table, at its full size."""

from typing import Any

import pytest

from grid.sim.virtual import partition

IDEAL = {clients: clients * 5 * 45 for clients in (64, 128, 256)}
"""Requests of clients that never wait: one each 200 ms for 45 s."""


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["policy"], row["clients"]): row for row in partition.run()}


def shares(row: dict[str, Any], within: float) -> bool:
    return all(abs(share - fair) <= within for share, fair in zip(row["shares"], (0.4, 0.4, 0.2), strict=True))


def peaks(row: dict[str, Any], above: float) -> bool:
    return all(share <= fair + above for share, fair in zip(row["peak_window_share"], (0.4, 0.4, 0.2), strict=True))


def test_ours_serves_nearly_everything_and_shares_by_capacity(rows: dict[tuple[str, int], dict[str, Any]]) -> None:
    for clients, part in ((64, 0.99), (128, 0.99), (256, 0.98)):
        row = rows["grid", clients]
        assert row["requests"] >= part * IDEAL[clients]
        assert row["overshoot"] <= (0 if clients < 256 else 0.01 * row["requests"])
        assert row["failed"] == 0
    assert shares(rows["grid", 256], within=0.02)
    assert peaks(rows["grid", 256], above=0.05)


def test_four_gateways_that_do_not_know_of_each_other_do_as_well() -> None:
    (row,) = partition.run([256], gateways=4, policies=["grid"])
    assert row["requests"] >= 0.97 * IDEAL[256]
    assert row["overshoot"] <= 0.03 * row["requests"]
    assert row["failed"] == 0
    assert shares(row, within=0.03)
    assert peaks(row, above=0.05)


def test_what_went_before_does_as_published(rows: dict[tuple[str, int], dict[str, Any]]) -> None:
    """Published requests; the overshoot there is smaller, since a slot that comes free is not handed on at once."""
    for policy, clients, requests in (
        ("before", 64, 14_272), ("before", 128, 28_544), ("before", 256, 28_655),
        ("after", 64, 14_272), ("after", 128, 28_508), ("after", 256, 42_290),
    ):  # fmt: skip
        assert rows[policy, clients]["requests"] == pytest.approx(requests, rel=0.06)
    assert rows["before", 256]["shares"] == [1.0, 0.0, 0.0]
    assert rows["before", 64]["overshoot"] == rows["after", 64]["overshoot"] == 0
    assert rows["before", 256]["overshoot"] > 24_000
    assert 15_000 < rows["after", 256]["overshoot"] < 30_000
    assert not peaks(rows["after", 256], above=0.05), "or the bar says nothing"


def test_perfect_knowledge_is_the_bound(rows: dict[tuple[str, int], dict[str, Any]]) -> None:
    for clients in IDEAL:
        row = rows["perfect", clients]
        assert row["overshoot"] == 0
        assert row["requests"] >= rows["grid", clients]["requests"] >= rows["after", clients]["requests"]


def test_a_seed_gives_the_same_row_again() -> None:
    again = [partition.run([40], duration=8, gateways=2, policies=["grid", "after"], seed=seed) for seed in (5, 5, 6)]
    assert again[0] == again[1] != again[2]
