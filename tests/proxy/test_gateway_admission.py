"""Admission control in front of the choice: who waits, who goes where, what is told."""

import asyncio
import time
from typing import Any

import orjson
import pytest

from grid.model import Picker
from grid.proxy.asgi import App
from grid.proxy.gateway import Limits
from grid.proxy.listener import Listener
from tests.overlay.build import candidate, envelope
from tests.proxy.raw import line, request
from tests.proxy.rig import Provider, Rig, Seen, answer, rig
from tests.proxy.test_gateway_disconnect import based, repeating
from tests.support.until import until

BANDS = [
    {"name": "gold", "match": {"header": "x-priority", "value": "gold"}, "ceiling": 1.0},
    {"name": "bronze", "ceiling": 0.1},
]
GOLD, BRONZE = {"x-priority": "gold"}, {"x-priority": "bronze"}
AHEAD = {"east": 0, "west": 1}


class Gate:
    """Providers whose requests end one by one, when told to."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Event] = []

    async def __call__(
        self, provider: Provider, _: Seen, __: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        mine = asyncio.Event()
        self.waiting.append(mine)
        await mine.wait()
        await answer(writer, body=provider.name.encode())

    async def end(self, number: int = 1) -> None:
        """Once so many are here: a provider has counted a request as seen before its body and this script come."""
        await until(lambda: len(self.waiting) >= number)
        for _ in range(number):
            self.waiting.pop(0).set()


def waiting(made: Rig) -> int:
    """Requests in the queue."""
    assert made.gateway.shared.entrance is not None
    return made.gateway.shared.entrance.admission.waiting


async def all_end(tasks: "list[asyncio.Task[Any]]", gate: Gate) -> None:
    """End one request after the other until every task is done."""
    while not all(task.done() for task in tasks):
        if gate.waiting:
            await gate.end()
        await asyncio.sleep(0.01)


def policy(trusted: bool = True, running: int = 2, **changes: Any) -> Any:
    def change(settings: dict[str, Any]) -> None:
        settings["admission"] = {"queue": {"bands": BANDS, "max_wait": "60s", **changes}}
        settings["gateways"]["edge"]["admission"] = "queue"
        if trusted:
            settings["gateways"]["edge"]["trusted_proxies"] = ["127.0.0.0/8"]
        for provider in settings["providers"].values():
            provider["max_running"] = running

    return change


def seen(made: Rig, name: str = "east") -> int:
    return len(made.providers[name].seen)


def frame(made: Rig, **signals: Any) -> None:
    """Every pool has two slots and what the gateway itself has there."""
    own = made.gateway.client.in_flight
    usual = {
        name: {"capacity": 2.0, "held": float(own.get(f"{name}/{name}-llama", 0)), "queue": 0.0, "queue_capacity": 1.0}
        for name in made.providers
    }
    made.frame(**{name: {**usual[name], **signals.get(name, {})} for name in made.providers})


async def test_it_waits_for_a_slot_and_says_how_long_it_did() -> None:
    gate = Gate()
    async with rig("east", scripts={"east": gate}, change=policy()) as made:
        frame(made)
        first = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(2)]
        await until(lambda: seen(made) == 2)
        asked = time.monotonic()
        third = asyncio.create_task(made.ask(headers=BRONZE))
        await until(lambda: waiting(made) == 1)
        waits = time.monotonic()
        await asyncio.sleep(0.1)
        assert seen(made) == 2, "a full pool takes no more of this band"
        least = time.monotonic() - waits
        await gate.end()
        await gate.end(2)
        status, headers, data = await third
        most = time.monotonic() - asked
        assert (status, data, headers["x-grid-band"], headers["x-grid-site"]) == (200, b"east", "bronze", "east")
        assert least * 1e3 - 1 <= int(headers["x-grid-queue-wait-ms"]) <= most * 1e3 + 1
        for _, told, _ in await asyncio.gather(*first):
            assert told["x-grid-queue-wait-ms"] == "0"
        assert made.in_flight == 0
        assert made.gateway.shared.entrance is not None
        assert made.gateway.shared.entrance.describe()["slots"] == 0


async def test_bands_are_strict_and_believed_from_trusted_addresses_only() -> None:
    for trusted in (True, False):
        gate = Gate()
        async with rig("east", scripts={"east": gate}, change=policy(trusted)) as made:
            frame(made)
            tasks = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(2)]
            await until(lambda: seen(made) == 2)
            tasks += [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(2)]
            await until(lambda: waiting(made) == 2)
            tasks.append(asyncio.create_task(made.ask(headers=GOLD)))
            if trusted:  # up to the healthy limit: one may queue in the pool
                await until(lambda: seen(made) == 3)
                assert made.providers["east"].seen[2].header("x-priority") == "gold"
            else:
                await until(lambda: waiting(made) == 3)
                await asyncio.sleep(0.1)
                assert seen(made) == 2
            await all_end(tasks, gate)
            bands = [task.result()[1]["x-grid-band"] for task in tasks]
            assert bands == ["bronze"] * 4 + ["gold" if trusted else "bronze"]


async def test_the_pick_is_held_to_pools_with_room() -> None:
    """East comes first by the document, but only west has a slot left below the band's ceiling."""
    async with rig(groups=AHEAD, change=policy()) as made:
        frame(made, east={"held": 2.0, "saturation": 1.0, "load": 0.5})
        for _ in range(4):
            assert (await made.ask(headers=BRONZE))[1]["x-grid-site"] == "west"
        assert seen(made, "east") == 0


async def test_a_queue_that_is_full() -> None:
    gate = Gate()
    async with rig("east", scripts={"east": gate}, change=policy(max_queued=2)) as made:
        frame(made)
        tasks = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(4)]
        await until(lambda: seen(made) == 2 and waiting(made) == 2)
        status, headers, data = await made.ask(headers=BRONZE)
        error = orjson.loads(data)["error"]
        assert (status, error["type"], error["code"]) == (503, "server_error", "queue_full")
        assert int(headers["retry-after"]) >= 1
        assert headers["x-grid-band"] == "bronze"
        assert made.counted("", "queue_full") == 1
        await all_end(tasks, gate)
        assert made.in_flight == 0


async def test_a_queue_that_takes_too_long() -> None:
    gate = Gate()
    async with rig("east", scripts={"east": gate}, change=policy(max_wait="300ms")) as made:
        frame(made)
        running = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(2)]
        await until(lambda: seen(made) == 2)
        for status, headers, data in await asyncio.gather(*(made.ask(headers=BRONZE) for _ in range(2))):
            error = orjson.loads(data)["error"]
            assert (status, error["type"], error["code"]) == (504, "server_error", "queue_timeout")
            assert int(headers["retry-after"]) >= 1
            assert int(headers["x-grid-queue-wait-ms"]) >= 0
        assert made.counted("", "queue_timeout") == 2
        await gate.end(2)
        await asyncio.gather(*running)
        assert made.in_flight == 0


async def test_nothing_is_shed_where_admission_decides() -> None:
    async with rig("east", change=policy()) as made:
        frame(made, east={"held": 9.0, "saturation": 4.5, "load": 4.5})
        task = asyncio.create_task(made.ask(headers=BRONZE))
        await until(lambda: waiting(made) == 1)
        await asyncio.sleep(0.05)
        assert not task.done(), "it waits"
        frame(made)
        assert (await task)[0] == 200
        assert made.counted("", "shed") == 0


async def test_an_unknown_model_does_not_wait() -> None:
    async with rig("east", change=policy()) as made:
        frame(made, east={"held": 9.0, "saturation": 4.5, "load": 4.5})
        status, _, data = await made.ask({"model": "gpt"})
        assert (status, orjson.loads(data)["error"]["code"]) == (404, "model_not_found")


async def test_without_a_number_the_declared_capacity_holds() -> None:
    gate = Gate()
    async with rig("east", scripts={"east": gate}, change=policy()) as made:
        # No frame but the one with the document, and that says nothing of the pool.
        made.frame(east={"held": None, "saturation": None, "load": None, "age_s": None, "queue": None})
        tasks = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(5)]
        await until(lambda: waiting(made) == 3)
        await asyncio.sleep(0.1)
        assert seen(made) == 2
        await all_end(tasks, gate)
        assert {task.result()[0] for task in tasks} == {200}


async def test_a_document_without_a_frame_is_enough_to_hold_the_declared_capacity() -> None:
    gate = Gate()
    async with rig("east", scripts={"east": gate}, change=policy(), document=False) as made:
        made.gateway.client.apply(envelope(candidate("east-llama", selection_group=0), picker=Picker.SATURATION))
        tasks = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(4)]
        await until(lambda: waiting(made) == 2)
        await asyncio.sleep(0.1)
        assert seen(made) == 2
        await all_end(tasks, gate)


def direct(app: App) -> App:
    return app


@pytest.mark.parametrize("wrap", [direct, based, repeating])
async def test_a_client_that_leaves_the_queue_holds_nothing(wrap: Any) -> None:
    gate = Gate()
    async with rig("east", scripts={"east": gate}, change=policy()) as made:
        listener = Listener(wrap(made.gateway.app), "127.0.0.1", 0)
        await listener.start()
        frame(made)
        running = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(2)]
        await until(lambda: seen(made) == 2)
        for _ in range(3):
            async with line(listener.url) as client:
                await client.send(request(b'{"model":"llama"}', "x-priority: bronze"))
                await until(lambda: waiting(made) == 1)
                client.hang_up()
                await until(lambda: made.gateway.in_progress == 2)
        assert waiting(made) == 0
        last = asyncio.create_task(made.ask(headers=BRONZE))
        await until(lambda: waiting(made) == 1)
        await gate.end()
        await gate.end(2)
        assert (await last)[0] == 200
        await asyncio.gather(*running)
        assert made.gateway.shared.entrance is not None
        assert made.gateway.shared.entrance.describe()["slots"] == 0
        await listener.stop()


async def test_a_body_that_is_no_good_leaves_the_queue() -> None:
    gate = Gate()
    limits = Limits(body_grace=0.3, body_rate=1e6)
    async with rig("east", scripts={"east": gate}, change=policy(), limits=limits) as made:
        frame(made)
        running = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(2)]
        await until(lambda: seen(made) == 2)
        async with line(made.url) as client:
            await client.send(request(b'{"model":"llama",', "x-priority: bronze", length=500))
            status, _, said = await client.answer()
            assert (status, said["error"]["code"]) == (408, "body_timeout")
        assert waiting(made) == 0
        await gate.end(2)
        await asyncio.gather(*running)


async def test_a_retry_goes_where_there_is_room_only() -> None:
    async def busy(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(writer, 503, b"busy")

    async with rig(scripts={"east": busy}, groups=AHEAD, change=policy()) as made:
        frame(made)
        assert (await made.ask(headers=BRONZE))[1]["x-grid-site"] == "west"
        frame(made, west={"held": 2.0, "saturation": 1.0, "load": 1.0})
        status, headers, data = await made.ask(headers=BRONZE)
        assert (status, headers["x-grid-site"], data) == (503, "east", b"busy")
        assert made.gateway.shared.entrance is not None
        assert made.gateway.shared.entrance.describe()["slots"] == 0


async def test_a_rescue_takes_its_slot_along() -> None:
    gate = Gate()

    async def holds(_: Provider, __: Seen, ___: asyncio.StreamReader, ____: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with rig(scripts={"east": holds, "west": gate}, groups=AHEAD, change=policy()) as made:
        frame(made)
        tasks = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(2)]
        await until(lambda: seen(made) == 2)
        frame(made, east={"ready": 0, "capacity": 0.0, "saturation": None, "load": None})
        await until(lambda: seen(made, "west") == 2)
        assert made.gateway.shared.entrance is not None
        pools = {pool["pool"]: pool["own"] for pool in made.gateway.shared.entrance.describe()["pools"]}
        assert pools["west/west-llama"] == 2
        await gate.end(2)
        assert [task.result()[1]["x-grid-site"] for task in (await asyncio.wait(tasks))[0]] == ["west", "west"]
        assert made.gateway.shared.entrance.describe()["slots"] == 0


async def test_turns_by_tokens_are_corrected_by_what_was_used() -> None:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(writer, body=b'{"choices":[],"usage":{"prompt_tokens":9,"total_tokens" : 1234}}')

    spent: list[int | None] = []
    changed = policy(tenant={"header": "x-tenant", "cost": "tokens"})
    async with rig("east", scripts={"east": script}, change=changed) as made:
        frame(made)
        entrance = made.gateway.shared.entrance
        assert entrance is not None
        end = entrance.admission.end

        def noted(slot: Any, *, gone: bool) -> None:
            spent.append(slot.spent_cost)
            assert slot.cost >= 4000 // 4 + 300
            end(slot, gone=gone)

        entrance.admission.end = noted  # type: ignore[method-assign]
        assert (await made.ask({"prompt": "x" * 4000, "max_tokens": 300}, headers={"x-tenant": "a"}))[0] == 200
        assert spent == [1234]


async def test_what_it_looks_like() -> None:
    gate = Gate()
    async with rig("east", scripts={"east": gate}, change=policy(), metrics_listen="127.0.0.1:0") as made:
        frame(made)
        tasks = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(3)]
        await until(lambda: seen(made) == 2 and waiting(made) == 1)
        async with made.client.get(f"{made.url}/v1/admission") as got:
            shown = orjson.loads(await got.read())
        bands = {band["band"]: band for band in shown["bands"]}
        assert (bands["bronze"]["waiting"], bands["bronze"]["granted"], bands["gold"]["waiting"]) == (1, 2, 0)
        assert bands["bronze"]["oldest_age_s"] > 0
        (pool,) = shown["pools"]
        assert (pool["pool"], pool["in_flight"], pool["saturation"]) == ("east/east-llama", 2, 0.0)
        async with made.client.get(f"{made.url}/v1/explain?model=llama") as got:
            admission = orjson.loads(await got.read())["admission"]
        said = [(band["band"], band["waiting"], band["goes_at_once"], band["allowed"]) for band in admission["bands"]]
        assert said == [("gold", 0, True, ["east/east-llama"]), ("bronze", 1, False, [])]
        assert admission["pools"][0]["room"] == {"gold": 1, "bronze": 0}
        listener = made.gateway.metrics_listener
        assert listener is not None
        async with made.client.get(f"{listener.url}/metrics") as got:
            text = (await got.read()).decode()
        assert 'grid_flow_queue_size{band="bronze",model="llama",tenant_class="none"} 1.0' in text
        assert 'grid_flow_pool_saturation{pool="east/east-llama"} 0.0' in text
        await all_end(tasks, gate)


async def test_strangers_do_not_see_the_queues() -> None:
    async with rig("east", change=policy()) as made:
        for client, status in ((("10.1.2.3", 1), 404), (("127.0.0.1", 1), 200), (("::1", 1), 200), (None, 404),
                               (("::ffff:127.0.0.1", 1), 200), (("", 0), 404)):  # fmt: skip
            for path in ("/v1/admission", "/v1/explain"):
                sent: list[Any] = []

                async def send(message: Any, into: list[Any] = sent) -> None:
                    into.append(message)

                async def receive() -> Any:
                    raise AssertionError("nothing to read")

                scope: Any = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [],
                         "client": client}  # fmt: skip
                await made.gateway.app(scope, receive, send)
                assert (sent[0]["status"], client, path) == (status, client, path)


async def test_the_end_sends_those_who_wait_elsewhere() -> None:
    gate = Gate()
    async with rig("east", scripts={"east": gate}, change=policy()) as made:
        frame(made)
        running = [asyncio.create_task(made.ask(headers=BRONZE)) for _ in range(2)]
        await until(lambda: seen(made) == 2)
        queued = asyncio.create_task(made.ask(headers=BRONZE))
        await until(lambda: waiting(made) == 1)
        ending = asyncio.create_task(made.gateway.drain())
        status, headers, data = await queued
        assert (status, orjson.loads(data)["error"]["code"], headers["retry-after"]) == (503, "admission_refused", "1")
        assert not ending.done()
        await gate.end(2)
        assert await ending
        assert {task.result()[0] for task in (await asyncio.wait(running))[0]} == {200}
