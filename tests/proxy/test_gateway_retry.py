"""What is tried again, elsewhere, and what is not."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
import pytest

from grid.model import Picker
from tests.proxy.raw import line, request
from tests.proxy.rig import MODEL, Provider, Rig, Script, Seen, answer, eventually, rig
from tests.support.until import until

AHEAD = {"east": 0, "west": 1}
"""East is taken while it has room."""


def says(status: int, body: bytes = b'{"error":"no"}', *headers: tuple[str, str]) -> Script:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(writer, status, body, headers)

    return script


async def breaks(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def served(made: Rig) -> Counter[str]:
    return Counter({name: len(provider.seen) for name, provider in made.providers.items()})


@pytest.mark.parametrize("status", [503, 429])
async def test_an_answer_that_says_not_now_is_replaced(status: int) -> None:
    async with rig(scripts={"east": says(status)}, groups=AHEAD) as made:
        body = orjson.dumps({"model": MODEL, "messages": ["x" * 3000]})
        got, headers, data = await made.ask(body)
        assert (got, headers["x-grid-site"], data) == (200, "west", b'{"from":"west"}')
        assert [seen.body for name in ("east", "west") for seen in made.providers[name].seen] == [body, body]
        assert (made.counted("east", "routed"), made.counted("west", "retry")) == (1, 1)
        assert made.in_flight == 0


async def test_a_provider_that_cannot_be_reached_is_passed_over_and_used_last_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("grid.gateway.health._FIRST", 60.0)
    async with rig(groups=AHEAD) as made:
        await made.providers["east"].stop()
        for number in range(3):
            status, headers, _ = await made.ask()
            assert (status, headers["x-grid-site"]) == (200, "west")
            assert made.counted("west", "retry") == 1, f"only the first one runs into it, not number {number}"
        assert made.counted("west", "fallback") == 2
        assert made.in_flight == 0


@pytest.mark.parametrize("status", [500, 502, 504, 400, 404, 408])
async def test_other_answers_are_passed_on(status: int) -> None:
    async with rig(scripts={"east": says(status, b"as it is")}, groups=AHEAD) as made:
        got, headers, data = await made.ask()
        assert (got, headers["x-grid-site"], data) == (status, "east", b"as it is")
        assert served(made) == {"east": 1, "west": 0}


async def test_502_and_504_only_where_that_is_configured() -> None:
    for status in (502, 504):
        async with rig(scripts={"east": says(status)}, groups=AHEAD, retry={"on": [502, 504]}) as made:
            assert (await made.ask())[0] == 200
    async with rig(scripts={"east": says(503)}, groups=AHEAD, retry={"on": [502, 504]}) as made:
        assert (await made.ask())[0] == 503
        await made.providers["east"].stop()
        status, _, data = await made.ask()
        assert (status, orjson.loads(data)["error"]["code"]) == (503, "no_healthy_site")
        assert served(made)["west"] == 0


async def test_retries_can_be_switched_off() -> None:
    async with rig(scripts={"east": says(429)}, groups=AHEAD, retry={"on": []}) as made:
        assert (await made.ask())[0] == 429


async def test_a_broken_exchange_may_have_been_worked_on() -> None:
    async with rig(scripts={"east": breaks}, groups=AHEAD) as made:
        status, _, data = await made.ask()
        error = orjson.loads(data)["error"]
        assert (status, error["type"], error["code"]) == (502, "server_error", "upstream_failed")
        assert served(made) == {"east": 1, "west": 0}
        assert made.in_flight == 0
    async with rig(scripts={"east": breaks}, groups=AHEAD, retry={"on": [502]}) as made:
        assert (await made.ask())[1]["x-grid-site"] == "west"


async def test_what_answers_is_no_http() -> None:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await writer.drain()

    async with rig("east", scripts={"east": script}) as made:
        status, _, data = await made.ask()
        assert (status, orjson.loads(data)["error"]["code"]) == (502, "upstream_failed")


async def test_a_provider_that_stays_silent() -> None:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, ____: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    from grid.proxy.gateway import Limits
    from grid.proxy.upstreams import Pool

    limits = Limits(pool=Pool(silence=0.5))
    async with rig(scripts={"east": script}, groups=AHEAD, limits=limits) as made:
        status, _, data = await made.ask()
        assert (status, orjson.loads(data)["error"]["code"]) == (504, "upstream_timeout")
        assert served(made) == {"east": 1, "west": 0}
        await until(lambda: made.providers["east"].broken == 1)
    async with rig(scripts={"east": script}, groups=AHEAD, limits=limits, retry={"on": [504]}) as made:
        assert (await made.ask())[0] == 200


@pytest.mark.parametrize(
    "bound",
    [{"store": True}, {"background": True}, {"previous_response_id": "resp_1"}, {"conversation": "conv_1"},
     {"conversation": {"id": "conv_1"}}, {"conversation_id": "c"}],
)  # fmt: skip
async def test_requests_bound_to_a_providers_state_stay_there(bound: dict[str, Any]) -> None:
    async with rig(scripts={"east": says(503, b"later")}, groups=AHEAD) as made:
        status, headers, data = await made.ask(bound, "/v1/responses")
        assert (status, headers["x-grid-site"], data) == (503, "east", b"later")
        await made.providers["east"].stop()
        status, headers, data = await made.ask(bound, "/v1/responses")
        assert (status, orjson.loads(data)["error"]["code"]) == (503, "no_healthy_site")
        assert served(made)["west"] == 0


async def test_when_nobody_is_left_the_providers_own_answer_is_passed_on() -> None:
    scripts = {"east": says(429, b"east is full", ("x-why", "1")), "west": says(503, b"west is down")}
    async with rig(scripts=scripts, groups=AHEAD) as made:
        status, headers, data = await made.ask()
        assert (status, headers["x-grid-site"], data) == (503, "west", b"west is down")
        assert 3 <= int(headers["retry-after"]) <= 7, "and says when to come back, since the provider did not"
        assert served(made) == {"east": 1, "west": 1}


async def test_the_last_answer_counts_where_the_next_one_cannot_be_reached() -> None:
    async with rig(scripts={"east": says(429, b"east is full", ("retry-after", "17"))}, groups=AHEAD) as made:
        await made.providers["west"].stop()
        status, headers, data = await made.ask()
        assert (status, headers["x-grid-site"], data) == (429, "east", b"east is full")
        assert headers.getall("retry-after") == ["17"]
        assert made.in_flight == 0


async def test_a_large_answer_that_cannot_be_kept_is_passed_on_all_the_same() -> None:
    large = b"x" * 300_000
    async with rig("east", scripts={"east": says(503, large)}) as made:
        status, headers, data = await made.ask()
        assert (status, data) == (503, large)
    # Where another could be tried, it is not kept.
    async with rig(scripts={"east": says(503, large)}, groups=AHEAD) as made:
        await made.providers["west"].stop()
        status, headers, data = await made.ask()
        assert (status, orjson.loads(data)["error"]["code"]) == (503, "no_healthy_site")
        assert "retry-after" in headers


async def test_a_provider_that_the_configuration_does_not_name_is_passed_over() -> None:
    def without_east(settings: dict[str, Any]) -> None:
        del settings["providers"]["east"]

    async with rig(groups=AHEAD, change=without_east) as made:
        status, headers, _ = await made.ask()
        assert (status, headers["x-grid-site"]) == (200, "west")


async def test_a_provider_without_a_url_is_passed_over() -> None:
    def without_url(settings: dict[str, Any]) -> None:
        del settings["providers"]["east"]["url"]

    async with rig(groups=AHEAD, change=without_url) as made:
        assert (await made.ask())[1]["x-grid-site"] == "west"


async def test_nobody_can_be_reached() -> None:
    async with rig() as made:
        for provider in made.providers.values():
            await provider.stop()
        for _ in range(3):
            status, headers, data = await made.ask()
            error = orjson.loads(data)["error"]
            assert (status, error["type"], error["code"]) == (503, "server_error", "no_healthy_site")
            assert 3 <= int(headers["retry-after"]) <= 7
            assert "127.0.0.1" not in error["message"]
        assert made.in_flight == 0
        assert made.counted("", "no_route") == 3


async def test_every_provider_is_tried_once_at_most() -> None:
    names = ("a", "b", "c", "d")
    async with rig(*names, scripts=dict.fromkeys(names, says(503))) as made:
        assert (await made.ask())[0] == 503
        assert served(made) == dict.fromkeys(names, 1)


async def test_once_the_answer_has_begun_nothing_is_tried_again() -> None:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        writer.transport.abort()

    async with rig(scripts={"east": script}, groups=AHEAD, retry={"on": ["connect", 502, 503]}) as made:
        async with line(made.url) as client:
            await client.send(request(b'{"model":"llama"}'))
            assert (await client.reader.readuntil(b"3\r\nabc\r\n")).startswith(b"HTTP/1.1 200 OK")
            assert await client.closed(), "the end is missing, and that shows"
        assert served(made) == {"east": 1, "west": 0}
        await until(lambda: made.in_flight == made.gateway.in_progress == 0)


async def test_the_budget_bounds_what_is_tried_again() -> None:
    async with rig(scripts={"east": says(503, b"no")}, groups=AHEAD, retry={"budget": "10%", "min_per_s": 0}) as made:
        tried = 0
        for _ in range(100):
            headers = (await made.ask())[1]
            tried += headers["x-grid-site"] == "west"
            # East would be used last after so many failures; that is not what is looked at here.
            made.gateway.client.targets[0].health = None
            made.gateway.client.tick(time.monotonic())
        assert 8 <= tried <= 12
        denied = made.gateway.metrics.registry.get_sample_value("grid_gateway_retries_denied_total")
        assert denied == 100 - tried


async def test_a_refusal_that_comes_before_the_body_has_ended() -> None:
    """Whether it may be tried again is only known at the end of the body."""

    async def early(_: Provider, __: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(writer, 503, b"busy")
        await reader.read()

    parts = [b'{"model":"llama","messages":[', b"1,2,3", b"]"]
    for ending, status in ((b"}", 200), (b',"store":true}', 503)):

        async def body(last: bytes = ending) -> AsyncIterator[bytes]:
            for part in (*parts, last):
                yield part
                await asyncio.sleep(0.05)

        async with rig(scripts={"east": early}, groups=AHEAD) as made:
            made.providers["east"].read_body = False
            async with made.client.post(f"{made.url}/v1/chat/completions", data=body()) as got:
                assert got.status == status
            if status == 200:
                assert made.providers["west"].seen[0].body == b"".join([*parts, ending])


async def test_failing_answers_set_a_provider_back_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(writer, 500 if bad else 200)

    monkeypatch.setattr("grid.gateway.health._FIRST", 60.0)
    bad = True
    async with rig(scripts={"east": script}, groups=AHEAD) as made:
        statuses = [(await made.ask())[0] for _ in range(20)]
        assert statuses.count(500) <= 6
        assert statuses[-5:] == [200] * 5, "west answers"
    monkeypatch.setattr("grid.gateway.health._FIRST", 0.3)
    async with rig(scripts={"east": script}, groups=AHEAD) as made:

        async def goes_to(site: str) -> bool:
            return bool((await made.ask())[1]["x-grid-site"] == site)

        await eventually(lambda: goes_to("west"))
        bad = False
        await eventually(lambda: goes_to("east"))


async def test_turns_go_on_past_one_that_fails() -> None:
    names: Sequence[str] = ("a", "b", "c")
    async with rig(*names, picker=Picker.ROUND_ROBIN) as made:
        sites = [(await made.ask())[1]["x-grid-site"] for _ in range(60)]
        assert sites == ["a", "b", "c"] * 20
