"""Writing to the bus, under a lease: documents, signal frames, the policy's memory."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from grid.bus import scripts
from grid.bus.connect import Connection
from grid.bus.keys import HEARTBEATS, INLINE_AT_ONCE, INLINE_LIMIT
from grid.bus.lease import MAX_NUMBER, LeaderLease
from grid.bus.order import NOWHERE, Position
from grid.bus.reports import Report
from grid.bus.store import Store
from grid.model import BusError, LeaseError, Reason
from grid.overlay import Document, SignalFrame
from grid.overlay.signing import Sign

ATTEMPTS = 4
AT_ONCE = 4
"""Documents on their way at the same time: many large ones must not wait for each other's connection into a timeout."""


@dataclass(frozen=True, slots=True)
class Published:
    """Where a gateway's document stands now. ``changed``: whether this call wrote it; ``size`` (bytes) only then."""

    gateway: str
    epoch: int
    version: int
    revision: str
    changed: bool
    size: int = 0

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.version)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What Redis held of one gateway: texts as they lie there, "" where nothing does."""

    epoch: str = ""
    version: str = ""
    revision: str = ""

    @property
    def position(self) -> Position:
        if self.epoch.isdecimal() and self.version.isdecimal():
            return Position(int(self.epoch), int(self.version))
        return NOWHERE


class Publisher(Store):
    """The writing side. Every write is checked against the lease by the server itself, in the same step.

    A refused write means that another term has begun: the lease is told so and LeaseError (stale_epoch) is raised.
    """

    def __init__(
        self,
        connection: Connection,
        holder: str,
        history: int = 200,
        *,
        sign: Sign | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(connection)
        self.holder = holder
        self.positions: dict[str, Position] = {}
        """Where every gateway's document stands, as last seen: what a signal frame names."""
        self._history = history
        self._sign = sign
        self._wall = wall
        self._reported: dict[str, tuple[Position, str]] = {}

    async def publish(self, document: Document, lease: LeaderLease, reason: str) -> Published:
        """Publish one document; as ``publish_all``."""
        (published,) = await self.publish_all([document], lease, reason)
        return published

    async def publish_all(
        self, documents: Sequence[Document], lease: LeaderLease, reason: str | Mapping[str, str]
    ) -> list[Published]:
        """Bring Redis to these documents, in their order; ``reason`` goes to the history, one for all or by gateway.

        One round trip finds which differ from what Redis holds; only those are sent. So calling this every cycle is
        cheap, and documents that Redis lost are published again. The same revision costs no version and keeps its
        (epoch, version), unless a gateway was seen ahead of it. Raises LeaseError, BusError; what could be published
        before the error stays published.
        """
        if not documents:
            return []
        seen = await self._check([document.gateway for document in documents], lease)
        sizes = (
            len(one.body)
            for one, held in zip(documents, seen, strict=True)
            if one.revision != held.revision or self._overtaken(one.gateway, held, lease)
        )
        inline = sum(sizes) <= INLINE_AT_ONCE
        turns = asyncio.Semaphore(AT_ONCE)

        async def bring(document: Document, held: _Seen) -> Published:
            async with turns:
                why = reason if isinstance(reason, str) else reason[document.gateway]
                return await self._bring(document, held, lease, why, inline=inline)

        results = await asyncio.gather(
            *(bring(document, held) for document, held in zip(documents, seen, strict=True)), return_exceptions=True
        )
        done: list[Published] = []
        failed: list[BaseException] = []
        for result in results:
            if isinstance(result, Published):
                self.positions[result.gateway] = result.position
                done.append(result)
            else:
                failed.append(result)
        if failed:
            raise next((error for error in failed if isinstance(error, LeaseError)), failed[0])
        return done

    async def send_frame(self, frame: SignalFrame, lease: LeaderLease) -> None:
        """Keep and announce a signal frame. Raises LeaseError, BusError."""
        expiry = max(1, round(frame.interval_s * HEARTBEATS * 1000))
        await self._run(
            scripts.FRAME,
            [self.keys.signal],
            [frame.encode(), expiry, self.connection.publish_command, self.keys.signals],
            lease,
        )

    async def save_memory(self, memory: Mapping[str, Any], lease: LeaderLease) -> None:
        """Keep what the policy must remember across leaders. Raises LeaseError, BusError."""
        await self._run(scripts.REMEMBER, [self.keys.memory], [orjson.dumps(memory)], lease)

    def observe(self, reports: Sequence[Report], lease: LeaderLease) -> None:
        """Take note of what gateways hold, as ``reports()`` found it.

        Where one is ahead of Redis (which lost data, or fell back to an older replica), the next publication is placed
        above it, so that it is taken; where one has seen a higher epoch than ours, the lease begins a new term.
        """
        for report in reports:
            lease.observe(report.term)
            if report.version >= MAX_NUMBER:
                continue
            if report.position > self._reported.get(report.gateway, (NOWHERE, ""))[0]:
                self._reported[report.gateway] = (report.position, report.revision)

    async def _check(self, gateways: Sequence[str], lease: LeaderLease) -> list[_Seen]:
        answer = await self._run(scripts.CHECK, [self.keys.overlay(gateway) for gateway in gateways], [], lease)
        return [_seen(fields) for fields in answer[1:]]

    async def _bring(
        self, document: Document, seen: _Seen, lease: LeaderLease, reason: str, *, inline: bool
    ) -> Published:
        for _ in range(ATTEMPTS):
            force = self._overtaken(document.gateway, seen, lease)
            if seen.revision == document.revision and not force:
                return Published(document.gateway, *seen.position, seen.revision, changed=False)
            version = self._next_version(document.gateway, seen, lease)
            now = self._now()
            data = document.published(
                version,
                lease.epoch,
                leader=self.holder,
                published_at=now,
                previous_revision=seen.revision or None,
                sign=self._sign,
            )
            keys = self.keys
            answer = await self._run(
                scripts.PUBLISH,
                [keys.overlay(document.gateway), keys.history(document.gateway)],
                [
                    *(seen.epoch, seen.version, int(force), version, document.revision, data, now, reason),
                    *(self._history, self.connection.publish_command, keys.overlays),
                    announcement(
                        document.gateway,
                        Position(lease.epoch, version),
                        document.revision,
                        previous=seen.revision,
                        document=data if inline else None,
                    ),
                ],
                lease,
            )
            outcome, seen = answer[0], _seen(answer[1:])
            if outcome == b"published":
                return Published(document.gateway, *seen.position, seen.revision, changed=True, size=len(data))
            if outcome == b"newer_epoch":
                lease.observe(seen.position.epoch)
                lease.lose()
                raise LeaseError(
                    f"the document of {document.gateway} has epoch {seen.epoch}, above our {lease.epoch}",
                    reason=Reason.STALE_EPOCH,
                    hint="a new term above it begins with the next acquire",
                )
        raise BusError(
            f"the document of {document.gateway} changed under {ATTEMPTS} attempts to publish",
            reason=Reason.BUS_REFUSED,
            hint="look for another writer of these keys with the same lease",
        )

    def _overtaken(self, gateway: str, seen: _Seen, lease: LeaderLease) -> bool:
        """Whether what is stored must be replaced even by the same revision.

        So it is where it has no readable place in the order, and where a gateway reported a place above it, or the same
        place with another revision.
        """
        if seen.position == NOWHERE:
            return True
        place, revision = self._reported.get(gateway, (NOWHERE, ""))
        if place.epoch > lease.epoch:
            return False  # not ours to answer: a new term comes first
        return place > seen.position or (place == seen.position and revision != seen.revision)

    def _next_version(self, gateway: str, seen: _Seen, lease: LeaderLease) -> int:
        """Above all of this epoch, even where Redis lost some of it."""
        known = [seen.position, self.positions.get(gateway, NOWHERE), self._reported.get(gateway, (NOWHERE, ""))[0]]
        return max(seen.position.version, *(place.version for place in known if place.epoch == lease.epoch), 0) + 1

    async def _run(
        self, script: scripts.Script, keys: Sequence[str], args: Sequence[Any], lease: LeaderLease
    ) -> list[Any]:
        if not lease.held():
            raise LeaseError(f"{self.holder} does not lead; nothing was written", reason=Reason.LEASE_LOST)
        answer: list[Any] = await self.connection.run(
            script, [self.keys.leader, *keys], [lease.token, lease.epoch, *args]
        )
        if answer[0] == b"not_leader":
            epoch, holder = int(answer[1] or 0), (answer[2] or b"").decode()
            lease.observe(epoch)
            lease.lose()
            who = f"{holder} leads with epoch {epoch}" if epoch else "the lease is gone"
            raise LeaseError(
                f"Redis refused the {script.name} of {self.holder} with epoch {lease.epoch}: {who}",
                reason=Reason.STALE_EPOCH,
            )
        return answer

    def _now(self) -> str:
        return datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds")


def announcement(gateway: str, position: Position, revision: str, *, previous: str, document: bytes | None) -> bytes:
    """The message on the channel of overlays: ``gateway`` first; a ``document`` that is small as a JSON string.

    A string, not an object: whoever reads it gets the very bytes that lie in Redis.
    """
    message: dict[str, Any] = {"gateway": gateway, **position._asdict(), "revision": revision}
    if previous:
        message["previous_revision"] = previous
    if document is not None and len(document) <= INLINE_LIMIT:
        message["document"] = document.decode()
    return orjson.dumps(message)


def _seen(fields: Sequence[bytes]) -> _Seen:
    return _Seen(*(field.decode() for field in fields))
