"""Reading what lies on the bus: documents, history, leader, memory, drains, reports."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import orjson

from grid.bus.connect import Connection
from grid.bus.lease import Leader
from grid.bus.order import Position
from grid.bus.reports import Report, read_reports
from grid.model import Drain


@dataclass(frozen=True, slots=True)
class Stored:
    """A published document as it lies in Redis: ``document`` is the envelope's bytes.

    ``published_at``: ISO-8601. ``reason`` and ``entry`` (the stream's id) only where it comes from the history.
    """

    gateway: str
    epoch: int
    version: int
    revision: str
    document: bytes
    published_at: str = ""
    reason: str = ""
    entry: str = ""

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.version)


class Remembered(NamedTuple):
    """The policy's memory as a leader saved it, and how long ago that was (s, by the server's clock)."""

    memory: dict[str, Any]
    age_s: float


class Store:
    """What anybody may read. Every method raises BusError."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.keys = connection.keys

    async def read(self, gateway: str) -> Stored | None:
        """The document in force, None where none was published. One atomic read: never parts of two."""
        raw = await self.connection.command(
            "HMGET", self.keys.overlay(gateway), "epoch", "version", "revision", "document", "published_at"
        )
        return stored(gateway, raw)

    async def history(self, gateway: str, count: int = 50) -> list[Stored]:
        """The last published documents, newest first."""
        entries = await self.connection.command("XREVRANGE", self.keys.history(gateway), "+", "-", "COUNT", count)
        return [found for entry in entries if (found := _entry(gateway, entry)) is not None]

    async def leader(self) -> Leader | None:
        """Who leads now, None where nobody does."""
        raw, left = await self.connection.many(
            [("HMGET", self.keys.leader, "holder", "epoch", "since"), ("PTTL", self.keys.leader)]
        )
        if raw[1] is None:
            return None
        return Leader(
            (raw[0] or b"").decode(), int(raw[1]), (raw[2] or b"").decode(), left / 1000 if left >= 0 else None
        )

    async def load_memory(self) -> Remembered | None:
        """What the policy of the last leader remembered, None where nothing readable is."""
        raw, clock = await self.connection.many([("HMGET", self.keys.memory, "policy", "saved_at"), ("TIME",)])
        try:
            memory = orjson.loads(raw[0] or b"")
            age = float(int(clock[0]) - int(raw[1] or 0))
        except ValueError:
            return None
        return Remembered(memory, max(0.0, age)) if isinstance(memory, dict) else None

    async def drains(self, now: float | None = None) -> dict[str, Drain]:
        """Drains in force at wall clock ``now`` (s), by id."""
        moment = time.time() if now is None else now
        raw = await self.connection.command("HGETALL", self.keys.drains)
        found = (_drain(value) for value in raw[1::2])
        return {drain.id: drain for drain in found if drain is not None and not expired(drain, moment)}

    async def set_drain(self, drain: Drain) -> None:
        """Put a drain in force, or replace the one of the same id. Needs no lease: it is the operator's word."""
        await self.connection.command("HSET", self.keys.drains, drain.id, orjson.dumps(asdict(drain)))

    async def remove_drain(self, drain_id: str) -> bool:
        """Take a drain away; whether there was one."""
        return bool(await self.connection.command("HDEL", self.keys.drains, drain_id))

    async def reports(self) -> list[Report]:
        """What live gateway instances say of themselves."""
        return await read_reports(self.connection)


def stored(gateway: str, raw: Sequence[bytes | None]) -> Stored | None:
    """The document in an answer to HMGET epoch version revision document published_at; None where it is not whole."""
    epoch, version, revision, document, published_at = raw
    if epoch is None or version is None or revision is None or document is None:
        return None
    try:
        place = int(epoch), int(version)
    except ValueError:
        return None
    return Stored(gateway, *place, revision.decode(), document, (published_at or b"").decode())


def expired(drain: Drain, now: float) -> bool:
    """Whether a drain has run out at wall clock ``now``."""
    return drain.until is not None and drain.until <= now


def _entry(gateway: str, entry: tuple[bytes, Sequence[bytes]]) -> Stored | None:
    name, flat = entry
    fields: Mapping[str, bytes] = {key.decode(): value for key, value in zip(flat[::2], flat[1::2], strict=True)}
    found = stored(gateway, [fields.get(key) for key in ("epoch", "version", "revision", "document", "published_at")])
    if found is None:
        return None
    return Stored(
        gateway,
        *found.position,
        found.revision,
        found.document,
        found.published_at,
        fields.get("reason", b"").decode(),
        name.decode(),
    )


def _drain(value: bytes) -> Drain | None:
    try:
        return Drain(**orjson.loads(value))
    except (ValueError, TypeError):
        return None
