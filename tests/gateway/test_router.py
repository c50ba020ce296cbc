"""The order of steps: who may take it, affinity, group, picker; retries; what documents and frames keep."""

import asyncio
from collections import Counter

import pytest

from grid.gateway import Decision, Router, RoutingError
from grid.model import AdmissionState, Kind, Picker, Reason
from tests.gateway.stage import Time, frame, grouped, hold, loads, members, router, signal
from tests.overlay.build import accepted, candidate, document, envelope

NEW, EXISTING, NONE = AdmissionState.NEW_AND_EXISTING, AdmissionState.EXISTING_ONLY, AdmissionState.NONE
BLIND = [Picker.ROUND_ROBIN, Picker.RANDOM, Picker.WEIGHTED_RANDOM]


def caught(made: Router, name: object = "llama", kind: Kind = Kind.INFERENCE_MODEL) -> RoutingError:
    with pytest.raises(RoutingError) as found:
        made.pick(name, kind)  # type: ignore[arg-type]
    return found.value


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("gpt", 404, Reason.MODEL_NOT_FOUND),
        ("", 400, Reason.BAD_MODEL),
        (["llama"], 400, Reason.BAD_MODEL),
        (None, 400, Reason.BAD_MODEL),
        ("m" * 257, 400, Reason.BAD_MODEL),
    ],
)
def test_what_nobody_serves(name: object, status: int, reason: Reason) -> None:
    for kind in Kind:
        error = caught(router(0), name, kind)
        assert (error.status, error.reason, error.retry_after) == (status, reason, None)


def test_before_the_first_document() -> None:
    made = Router("edge", clock=Time())
    error = caught(made)
    assert (error.status, error.reason) == (503, Reason.NO_OVERLAY)
    assert error.retry_after in range(3, 8)
    assert caught(made, " ").status == 400
    assert (made.snapshot, made.targets, made.in_flight, made.sessions) == (None, [], {}, 0)


@pytest.mark.parametrize(
    ("states", "status"),
    [((EXISTING, EXISTING), 429), ((EXISTING, NONE), 429), ((NONE, NONE), 503), ((NONE, EXISTING), 429)],
)
def test_held_back_is_429_and_nobody_is_503(states: tuple[AdmissionState, ...], status: int) -> None:
    made = router(0)
    made.apply(grouped(0, 1, states=states))
    for more in ({}, {"allowed": made.targets}, {"allowed": made.targets[:1]}):
        with pytest.raises(RoutingError) as found:
            made.pick("llama", **more)  # type: ignore[arg-type]
        assert found.value.status == status


def test_tools_are_a_kind_of_their_own() -> None:
    tool = candidate("t-search", "search", kind=Kind.MCP_TOOL)
    made = Router(clock=Time())
    made.apply(envelope(*members(None), tool))
    assert made.pick("search", Kind.MCP_TOOL).kind is Kind.MCP_TOOL
    with made.route("search", Kind.MCP_TOOL) as decision:
        assert made.in_flight == {"t/t-search": 1}
        assert decision.name == "search"
    assert caught(made, "search").status == 404


# --- groups without load --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("picker", BLIND)
def test_load_blind_pickers_stay_in_the_first_group_that_takes_new_work(picker: Picker) -> None:
    made = router(0, picker=picker)
    made.apply(grouped(0, 1, 1, 2, picker=picker, states=(EXISTING, NEW, NEW, NEW)))
    made.observe(loads(0.0, 5.0, 5.0, 0.0), 100.0)
    seen = {(d.site, d.reason) for d in (made.pick("llama") for _ in range(200))}
    assert seen == {("s1", "fallback"), ("s2", "fallback")}


def test_sixty_serial_requests_over_three_equal_sites_take_exact_turns() -> None:
    made = router(0, 0, 0, picker=Picker.ROUND_ROBIN)
    turns = []
    for number in range(60):
        with made.route("llama") as decision:
            turns.append(decision.site)
        if number % 7 == 0:
            made.observe(loads(0.1 * (number % 3), 0.5, 0.9), 100.0)
    assert turns == ["s0", "s1", "s2"] * 20


async def test_turns_are_exact_for_callers_at_once() -> None:
    made = router(0, 0, 0, 0, 0, picker=Picker.ROUND_ROBIN)

    async def request() -> str:
        await asyncio.sleep(0)
        with made.route("llama") as decision:
            await asyncio.sleep(0)
            return decision.site

    seen = Counter(await asyncio.gather(*(request() for _ in range(500))))
    assert seen == Counter({f"s{n}": 100 for n in range(5)})


def test_interleaved_models_do_not_disturb_each_other() -> None:
    made = Router(clock=Time())
    made.apply(envelope(*members(0, 0, model="x"), *members(0, 0, 0, model="y"), picker=Picker.ROUND_ROBIN))
    seen = [(made.pick("x").site, made.pick("y").site) for _ in range(60)]
    assert Counter(x for x, _ in seen) == {"s0": 30, "s1": 30}
    assert Counter(y for _, y in seen) == {"s0": 20, "s1": 20, "s2": 20}


def test_interleaved_models_share_what_is_known_of_a_site() -> None:
    made = Router(clock=Time())
    made.apply(envelope(*members(0, 0, model="x"), *members(0, 0, model="y"), picker=Picker.SATURATION))
    made.observe(loads(0.0, 0.0), 100.0)
    for n in range(200):
        made.pick("xy"[n % 2]).place.target.begin()
        if n >= 10:
            break
    counts = [target.own for target in made.targets]
    assert max(counts) - min(counts) <= 1, "what one model sends counts for the other"


def test_the_same_revision_keeps_the_turns_and_another_restarts_them() -> None:
    made = Router(clock=Time())
    first = document(*members(0, 0, 0), picker=Picker.ROUND_ROBIN)

    def publish(version: int, epoch: int) -> None:
        made.apply(accepted(first.published(version, epoch, leader="d", published_at="2026-01-02T00:00:00Z")))

    publish(1, 1)
    assert [made.pick("llama").site for _ in range(2)] == ["s0", "s1"]
    publish(1, 2)
    assert [made.pick("llama").site for _ in range(2)] == ["s2", "s0"]
    made.apply(grouped(0, 0, picker=Picker.ROUND_ROBIN))
    assert made.pick("llama").site == "s0"


# --- retries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("picker", [*BLIND, Picker.SATURATION])
def test_who_failed_is_not_tried_again(picker: Picker) -> None:
    made = router(0, 0, 1, 2, picker=picker)
    tried: list[Decision] = []
    for attempt in range(1, 5):
        decision = made.pick("llama", tried=tried)
        assert decision.attempt == attempt
        assert decision.reason == ("retry" if attempt > 1 else "routed")
        tried.append(decision)
    assert sorted(decision.site for decision in tried) == ["s0", "s1", "s2", "s3"]
    assert [decision.site for decision in tried[2:]] == ["s2", "s3"], "the near ones first"
    with pytest.raises(RoutingError) as found:
        made.pick("llama", tried=tried)
    assert (found.value.status, found.value.reason) == (503, Reason.NO_HEALTHY_SITE)


def test_in_the_plain_form_the_next_in_order_is_tried() -> None:
    made = router(None, None, None, picker=None)
    first = made.pick("llama")
    second = made.pick("llama", tried=[first])
    assert [first.site, second.site, made.pick("llama", tried=[first, second]).site] == ["s0", "s1", "s2"]
    assert second.case == "in_order"


def test_a_retry_takes_the_next_turn_and_the_others_keep_theirs() -> None:
    made = router(0, 0, 0, picker=Picker.ROUND_ROBIN)
    seen: Counter[str] = Counter()
    for _ in range(300):
        decision = made.pick("llama")
        if decision.site == "s0":
            decision = made.pick("llama", tried=[decision])
        seen[decision.site] += 1
    assert seen == {"s1": 150, "s2": 150}


def test_a_retry_looks_at_the_newest_document() -> None:
    made = router(0, 0)
    first = made.pick("llama")
    made.apply(grouped(0, 0, 0))
    made.observe(loads(0.9, 0.9, 0.1), 100.0)
    assert made.pick("llama", tried=[first]).site == "s2"


def test_who_failed_is_known_by_name_across_documents() -> None:
    made = router(0, 0, picker=Picker.ROUND_ROBIN)
    first = made.pick("llama")
    assert first.site == "s0"
    made.apply(envelope(candidate("x-llama")))
    made.apply(grouped(0, 0, picker=Picker.ROUND_ROBIN))
    assert first.place.target not in made.targets
    assert {made.pick("llama", tried=[first]).site for _ in range(10)} == {"s1"}


def test_demoted_providers_are_tried_when_the_others_failed() -> None:
    made = router(0, 0)
    made.clusters_down(["s0-llama"])
    first = made.pick("llama")
    second = made.pick("llama", tried=[first])
    assert (first.site, second.site, second.demoted) == ("s1", "s0", True)
    assert made.pick("llama", allowed=[t for t in made.targets if t.site == "s0"]).site == "s0"


# --- what it is told ------------------------------------------------------------------------------------------------


def test_whoever_is_around_it_hears_of_documents_and_frames() -> None:
    made = Router(clock=Time())
    heard: list[object] = []
    made.on_document = lambda: heard.append("document")
    made.on_frame = lambda frame, at: heard.append((frame.sequence, at))
    made.observe(frame(sequence=1), 100.0)
    made.apply(grouped(0))
    made.observe(frame(signal(0, 0.1), sequence=2), 101.0)
    assert heard == [(1, 100.0), "document", (2, 101.0)]


def test_the_budget_of_retries_turns_with_time() -> None:
    made = router(0)
    assert sum(made.retries.take(100.0) for _ in range(100)) == 30
    made.tick(111.0)
    assert made.retries.level == 30


def test_providers_that_nobody_names_go_when_nothing_is_in_flight() -> None:
    made = router(0, 0)
    hold(made, 1, 1)
    made.apply(grouped(0))
    assert [target.site for target in made.targets] == ["s0", "s1"]
    made.targets[1].end()
    made.apply(grouped(0))
    assert [target.site for target in made.targets] == ["s0"]
    made.observe(loads(0.5, 0.5), 101.0)
    assert made.scale == 1.0
