"""From publishing a document to the last of many gateways holding it, verified.

The peer is a bare fan-out of the same bytes in the same run: as many redis-py subscribers in this process, one PUBLISH,
the time until the last has them. ``ratio`` is our median over the peer's. Publisher, subscribers and peer share one
process and one private Redis on a unix socket, and take turns.

Gateways that share a process judge the same bytes once, so one judgement is in our figure. ``verify_ms`` is what it
costs: with every gateway in a process of its own each pays that, all at the same time.

The last rows are of publications at a fixed rate to gateways in four processes (``grid.sim.bench.fanout``).
"""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from grid.bus import (
    BusSettings,
    Connection,
    Delivery,
    EmbeddedServer,
    LeaderLease,
    Position,
    Publisher,
    Subscriber,
    connect,
)
from grid.model import AdmissionState, Candidate, Gateway, GatewayPlan, Kind, Network, Picker, Tier, stable_id
from grid.overlay import Document, SignalFrame, render, verify
from grid.sim.bench import fanout
from grid.sim.bench.fanout import NETWORK, Load
from grid.sim.bench.growth import Better
from grid.sim.quiet import quiet_logs

GATEWAY = "edge"
SIZES = (3_000, 20_000, 200_000)
LOADS = (
    Load(rate=5.0, seconds=20.0),
    Load(rate=5.0, seconds=10.0, libraries=True),
    Load(rate=1.0, seconds=10.0, distinct=True),
)
"""The last is slower: each of its publications is a hundred documents."""
_DEADLINE = 30.0


def run(
    *,
    subscribers: int = 100,
    sizes: tuple[int, ...] = SIZES,
    rounds: int = 40,
    warmup: int = 3,
    loads: Sequence[Load] = LOADS,
) -> list[dict[str, Any]]:
    """One row per size: our median and 99th percentile in ms, the peer's, and the ratio of the medians.

    Then one per load at a fixed rate.
    """
    with quiet_logs():
        rows = asyncio.run(_run(subscribers, sizes, rounds, warmup))
        for load in loads:
            with tempfile.TemporaryDirectory(prefix="grid-bench-") as folder:
                rows.append(asyncio.run(fanout.measured(Path(folder), load)))
    return rows


async def _run(subscribers: int, sizes: tuple[int, ...], rounds: int, warmup: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="grid-bench-") as folder:
        server = EmbeddedServer(NETWORK, folder)
        path = await server.start()
        try:
            fleet = _Fleet(folder, subscribers)
            bare = _Bare(path, subscribers)
            await fleet.start()
            await bare.start()
            try:
                return [await _measure(fleet, bare, size, rounds, warmup) for size in sizes]
            finally:
                await fleet.stop()
                await bare.stop()
        finally:
            await server.stop()


async def _measure(fleet: "_Fleet", bare: "_Bare", size: int, rounds: int, warmup: int) -> dict[str, Any]:
    ours: list[float] = []
    theirs: list[float] = []
    verify_ms: list[float] = []
    written = 0
    for turn in range(warmup + rounds):
        document = _document(size, turn)
        taken, written = await fleet.publish(document)
        beside = await bare.publish(document.body.ljust(written))
        started = perf_counter()
        verify(document.body)
        if turn >= warmup:
            verify_ms.append((perf_counter() - started) * 1e3)
            ours.append(taken)
            theirs.append(beside)
    marks, marks_beside = quantiles(ours, n=100, method="inclusive"), quantiles(theirs, n=100, method="inclusive")
    return {
        "case": f"publish to the last of {fleet.size} gateways",
        "size": written,
        "p50_ms": round(marks[49], 2),
        "p99_ms": round(marks[98], 2),
        "peer": "bare redis-py fan-out of as many bytes",
        "peer_p50_ms": round(marks_beside[49], 2),
        "peer_p99_ms": round(marks_beside[98], 2),
        "ratio": round(marks[49] / marks_beside[49], 2),
        "verify_ms": round(median(verify_ms), 3),
        "better": Better.LESS,
    }


class _Fleet:
    """A publisher and the subscribers of one gateway's instances."""

    def __init__(self, folder: str, size: int) -> None:
        self.size = size
        self._folder = folder
        self._subscribers = [Subscriber(self._connect, NETWORK, GATEWAY, self._took) for _ in range(size)]
        self._wanted: Position | None = None
        self._missing = 0
        self._complete = asyncio.Event()
        self._sequence = 0

    async def _connect(self) -> Connection:
        return await connect(BusSettings(), NETWORK, self._folder)

    def _took(self, _: Delivery) -> None:
        self._missing -= 1
        if not self._missing:
            self._complete.set()

    async def start(self) -> None:
        self._connection = await self._connect()
        self._lease = LeaderLease(self._connection, "bench", ttl=600.0)
        await self._lease.acquire()
        self._publisher = Publisher(self._connection, "bench", history=10)
        self._missing = self.size
        await self._publisher.publish(_document(1, -1), self._lease, "bench")
        for subscriber in self._subscribers:
            subscriber.start()
        await self._all()
        # One heartbeat that lasts for the whole run.
        await self._publisher.send_frame(SignalFrame(NETWORK, self._lease.epoch, 1, 30.0, 0.0), self._lease)

    async def publish(self, document: Document) -> tuple[float, int]:
        """How long it took until the last had it (ms), and the bytes written."""
        self._missing = self.size
        self._complete.clear()
        started = perf_counter()
        result = await self._publisher.publish(document, self._lease, "bench")
        await self._all()
        return (perf_counter() - started) * 1e3, result.size

    async def stop(self) -> None:
        await asyncio.gather(*(subscriber.close() for subscriber in self._subscribers))
        await self._connection.aclose()

    async def _all(self) -> None:
        async with asyncio.timeout(_DEADLINE):
            await self._complete.wait()


class _Bare:
    """As many plain redis-py subscribers of one channel, as its documentation shows them."""

    def __init__(self, path: Path, size: int) -> None:
        self._size = size
        self._clients = [Redis(unix_socket_path=str(path)) for _ in range(size + 1)]
        self._tasks: list[asyncio.Task[None]] = []
        self._missing = 0
        self._complete = asyncio.Event()

    async def start(self) -> None:
        self._missing = self._size
        for client in self._clients[1:]:
            self._tasks.append(asyncio.create_task(self._listen(client.pubsub())))
        await self._complete.wait()

    async def publish(self, data: bytes) -> float:
        """How long it took until the last had it (ms)."""
        self._missing = self._size
        self._complete.clear()
        started = perf_counter()
        await self._clients[0].publish("bare", data)
        async with asyncio.timeout(_DEADLINE):
            await self._complete.wait()
        return (perf_counter() - started) * 1e3

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.aclose()

    async def _listen(self, pubsub: PubSub) -> None:
        try:
            await pubsub.subscribe("bare")
            async for _ in pubsub.listen():
                self._missing -= 1
                if not self._missing:
                    self._complete.set()
        finally:
            await pubsub.aclose()


def _document(size: int, turn: int) -> Document:
    """A document of about ``size`` bytes; its revision depends on ``turn``."""
    count = max(1, (size - 900) // 225)
    candidates = tuple(
        Candidate(
            Kind.INFERENCE_MODEL,
            "llama-3.1-70b",
            f"site-{number}",
            f"pool-{turn}-{number}",
            f"provider-{number}",
            stable_id(Kind.INFERENCE_MODEL, "llama-3.1-70b", f"site-{number}", f"pool-{turn}-{number}"),
            AdmissionState.NEW_AND_EXISTING,
            Tier.CROSS_REGION,
            fresh=True,
            rank=number,
            selection_group=0,
            traffic_weight=100,
        )
        for number in range(count)
    )
    return render(
        Network(NETWORK, {}, {}, {}),
        Gateway(GATEWAY, "site-0", picker=Picker.SATURATION),
        GatewayPlan(GATEWAY, "site-0", Picker.SATURATION, candidates),
        rendered_at="2026-01-01T00:00:00Z",
    )
