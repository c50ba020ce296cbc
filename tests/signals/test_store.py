"""What the store remembers of each provider, and that none touches another's."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.model import Problem, Reading, Reason, ScrapeError
from grid.signals.readiness import ProbeResult
from grid.signals.scrape import Scrape
from grid.signals.store import SampleStore, Snapshot

IDLE = Reading(dialect="llm_d_epp", pool="a", ready=2, average_queue_size=0.0, started_at=1000.0, poll_errors=5.0)


def scrape(at: float, reading: Reading = IDLE, **more: Any) -> Scrape:
    return Scrape(reading, received_at=at, **more)


def reading(*, started_at: float | None = 1000.0, poll_errors: float | None = None) -> Reading:
    return Reading(ready=1, started_at=started_at, poll_errors=poll_errors)


def codes(problems: tuple[Problem, ...]) -> list[Reason]:
    return [problem.code for problem in problems]


def test_a_scrape_becomes_the_newest_sample() -> None:
    store = SampleStore(["a"])
    hint = Problem(Reason.LIVE_READY_HINT)
    sample = store.apply("a", scrape(10.0, cost_s=0.02, page_bytes=60_000, problems=(hint,)), interval=2.0)
    assert sample is not None
    assert (sample.provider, sample.sequence, sample.received_at, sample.interval) == ("a", 1, 10.0, 2.0)
    assert (sample.cost, sample.page_bytes, sample.reading, sample.problems) == (0.02, 60_000, IDLE, (hint,))
    assert (sample.healthy, sample.restarted) == (None, False)
    assert store.state("a").sample == sample
    assert store.snapshot().samples == {"a": sample}


def test_every_scrape_counts_even_where_all_values_are_the_same() -> None:
    store = SampleStore(["a"])
    sequences = []
    for at in range(5):
        sample = store.apply("a", scrape(float(at)), interval=2.0)
        assert sample is not None
        sequences.append(sample.sequence)
    assert sequences == [1, 2, 3, 4, 5]


def test_a_new_start_time_is_a_restart() -> None:
    store = SampleStore(["a"])
    seen = []
    for at, started_at in enumerate([1000.0, 1000.0, 2000.0, 2000.0, None, 2000.0]):
        sample = store.apply("a", scrape(float(at), reading(started_at=started_at)), interval=2.0)
        assert sample is not None
        seen.append((sample.restarted, codes(sample.problems)))
    quiet: tuple[bool, list[Reason]] = (False, [])
    assert seen == [quiet, quiet, (True, [Reason.RESTARTED]), quiet, quiet, quiet]
    assert store.state("a").restarts == 1


def test_a_rise_of_poll_errors_is_said_once_per_rise() -> None:
    store = SampleStore(["a"])
    seen = []
    for at, errors in enumerate([None, 7.0, 7.0, 9.0, 9.0, 39.0]):
        sample = store.apply("a", scrape(float(at), reading(poll_errors=errors)), interval=2.0)
        assert sample is not None
        seen.append([problem.detail for problem in sample.problems if problem.code is Reason.POLL_ERRORS])
    more = "{} more since the last scrape"
    assert seen == [[], [more.format(7)], [], [more.format(2)], [], [more.format(30)]]


def test_a_restart_is_no_rise_of_poll_errors() -> None:
    store = SampleStore(["a"])
    store.apply("a", scrape(1.0, reading(started_at=100.0, poll_errors=3.0)), interval=2.0)
    sample = store.apply("a", scrape(2.0, reading(started_at=200.0, poll_errors=4.0)), interval=2.0)
    assert sample is not None
    assert codes(sample.problems) == [Reason.RESTARTED]


def test_failures_are_counted_and_the_last_sample_stays() -> None:
    wall = iter([500.0, 510.0, 520.0])
    store = SampleStore(["a"], wall_clock=lambda: next(wall))
    good = store.apply("a", scrape(1.0), interval=2.0)
    store.fail("a", ScrapeError("GET http://a answered late", reason=Reason.TIMEOUT))
    last = store.fail("a", Problem(Reason.CONNECT_REFUSED, "nobody there"))
    assert last is not None
    assert (last.problem, last.at, last.count, last.consecutive) == (
        Problem(Reason.CONNECT_REFUSED, "nobody there"), 510.0, 2, 2,
    )  # fmt: skip
    state = store.state("a")
    assert state.sample == good
    assert state.failures == {Reason.TIMEOUT: 1, Reason.CONNECT_REFUSED: 1}
    store.apply("a", scrape(9.0), interval=2.0)
    state = store.state("a")
    assert state.last_error is not None
    assert (state.last_error.problem, state.last_error.count, state.last_error.consecutive) == (last.problem, 2, 0)
    last = store.fail("a", ScrapeError("GET http://a answered late", reason=Reason.TIMEOUT))
    assert last is not None
    assert (last.count, last.consecutive, last.problem.detail) == (3, 1, "GET http://a answered late")
    assert (state.successes, store.state("a").attempts) == (2, 5)
    assert store.state("a").failures[Reason.TIMEOUT] == 2


def test_two_stale_providers_show_whichever_was_read_last() -> None:
    """Three models over four sites, one model unreadable at two sites: exactly those two show it, in any order."""
    names = [f"{model}@{site}" for model in ("m1", "m2", "m3") for site in ("n", "e", "s", "w")]
    broken = {"m2@e", "m2@w"}
    for order in (names, list(reversed(names)), sorted(names, key=lambda name: name in broken)):
        store = SampleStore(names)
        for beat in range(3):
            for name in order:
                if name in broken and beat:
                    store.fail(name, ScrapeError("no answer", reason=Reason.TIMEOUT))
                else:
                    store.apply(name, scrape(float(beat)), interval=2.0)
        states = store.snapshot().states
        assert {name for name, state in states.items() if state.last_error} == broken
        assert {name: state.sample.received_at for name, state in states.items() if state.sample} == {
            name: 0.0 if name in broken else 2.0 for name in names
        }


def test_probes_stand_beside_the_samples() -> None:
    store = SampleStore(["a", "b", "c"])
    store.probed("a", ProbeResult(False, Problem(Reason.PROBE_DENIED, "status 503")))
    store.probed("b", ProbeResult(None, Problem(Reason.PROBE_FAILED)))
    assert store.snapshot().probes == {"a": False, "b": None}
    sample = store.apply("a", scrape(1.0), interval=2.0)
    assert sample is not None
    assert sample.healthy is False
    store.probed("a", ProbeResult(True))
    assert store.snapshot().samples["a"].healthy is True
    assert store.snapshot().samples["a"].sequence == 1
    assert store.state("a").probe == ProbeResult(True)


def test_a_snapshot_never_changes() -> None:
    store = SampleStore(["a", "b"])
    store.apply("a", scrape(1.0), interval=2.0)
    before = store.snapshot()
    assert store.snapshot() is before
    samples = dict(before.samples)
    store.apply("a", scrape(2.0), interval=2.0)
    store.fail("b", Problem(Reason.TIMEOUT))
    store.probed("a", ProbeResult(True))
    store.sync(["b"])
    assert before.samples == samples
    assert sorted(before.states) == ["a", "b"]
    assert before.states["b"].last_error is None
    assert store.snapshot() is not before
    with pytest.raises(TypeError):
        before.samples["a"] = samples["a"]  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        before.round_complete = True  # type: ignore[misc]


def test_a_round_is_complete_when_all_have_been_tried() -> None:
    store = SampleStore(["a", "b"])
    assert not store.snapshot().round_complete
    store.apply("a", scrape(1.0), interval=2.0)
    store.apply("a", scrape(2.0), interval=2.0)
    assert not store.snapshot().round_complete
    store.fail("b", Problem(Reason.DNS_FAILED))
    assert store.snapshot().round_complete
    store.sync(["a", "b", "c"])
    assert not store.snapshot().round_complete
    assert SampleStore().snapshot() == Snapshot({}, {}, {}, round_complete=True)


def test_removed_providers_are_forgotten_and_their_late_results_dropped() -> None:
    store = SampleStore(["a", "b"])
    for name in "ab":
        store.apply(name, scrape(1.0), interval=2.0)
    store.sync(["b", "c"])
    assert store.apply("a", scrape(2.0), interval=2.0) is None
    assert store.fail("a", Problem(Reason.TIMEOUT)) is None
    store.probed("a", ProbeResult(True))
    store.forget("a")
    assert sorted(store.snapshot().states) == ["b", "c"]
    assert list(store.snapshot().samples) == ["b"]
    with pytest.raises(KeyError):
        store.state("a")
    store.forget("b")
    assert store.state("b").attempts == 0
    assert store.snapshot().samples == {}


def test_one_observation_read_twice_is_no_new_one() -> None:
    """A Prometheus that scrapes every 15 s tells the same thing to who asks every 2 s."""
    store = SampleStore(["a"])
    first = store.apply("a", scrape(100.0, sampled_at=7000.0, observed_every=15.0), interval=2.0)
    again = store.apply("a", scrape(100.004, sampled_at=7000.0, observed_every=15.0, cost_s=0.5), interval=2.0)
    assert first is not None
    assert again is not None
    assert (again.sequence, again.received_at, again.interval, again.cost) == (1, 100.0, 15.0, 0.5)
    newer = store.apply("a", scrape(115.0, sampled_at=7015.0, observed_every=15.0), interval=20.0)
    assert newer is not None
    assert (newer.sequence, newer.received_at, newer.interval) == (2, 115.0, 20.0)
    assert store.state("a").successes == 3


def test_an_older_observation_of_a_second_prometheus_is_not_taken() -> None:
    store = SampleStore(["a"])
    changed = reading(started_at=1.0)
    store.apply("a", scrape(100.0, sampled_at=7000.0), interval=2.0)
    lagging = store.apply("a", scrape(93.0, changed, sampled_at=6993.0), interval=2.0)
    assert lagging is not None
    assert (lagging.sequence, lagging.received_at, lagging.reading, lagging.restarted) == (1, 100.0, IDLE, False)
    # Its clock may even have been set back: our own receive time decides.
    newer = store.apply("a", scrape(104.0, sampled_at=3400.0), interval=2.0)
    assert newer is not None
    assert newer.sequence == 2


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["apply", "fail", "probed", "sync"]), st.integers(0, 3)),
        max_size=60,
    )
)
def test_counts_agree_whatever_the_order(steps: list[tuple[str, str, int]]) -> None:
    store = SampleStore("ab", wall_clock=lambda: 0.0)
    good: dict[str, int] = {"a": 0, "b": 0}
    bad: dict[str, int] = {"a": 0, "b": 0}
    for at, (name, kind, number) in enumerate(steps):
        if kind == "sync":
            keep = "abc"[: number + 1]
            store.sync(keep)
            good, bad = ({key: counts.get(key, 0) for key in keep} for counts in (good, bad))
        elif kind == "apply":
            sample = store.apply(name, scrape(float(at)), interval=1.0)
            if name in good:
                good[name] += 1
                assert sample is not None
                assert sample.sequence == good[name]
        elif kind == "fail":
            store.fail(name, Problem([Reason.TIMEOUT, Reason.DNS_FAILED][number % 2]))
            if name in bad:
                bad[name] += 1
        else:
            store.probed(name, ProbeResult([True, False, None][number % 3]))
    states = store.snapshot().states
    assert {name: state.successes for name, state in states.items()} == good
    assert {name: sum(state.failures.values()) for name, state in states.items()} == bad
