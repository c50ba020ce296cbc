"""A process of gateways that note when they have applied what, and as many bare subscribers of the same server.

Options: ``network``, ``folder`` (of the embedded server), ``gateways`` (a name for each), ``libraries`` (they are
whole gateway libraries, not subscribers that verify and hold), ``bare`` (number of those). It says how many there are
once each gateway has a document. Asked for ``{"places", "bare"}``, by gateway and the last number, it waits until all
have got so far, or 10 s, and tells what each has applied and when (monotonic s).
"""

import asyncio
import gc
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from grid.bus import BusSettings, Connection, Delivery, Subscriber, connect
from grid.bus.server import embedded_socket
from grid.gateway import GridClient
from grid.overlay import Envelope
from grid.sim.bench.helpers import play, questions, say

BARE: Final = "bare"
"""The channel of the peer; each message begins with its number and a space."""
_WAIT: Final = 30.0
_LAST: Final = 10.0
_LOOK: Final = 0.01


Applied = list[tuple[int, int, float]]
"""Epoch, version, and when (monotonic s) it was applied."""


class _Library(GridClient):
    """Notes when each document was in use."""

    def __init__(self, **options: Any) -> None:
        self.applied: Applied = []
        super().__init__(**options)

    def apply(self, envelope: Envelope) -> None:
        super().apply(envelope)
        epoch, version = envelope.position or (0, 0)
        self.applied.append((epoch, version, monotonic()))


class _Subscriber:
    """Notes when each document was verified and held."""

    def __init__(self, *, network: str, gateway: str, state_dir: str) -> None:
        self.gateway = gateway
        self.applied: Applied = []
        self._where = network, state_dir
        self._subscriber = Subscriber(self._connect, network, gateway, self._took)

    async def _connect(self) -> Connection:
        return await connect(BusSettings(), *self._where)

    def _took(self, delivery: Delivery) -> None:
        self.applied.append((*delivery.position, monotonic()))

    def start(self) -> None:
        self._subscriber.start()

    async def first_document(self, within: float) -> bool:
        async with asyncio.timeout(within):
            await self._subscriber.first_document()
        return True

    async def close(self) -> None:
        await self._subscriber.close()


_Follower = _Library | _Subscriber


class _Bare:
    """A plain redis-py subscriber of one channel, as its documentation shows it."""

    def __init__(self, path: Path) -> None:
        self.heard: list[tuple[int, float]] = []
        self._client = Redis(unix_socket_path=str(path))
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        pubsub = self._client.pubsub()
        await pubsub.subscribe(BARE)
        self._task = asyncio.create_task(self._listen(pubsub))

    async def _listen(self, pubsub: PubSub) -> None:
        async for message in pubsub.listen():
            if message["type"] == "message":
                self.heard.append((int(message["data"].split(b" ", 1)[0]), monotonic()))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.aclose()


async def _follow(options: dict[str, Any]) -> None:
    gc.freeze()  # as the reference gateway's process does
    network, folder = options["network"], options["folder"]
    path = embedded_socket(network, folder)
    async with AsyncExitStack() as stack:
        kind = _Library if options["libraries"] else _Subscriber
        followers: list[_Follower] = [
            kind(network=network, gateway=name, state_dir=folder) for name in options["gateways"]
        ]
        plain = [_Bare(path) for _ in range(options["bare"])]
        for one in followers:
            one.start()
            stack.push_async_callback(one.close)
        for other in plain:
            stack.push_async_callback(other.close)
            await other.start()
        found = await asyncio.gather(*(one.first_document(_WAIT) for one in followers))
        say({"gateways": sum(found), "bare": len(plain)})
        async for wanted in questions():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST):
                    while not _got_so_far(followers, plain, wanted):  # noqa: ASYNC110 - they are many
                        await asyncio.sleep(_LOOK)
            say({"applied": [[one.gateway, one.applied] for one in followers], "bare": [one.heard for one in plain]})


def _got_so_far(followers: list[_Follower], plain: list[_Bare], wanted: dict[str, Any]) -> bool:
    places = {name: tuple(place) for name, place in wanted["places"].items()}
    last = wanted["bare"]
    return all(one.applied and one.applied[-1][:2] >= places.get(one.gateway, (0, 0)) for one in followers) and all(
        last is None or (one.heard and one.heard[-1][0] >= last) for one in plain
    )


if __name__ == "__main__":
    play(_follow)
