from grid.model import AdmissionState, Drain, Problem, Reading, Reason
from grid.policy import Event, PolicyMemory, as_previous, replay
from tests.policy.build import admissions, busy, edge, groups, network, provider, reading, sample

NETWORK = network(provider("a"), provider("b"), gateways=(edge(),))
GOOD, GONE = busy(2), reading(0)


def scraped(at: float, name: str, page: Reading, number: int, probe: bool | None = None) -> Event:
    return Event(at, name, sample(page, at, number, provider=name), probe=probe)


def failed(at: float, name: str) -> Event:
    return Event(at, name, problem=Problem(Reason.TIMEOUT))


def steady(seconds: int) -> list[Event]:
    """Both are read every 2 s, half an interval apart; ``a`` loses its endpoints at 10 s."""
    events = []
    for number in range(seconds // 2):
        at = number * 2.0
        events.append(scraped(at, "a", GOOD if at < 10 else GONE, number + 1))
        events.append(scraped(at + 1, "b", GOOD, number + 1))
    return events


def test_every_event_makes_a_pass() -> None:
    passes = list(replay(NETWORK, steady(20)))
    assert [entry.at for entry in passes] == [float(second) for second in range(20)]
    lost = [entry.at for entry in passes if groups(entry.outcome)[0] == ["b"] and entry.at > 1]
    assert lost[0] == 10.0
    closed = [entry.at for entry in passes if admissions(entry.outcome)["a"] is AdmissionState.NONE]
    assert closed[0] == 12.0


def test_the_same_recording_gives_the_same_passes() -> None:
    assert list(replay(NETWORK, steady(30))) == list(replay(NETWORK, iter(steady(30))))


def test_a_burst_is_one_pass() -> None:
    events = [scraped(0.0, "a", GOOD, 1), scraped(0.015, "b", GOOD, 1), scraped(0.03, "a", GOOD, 2)]
    passes = list(replay(NETWORK, events))
    assert [(entry.at, len(entry.events)) for entry in passes] == [(0.015, 2), (0.03, 1)]


def test_time_alone_makes_passes_so_that_samples_age() -> None:
    events = [scraped(0.0, "a", GOOD, 1), scraped(0.0, "b", GOOD, 1), failed(9.0, "a")]
    passes = list(replay(NETWORK, events))
    assert [entry.at for entry in passes] == [0.0, 2.0, 4.0, 6.0, 8.0, 9.0]
    assert [entry.events == () for entry in passes] == [False, True, True, True, True, False]
    assert "fresh to stale" in passes[4].outcome.sentence
    assert [entry.at for entry in replay(NETWORK, events, every=5.0)] == [0.0, 5.0, 9.0]


def test_until_ends_it_or_carries_it_on() -> None:
    events = steady(20)
    assert [entry.at for entry in replay(NETWORK, events, until=4.5)][-1] == 4.5
    longer = [entry.at for entry in replay(NETWORK, events, until=24.0)]
    assert longer[-3:] == [21.0, 23.0, 24.0]
    assert list(replay(NETWORK, [], until=24.0)) == []


def test_the_round_is_complete_when_every_provider_was_tried() -> None:
    there = list(replay(NETWORK, [scraped(0.0, "a", GOOD, 1)]))
    memory = there[-1].outcome.memory
    events = [scraped(10.0, "a", GONE, 2), scraped(11.0, "a", GONE, 3), failed(12.0, "b")]
    states = [admissions(entry.outcome)["a"] for entry in replay(NETWORK, events, memory=memory)]
    assert states == [AdmissionState.NEW_AND_EXISTING, AdmissionState.NEW_AND_EXISTING, AdmissionState.NONE]


def test_probes_count_as_of_their_event() -> None:
    events = [
        scraped(0.0, "a", GOOD, 1, probe=False),
        scraped(0.0, "b", GOOD, 1),
        Event(1.0, "a", problem=Problem(Reason.TIMEOUT)),
    ]
    passes = list(replay(NETWORK, events))
    assert [entry.outcome.decisions["a"].demoted for entry in passes] == [True, True]
    assert passes[-1].outcome.decisions["a"].reason is Reason.ZERO_READY


def test_drains_and_memory_are_taken_along() -> None:
    drains = {"a": Drain(id="1", target="a")}
    found = next(iter(replay(NETWORK, steady(2), drains=drains, memory=PolicyMemory(passes=41))))
    assert admissions(found.outcome)["a"] is AdmissionState.EXISTING_ONLY
    assert found.outcome.memory.passes == 42


def test_a_reload_and_drains_take_effect_where_they_stand() -> None:
    smaller = network(provider("b"), gateways=(edge(),))
    drains = {"b": Drain(id="1", target="b")}
    events = [*steady(4), Event(4.0, network=smaller), scraped(5.0, "a", GOOD, 9), Event(6.0, drains=drains)]
    passes = list(replay(NETWORK, events))
    assert [entry.at for entry in passes] == [0.0, 1.0, 2.0, 3.0, 4.0, 6.0]
    assert "a: no longer configured" in passes[4].outcome.changes
    assert admissions(passes[5].outcome) == {"b": AdmissionState.EXISTING_ONLY}


def test_events_of_a_provider_that_goes_in_the_same_burst_are_dropped() -> None:
    smaller = network(provider("b"), gateways=(edge(),))
    events = [scraped(0.0, "b", GOOD, 1), Event(0.0, network=smaller), scraped(0.01, "a", GOOD, 1)]
    assert set(list(replay(NETWORK, events))[-1].outcome.decisions) == {"b"}
    events = [Event(0.0, network=smaller), scraped(0.0, "a", GOOD, 1), scraped(0.01, "b", GOOD, 1)]
    assert set(list(replay(NETWORK, events))[-1].outcome.decisions) == {"b"}


def test_events_of_unknown_providers_are_ignored() -> None:
    assert [entry.at for entry in replay(NETWORK, [scraped(0.0, "z", GOOD, 1), *steady(2)])] == [0.0, 1.0]


def test_a_network_without_providers_has_nothing_to_replay() -> None:
    assert list(replay(network(gateways=(edge(),)), steady(4))) == []


def test_a_plan_becomes_the_previous_document() -> None:
    plan = list(replay(NETWORK, steady(4)))[-1].outcome.plans["edge"]
    assert [(entry.site, entry.fresh) for entry in as_previous(plan)] == [("a", True), ("b", True)]
