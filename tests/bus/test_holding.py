"""What a gateway holds: only a verified, newer document replaces it."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.bus import holding as holding_module
from grid.bus.holding import Announcement, Delivery, Holding, Source, judge, read_announcement, saved_position
from grid.bus.order import NOWHERE, Choice, Position
from grid.bus.publisher import announcement
from grid.model import Problem, Reason
from grid.overlay import Scope, Verdict, verify
from tests.bus.documents import document, published

SCOPE = Scope(network="acme", gateway="edge")


def offer(holding: Holding, tag: int, epoch: int, version: int) -> Delivery | Problem | None:
    made = document(tag)
    return holding.offer(published(tag, epoch, version), Source.MESSAGE, Position(epoch, version), made.revision)


def test_12_11_12_13_ends_at_13_and_never_steps_back() -> None:
    holding = Holding(SCOPE)
    outcomes = [offer(holding, version, 7, version) for version in (12, 11, 12, 13)]
    assert [isinstance(outcome, Delivery) for outcome in outcomes] == [True, False, False, True]
    assert holding.position == Position(7, 13)
    assert holding.revision == document(13).revision


def test_the_same_place_with_another_digest_is_reported_and_not_applied() -> None:
    holding = Holding(SCOPE)
    offer(holding, 1, 7, 12)
    clash = offer(holding, 2, 7, 12)
    assert isinstance(clash, Problem)
    assert clash.code is Reason.VERSION_CLASH
    assert document(1).revision in clash.detail
    assert document(2).revision in clash.detail
    assert holding.revision == document(1).revision
    assert isinstance(offer(holding, 2, 7, 13), Delivery)


@given(st.permutations([(7, 1), (7, 2), (7, 3), (8, 1), (8, 2), (6, 9)]))
def test_whatever_the_order_of_arrival_the_newest_is_held_in_the_end(order: list[tuple[int, int]]) -> None:
    holding = Holding(SCOPE)
    last = NOWHERE
    for epoch, version in order:
        outcome = offer(holding, epoch * 10 + version, epoch, version)
        assert not isinstance(outcome, Problem)
        assert holding.position >= last
        last = holding.position
    assert holding.position == Position(8, 2)
    assert holding.revision == document(82).revision


def test_the_same_revision_at_a_new_place_says_so() -> None:
    holding = Holding(SCOPE)
    first, second, third = offer(holding, 1, 7, 12), offer(holding, 1, 8, 1), offer(holding, 2, 8, 2)
    assert isinstance(first, Delivery)
    assert isinstance(second, Delivery)
    assert isinstance(third, Delivery)
    assert (first.same_revision, second.same_revision, third.same_revision) == (False, True, False)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (published(2, 8, 1).replace(b"model-2", b"model-3"), Reason.DIGEST_MISMATCH),
        (published(2, 8, 1)[:-40], Reason.MALFORMED_STRUCTURE),
        (b"", Reason.MALFORMED_STRUCTURE),
        (published(2, 8, 1, gateway="other"), Reason.SCOPE_MISMATCH),
        (published(2, 8, 2), Reason.PUBLICATION_MISMATCH),
        (published(3, 8, 1), Reason.PUBLICATION_MISMATCH),
    ],
)
def test_a_bad_document_is_refused_with_its_reason_and_the_good_one_stays(data: bytes, reason: Reason) -> None:
    holding = Holding(SCOPE)
    offer(holding, 1, 7, 12)
    problem = holding.offer(data, Source.READ, Position(8, 1), document(2).revision)
    assert isinstance(problem, Problem)
    assert problem.code is reason
    assert holding.position == Position(7, 12)


def test_a_bad_document_does_not_bar_the_good_one_of_its_place() -> None:
    holding = Holding(SCOPE)
    holding.offer(published(2, 8, 1)[:-40], Source.MESSAGE, Position(8, 1), document(2).revision)
    assert isinstance(offer(holding, 2, 8, 1), Delivery)


def test_a_saved_document_goes_by_its_own_publication() -> None:
    holding = Holding(SCOPE)
    saved = holding.offer(published(1, 7, 12), Source.SAVED)
    assert isinstance(saved, Delivery)
    assert saved.position == Position(7, 12)
    assert holding.offer(published(2, 7, 11), Source.SAVED) is None
    clash = holding.offer(published(2, 7, 12), Source.SAVED)
    assert isinstance(clash, Problem)


def test_an_unpublished_document_is_better_than_none_and_worse_than_any() -> None:
    holding = Holding(SCOPE)
    assert isinstance(holding.offer(document(1).body, Source.SAVED), Delivery)
    assert holding.position == NOWHERE
    assert holding.choose(Position(1, 1), "x") is Choice.APPLY


def test_announcements_carry_the_very_bytes_where_they_are_small() -> None:
    data = published(1, 7, 12, candidates=20)
    heard = read_announcement(announcement("edge", Position(7, 12), "abc", previous="", document=data))
    assert heard == Announcement("edge", Position(7, 12), "abc", data)
    big = published(1, 7, 12, candidates=400)
    assert len(big) > 32 * 1024
    message = announcement("edge", Position(7, 12), "abc", previous="before", document=big)
    assert orjson.loads(message)["previous_revision"] == "before"
    heard = read_announcement(message)
    assert isinstance(heard, Announcement)
    assert heard.document is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"7",
        b"null",
        b'{"gateway":"edge"}',
        b'{"gateway":"edge","epoch":"7","version":1,"revision":"a"}',
        b'{"gateway":"edge","epoch":true,"version":1,"revision":"a"}',
        b'{"gateway":"edge","epoch":7,"version":0,"revision":"a"}',
        b'{"gateway":"edge","epoch":7,"version":9007199254740993,"revision":"a"}',
        b'{"gateway":"edge","epoch":7,"version":1,"revision":"a","document":{}}',
        b'{"gateway":1,"epoch":7,"version":1,"revision":"a"}',
        b"\xff",
    ],
)
def test_an_unreadable_announcement_is_a_problem(data: bytes) -> None:
    problem = read_announcement(data)
    assert isinstance(problem, Problem)
    assert problem.code is Reason.MALFORMED_STRUCTURE


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"publication":7}', b'{"publication":{"epoch":"x","version":1}}']
)
def test_a_saved_file_without_a_place_counts_as_nowhere(data: bytes) -> None:
    assert saved_position(data) == NOWHERE
    assert saved_position(published(1, 7, 12)) == Position(7, 12)


def test_the_same_bytes_are_judged_once_and_other_expectations_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[bytes] = []

    def counting(data: bytes, *, scope: Scope | None, key: bytes | None) -> Verdict:
        judged.append(data)
        return verify(data, scope=scope, key=key)

    monkeypatch.setattr(holding_module, "verify", counting)
    data = published("judged once", 7, 12)
    for _ in range(3):
        assert judge(bytes(bytearray(data)), SCOPE, None).accepted
    assert judged == [data]
    assert judge(data, Scope(network="other"), None).reason is Reason.SCOPE_MISMATCH
    assert judge(data, SCOPE, bytes(32)).reason is Reason.SIGNATURE_MISSING
    assert judge(data.replace(b"cluster-1", b"cluster-9"), SCOPE, None).reason is Reason.DIGEST_MISMATCH
    assert len(judged) == 4
    assert judge(data, SCOPE, None).accepted
