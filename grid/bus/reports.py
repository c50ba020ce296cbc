"""What gateways say of themselves, in short-lived keys: the applied document, what is in flight, rates, first bytes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from grid.bus import scripts
from grid.bus.connect import Connection
from grid.bus.order import Position
from grid.overlay import GatewaySignal

REPORT_EXPIRY = 15.0
"""s until a silent instance is gone; it reports every 2 to 5 s."""
INDEX_EXPIRY = 60
"""s until a silent instance leaves the index."""


@dataclass(frozen=True, slots=True)
class Report:
    """One instance of one gateway.

    ``epoch``, ``version``, ``revision``: the document it uses (0, 0, "" before the first); ``term``: the highest epoch
    it has seen, in documents or frames. ``in_flight`` (requests), ``rate`` (requests/s) and ``first_byte_s`` (mean s)
    by ``site/cluster``. ``applied_at`` and ``at``: wall clock s of when it took the document and when it wrote this;
    ``age_s``: s since it was written, by the server's clock; known only to who reads it.
    """

    gateway: str
    instance: str
    epoch: int = 0
    version: int = 0
    revision: str = ""
    term: int = 0
    in_flight: Mapping[str, int] = field(default_factory=dict)
    rate: Mapping[str, float] = field(default_factory=dict)
    first_byte_s: Mapping[str, float] = field(default_factory=dict)
    applied_at: float | None = None
    at: float = 0.0
    age_s: float | None = None

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.version)


async def write_report(connection: Connection, report: Report, *, expiry: float = REPORT_EXPIRY) -> None:
    """Put a report where the daemon finds it. Raises BusError."""
    fields: dict[str, Any] = {
        "epoch": report.epoch,
        "version": report.version,
        "revision": report.revision,
        "term": report.term,
        "in_flight": orjson.dumps(report.in_flight),
        "rate": orjson.dumps(report.rate),
        "first_byte_s": orjson.dumps(report.first_byte_s),
        "applied_at": _iso(report.applied_at),
        "at": _iso(report.at),
    }
    keys = connection.keys
    await connection.run(
        scripts.REPORT,
        [keys.report(report.gateway, report.instance), keys.gateways],
        [
            f"{report.gateway}:{report.instance}",
            round(expiry * 1000),
            INDEX_EXPIRY,
            *(part for item in fields.items() for part in item),
        ],
    )


async def read_reports(connection: Connection) -> list[Report]:
    """The reports of all live instances, by gateway and instance; unreadable ones are left out. Raises BusError."""
    keys = connection.keys
    members = sorted(member.decode() for member in await connection.command("ZRANGE", keys.gateways, 0, -1))
    if not members:
        return []
    names = [tuple(member.split(":", 1)) for member in members if ":" in member]
    commands: list[tuple[Any, ...]] = []
    for gateway, instance in names:
        key = keys.report(gateway, instance)
        commands += [("HGETALL", key), ("PTTL", key)]
    answers = await connection.many(commands)
    found = []
    for (gateway, instance), raw, left in zip(names, answers[::2], answers[1::2], strict=True):
        report = _read(gateway, instance, raw, left)
        if report is not None:
            found.append(report)
    return found


def gateway_signals(reports: Iterable[Report]) -> dict[str, GatewaySignal]:
    """What the signal frame says of each gateway: live instances, and their requests in flight summed."""
    found: dict[str, tuple[int, dict[str, int]]] = {}
    for report in reports:
        instances, in_flight = found.get(report.gateway, (0, {}))
        for where, count in report.in_flight.items():
            in_flight[where] = in_flight.get(where, 0) + count
        found[report.gateway] = (instances + 1, in_flight)
    return {name: GatewaySignal(instances, in_flight) for name, (instances, in_flight) in found.items()}


def _read(gateway: str, instance: str, raw: Sequence[bytes], left_ms: int) -> Report | None:
    fields = {key.decode(): value for key, value in zip(raw[::2], raw[1::2], strict=True)}
    if not fields:
        return None
    try:
        return Report(
            gateway,
            instance,
            epoch=int(fields["epoch"]),
            version=int(fields["version"]),
            revision=fields["revision"].decode(),
            term=int(fields.get("term", fields["epoch"])),
            in_flight={str(key): int(value) for key, value in orjson.loads(fields.get("in_flight", b"{}")).items()},
            rate={str(key): float(value) for key, value in orjson.loads(fields.get("rate", b"{}")).items()},
            first_byte_s={
                str(key): float(value) for key, value in orjson.loads(fields.get("first_byte_s", b"{}")).items()
            },
            applied_at=_seconds(fields.get("applied_at", b"")),
            at=_seconds(fields.get("at", b"")) or 0.0,
            age_s=max(0.0, REPORT_EXPIRY - left_ms / 1000) if left_ms > 0 else None,
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _iso(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _seconds(text: bytes) -> float | None:
    return datetime.fromisoformat(text.decode()).timestamp() if text else None
