"""What is under way: counted once, taken back once, on every way out."""

import asyncio
import random

import pytest

from grid.gateway import Route, RoutingError, Snapshot
from grid.gateway.flights import Flights
from grid.model import Kind, Picker
from tests.overlay.build import candidate, envelope


@pytest.fixture
def flights() -> Flights:
    return Flights()


def route(flights: Flights, model: str = "llama") -> Route:
    made = envelope(candidate("east-llama"), candidate("west-llama", rank=1))
    return Route(Snapshot.build(made, random.Random(1).getrandbits), flights, model, Kind.INFERENCE_MODEL)


def test_a_request_counts_while_it_is_under_way(flights: Flights) -> None:
    with route(flights) as pick:
        assert pick.site == "east"
        with route(flights):
            assert flights.in_flight == {"east/east-llama": 2}
        assert flights.in_flight == {"east/east-llama": 1}
    assert flights.in_flight == {}


def test_an_error_takes_it_back(flights: Flights) -> None:
    def fail() -> None:
        with route(flights):
            assert flights.in_flight
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert flights.in_flight == {}


async def test_a_cancelled_request_takes_it_back(flights: Flights) -> None:
    entered = asyncio.Event()

    async def request() -> None:
        with route(flights):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(request())
    await entered.wait()
    assert flights.in_flight == {"east/east-llama": 1}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert flights.in_flight == {}


def test_leaving_twice_takes_back_once(flights: Flights) -> None:
    one, other = route(flights), route(flights)
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    one.__exit__(None, None, None)
    assert flights.in_flight == {"east/east-llama": 1}
    other.__exit__(None, None, None)
    assert flights.in_flight == {}


def test_leaving_without_having_entered_changes_nothing(flights: Flights) -> None:
    route(flights).__exit__(None, None, None)
    assert flights.in_flight == {}


def test_a_refused_request_was_never_under_way(flights: Flights) -> None:
    with pytest.raises(RoutingError), route(flights, "gpt"):
        pytest.fail("there is no such model")
    assert flights.in_flight == {}


async def test_many_requests_at_once_leave_nothing_behind(flights: Flights) -> None:
    rng = random.Random(9)
    made = envelope(
        *(candidate(f"s{n}-llama", rank=n, selection_group=0, traffic_weight=100) for n in range(3)),
        picker=Picker.ROUND_ROBIN,
    )
    snapshot = Snapshot.build(made, rng.getrandbits)

    async def request() -> None:
        with Route(snapshot, flights, "llama", Kind.INFERENCE_MODEL):
            await asyncio.sleep(0)
            if rng.random() < 0.3:
                raise RuntimeError

    tasks = [asyncio.create_task(request()) for _ in range(500)]
    await asyncio.sleep(0)
    assert sum(flights.in_flight.values()) == 500
    assert max(flights.in_flight.values()) - min(flights.in_flight.values()) <= 1
    for task in rng.sample(tasks, 100):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert flights.in_flight == {}


def test_rates_are_those_since_the_last_look(flights: Flights) -> None:
    assert flights.rates(10.0) == {}
    for _ in range(6):
        with route(flights):
            pass
    flights.begin("west/west-llama")
    assert flights.rates(12.0) == {"east/east-llama": 3.0, "west/west-llama": 0.5}
    assert flights.rates(12.0) == {}
    flights.begin("west/west-llama")
    assert flights.rates(16.0) == {"west/west-llama": 0.25}
