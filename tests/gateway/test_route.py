"""What is under way: counted once, taken back once, on every way out."""

import asyncio
import random

import pytest

from grid.gateway import Affinity, Decision, Router, RoutingError, Settings
from grid.model import Kind, Picker
from tests.gateway.stage import Time, grouped, loads, router
from tests.overlay.build import candidate, envelope


@pytest.fixture
def plain() -> Router:
    made = Router("edge", clock=Time(), bits=random.Random(1).getrandbits)
    made.apply(envelope(candidate("east-llama"), candidate("west-llama", rank=1)))
    return made


def test_a_request_counts_while_it_is_under_way(plain: Router) -> None:
    with plain.route("llama") as decision:
        assert decision.site == "east"
        with plain.route("llama"):
            assert plain.in_flight == {"east/east-llama": 2}
        assert plain.in_flight == {"east/east-llama": 1}
    assert plain.in_flight == {}


def test_an_error_takes_it_back(plain: Router) -> None:
    def fail() -> None:
        with plain.route("llama"):
            assert plain.in_flight
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert plain.in_flight == {}


async def test_a_cancelled_request_takes_it_back(plain: Router) -> None:
    entered = asyncio.Event()

    async def request() -> None:
        with plain.route("llama"):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(request())
    await entered.wait()
    assert plain.in_flight == {"east/east-llama": 1}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert plain.in_flight == {}


async def test_a_client_that_leaves_mid_stream_takes_it_back(plain: Router) -> None:
    async def stream() -> object:
        with plain.route("llama"):
            yield "a"
            yield "b"

    parts = stream()
    assert await anext(parts) == "a"  # type: ignore[call-overload]
    assert plain.in_flight == {"east/east-llama": 1}
    await parts.aclose()  # type: ignore[attr-defined]
    assert plain.in_flight == {}


async def test_a_timeout_takes_it_back(plain: Router) -> None:
    async def request() -> None:
        with plain.route("llama"):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(request(), 0.01)
    assert plain.in_flight == {}


def test_leaving_twice_takes_back_once(plain: Router) -> None:
    one, other = plain.route("llama"), plain.route("llama")
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    one.__exit__(None, None, None)
    assert plain.in_flight == {"east/east-llama": 1}
    other.__exit__(None, None, None)
    assert plain.in_flight == {}


@pytest.mark.parametrize("more", [{}, {"session": "s"}, {"kind": Kind.MCP_TOOL}])
def test_leaving_without_having_entered_changes_nothing(plain: Router, more: dict[str, object]) -> None:
    plain.route("llama", **more).__exit__(None, None, None)  # type: ignore[arg-type]
    assert plain.in_flight == {}


@pytest.mark.parametrize("more", [{}, {"session": "s"}, {"kind": Kind.MCP_TOOL}])
def test_a_refused_request_was_never_under_way(plain: Router, more: dict[str, object]) -> None:
    with pytest.raises(RoutingError), plain.route("gpt", **more):  # type: ignore[arg-type]
        pytest.fail("there is no such model")
    assert plain.in_flight == {}


def test_a_route_that_is_entered_later_picks_by_the_document_of_then(plain: Router) -> None:
    later = plain.route("llama")
    plain.apply(envelope(candidate("south-llama")))
    with later as decision:
        assert decision.site == "south"


def test_choosing_and_counting_are_one_step() -> None:
    """Five hundred requests that come at once see each other, so three equal sites get their thirds."""
    made = router(0, 0, 0)
    made.observe(loads(0.0, 0.0, 0.0, capacity=1000.0), 100.0)

    async def request() -> None:
        with made.route("llama"):
            await asyncio.sleep(0)

    async def all_at_once() -> list[int]:
        tasks = [asyncio.create_task(request()) for _ in range(500)]
        await asyncio.sleep(0)
        seen = sorted(made.in_flight.values())
        await asyncio.gather(*tasks)
        return seen

    with asyncio.Runner() as runner:
        seen = runner.run(all_at_once())
    assert sum(seen) == 500
    assert seen[-1] - seen[0] <= 8
    assert made.in_flight == {}


def test_counts_outlive_documents_and_come_back_to_nothing() -> None:
    made = router(0, 0, picker=Picker.ROUND_ROBIN)
    one, other = made.route("llama"), made.route("llama")
    one.__enter__()
    other.__enter__()
    made.apply(grouped(0, picker=Picker.ROUND_ROBIN))
    assert made.in_flight == {"s0/s0-llama": 1, "s1/s1-llama": 1}, "still under way, though no document names it"
    other.__exit__(None, None, None)
    made.apply(grouped(0, 0, picker=Picker.ROUND_ROBIN))
    assert made.in_flight == {"s0/s0-llama": 1}
    one.__exit__(None, None, None)
    assert made.in_flight == {}


@pytest.mark.timeout(600)
async def test_a_hundred_thousand_mixed_ends_leave_exactly_nothing() -> None:
    """Completed, failed, refused, cancelled, retried, bound, timed out, while documents and frames change."""
    rng = random.Random(9)
    made = router(0, 0, 0, 1, 1, settings=Settings(affinity=Affinity(max_sessions=500)), seed=9)
    ended = {"done": 0, "failed": 0, "cancelled": 0}

    async def request(number: int) -> None:
        session = f"s{number % 700}" if number % 3 == 0 else None
        tried: list[Decision] = []
        for _ in range(1 + (number % 5 == 0)):
            with made.route("llama", session=session, tried=tried) as decision:
                tried.append(decision)
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                if number % 7 == 0:
                    raise ConnectionError

    async def one(number: int) -> None:
        try:
            async with asyncio.timeout(None if number % 11 else 0):
                await request(number)
            ended["done"] += 1
        except asyncio.CancelledError:
            ended["cancelled"] += 1
            raise
        except (ConnectionError, TimeoutError, RoutingError):
            ended["failed"] += 1

    number = 0
    for batch in range(500):
        tasks = []
        for _ in range(200):
            tasks.append(asyncio.create_task(one(number)))
            number += 1
        await asyncio.sleep(0)
        if batch % 10 == 0:
            made.observe(loads(*(rng.uniform(0.2, 1.3) for _ in range(5)), capacity=40.0), 100.0)
        if batch % 25 == 0:
            made.apply(grouped(*((0, 0, 0, 1, 1) if batch % 50 else (0, 0, 0, 1))))
        for task in rng.sample(tasks, 40):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert number == 100_000
    assert min(ended.values()) > 5000
    assert {target.own for target in made.targets} == {0}
    assert made.in_flight == {}
