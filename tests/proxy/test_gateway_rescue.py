"""Requests that wait where nothing is ready any more."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.proxy.rig import Provider, Rig, Seen, answer, rig
from tests.support.until import until

AHEAD = {"east": 0, "west": 1}
DEAD = {"ready": 0, "capacity": 0.0, "held": 0.0, "saturation": None, "load": None}


async def holds(_: Provider, __: Seen, ___: asyncio.StreamReader, ____: asyncio.StreamWriter) -> None:
    """As an EPP whose engines are gone: the request waits and waits."""
    await asyncio.sleep(60)


async def asked(made: Rig, number: int, body: Any = None) -> "list[asyncio.Task[Any]]":
    tasks = [asyncio.create_task(made.ask(body)) for _ in range(number)]
    await until(lambda: made.gateway.in_progress == number == made.providers["east"].begun)
    return tasks


async def test_they_are_cancelled_there_and_sent_elsewhere() -> None:
    async with rig(scripts={"east": holds}, groups=AHEAD) as made:
        tasks = await asked(made, 6, {"messages": ["hello"]})
        assert (made.gateway.client.in_flight, len(made.providers["west"].seen)) == ({"east/east-llama": 6}, 0)
        made.frame(east=DEAD)
        for status, headers, data in await asyncio.gather(*tasks):
            assert (status, headers["x-grid-site"], data) == (200, "west", b'{"from":"west"}')
        east, west = made.providers.values()
        await until(lambda: east.broken == 6)
        assert [seen.body for seen in west.seen] == [seen.body for seen in east.seen]
        assert made.counted("west", "rescue") == 6
        assert made.in_flight == 0
        assert (await made.ask())[1]["x-grid-site"] == "west", "new ones do not go there at all"


async def test_the_rescued_are_spread_by_what_has_room() -> None:
    go_on = asyncio.Event()

    async def slow(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        await answer(writer)

    async with rig("east", "west", "south", scripts={"east": holds, "west": slow, "south": slow},
                   groups={"east": 0, "west": 1, "south": 1}) as made:  # fmt: skip
        tasks = await asked(made, 8)
        made.frame(east=DEAD)
        in_flight = made.gateway.client.in_flight
        east, west, south = (in_flight[f"{name}/{name}-llama"] for name in made.providers)
        assert (east, west + south) == (8, 8)
        assert min(west, south) >= 3
        go_on.set()
        await asyncio.gather(*tasks)
        assert [len(provider.seen) for provider in made.providers.values()] == [8, west, south]
        assert made.in_flight == 0


async def test_once_only() -> None:
    async with rig("east", "west", "south", scripts={"east": holds, "west": holds},
                   groups={"east": 0, "west": 1, "south": 2}) as made:  # fmt: skip
        (task,) = await asked(made, 1)
        made.frame(east=DEAD)
        await until(lambda: made.providers["west"].begun == 1)
        made.frame(east=DEAD, west=DEAD)
        made.frame(east=DEAD, west=DEAD)
        await until(lambda: made.gateway.client.in_flight == {"west/west-llama": 1})
        assert made.providers["south"].seen == []
        assert (made.counted("west", "rescue"), made.counted("south", "rescue")) == (1, 0)
        task.cancel()
        await until(lambda: made.in_flight == 0)


async def test_where_there_is_nowhere_else_it_stays_until_there_is() -> None:
    go_on = asyncio.Event()

    async def revived(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        await answer(writer, body=b"after all")

    async with rig(scripts={"east": revived}, groups=AHEAD) as made:
        (task,) = await asked(made, 1)
        made.frame(east=DEAD, west=DEAD)
        await asyncio.sleep(0.1)
        go_on.set()
        status, headers, data = await task
        assert (status, headers["x-grid-site"], data) == (200, "east", b"after all")
    async with rig(scripts={"east": holds}, groups=AHEAD) as made:
        (task,) = await asked(made, 1)
        made.frame(east=DEAD, west=DEAD)
        made.frame(east=DEAD)
        assert (await task)[1]["x-grid-site"] == "west"


@pytest.mark.parametrize("bound", [{"store": True}, {"previous_response_id": "r"}])
async def test_what_is_bound_to_the_provider_stays(bound: dict[str, Any]) -> None:
    async with rig(scripts={"east": holds}, groups=AHEAD) as made:
        (task,) = await asked(made, 1, bound)
        made.frame(east=DEAD)
        assert made.gateway.client.in_flight == {"east/east-llama": 1}
        task.cancel()
        await until(lambda: made.in_flight == 0)
        assert made.providers["west"].seen == []


async def test_it_can_be_switched_off() -> None:
    async with rig(scripts={"east": holds}, groups=AHEAD, rescue=False) as made:
        (task,) = await asked(made, 1)
        made.frame(east=DEAD)
        assert made.gateway.client.in_flight == {"east/east-llama": 1}
        task.cancel()
        await until(lambda: made.in_flight == 0)


async def test_an_answer_that_has_begun_is_left_to_its_end() -> None:
    go_on = asyncio.Event()

    async def begun(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc")
        await go_on.wait()
        writer.write(b"def")
        await writer.drain()

    async with rig(scripts={"east": begun}, groups=AHEAD) as made, made.post() as got:
        assert await got.content.readexactly(3) == b"abc"
        made.frame(east=DEAD)
        go_on.set()
        assert await got.read() == b"def"
        assert made.counted("west", "rescue") == 0


async def test_a_site_that_still_has_something_ready_is_left_alone() -> None:
    async with rig(scripts={"east": holds}, groups=AHEAD) as made:
        (task,) = await asked(made, 1)
        made.frame(east={"ready": 1, "held": 50.0, "saturation": 6.0, "load": 6.0})
        made.frame(east={"ready": None})
        assert made.gateway.client.in_flight == {"east/east-llama": 1}
        task.cancel()
        await until(lambda: made.in_flight == 0)


async def test_a_rescued_request_may_still_be_tried_again() -> None:
    async def busy(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(writer, 503, b"busy")

    async with rig("east", "west", "south", scripts={"east": holds, "west": busy},
                   groups={"east": 0, "west": 1, "south": 2}) as made:  # fmt: skip
        (task,) = await asked(made, 1)
        made.frame(east=DEAD)
        status, headers, _ = await task
        assert (status, headers["x-grid-site"]) == (200, "south")
        assert (made.counted("west", "rescue"), made.counted("south", "retry")) == (1, 1)


async def test_the_client_may_leave_in_the_same_moment() -> None:
    """Both ends of the wait come in one turn of the loop; nothing is left of either."""
    async with rig(scripts={"east": holds, "west": holds}, groups=AHEAD) as made:
        for order in (0, 1):
            tasks = await asked_again(made, 5)
            if order:
                made.frame(east=DEAD)
            for task in tasks:
                task.cancel()
            if not order:
                made.frame(east=DEAD)
            await until(lambda: made.in_flight == made.gateway.in_progress == 0)
            made.frame()
            assert made.gateway.shared.waiting == {}


async def asked_again(made: Rig, number: int) -> "list[asyncio.Task[Any]]":
    before = made.providers["east"].begun
    tasks = [asyncio.create_task(made.ask()) for _ in range(number)]
    await until(lambda: made.providers["east"].begun == before + number)
    return tasks


async def test_the_error_of_the_last_resort_is_told() -> None:
    async with rig(scripts={"east": holds}, groups=AHEAD) as made:
        (task,) = await asked(made, 1)
        await made.providers["west"].stop()
        made.frame(east=DEAD)
        status, _, data = await task
        assert (status, orjson.loads(data)["error"]["code"]) == (503, "no_healthy_site")
        assert made.in_flight == 0


async def test_a_client_that_is_gone_already_is_not_sent_elsewhere() -> None:
    async with rig(scripts={"east": holds}, groups=AHEAD) as made:
        (task,) = await asked(made, 1)
        ((exchange,),) = made.gateway.shared.waiting.values()
        made.frame(east=DEAD)
        assert made.gateway.client.in_flight == {"east/east-llama": 1, "west/west-llama": 1}
        exchange._inbound._lost()
        await until(lambda: made.in_flight == made.gateway.in_progress == 0)
        assert made.providers["west"].seen == []
        task.cancel()


async def test_with_one_provider_only_there_is_nowhere_else() -> None:
    async with rig("east", scripts={"east": holds}) as made:
        (task,) = await asked(made, 1)
        made.frame(east=DEAD)
        assert made.gateway.client.in_flight == {"east/east-llama": 1}
        task.cancel()
        await until(lambda: made.in_flight == 0)
