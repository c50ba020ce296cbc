"""A document made ready: which group, which picker, which cursor, which refusal."""

import functools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from grid.gateway import Affinity, Decision, Router, RoutingError, Settings, Snapshot, Why
from grid.gateway.affinity import Bound
from grid.gateway.refusals import no_document
from grid.gateway.shedding import retry_after
from grid.gateway.snapshot import Targets
from grid.model import AdmissionState, Candidate, Contract, Kind, Picker, Reason, Tier
from grid.overlay import Envelope, verify
from tests.gateway.words import Words
from tests.overlay.build import accepted, candidate, document, envelope, resealed

EXISTING, NONE = AdmissionState.EXISTING_ONLY, AdmissionState.NONE


def build(document: Envelope, previous: Snapshot | None = None, seed: int = 3) -> Snapshot:
    return Snapshot.build(document, random.Random(seed).getrandbits, previous)


def grouped(picker: Picker, *groups: int, model: str = "llama", **changes: Any) -> Envelope:
    """One candidate per entry of ``groups``: sites s0, s1, ... in those groups."""
    return envelope(*members(*groups, model=model, **changes), picker=picker)


def members(*groups: int, model: str = "llama", **changes: Any) -> tuple[Candidate, ...]:
    weight = changes.pop("traffic_weight", 100)
    return tuple(
        candidate(f"s{n}-{model}", model, n, selection_group=group, traffic_weight=weight, **changes)
        for n, group in enumerate(groups)
    )


def sites(snapshot: Snapshot, number: int, model: str = "llama") -> list[str]:
    return [snapshot.pick(model).site for _ in range(number)]


def refused(pick: Callable[[], Decision]) -> RoutingError:
    with pytest.raises(RoutingError) as caught:
        pick()
    return caught.value


# --- the plain form -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("picker", [None, Picker.DETERMINISTIC])
def test_the_plain_form_takes_the_first_admitted_in_order(picker: Picker | None) -> None:
    snapshot = build(
        envelope(
            candidate("a-llama", rank=0, admission_state=EXISTING),
            candidate("b-llama", rank=1),
            candidate("c-llama", rank=2),
            picker=picker,
        )
    )
    assert sites(snapshot, 4) == ["b"] * 4
    pick = snapshot.pick("llama")
    assert (pick.picker, pick.case) == (None, "in_order")
    assert (pick.group, pick.weight) == (None, None)
    assert (pick.reason, pick.fallback) == ("fallback", True)


def test_the_ordered_contract_is_the_plain_form() -> None:
    found = build(envelope(picker=Picker.RANDOM, contract=Contract.PRAXIS_ORDERED))
    assert sites(found, 3) == ["east"] * 3


def test_a_policy_without_groups_has_nothing_to_choose_in() -> None:
    plain = orjson.loads(document().body)
    plain["overlay"]["selection_policy"] = {"picker": "roundRobin"}
    found = build(accepted(resealed(plain)))
    assert sites(found, 3) == ["east"] * 3
    pick = found.pick("llama")
    assert (pick.picker, pick.case) == (Picker.ROUND_ROBIN, "in_order")


def test_groups_without_a_policy_keep_the_order() -> None:
    bare = orjson.loads(document(*members(0, 0, 1), picker=Picker.ROUND_ROBIN).body)
    del bare["overlay"]["selection_policy"]
    assert sites(build(accepted(resealed(bare))), 3) == ["s0"] * 3


def test_the_legacy_form_is_picked_from_too() -> None:
    legacy = orjson.dumps(orjson.loads(document().body)["overlay"])
    verdict = verify(legacy)
    assert verdict.envelope is not None
    pick = build(verdict.envelope).pick("llama")
    assert (pick.site, pick.revision, pick.epoch, pick.version) == ("east", None, None, None)


# --- what a pick says -----------------------------------------------------------------------------------------------


def test_a_pick_says_where_by_which_document_and_rule() -> None:
    made = document(*members(0, 0, selection_tier=Tier.SAME_ZONE, fresh=False), picker=Picker.ROUND_ROBIN)
    published = made.published(7, 3, leader="daemon-1", published_at="2026-01-02T00:00:00Z")
    pick = build(accepted(published)).pick("llama")
    said = {
        "kind": Kind.INFERENCE_MODEL,
        "name": "llama",
        "site": "s0",
        "cluster": "s0-llama",
        "stable_id": members(0)[0].stable_id,
        "admission_state": AdmissionState.NEW_AND_EXISTING,
        "tier": "same_zone",
        "fresh": False,
        "rank": 0,
        "group": 0,
        "weight": 100,
        "revision": made.revision,
        "epoch": 3,
        "version": 7,
        "picker": Picker.ROUND_ROBIN,
        "case": "in_turn",
        "affinity": Bound.NONE,
        "attempt": 1,
        "other": None,
        "other_estimate": None,
        "estimate": 0.0,
        "spilled": False,
        "fallback": False,
        "demoted": False,
        "reason": Why.ROUTED,
    }
    assert {name: getattr(pick, name) for name in said} == said
    assert repr(pick) == "<Decision llama -> s0/s0-llama (in_turn, load 0.000)>"


# --- groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("picker", [Picker.ROUND_ROBIN, Picker.RANDOM, Picker.WEIGHTED_RANDOM, Picker.SATURATION])
def test_only_the_first_group_that_admits_new_work_is_used(picker: Picker) -> None:
    made = envelope(
        candidate("a-llama", rank=0, selection_group=0, traffic_weight=1, admission_state=EXISTING),
        candidate("b-llama", rank=1, selection_group=1, traffic_weight=1),
        candidate("c-llama", rank=2, selection_group=1, traffic_weight=1),
        candidate("d-llama", rank=3, selection_group=2, traffic_weight=1000),
        picker=picker,
    )
    assert set(sites(build(made), 200)) == {"b", "c"}


def test_random_takes_all_of_a_group_alike_whatever_their_weights() -> None:
    made = envelope(
        candidate("a-llama", rank=0, selection_group=0, traffic_weight=1),
        candidate("b-llama", rank=1, selection_group=0, traffic_weight=1000),
        picker=Picker.RANDOM,
    )
    assert [Snapshot.build(made, Words([word])).pick("llama").site for word in (0, 2**31 - 1, 2**31, 2**32 - 1)] == [
        "a",
        "a",
        "b",
        "b",
    ]


def test_weights_are_shares_of_their_group() -> None:
    made = envelope(
        candidate("a-llama", rank=0, selection_group=0, traffic_weight=300),
        candidate("b-llama", rank=1, selection_group=0, traffic_weight=100),
        picker=Picker.WEIGHTED_RANDOM,
    )
    words = (0, 3 * 2**30 - 1, 3 * 2**30, 2**32 - 1)
    found = Snapshot.build(made, Words(words))
    assert [found.pick("llama").site for _ in words] == ["a", "a", "b", "b"]


@pytest.mark.parametrize("grouped_first", [True, False])
def test_each_capability_goes_by_its_own_groups(grouped_first: bool) -> None:
    """What the document's first entry looks like says nothing about the others."""
    made = orjson.loads(document(*members(0, 0), *members(0, 0, model="plain"), picker=Picker.ROUND_ROBIN).body)
    candidates = made["overlay"]["candidates"]
    for one in candidates:
        if one["name"] == "plain":
            del one["selection_group"], one["traffic_weight"]
    candidates.sort(key=lambda one: (one["name"] == "plain") is grouped_first)
    found = build(accepted(resealed(made)))
    assert sites(found, 4) == ["s0", "s1"] * 2
    assert sites(found, 4, "plain") == ["s0"] * 4


@pytest.mark.parametrize("missing", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), ()])
def test_a_weight_that_is_not_given_is_the_default_wherever_it_is_missing(missing: tuple[int, ...]) -> None:
    bare = orjson.loads(document(*members(0, 0, 0, traffic_weight=100), picker=Picker.SATURATION).body)
    for spot in missing:
        del bare["overlay"]["candidates"][spot]["traffic_weight"]
    affinity = Affinity(hashed=True, secret=b"acme")
    router = Router(settings=Settings(affinity=affinity), bits=random.Random(1).getrandbits)
    router.apply(accepted(resealed(bare)))
    seen = Counter(router.pick("llama", session=f"s{n}").site for n in range(300))
    assert seen == Counter({"s0": 93, "s1": 96, "s2": 111})


def test_a_candidate_that_is_there_twice_has_two_slots() -> None:
    made = orjson.loads(document(*members(0, 0), picker=Picker.ROUND_ROBIN).body)
    first, second = made["overlay"]["candidates"]
    made["overlay"]["candidates"] = [first, first, second]
    assert sites(build(accepted(resealed(made))), 6) == ["s0", "s0", "s1", "s0", "s0", "s1"]


# --- cursors --------------------------------------------------------------------------------------------------------


def test_turns_of_one_model_do_not_disturb_those_of_another() -> None:
    made = envelope(*members(0, 0, model="x"), *members(0, 0, 0, model="y"), picker=Picker.ROUND_ROBIN)
    snapshot = build(made)
    found = [(snapshot.pick("x").site, snapshot.pick("y").site) for _ in range(6)]
    assert [x for x, _ in found] == ["s0", "s1"] * 3
    assert [y for _, y in found] == ["s0", "s1", "s2"] * 2


def test_turns_of_a_tool_do_not_disturb_those_of_a_model_of_its_name() -> None:
    tools = members(0, 0, model="x", kind=Kind.MCP_TOOL)
    snapshot = build(envelope(*members(0, 0, model="x"), *tools, picker=Picker.ROUND_ROBIN))
    assert snapshot.pick("x", Kind.MCP_TOOL).site == "s0"
    assert snapshot.pick("x").site == "s0"
    assert snapshot.pick("x", Kind.MCP_TOOL).kind is Kind.MCP_TOOL


def test_the_same_revision_keeps_the_turns_wherever_it_was_published() -> None:
    made = document(*members(0, 0, 0), picker=Picker.ROUND_ROBIN)
    first = build(accepted(made.published(1, 1, leader="a", published_at="2026-01-02T00:00:00Z")))
    assert sites(first, 2) == ["s0", "s1"]
    again = build(accepted(made.published(1, 2, leader="b", published_at="2026-01-03T00:00:00Z")), first)
    assert sites(again, 2) == ["s2", "s0"]
    assert (again.pick("llama").epoch, first.pick("llama").epoch) == (2, 1)


def test_another_revision_restarts_the_turns() -> None:
    first = build(grouped(Picker.ROUND_ROBIN, 0, 0, 0))
    assert sites(first, 2) == ["s0", "s1"]
    assert sites(build(grouped(Picker.ROUND_ROBIN, 0, 0, 0, traffic_weight=200), first), 2) == ["s0", "s1"]


def test_documents_without_a_revision_restart_the_turns() -> None:
    body = orjson.loads(document(*members(0, 0), picker=Picker.ROUND_ROBIN).body)["overlay"]
    legacy = verify(orjson.dumps(body)).envelope
    assert legacy is not None
    first = build(legacy)
    assert sites(first, 1) == ["s0"]
    assert sites(build(legacy, first), 1) == ["s0"]


# --- refusals -------------------------------------------------------------------------------------------------------


def test_a_model_that_nobody_serves_is_not_found() -> None:
    error = refused(lambda: build(envelope()).pick("gpt"))
    assert (error.reason, error.status, error.retry_after) == (Reason.MODEL_NOT_FOUND, 404, None)
    assert "model 'gpt'" in error.message
    error = refused(lambda: build(envelope()).pick("llama", Kind.MCP_TOOL))
    assert error.reason is Reason.MODEL_NOT_FOUND
    assert "tool 'llama'" in error.message


@pytest.mark.parametrize("name", ["LLAMA", "llama ", " llama", "llama\n"])
def test_names_are_compared_exactly(name: str) -> None:
    assert refused(lambda: build(envelope()).pick(name)).status == 404


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "is blank"),
        (" \t", "is blank"),
        ("m" * 257, "has 257 bytes"),
        ("é" * 129, "has 258 bytes"),
        ("\ud800" * 100, "has 300 bytes"),
        (None, "is no text but NoneType"),
        (5, "is no text but int"),
        (["llama"], "is no text but list"),
    ],
)
def test_what_can_be_the_name_of_nothing_is_a_bad_request(name: str, words: str) -> None:
    error = refused(lambda: build(envelope()).pick(name))
    assert (error.reason, error.status, error.retry_after) == (Reason.BAD_MODEL, 400, None)
    assert words in error.message
    assert refused(lambda: raising(no_document("edge", Kind.INFERENCE_MODEL, name, 3))).reason is Reason.BAD_MODEL


def raising(error: RoutingError) -> Decision:
    raise error


@pytest.mark.parametrize("name", ["m" * 256, "é" * 128, "\ud800"])
def test_what_is_merely_strange_is_not_found(name: str) -> None:
    assert refused(lambda: build(envelope()).pick(name)).status == 404


def admissions(*states: AdmissionState) -> Snapshot:
    return build(envelope(*(candidate(f"s{n}-llama", rank=n, admission_state=one) for n, one in enumerate(states))))


@pytest.mark.parametrize("states", [(EXISTING,), (EXISTING, EXISTING), (EXISTING, NONE), (NONE, EXISTING)])
def test_held_back_everywhere_is_exhausted(states: tuple[AdmissionState, ...]) -> None:
    error = refused(lambda: admissions(*states).pick("llama"))
    assert (error.reason, error.status) == (Reason.CAPACITY_EXHAUSTED, 429)
    assert error.retry_after in range(3, 8)


@pytest.mark.parametrize("states", [(NONE,), (NONE, NONE, NONE)])
def test_nobody_left_is_no_healthy_site(states: tuple[AdmissionState, ...]) -> None:
    error = refused(lambda: admissions(*states).pick("llama"))
    assert (error.reason, error.status) == (Reason.NO_HEALTHY_SITE, 503)
    assert error.retry_after in range(3, 8)


def test_a_refusal_of_one_model_is_none_of_another() -> None:
    made = build(envelope(candidate("a-x", "x", 0, admission_state=NONE), candidate("a-y", "y", 1)))
    assert refused(lambda: made.pick("x")).status == 503
    assert made.pick("y").site == "a"


def test_clients_are_asked_back_spread_over_3_to_7_seconds() -> None:
    bits = random.Random(5).getrandbits
    seen = Counter(retry_after(bits) for _ in range(5000))
    assert set(seen) == {3, 4, 5, 6, 7}
    assert all(850 < number < 1150 for number in seen.values())
    assert (retry_after(Words([0])), retry_after(Words([2**32 - 1]))) == (3, 7)


# --- real documents of the contract ---------------------------------------------------------------------------------


def contract_documents(fixtures: Path) -> Iterator[bytes]:
    yield from (file.read_bytes() for file in sorted((fixtures / "overlay-contract").glob("*/*.json")))


def test_every_document_that_is_accepted_can_be_picked_from(shared_fixtures: Path) -> None:
    found = [verify(data).envelope for data in contract_documents(shared_fixtures)]
    accepted = [one for one in found if one is not None]
    assert len(accepted) > 10
    for one in accepted:
        check_order(one)


def check_order(document: Envelope) -> None:
    """None of these documents has a policy: the first that is admitted is taken."""
    snapshot = build(document)
    for name, kind in {(one.name, one.kind) for one in document.candidates}:
        served = [one for one in document.candidates if (one.name, one.kind) == (name, kind)]
        admitted = [one for one in served if one.admission_state is AdmissionState.NEW_AND_EXISTING]
        if admitted:
            assert snapshot.pick(name, kind).stable_id == admitted[0].stable_id
        else:
            assert refused(functools.partial(snapshot.pick, name, kind)).status in {429, 503}


# --- beside the one before ------------------------------------------------------------------------------------------


def test_the_same_targets_are_known_again_whatever_else_a_document_says() -> None:
    targets, bits = Targets(), random.Random(3).getrandbits

    def made(*names: str) -> Snapshot:
        """``names``: ``site/model`` in the document's order."""
        pairs = [name.split("/") for name in names]
        entries = [candidate(f"{site}-pool", model, rank) for rank, (site, model) in enumerate(pairs)]
        return Snapshot.build(envelope(*entries), bits, targets=targets)

    before = made("east/llama", "west/llama", "east/qwen")
    assert made("east/qwen", "west/llama", "east/llama").has_targets_of(before), "the order makes no difference"
    assert not made("east/llama", "east/qwen").has_targets_of(before), "one is gone"
    assert not made("east/llama", "west/qwen").has_targets_of(before), "the same two, no longer peers"
