"""What the gateway counts, where it shows it, and what never becomes a label."""

import asyncio
import time
from typing import Any

import aiohttp
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from grid.model import AdmissionState
from tests.overlay.build import candidate, envelope
from tests.proxy.rig import Provider, Rig, Seen, answer, rig
from tests.support.until import until

AHEAD = {"east": 0, "west": 1}
LISTEN: Any = {"metrics_listen": "127.0.0.1:0"}


async def page(made: Rig) -> dict[str, list[Any]]:
    listener = made.gateway.metrics_listener
    assert listener is not None
    async with made.client.get(f"{listener.url}/metrics") as got:
        assert got.status == 200
        text = (await got.read()).decode()
    return {family.name: family.samples for family in text_string_to_metric_families(text)}


async def test_the_page_has_a_listener_of_its_own() -> None:
    async with rig("east", **LISTEN) as made:
        await made.ask()
        families = await page(made)
        assert {"grid_route_decisions", "grid_gateway_request_duration_seconds", "grid_gateway_first_byte_seconds",
                "grid_gateway_in_flight", "grid_gateway_estimated_load", "grid_gateway_estimate_error",
                "grid_gateway_has_document", "grid_gateway_retries_denied"} <= set(families)  # fmt: skip
        (document,) = families["grid_gateway_has_document"]
        assert document.value == 1
        listener = made.gateway.metrics_listener
        assert listener is not None
        for path, status in (("/livez", 200), ("/readyz", 200), ("/v1/models", 200), ("/v1/explain?model=llama", 200),
                             ("/v1/admission", 404), ("/v1/chat/completions", 404)):  # fmt: skip
            async with made.client.get(f"{listener.url}{path}") as got:
                assert (got.status, path) == (status, path)


async def test_every_reason_of_a_decision() -> None:
    answers: dict[str, int] = {}

    async def script(provider: Provider, _: Seen, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(writer, answers.get(provider.name, 200))

    async with rig(scripts=dict.fromkeys(("east", "west"), script), groups=AHEAD, **LISTEN) as made:
        full = {"held": 9.0, "saturation": 1.1, "load": 1.1}
        await made.ask()
        assert made.counted("east", "routed") == 1
        made.frame(east=full)
        await made.ask()
        assert made.counted("west", "spilled") == 1
        made.frame(east={**full, "queue": 0.0}, west={"held": 8.2, "saturation": 1.02, "load": 1.02, "queue": 3.0})
        await made.ask()
        assert made.counted("east", "overflow") == 1
        made.frame(east={"ready": 0})
        await made.ask()
        assert made.counted("west", "fallback") == 1
        made.frame(east={"ready": 0}, west={"ready": 0})
        await made.ask()
        assert made.counted("east", "demoted") == 1
        made.frame()
        answers["east"] = 503
        await made.ask()
        assert made.counted("west", "retry") == 1
        await made.ask({"model": "gpt"})
        await made.ask(b"nonsense")
        made.gateway.client.apply(envelope(candidate("east-llama", admission_state=AdmissionState.NONE)))
        await made.ask()
        assert [made.counted("", reason) for reason in ("model_not_found", "bad_request", "no_route")] == [1, 1, 1]
        samples = (await page(made))["grid_route_decisions"]
        assert sum(sample.value for sample in samples) == 10


async def test_names_of_clients_never_become_labels() -> None:
    async with rig("east", **LISTEN) as made:
        for number in range(50):
            await made.ask({"model": f"made-up-{number}", "user": "u"}, headers={"x-tenant": f"t{number}"})
            await made.ask({}, f"/v1/embeddings?key={number}")
        families = await page(made)
        labels = {
            (name, value)
            for samples in families.values()
            for sample in samples
            for name, value in sample.labels.items()
        }
        assert not [value for _, value in labels if "made-up" in value or value.startswith("t4")]
        assert {value for name, value in labels if name == "site"} == {"", "east"}
        assert {value for name, value in labels if name == "status"} == {"2xx", "4xx"}


async def test_in_flight_and_first_bytes_are_shown_as_they_are() -> None:
    gate = asyncio.Event()

    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        await asyncio.sleep(0.1)
        writer.write(b"ab")
        await gate.wait()
        writer.write(b"cd")
        await writer.drain()

    async with rig("east", scripts={"east": script}, **LISTEN) as made:
        began = time.monotonic()
        tasks = [asyncio.create_task(made.ask()) for _ in range(3)]
        await until(lambda: len(made.providers["east"].seen) == 3)
        (sample,) = (await page(made))["grid_gateway_in_flight"]
        assert (sample.labels, sample.value) == ({"site": "east", "cluster": "east-llama"}, 3)
        (estimate,) = (await page(made))["grid_gateway_estimated_load"]
        assert estimate.value == 3 / 8
        value = made.gateway.metrics.registry.get_sample_value
        await until(lambda: value("grid_gateway_first_byte_seconds_count", {"site": "east"}) == 3)
        most = time.monotonic() - began
        took = value("grid_gateway_first_byte_seconds_sum", {"site": "east"})
        assert took is not None
        assert 0.3 <= took <= 3 * most
        assert value("grid_gateway_request_duration_seconds_count", {"site": "east", "status": "2xx"}) is None
        gate.set()
        await asyncio.gather(*tasks)
        await until(
            lambda: value("grid_gateway_request_duration_seconds_count", {"site": "east", "status": "2xx"}) == 3
        )
        means = made.gateway.shared.first_bytes.take()
        assert 0.1 <= means["east/east-llama"] <= most
        assert made.gateway.shared.first_bytes.take() == {}


async def test_how_far_off_the_estimates_were() -> None:
    async with rig("east") as made:
        made.frame(east={"held": 4.0, "saturation": 0.5, "load": 0.5})
        await asyncio.sleep(0.15)  # a sample of its own
        made.frame(east={"held": 6.0, "saturation": 0.75, "load": 0.75})
        value = made.gateway.metrics.registry.get_sample_value
        assert (value("grid_gateway_estimate_error_count", {"site": "east"}) or 0) >= 1
        assert (value("grid_gateway_estimate_error_sum", {"site": "east"}) or 0) >= 0.25


async def test_an_answer_that_breaks_off_is_counted_against_its_provider() -> None:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\nabc")
        await writer.drain()
        writer.transport.abort()

    async with rig("east", scripts={"east": script}) as made:
        for _ in range(2):
            with pytest.raises(aiohttp.ClientError):
                await made.ask()
        value = made.gateway.metrics.registry.get_sample_value
        await until(lambda: value("grid_gateway_broken_answers_total", {"site": "east"}) == 2)


async def test_a_decision_can_be_asked_for_without_a_request() -> None:
    async with rig(groups=AHEAD) as made:
        made.frame(east={"held": 9.0, "saturation": 1.1, "load": 1.1})
        async with made.client.get(f"{made.url}/v1/explain?model=llama") as got:
            shown = orjson.loads(await got.read())
        assert (shown["model"], shown["admission"], shown["refused"]) == ("llama", None, None)
        assert (shown["decision"]["site"], shown["decision"]["case"], shown["decision"]["spilled"]) == (
            "west",
            "only_one",
            True,
        )
        assert {(line["site"], line["own"]) for line in shown["considered"]} == {("east", 0), ("west", 0)}
        assert all(line["verdict"] for line in shown["considered"])
        async with made.client.get(f"{made.url}/v1/explain?model=gpt") as got:
            assert orjson.loads(await got.read())["refused"]["code"] == "model_not_found"
        async with made.client.get(f"{made.url}/v1/explain") as got:
            assert orjson.loads(await got.read())["refused"]["code"] == "bad_model"
        assert sum(len(provider.seen) for provider in made.providers.values()) == 0
