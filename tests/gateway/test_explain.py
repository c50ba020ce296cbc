"""A decision in words: every candidate at the step that settled it, with the numbers seen."""

from collections.abc import Sequence
from typing import Any

import pytest

from grid.gateway import Affinity, Decision, Router, Settings
from grid.model import AdmissionState, Picker
from tests.gateway.stage import frame, grouped, hold, loads, router, signal

NEW, EXISTING, NONE = AdmissionState.NEW_AND_EXISTING, AdmissionState.EXISTING_ONLY, AdmissionState.NONE


def told(decision: Decision) -> list[tuple[str, str, str]]:
    return [(line.step, line.site, line.verdict) for line in decision.explain()]


def check_whole(decision: Decision) -> None:
    """Everybody once, the one taken last, steps in order."""
    lines = decision.explain()
    places = decision.place.served.places
    assert sorted(line.site for line in lines) == sorted(place.candidate.site for place in places)
    assert (lines[-1].site, lines[-1].estimate) == (decision.site, decision.estimate)
    order = ["admission", "health", "affinity", "group", "picker"]
    steps = [order.index(line.step) for line in lines[:-1]]
    assert steps == sorted(steps)
    assert all(line.verdict for line in lines)


def test_every_step_has_its_words_and_numbers() -> None:
    made = router(0)
    made.apply(grouped(0, 0, 0, 1, 2, 3, states=(NEW,) * 4 + (EXISTING, NONE)))
    made.observe(frame(signal(0, 0.25), signal(1, 0.5, 20.0), signal(2, 0.1, ready=0), signal(3, 0.0)), 100.0)
    hold(made, 1, 2)
    decision = made.pick("llama")
    check_whole(decision)
    assert told(decision) == [
        ("admission", "s4", "takes no new work: existing_only"),
        ("admission", "s5", "takes no new work: none"),
        ("health", "s2", "its newest signal says that nothing is ready there"),
        ("group", "s3", "group 1 was not reached"),
        ("picker", "s1", "compared, and not lower"),
        ("picker", "s0", "the lower of the two with room"),
    ]
    compared = decision.explain()[-2]
    assert (compared.cluster, compared.group, compared.own, compared.capacity) == ("s1-llama", 0, 2, 20.0)
    assert compared.estimate == pytest.approx(0.6)


def verdicts(made: Router, **more: Any) -> dict[str, str]:
    decision = made.pick("llama", **more)
    check_whole(decision)
    return {site: f"{step}: {verdict}" for step, site, verdict in told(decision)}


def test_spill_says_which_group_is_full() -> None:
    made = router(0, 1, 1)
    made.observe(loads(1.0, None, 0.5), 100.0)
    assert verdicts(made) == {
        "s0": "group: group 0 has no room",
        "s1": "group: its load is unknown, and one of known load has room",
        "s2": "picker: the only one with room in its group; group 0 has no room",
    }


def test_inside_the_group_room_and_the_draw_decide() -> None:
    made = router(0, 0, 0, 0, 0)
    made.observe(loads(0.5, 0.5, 0.5, 0.5, 1.0), 100.0)
    found = verdicts(made)
    assert sorted(found.values()) == [
        "picker: compared, and not lower",
        "picker: no room: its estimate is at or above the spill bound",
        "picker: not drawn",
        "picker: not drawn",
        "picker: the lower of two drawn by capacity",
    ]


def test_the_last_resort_and_a_draw_without_trust() -> None:
    made = router(0, 1)
    made.observe(loads(1.0, 1.0), 100.0)
    assert set(verdicts(made).values()) == {
        "picker: not drawn, or a longer queue, or past the overflow bound",
        "picker: nobody has room: drawn by capacity among the shortest queues",
    }
    made = router(0, 0)
    assert set(verdicts(made).values()) == {
        "picker: the other of the two",
        "picker: drawn of the two with room; their estimates cannot be relied on now",
    }


@pytest.mark.parametrize(
    ("picker", "groups", "words"),
    [
        (Picker.ROUND_ROBIN, (0, 0), {"picker: its turn", "picker: not its turn"}),
        (Picker.RANDOM, (0, 0), {"picker: drawn, all alike", "picker: not drawn"}),
        (Picker.WEIGHTED_RANDOM, (0, 0), {"picker: drawn by weight", "picker: not drawn"}),
        (None, (None, None), {"picker: first of the document's order", "picker: not drawn"}),
        (Picker.ROUND_ROBIN, (0, 1), {"picker: its turn", "group: group 1 was not reached"}),
    ],
)
def test_load_blind_pickers(picker: Picker | None, groups: Sequence[int | None], words: set[str]) -> None:
    assert set(verdicts(router(*groups, picker=picker)).values()) == words


def test_health_and_attempts() -> None:
    made = router(0, 0, 1)
    first = made.pick("llama")
    made.connect_failed(first)
    other = made.pick("llama")
    set_back = "health: set back: its connections fail, its answers are errors, or its cluster is reported down"
    assert verdicts(made)[first.site] == set_back
    found = verdicts(made, tried=[first, other])
    assert found["s2"] == "picker: the only one with room in its group; attempt 3"
    assert found[first.site] == found[other.site] == "admission: it failed this request already"
    found = verdicts(made, allowed=[first.place.target])
    assert found["s2"] == "admission: admission control holds the request to others"
    assert found[first.site].endswith("; set back for its health, and nobody else is left")


def test_sessions() -> None:
    made = router(0, 0, settings=Settings(affinity=Affinity()))
    made.observe(loads(0.1, 0.5), 100.0)
    assert verdicts(made, session="s")["s0"].endswith("with room; the session is bound to it from now on")
    assert verdicts(made, session="s") == {"s0": "affinity: the session is bound to it", "s1": "affinity: not asked"}
    made.clusters_down(["s0-llama"])
    words = "; the session could not stay where it was and is bound to it from now on"
    assert verdicts(made, session="s")["s1"].endswith(words)
    made = router(0, 0, settings=Settings(affinity=Affinity(hashed=True)))
    assert set(verdicts(made, session="s").values()) == {
        "picker: the session's hash prefers it within its load bound",
        "picker: the session's hash prefers another, or it is past its load bound",
    }
