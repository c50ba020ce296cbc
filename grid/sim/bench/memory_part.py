"""A process that holds ``copies`` of one ``part``, or serves what such a process needs.

``snapshots``: gateway libraries that have applied the document in ``file``, ``values``: the JSON values of that;
``subscribers`` of the bus in ``folder``, ``plain_subscribers`` on ``path`` with the JSON values of their document;
requests waiting in ``admission`` for one of ``tenants``, or at a ``semaphore``. It says what it held before and after.
``pages`` serves files by name, ``bus`` an embedded server with a document of ``candidates`` for each of ``copies`` + 1
gateways; it says where.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import orjson
from redis.asyncio import Redis

from grid.bus import BusSettings, Connection, EmbeddedServer, LeaderLease, Publisher, Subscriber, connect
from grid.bus.keys import Keys
from grid.flow import Admission, AdmissionPolicy, Band, PoolSignal
from grid.gateway import GridClient
from grid.overlay import SignalFrame, verify
from grid.sim.bench.fanout import NETWORK, document
from grid.sim.bench.helpers import play, questions, say
from grid.sim.bench.resident import allow_files, resident, tell
from grid.sim.pages import PageServer

_WAIT: Final = 60.0


# --- a gateway --------------------------------------------------------------------------------------------------------


async def _snapshots(options: dict[str, Any]) -> None:
    documents = _documents(options)
    before = resident()
    clients = [GridClient(network=NETWORK, gateway="edge") for _ in documents]
    for client, one in zip(clients, documents, strict=True):
        verdict = verify(one)
        if verdict.envelope is None:
            raise RuntimeError(f"a document of the bench's own is refused: {verdict.reason} {verdict.detail}")
        client.apply(verdict.envelope)
    tell(before)


async def _values(options: dict[str, Any]) -> None:
    documents = _documents(options)
    before = resident()
    values = [orjson.loads(one) for one in documents]
    tell(before, held=len(values))


def _documents(options: dict[str, Any]) -> list[bytes]:
    return [Path(options["file"]).read_bytes() for _ in range(options["copies"])]


# --- the bus ----------------------------------------------------------------------------------------------------------


async def _bus(options: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        server = EmbeddedServer(NETWORK, options["folder"])
        stack.push_async_callback(server.stop)
        path = await server.start()
        connection = await connect(BusSettings(), NETWORK, options["folder"])
        stack.push_async_callback(connection.aclose)
        lease = LeaderLease(connection, "bench", ttl=600.0)
        await lease.acquire()
        publisher = Publisher(connection, "bench")
        documents = [document(_name(number), options["candidates"], 0) for number in range(options["copies"] + 1)]
        await publisher.publish_all(documents, lease, "bench")
        await publisher.send_frame(SignalFrame(NETWORK, lease.epoch, 1, 30.0, 0.0), lease)
        say(str(path))
        await _until_told()


def _name(number: int) -> str:
    return f"edge-{number}"


async def _subscribers(options: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        # The first brings what all of them share.
        await stack.enter_async_context(_subscriber(options["folder"], _name(0)))
        before = resident()
        for number in range(options["copies"]):
            await stack.enter_async_context(_subscriber(options["folder"], _name(number + 1)))
        tell(before)


@asynccontextmanager
async def _subscriber(folder: str, gateway: str) -> AsyncIterator[None]:
    async def bus() -> Connection:
        return await connect(BusSettings(), NETWORK, folder)

    one = Subscriber(bus, NETWORK, gateway, lambda _: None)
    one.start()
    try:
        async with asyncio.timeout(_WAIT):
            await one.first_document()
        yield
    finally:
        await one.close()


async def _plain_subscribers(options: dict[str, Any]) -> None:
    keys = Keys(NETWORK)
    async with AsyncExitStack() as stack:

        async def one(number: int) -> Any:
            client = Redis(unix_socket_path=options["path"])
            stack.push_async_callback(client.aclose)
            pubsub = client.pubsub()
            stack.push_async_callback(pubsub.aclose)
            await pubsub.subscribe(keys.overlays, keys.signals)
            return orjson.loads(await client.execute_command("HGET", keys.overlay(_name(number)), "document"))

        held = [await one(0)]
        before = resident()
        held += [await one(number + 1) for number in range(options["copies"])]
        tell(before, held=len(held))


# --- admission --------------------------------------------------------------------------------------------------------


async def _admission(options: dict[str, Any]) -> None:
    queued, tenants = options["copies"], options["tenants"]
    policy = AdmissionPolicy(bands=(Band("gold", 1.5), Band("silver", 1.0)), max_queued=2 * queued, max_wait=3600.0)
    admission = Admission(policy)
    admission.reroute({"bench": ("site-0/pool",)})
    admission.update([PoolSignal("site-0/pool", ready=1, max_running=1, held=0)])

    async def request(number: int) -> None:
        async with admission.slot("bench", band="silver", tenant=f"tenant-{number % tenants}"):
            await asyncio.Event().wait()

    try:
        await _waiting(request, queued)
    finally:
        admission.close()


async def _semaphore(options: dict[str, Any]) -> None:
    semaphore = asyncio.Semaphore(1)

    async def request(_: int) -> None:
        async with semaphore:
            await asyncio.Event().wait()

    await _waiting(request, options["copies"])


async def _waiting(request: Callable[[int], Awaitable[None]], number: int) -> None:
    before = resident()
    tasks = [asyncio.ensure_future(request(place)) for place in range(number + 1)]
    try:
        await asyncio.sleep(0)  # each runs until it has to wait; one of them does not
        tell(before, waiting=sum(not task.done() for task in tasks) - 1)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- pages ------------------------------------------------------------------------------------------------------------


async def _pages(options: dict[str, Any]) -> None:
    allow_files()
    server = PageServer({name: Path(file) for name, file in options["files"].items()})
    await server.start()
    try:
        say({name: server.url(name) for name in options["files"]})
        await _until_told()
    finally:
        await server.stop()


async def _until_told() -> None:
    async for _ in questions():
        return


_PARTS: Final[dict[str, Callable[[dict[str, Any]], Awaitable[None]]]] = {
    "snapshots": _snapshots,
    "values": _values,
    "bus": _bus,
    "subscribers": _subscribers,
    "plain_subscribers": _plain_subscribers,
    "admission": _admission,
    "semaphore": _semaphore,
    "pages": _pages,
}


async def _play(options: dict[str, Any]) -> None:
    await _PARTS[options["part"]](options)


if __name__ == "__main__":
    play(_play)
