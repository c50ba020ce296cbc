from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid import __version__
from grid.model import AdmissionState, Contract, Exclusion, OverlayError, Picker, Reason, Tier
from grid.overlay import CredentialReference, Publication, render, revision_of, verify
from tests.overlay import build

PLAIN = {"kind", "name", "site", "cluster", "stable_id", "admission_state", "selection_tier", "fresh", "rank"}


def rendered(*candidates: Any, picker: Picker | None = None, contract: Contract = Contract.GRID) -> dict[str, Any]:
    """The overlay as it is on the wire."""
    given = candidates or (
        build.candidate(selection_group=0, traffic_weight=60),
        build.candidate("west-llama", rank=1, selection_group=1, traffic_weight=40),
    )
    document = build.document(*given, picker=picker, contract=contract)
    overlay: dict[str, Any] = orjson.loads(document.body)["overlay"]
    assert overlay == document.envelope["overlay"]
    assert verify(document.body).revision == document.revision
    return overlay


@pytest.mark.parametrize("contract", Contract)
@pytest.mark.parametrize("picker", [None, Picker.DETERMINISTIC])
def test_without_a_picker_every_contract_writes_the_plain_first_form(contract: Contract, picker: Picker | None) -> None:
    overlay = rendered(picker=picker, contract=contract)
    assert set(overlay) == {"candidates", "local_site", "network"}
    assert [set(entry) for entry in overlay["candidates"]] == [PLAIN, PLAIN]


@pytest.mark.parametrize("picker", [Picker.ROUND_ROBIN, Picker.SATURATION, Picker.WEIGHTED_RANDOM])
def test_the_ordered_contract_writes_it_with_any_picker(picker: Picker) -> None:
    assert rendered(picker=picker, contract=Contract.PRAXIS_ORDERED) == rendered()


@pytest.mark.parametrize("picker", [Picker.ROUND_ROBIN, Picker.RANDOM, Picker.WEIGHTED_RANDOM, Picker.SATURATION])
def test_our_own_contract_has_groups_weights_and_a_picker(picker: Picker) -> None:
    overlay = rendered(picker=picker)
    assert overlay["selection_policy"] == {"picker": picker.value}
    assert [set(entry) for entry in overlay["candidates"]] == [PLAIN | {"selection_group", "traffic_weight"}] * 2
    assert [(entry["selection_group"], entry["traffic_weight"]) for entry in overlay["candidates"]] == [
        (0, 60),
        (1, 40),
    ]


def test_the_grouped_contract_calls_it_mode_and_weighs_only_where_weights_count() -> None:
    overlay = rendered(picker=Picker.RANDOM, contract=Contract.PRAXIS_GROUPED)
    assert overlay["selection_policy"] == {"mode": "random"}
    assert [set(entry) for entry in overlay["candidates"]] == [PLAIN | {"selection_group"}] * 2
    overlay = rendered(picker=Picker.WEIGHTED_RANDOM, contract=Contract.PRAXIS_GROUPED)
    assert overlay["selection_policy"] == {"mode": "weightedRandom"}
    assert [set(entry) for entry in overlay["candidates"]] == [PLAIN | {"selection_group", "traffic_weight"}] * 2


def test_the_grouped_contract_has_no_saturation() -> None:
    with pytest.raises(OverlayError, match="praxis-grouped has no picker saturation") as caught:
        rendered(picker=Picker.SATURATION, contract=Contract.PRAXIS_GROUPED)
    assert caught.value.reason is Reason.CONFIG_CONFLICT


def test_everything_around_the_overlay() -> None:
    document = build.document()
    raw = orjson.loads(document.body)
    assert raw == document.envelope
    assert raw["scope"] == {"network": "acme", "gateway": "edge", "namespace": "default", "local_site": "east"}
    assert raw["provenance"] == {
        "producer": "grid",
        "producer_version": __version__,
        "source_name": "acme",
        "source_uid": "u-1",
        "source_generation": 1,
        "rendered_at": build.NOW,
    }
    assert (
        document.revision == raw["revision"]["value"] == raw["content_digest"]["value"] == revision_of(raw["overlay"])
    )
    assert document.gateway == "edge"


def test_a_network_without_uid_or_generation_still_has_good_provenance() -> None:
    network = build.network(uid="", generation=0)
    document = render(network, build.gateway(), build.plan(build.candidate()), rendered_at=build.NOW)
    assert document.envelope["provenance"]["source_uid"] == "acme"
    assert document.envelope["provenance"]["source_generation"] == 1
    assert verify(document.body).accepted


def test_time_uid_generation_and_exclusions_make_no_revision() -> None:
    plan = build.plan(build.candidate(), excluded=(Exclusion("p", "s", Reason.DRAINED, "by hand"),))
    one = render(build.network(uid="a"), build.gateway(), build.plan(build.candidate()), rendered_at=build.NOW)
    two = render(build.network(generation=9), build.gateway(), plan, rendered_at="2027-01-01T00:00:00Z")
    assert one.revision == two.revision
    assert build.accepted(two.body).excluded == (("p", "s", "drained", "by hand"),)
    assert "excluded" not in one.envelope["overlay"]


def test_what_changes_routing_makes_a_revision() -> None:
    base = build.candidate(selection_group=0, traffic_weight=10)
    variants = [
        build.document(base),
        build.document(base, picker=Picker.RANDOM),
        build.document(base, picker=Picker.ROUND_ROBIN),
        build.document(base, picker=Picker.ROUND_ROBIN, contract=Contract.PRAXIS_GROUPED),
        build.document(build.candidate(selection_group=0, traffic_weight=11), picker=Picker.RANDOM),
        build.document(build.candidate(admission_state=AdmissionState.EXISTING_ONLY)),
        build.document(build.candidate(fresh=False)),
        build.document(build.candidate(), site="west"),
    ]
    assert len({variant.revision for variant in variants}) == len(variants)


def test_credentials_are_references_by_provider() -> None:
    document = render(
        build.network(),
        build.gateway(),
        build.plan(build.candidate(), build.candidate("west-llama", rank=1)),
        rendered_at=build.NOW,
        credentials={"west-llama": CredentialReference("a", "b", "c")},
    )
    first, second = document.envelope["overlay"]["candidates"]
    assert "credential" not in first
    assert second["credential"] == {
        "strategy": "bearer_token",
        "secretRef": {"name": "a", "namespace": "b", "key": "c"},
    }
    assert build.accepted(document.body).candidates[1].credential == ("a", "b", "c", "bearer_token")


def test_a_document_is_never_empty() -> None:
    with pytest.raises(OverlayError, match=r"edge at east has no candidate.*p \(access_denied\)") as caught:
        build.document_of(build.plan(excluded=(Exclusion("p", "s", Reason.ACCESS_DENIED),)))
    assert caught.value.reason is Reason.NO_CANDIDATES
    with pytest.raises(OverlayError, match="none is configured"):
        build.document_of(build.plan())


def test_1024_candidates_and_no_more() -> None:
    many = [build.candidate(model=f"m{number}", rank=number) for number in range(1025)]
    assert verify(build.document(*many[:1024]).body).accepted
    with pytest.raises(OverlayError, match="1025 candidates, readers take 1024") as caught:
        build.document(*many)
    assert caught.value.reason is Reason.TOO_MANY_CANDIDATES


def test_candidates_that_share_a_stable_id_are_refused_by_name() -> None:
    one, two = build.candidate(model="olmo-357b-v3"), build.candidate(model="nemotron-363b-moe", rank=1)
    assert one.stable_id == two.stable_id
    with pytest.raises(OverlayError, match=r"/olmo-357b-v3/east/.*/nemotron-363b-moe/east/") as caught:
        build.document(one, two)
    assert caught.value.reason is Reason.STABLE_ID_COLLISION


def test_two_providers_behind_one_candidate_are_refused_by_name() -> None:
    one = build.candidate()
    two = build.candidate(rank=1, provider="east-other", cluster="east-llama")
    with pytest.raises(OverlayError, match=r"provider east-llama .*provider east-other") as caught:
        build.document(one, two)
    assert caught.value.reason is Reason.STABLE_ID_COLLISION


def test_a_document_larger_than_readers_take_is_refused() -> None:
    long = "\x01" * 250  # six bytes each, escaped
    many = [build.candidate(model=f"{long}{number}", rank=number, cluster=f"{long}{number}") for number in range(1000)]
    with pytest.raises(OverlayError, match="readers take 2097152") as caught:
        build.document(*many)
    assert caught.value.reason is Reason.TOO_LARGE


def test_publishing_splices_and_changes_nothing_else() -> None:
    document = build.document()
    published = document.published(3, 2, leader="d-1", published_at=build.NOW, previous_revision="0" * 64)
    assert published.startswith(document.body[:-1])
    raw = orjson.loads(published)
    assert raw.pop("publication") == {
        "version": 3,
        "epoch": 2,
        "leader": "d-1",
        "published_at": build.NOW,
        "previous_revision": "0" * 64,
    }
    assert raw == document.envelope
    first = build.accepted(document.published(1, 1, leader="d-1", published_at=build.NOW))
    assert first.publication == Publication(1, 1, "d-1", build.NOW, None)
    assert b"null" not in document.published(1, 1, leader="d-1", published_at=build.NOW)


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(lambda text: text.strip())


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[Any], Picker | None, Contract]:
    """A plan as the policy makes them: groups of one admission, from 0, per capability."""
    picker = draw(st.none() | st.sampled_from(Picker))
    contracts = [
        contract for contract in Contract if (contract, picker) != (Contract.PRAXIS_GROUPED, Picker.SATURATION)
    ]
    candidates: list[Any] = []
    for model in draw(st.lists(texts, min_size=1, max_size=3, unique=True)):
        states = draw(st.lists(st.sampled_from(AdmissionState), min_size=1, max_size=4))
        for group, state in enumerate(states):
            for _ in range(draw(st.integers(1, 3))):
                rank = len(candidates)
                candidates.append(
                    build.candidate(
                        f"site-{draw(texts)}-{rank}",
                        model,
                        rank,
                        admission_state=state,
                        fresh=draw(st.booleans()),
                        selection_tier=draw(st.sampled_from(Tier)),
                        stable_id=f"{rank:08x}",
                        selection_group=group,
                        traffic_weight=draw(st.integers(1, 1000)),
                    )
                )
    return candidates, picker, draw(st.sampled_from(contracts))


@given(plans())
def test_whatever_is_rendered_is_accepted_and_says_what_was_planned(
    planned: tuple[list[Any], Picker | None, Contract],
) -> None:
    candidates, picker, contract = planned
    document = build.document(*candidates, picker=picker, contract=contract)
    seen = build.accepted(document.published(1, 1, leader="d", published_at=build.NOW))
    assert seen.revision == document.revision
    assert [(c.identity, c.admission_state, c.fresh, c.rank, c.stable_id) for c in seen.candidates] == [
        (c.identity, c.admission_state, c.fresh, c.rank, c.stable_id) for c in candidates
    ]
    grouped = build.gateway(picker, contract).grouped
    assert seen.picker is (picker if grouped else None)
    assert [c.selection_group for c in seen.candidates] == [c.selection_group if grouped else None for c in candidates]
