"""Sites against queueing theory, and the laws of work against their means."""

import math
import random
import statistics

import pytest

from grid.sim.virtual.clock import Clock
from grid.sim.virtual.measure import Tally, mean
from grid.sim.virtual.site import Site
from grid.sim.virtual.traffic import closed_loop, poisson
from grid.sim.virtual.work import Exponential, Fixed, Lognormal, Outcome, Work
from tests.sim.virtual.scene import Straight


def waits(site: Site, clock: Clock, work: Work, rate: float, *, requests: int, seed: int) -> Tally:
    """``requests`` arrivals at random at one site, and what came of them."""
    tally = Tally([site], clock)
    poisson(
        clock,
        [Straight(clock, site)],
        work,
        rate=rate,
        rng=random.Random(seed),
        heard=tally.heard,
        until=requests / rate,
    )
    clock.run(requests / rate + 1000.0)
    return tally


def erlang_c(servers: int, offered: float) -> float:
    """Part of arrivals that wait in M/M/c (Erlang, 1917); ``offered`` = rate x mean duration, below ``servers``."""
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(
    ("endpoints", "slots", "load"), [(1, 1, 0.5), (1, 8, 0.7), (4, 2, 0.7), (2, 12, 0.75)], ids=str
)
def test_the_mean_wait_of_random_work_is_that_of_erlang(endpoints: int, slots: int, load: float) -> None:
    clock, duration, servers = Clock(), 2.0, endpoints * slots
    rate = load * servers / duration
    site = Site("one", slots, clock, endpoints=endpoints)
    tally = waits(site, clock, Exponential(duration), rate, requests=60_000, seed=7)
    expected = erlang_c(servers, rate * duration) * duration / (servers * (1 - load))
    assert mean(tally.waits) == pytest.approx(expected, rel=0.08)
    assert mean([wait > 1e-9 for wait in tally.waits]) == pytest.approx(erlang_c(servers, rate * duration), rel=0.05)
    assert tally.overshoot / tally.answered == pytest.approx(erlang_c(servers, rate * duration), rel=0.05)


def test_the_mean_wait_of_even_work_is_half_of_that() -> None:
    """M/D/1: load x duration / (2 x (1 - load)) (Pollaczek and Khinchine)."""
    clock, load = Clock(), 0.7
    tally = waits(Site("one", 1, clock), clock, Fixed(2.0, jitter=0.0), load / 2.0, requests=60_000, seed=3)
    assert mean(tally.waits) == pytest.approx(load * 2.0 / (2 * (1 - load)), rel=0.05)


def test_who_came_first_starts_first_and_nobody_overtakes() -> None:
    clock, order = Clock(), list[tuple[float, float]]()
    site = Site("one", 2, clock, endpoints=2)

    def heard(request: object, _: Outcome) -> None:
        order.append((request.arrived, request.started))  # type: ignore[attr-defined]

    poisson(clock, [Straight(clock, site)], Exponential(1.0), rate=3.8, rng=random.Random(5), heard=heard, until=500.0)
    clock.run(2000.0)
    starts = [started for _, started in sorted(order)]
    assert len(starts) > 1500
    assert starts == sorted(starts)


def test_a_closed_loop_keeps_all_slots_busy() -> None:
    clock, site_slots = Clock(), 5
    site = Site("one", site_slots, clock)
    tally = Tally([site], clock)
    closed_loop(
        clock, [Straight(clock, site)], Fixed(0.5, jitter=0.0), clients=9, rng=random.Random(1), heard=tally.heard,
        spread=0.0,
    )  # fmt: skip
    clock.run(100.0)
    assert tally.answered == pytest.approx(site_slots * 100.0 / 0.5, abs=2 * site_slots)


@pytest.mark.parametrize("work", [Fixed(0.2), Exponential(1.5), Lognormal(), Lognormal(longest=600)], ids=str)
def test_work_has_the_mean_that_it_says(work: Work) -> None:
    rng = random.Random(11)
    services = [work(rng).service for _ in range(20_000)]
    said = work.seconds if isinstance(work, Fixed) else work.mean  # type: ignore[attr-defined]
    assert statistics.fmean(services) == pytest.approx(said, abs=4 * statistics.stdev(services) / 20_000**0.5 + 1e-9)


def test_lengths_and_durations_belong_together() -> None:
    work, rng = Lognormal(), random.Random(2)
    for _ in range(200):
        request = work(rng)
        assert 1 <= request.prompt <= work.longest
        assert 1 <= request.output <= work.longest
        assert request.first == pytest.approx(request.prompt / work.prefill)
        assert request.service == pytest.approx(request.first + request.output / work.decode)
