import copy
from typing import Any

import orjson
import pytest

from grid.model import AdmissionState, Exclusion, Picker, Reason, Tier
from grid.overlay import CredentialReference, Envelope, describe, render
from tests.overlay import build


def east(**changes: Any) -> Any:
    return build.candidate("east-llama", "llama-3.1-70b", **{"selection_group": 0, "traffic_weight": 100, **changes})


def west(**changes: Any) -> Any:
    fields = {"rank": 1, "selection_group": 1, "traffic_weight": 100, **changes}
    return build.candidate("west-llama", "llama-3.1-70b", **fields)


def seen(*candidates: Any, picker: Picker | None = Picker.SATURATION, **changes: Any) -> Envelope:
    return build.envelope(*candidates, picker=picker, **changes)


def test_nothing_changes_nothing_is_said() -> None:
    assert describe(seen(east(), west()), seen(east(), west())) == []
    published = build.document(east()).published(1, 2, leader="d", published_at=build.NOW)
    assert describe(build.envelope(east()), build.accepted(published)) == []


@pytest.mark.parametrize(
    ("before", "after", "sentences"),
    [
        ((east(), west()), (east(), west(selection_group=0)), ["{w} moves from group 1 to group 0"]),
        (
            (east(),),
            (east(admission_state=AdmissionState.EXISTING_ONLY),),
            ["admission of {e} changes new_and_existing -> existing_only"],
        ),
        ((east(),), (east(traffic_weight=80),), ["weight of {e} changes 100 -> 80"]),
        ((east(),), (east(fresh=False),), ["{e} turns stale"]),
        ((east(fresh=False),), (east(),), ["{e} is fresh again"]),
        ((east(),), (east(selection_tier=Tier.UNKNOWN),), ["tier of {e} changes same_site -> unknown"]),
        ((east(),), (east(stable_id="0000000a"),), ["stable id of {e} changes " + east().stable_id + " -> 0000000a"]),
        ((east(),), (east(), west()), ["{w} is added to group 1 with weight 100, admission new_and_existing"]),
        ((east(), west()), (east(),), ["{w} is removed"]),
        (
            (east(), west(selection_group=0)),
            (west(rank=0, selection_group=0), east(rank=1)),
            ["order of llama-3.1-70b in group 0 changes to {w}, {e}"],
        ),
        (
            (east(), west()),
            (west(rank=0, selection_group=0), east(rank=1, selection_group=1)),
            ["{w} moves from group 1 to group 0", "{e} moves from group 0 to group 1"],
        ),
    ],
)
def test_one_change_is_one_sentence(before: Any, after: Any, sentences: list[str]) -> None:
    names = {"e": "east-llama (llama-3.1-70b)", "w": "west-llama (llama-3.1-70b)"}
    assert describe(seen(*before), seen(*after)) == [sentence.format(**names) for sentence in sentences]


def test_the_first_document() -> None:
    assert describe(None, seen(east(), west())) == [
        "first document: 2 candidates for 1 model or tool at 2 sites, picker saturation"
    ]
    assert describe(None, seen(east(), build.candidate("east-other", "b", 1), picker=None)) == [
        "first document: 2 candidates for 2 models and tools at 1 site, picker none"
    ]


def test_from_the_plain_form_to_groups_and_back() -> None:
    plain, grouped = seen(east(), picker=None), seen(east())
    assert describe(plain, grouped) == [
        "picker changes none -> saturation",
        "east-llama (llama-3.1-70b) moves from no group to group 0",
        "weight of east-llama (llama-3.1-70b) changes none -> 100",
    ]
    assert describe(grouped, plain)[0] == "picker changes saturation -> none"


def test_order_and_additions_in_the_plain_form() -> None:
    before = seen(east(), west(), picker=None)
    turned = seen(west(rank=0), east(rank=1), picker=None)
    assert describe(before, turned) == [
        "order of llama-3.1-70b changes to west-llama (llama-3.1-70b), east-llama (llama-3.1-70b)"
    ]
    more = seen(east(), west(), build.candidate("north-llama", "llama-3.1-70b", 2), picker=None)
    assert describe(before, more) == ["north-llama (llama-3.1-70b) is added, admission new_and_existing"]


def test_a_long_order_is_cut_short() -> None:
    many = [build.candidate(f"s{number}-c", "m", number) for number in range(10)]
    turned = [build.candidate(f"s{9 - number}-c", "m", number) for number in range(10)]
    (sentence,) = describe(seen(*many, picker=None), seen(*turned, picker=None))
    assert sentence.startswith("order of m changes to s9-c (m), s8-c (m), ")
    assert sentence.endswith("s2-c (m) and 2 more")


def test_a_cluster_at_several_sites_is_named_with_its_site() -> None:
    one = build.candidate(model="m", cluster="shared")
    two = build.candidate("west-llama", "m", 1, cluster="shared")
    assert describe(seen(one, picker=None), seen(one, two, picker=None)) == [
        "west/shared (m) is added, admission new_and_existing"
    ]


def test_who_is_left_out_and_why() -> None:
    drained = Exclusion("p", "s", Reason.DRAINED, "by hand")
    before, after = seen(east()), seen(east(), excluded=(drained, Exclusion("q", "s", Reason.DISABLED)))
    told = ["provider p is left out: drained (by hand)", "provider q is left out: disabled"]
    assert describe(before, after) == told
    assert describe(None, after)[1:] == told
    assert describe(after, before) == ["provider p is no longer left out", "provider q is no longer left out"]
    other = seen(east(), excluded=(Exclusion("p", "s", Reason.DRAINED, "later"), Exclusion("q", "s", Reason.DRAINED)))
    assert describe(after, other) == ["provider q is left out: drained"]


def test_copies_in_a_group_are_slots() -> None:
    document = orjson.loads(build.document(east(), picker=Picker.RANDOM).body)
    once = build.accepted(orjson.dumps(document))
    document["overlay"]["candidates"] *= 2
    twice = build.accepted(build.resealed(document))
    assert describe(once, twice) == [
        "east-llama (llama-3.1-70b) is added to group 0 with weight 100, admission new_and_existing"
    ]
    assert describe(twice, once) == ["east-llama (llama-3.1-70b) is removed"]


def test_another_network_another_site_another_credential() -> None:
    plan = build.plan(east(), site="west")
    other = render(
        build.network(name="beta"),
        build.gateway(),
        plan,
        rendered_at=build.NOW,
        credentials={"east-llama": CredentialReference("a", "b", "c")},
    )
    assert describe(seen(east(), picker=None), build.accepted(other.body)) == [
        "network changes acme -> beta",
        "the gateway's site changes east -> west",
        "credential reference of east-llama (llama-3.1-70b) changes",
    ]


def test_a_difference_that_we_cannot_name_is_admitted() -> None:
    document = orjson.loads(build.document(east()).body)
    before = build.accepted(orjson.dumps(document))
    later = copy.deepcopy(document)
    later["overlay"]["candidates"][0]["labels"] = {"tier": "gold"}
    assert describe(before, build.accepted(build.resealed(later))) == [
        "the two differ in members that this version of Grid does not know"
    ]
