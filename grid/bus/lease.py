"""Who publishes: one leader lease per network, and an epoch that never falls."""

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from grid.bus import scripts
from grid.bus.connect import Connection
from grid.bus.files import write_atomic
from grid.model import LeaseError, Reason

log = structlog.get_logger(__name__)

MAX_NUMBER = 2**53 - 1
"""Largest epoch or version: beyond, Lua and JSON readers lose digits."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who holds the lease. ``remaining``: s until it ends unless renewed; ``since``: ISO-8601, when the term began."""

    holder: str
    epoch: int
    since: str = ""
    remaining: float | None = None


class LeaderLease:
    """This process's hand on the leader lease of a network.

    The deadline lies on our monotonic clock and counts from before the call was sent, so we stop before Redis lets
    another in. A new term takes the greatest epoch of: leader key, memory, documents of ``gateways``, what this process
    and ``epoch_file`` remember, and the wall clock in s; plus one.
    """

    def __init__(
        self,
        connection: Connection,
        holder: str,
        ttl: float = 10.0,
        *,
        gateways: Iterable[str] = (),
        epoch_file: Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.holder = holder
        self.ttl = ttl
        self.epoch = 0
        """Epoch of our newest term; 0 before the first."""
        self.token = secrets.token_hex(16)
        """Tells this object from any other, even one of the same ``holder`` before a restart."""
        self.other: Leader | None = None
        """Who held the lease when we last asked for it in vain."""
        self._connection = connection
        self._gateways = tuple(gateways)
        self._epoch_file = epoch_file
        self._floor = 0
        self._floor_read = False
        self._deadline = -math.inf
        self._monotonic = monotonic
        self._wall = wall
        self._turn = asyncio.Lock()

    def held(self, now: float | None = None) -> bool:
        """Whether we lead at ``now`` (monotonic s): no call, no wait."""
        return (self._monotonic() if now is None else now) < self._deadline

    @property
    def deadline(self) -> float:
        """Monotonic s at which the lease ends unless renewed; -inf where it is not held."""
        return self._deadline

    @property
    def renew_at(self) -> float:
        """Monotonic s at which to renew: a third of its life after it was taken or renewed."""
        return self._deadline - self.ttl * 2 / 3

    def observe(self, epoch: int) -> None:
        """Take note of an epoch seen anywhere. Where it is above ours, the next renewal begins a new term above it."""
        if 0 < epoch < MAX_NUMBER:
            self._floor = max(self._floor, epoch)

    def lose(self) -> None:
        """Stop leading at once: a write was refused because another term has begun, or the lease is gone."""
        self._deadline = -math.inf

    async def acquire(self) -> bool:
        """Begin a term if nobody else leads. False where another does (``other`` says who). Raises BusError."""
        async with self._turn:
            return await self._begin_term()

    async def renew(self) -> None:
        """Prolong the term. Raises LeaseError (lease_lost) where it is not ours any more, BusError otherwise.

        A BusError leaves the deadline as it is: the lease may be renewed until then.
        """
        async with self._turn:
            if self._floor > self.epoch:
                if not await self._begin_term():
                    raise self._lost()
                return
            started = self._monotonic()
            if started >= self._deadline:
                raise self._lost()
            answer = await self._run(scripts.RENEW, [round(self.ttl * 1000)])
            if answer[0] != b"renewed":
                self.lose()
                self._note(answer)
                raise self._lost()
            self._deadline = started + self.ttl

    async def release(self) -> None:
        """End the term so that another may lead at once; nothing happens where it is not ours. Raises BusError."""
        async with self._turn:
            self.lose()
            if self.epoch:
                await self._run(scripts.RELEASE, [])

    async def _begin_term(self) -> bool:
        await self._read_floor()
        keys = self._connection.keys
        wall = self._wall()
        started = self._monotonic()
        answer = await self._connection.run(
            scripts.ACQUIRE,
            [keys.leader, keys.memory, *(keys.overlay(gateway) for gateway in self._gateways)],
            [
                self.token,
                self.holder,
                round(self.ttl * 1000),
                max(self._floor, self.epoch, int(wall)),
                datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds"),
            ],
        )
        if answer[0] != b"acquired":
            self.lose()
            self._note(answer)
            return False
        self.epoch = int(answer[1])
        self.other = None
        self.observe(self.epoch)
        await self._write_floor()
        self._deadline = started + self.ttl
        return self.held()

    async def _run(self, script: scripts.Script, args: list[Any]) -> list[Any]:
        answer: list[Any] = await self._connection.run(
            script, [self._connection.keys.leader], [self.token, self.epoch, *args]
        )
        return answer

    def _note(self, answer: list[Any]) -> None:
        """Remember who leads and under which epoch, from a script's refusal."""
        epoch = int(answer[1] or 0)
        self.observe(epoch)
        remaining = answer[3] / 1000 if len(answer) > 3 else None
        self.other = Leader((answer[2] or b"").decode(), epoch, remaining=remaining) if epoch else None

    def _lost(self) -> LeaseError:
        who = f"{self.other.holder} leads with epoch {self.other.epoch}" if self.other else "its time ran out"
        return LeaseError(
            f"{self.holder} no longer leads {self._connection.keys.network} (its epoch was {self.epoch}): {who}",
            reason=Reason.LEASE_LOST,
        )

    async def _read_floor(self) -> None:
        if self._epoch_file is None or self._floor_read:
            return
        try:
            text = await asyncio.to_thread(self._epoch_file.read_text)
            self.observe(int(text))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.warning(
                "epoch floor is not readable; the wall clock stands in", file=str(self._epoch_file), error=error
            )
        self._floor_read = True

    async def _write_floor(self) -> None:
        if self._epoch_file is None:
            return
        try:
            await asyncio.to_thread(write_atomic, self._epoch_file, f"{self.epoch}\n".encode())
        except OSError as error:
            log.warning("epoch floor cannot be saved", file=str(self._epoch_file), error=str(error))
