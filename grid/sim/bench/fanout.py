"""Publications at a fixed rate, whatever comes of them, to gateways spread over processes of their own.

Each is timed from the moment it was due, not from when its turn came, until a gateway has applied it; so a publication
that waits behind a slow one counts its waiting. Half an interval later the peer is due: a bare redis-py publication of
as many bytes to as many plain subscribers, one beside each gateway.

Either all are instances of one gateway and wait for the same document, or each is a gateway with a document of its own,
and all of them change at once, as they do when the daemon sees a provider full; every one's announcement then passes by
every other one, since a network has one channel. Either they are subscribers, which verify a document and hold it, or
whole gateway libraries, which then make it ready to pick from.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

from redis.asyncio import Redis

from grid.bus import BusSettings, Connection, EmbeddedServer, LeaderLease, Position, Publisher, connect
from grid.model import AdmissionState, Candidate, Gateway, GatewayPlan, Kind, Network, Picker, Tier, stable_id
from grid.overlay import Document, SignalFrame, render
from grid.sim.bench.followers import BARE
from grid.sim.bench.growth import Better
from grid.sim.bench.helpers import Helper, marks, shared_out

NETWORK: Final = "bench"
_LEAD: Final = 0.5
"""s until the first publication is due."""

Places = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Load:
    """What is published: documents of ``candidates`` to ``gateways`` in ``processes``, ``rate`` a s for ``seconds``.

    ``distinct``: each gateway has a document of its own. ``libraries``: they are whole gateway libraries.
    """

    gateways: int = 100
    processes: int = 4
    candidates: int = 80
    rate: float = 5.0
    seconds: float = 10.0
    distinct: bool = False
    libraries: bool = False

    @property
    def case(self) -> str:
        """What its row is called."""
        what = "gateway libraries" if self.libraries else "subscribers"
        return f"open loop: to the last of {self.gateways} {what}" + (", a document each" if self.distinct else "")

    @property
    def publications(self) -> int:
        """How many."""
        return max(1, round(self.rate * self.seconds))


@dataclass(slots=True)
class _Sent:
    """When publications were due (monotonic s), where each gateway's document stood after them, bytes of one."""

    due: list[float] = field(default_factory=list)
    places: list[Places] = field(default_factory=list)
    bare_due: list[float] = field(default_factory=list)
    size: int = 0


async def measured(folder: Path, load: Load) -> dict[str, Any]:
    """The row of a load; ``folder`` is for the server."""
    names = [f"edge-{number}" if load.distinct else "edge" for number in range(load.gateways)]
    async with AsyncExitStack() as stack:
        server = EmbeddedServer(NETWORK, folder)
        stack.push_async_callback(server.stop)
        path = await server.start()
        connection = await connect(BusSettings(), NETWORK, folder)
        stack.push_async_callback(connection.aclose)
        writer = _Writer(connection, sorted(set(names)), load)
        await writer.begin()
        processes = [
            stack.enter_context(
                Helper(
                    "followers",
                    network=NETWORK,
                    folder=str(folder),
                    gateways=part,
                    libraries=load.libraries,
                    bare=len(part),
                )
            )
            for part in shared_out(names, load.processes)
        ]
        for process in processes:
            await asyncio.to_thread(process.hear)
        bare = Redis(unix_socket_path=str(path))
        stack.push_async_callback(bare.aclose)
        sent = await writer.send(bare)
        question = {"places": sent.places[-1], "bare": len(sent.bare_due) - 1}
        answers = [await asyncio.to_thread(process.ask, question) for process in processes]
    return _row(load, sent, answers)


class _Writer:
    """Publishes what is due, as a daemon does: one publication after the other."""

    def __init__(self, connection: Connection, gateways: Sequence[str], load: Load) -> None:
        self._gateways = gateways
        self._load = load
        self._publisher = Publisher(connection, "bench", history=10)
        self._lease = LeaderLease(connection, "bench", ttl=600.0)
        self._turns = [self._documents(turn) for turn in range(load.publications)]

    def _documents(self, turn: int) -> list[Document]:
        return [document(name, self._load.candidates, turn) for name in self._gateways]

    async def begin(self) -> None:
        """Lead, publish the first documents, and send a heartbeat that lasts."""
        await self._lease.acquire()
        await self._publisher.publish_all(self._documents(-1), self._lease, "bench")
        await self._publisher.send_frame(SignalFrame(NETWORK, self._lease.epoch, 1, 30.0, 0.0), self._lease)

    async def send(self, bare: Redis) -> _Sent:
        """All publications and those of the peer."""
        sent = _Sent()
        start, gap = monotonic() + _LEAD, 1 / self._load.rate
        sent.due = [start + turn * gap for turn in range(len(self._turns))]
        sent.bare_due = [due + gap / 2 for due in sent.due]
        await asyncio.gather(self._ours(sent), self._bare(bare, sent))
        return sent

    async def _ours(self, sent: _Sent) -> None:
        for due, documents in zip(sent.due, self._turns, strict=True):
            await asyncio.sleep(max(0.0, due - monotonic()))
            done = await self._publisher.publish_all(documents, self._lease, "bench")
            sent.places.append({one.gateway: (one.epoch, one.version) for one in done})
            sent.size = done[0].size

    async def _bare(self, bare: Redis, sent: _Sent) -> None:
        size = len(self._turns[0][0].body)
        for number, due in enumerate(sent.bare_due):
            await asyncio.sleep(max(0.0, due - monotonic()))
            await bare.publish(BARE, (b"%d " % number).ljust(max(size, sent.size)))


def _row(load: Load, sent: _Sent, answers: Sequence[Any]) -> dict[str, Any]:
    followers = [follower for answer in answers for follower in answer["applied"]]
    ours = [
        [1e3 * (applied_at(followed, places[name]) - due) for name, followed in followers]
        for due, places in zip(sent.due, sent.places, strict=True)
    ]
    heard = [dict(one) for answer in answers for one in answer["bare"]]
    theirs = [[1e3 * (one[number] - due) for one in heard] for number, due in enumerate(sent.bare_due)]
    last, bare_last = marks([max(one) for one in ours]), marks([max(one) for one in theirs])
    every = marks([took for one in ours for took in one])
    return {
        "case": load.case,
        "gateways": load.gateways,
        "processes": len(answers),
        "candidates": load.candidates,
        "size": sent.size,
        "rate_per_s": load.rate,
        "publications": len(ours),
        "deliveries": sum(len(one) for one in ours),
        "delivery_p50_ms": round(every[0], 2),
        "delivery_p99_ms": round(every[1], 2),
        "p50_ms": round(last[0], 2),
        "p99_ms": round(last[1], 2),
        "peer": "bare redis-py publication of as many bytes to as many subscribers",
        "peer_p50_ms": round(bare_last[0], 2),
        "peer_p99_ms": round(bare_last[1], 2),
        "ratio": round(last[0] / bare_last[0], 2),
        "better": Better.LESS,
    }


class UnfinishedError(RuntimeError):
    """A document has not come to where it should; whoever waits no longer has lost it."""


def applied_at(followed: Sequence[Sequence[float]], place: Sequence[int]) -> float:
    """When a follower first had a document of this place or a newer one; its record is ``(epoch, version, at)``.

    Raises UnfinishedError where it never had: a lost delivery is no figure.
    """
    wanted = Position(*place)
    for epoch, version, at in followed:
        if (epoch, version) >= wanted:
            return at
    raise UnfinishedError(
        f"a gateway never applied {wanted}; the last it had was {followed[-1][:2] if followed else None}"
    )


def document(gateway: str, sites: int, turn: int, *, models: int = 1) -> Document:
    """A document of so many sites with so many models; with every turn the next site is full, so it comes last."""
    full = turn % sites
    order = [*(number for number in range(sites) if number != full), full]
    plan = GatewayPlan(
        gateway,
        "site-0",
        Picker.SATURATION,
        tuple(
            _candidate(
                f"vendor/model-{model}-instruct", number, model * sites + place, full=number == full and sites > 1
            )
            for model in range(models)
            for place, number in enumerate(order)
        ),
    )
    return render(
        Network(NETWORK, {}, {}, {}),
        Gateway(gateway, "site-0", picker=Picker.SATURATION),
        plan,
        rendered_at="2026-01-01T00:00:00Z",
    )


def _candidate(model: str, number: int, rank: int, *, full: bool) -> Candidate:
    site, cluster = f"site-{number}", f"site-{number}-pool"
    return Candidate(
        Kind.INFERENCE_MODEL,
        model,
        site,
        cluster,
        f"provider-{number}",
        stable_id(Kind.INFERENCE_MODEL, model, site, cluster),
        AdmissionState.EXISTING_ONLY if full else AdmissionState.NEW_AND_EXISTING,
        Tier.CROSS_REGION,
        fresh=True,
        rank=rank,
        selection_group=1 if full else 0,
        traffic_weight=100,
    )
