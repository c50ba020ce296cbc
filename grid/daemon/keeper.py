"""What must outlive this process and this leader: the policy's memory, drains, documents; on the bus and on our disk.

The bus has the say: whoever begins to lead takes the memory that the leader before it saved there. Our disk stands in
where the bus has nothing, as an embedded server after a restart. A bus that was wiped gets its drains back:
an operator's hand must not vanish with a server.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict

import orjson
import structlog

from grid.bus.lease import LeaderLease
from grid.bus.publisher import Publisher
from grid.bus.repair import Removed, repair
from grid.daemon.board import Board
from grid.daemon.link import Link
from grid.daemon.planner import previous_of
from grid.daemon.shelf import Shelf
from grid.daemon.state_dir import StateDir
from grid.model import BusError, Drain
from grid.overlay import verify
from grid.policy import PolicyMemory

MEMORY_EVERY = 5.0
"""S between two saves of a memory in which nothing important has changed."""

_log = structlog.get_logger("grid.daemon")


class Keeper:
    """Loads, saves and hands over. ``clock``: monotonic s, ``wall``: wall-clock s."""

    def __init__(
        self,
        board: Board,
        publisher: Publisher,
        *,
        lease: LeaderLease,
        shelf: Shelf,
        link: Link,
        state_dir: StateDir | None,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._board = board
        self._publisher = publisher
        self._lease = lease
        self._shelf = shelf
        self._link = link
        self._disk = state_dir
        self._clock = clock
        self._wall = wall
        self._saved_at = clock()
        self._unkept: set[str] = set()
        self._keeping = asyncio.Lock()
        self._own_memory = False
        """Whether the memory of this process is the newest of the network: nobody else has led since it was ours."""

    # --- the start ----------------------------------------------------------------------------------------------------

    async def restore(self) -> None:
        """Take up what our disk holds."""
        if self._disk is None:
            return
        state = await self._disk.load_state()
        if state is not None:
            age = max(0.0, self._wall() - _number(state.get("saved_at")))
            self._board.memory = PolicyMemory.from_json(state.get("memory"), self._clock() - age)
            self._board.drains = self._board.ends.in_force(_drains(state.get("drains")))
        for gateway, data in (await self._disk.load_documents()).items():
            envelope = verify(data).envelope
            if envelope is not None and gateway in self._board.network.gateways:
                self._board.previous = {**self._board.previous, gateway: previous_of(envelope)}

    # --- the term -----------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Another leads, or may: its memory will be newer than ours."""
        self._own_memory = False

    async def take_over(self) -> None:
        """Read what a new leader must know: documents, memory, drains. Raises BusError."""
        found = await self.refresh_documents()
        if not self._own_memory:
            remembered = await self._publisher.load_memory()
            if remembered is not None:
                self._board.memory = PolicyMemory.from_json(remembered.memory, self._clock() - remembered.age_s)
        stored = await self._stored_drains()
        if not found and not stored:
            for drain in self._board.drained().values():
                await self._publisher.set_drain(drain)
                _log.info("a drain that the bus had lost is in force again", target=drain.target)
        else:
            self._board.drains = stored
        self._own_memory = True

    async def refresh_documents(self, gateways: Iterable[str] | None = None) -> bool:
        """Look for documents that others published; whether the bus holds any. Raises BusError.

        ``gateways`` None: all of the network.
        """
        before = {name: held.revision for name, held in self._shelf.documents().items()}
        names = self._board.network.gateways if gateways is None else gateways
        found = await self._shelf.refresh(self._publisher, names)
        fresh = {
            name: previous_of(envelope)
            for name, held in self._shelf.documents().items()
            if before.get(name) != held.revision and (envelope := self._shelf.envelope(name)) is not None
        }
        if fresh:
            self._board.previous = {**self._board.previous, **fresh}
        return found

    def published(self, gateways: Iterable[str]) -> None:
        """Note documents that were just published, for ``keep_documents``."""
        self._unkept.update(gateways)

    async def keep_documents(self) -> None:
        """Put what was published on the shelf and on our disk."""
        async with self._keeping:
            while self._unkept:
                gateway = self._unkept.pop()
                try:
                    with self._link.watch():
                        stored = await self._publisher.read(gateway)
                except BusError:
                    return  # the next look at the bus finds them
                if stored is not None:
                    self._shelf.put(stored)
                    if self._disk is not None:
                        await self._disk.save_document(gateway, stored.document)

    async def repair(self) -> list[Removed]:
        """Remove keys that something else wrote as another type, and put back what only we know. Raises BusError.

        Documents, frames and the memory are written anew in any case; drains are not.
        """
        drains = self._board.drained()
        with self._link.watch():
            removed = await repair(self._publisher.connection, self._board.network.gateways)
            if any(key == self._publisher.keys.drains for key, _ in removed):
                for drain in drains.values():
                    await self._publisher.set_drain(drain)
        self._board.memory_urgent = True
        return removed

    # --- memory -------------------------------------------------------------------------------------------------------

    async def save(self, *, force: bool = False) -> None:
        """Save the memory where it is due: on the bus while we lead, and on our disk. Raises BusError."""
        board, now = self._board, self._clock()
        if not (force or board.memory_urgent or now - self._saved_at >= MEMORY_EVERY):
            return
        self._saved_at = now
        board.memory_urgent = False
        memory = board.memory.to_json(now)
        if self._disk is not None:
            drains = [asdict(drain) for drain in board.drains.values()]
            await self._disk.save_state({"saved_at": self._wall(), "memory": memory, "drains": drains})
        if self._lease.held() and self._own_memory:
            with self._link.watch():
                await self._publisher.save_memory(memory, self._lease)

    # --- drains -------------------------------------------------------------------------------------------------------

    async def drain(self, target: str, *, until: float | None, reason: str) -> tuple[Drain, bool]:
        """Put a drain in force, on the bus first; the later end holds. Raises BusError."""
        held = (await self._stored_drains()).get(target)
        drain, moved = self._board.ends.merged(held, Drain(target, target, reason, self._wall(), until))
        if moved:
            await self._publisher.set_drain(drain)
        self._board.drains = {**self._board.drains, target: drain}
        self._board.memory_urgent = True
        return drain, moved

    async def undrain(self, drain_id: str) -> bool:
        """Take a drain back; whether there was one. Raises BusError."""
        known = [*self._board.drained().values(), *(await self._stored_drains()).values()]
        found = any(one.id == drain_id for one in known)
        await self._publisher.remove_drain(drain_id)
        self._board.drains = {target: one for target, one in self._board.drains.items() if one.id != drain_id}
        self._board.memory_urgent = True
        return found

    async def refresh_drains(self) -> bool:
        """Take up what other daemons were told; whether anything changed. Raises BusError.

        A bus on which nobody leads may have been wiped: then what we know stands until somebody leads again.
        """
        if self._board.leader is None:
            return False
        found = await self._stored_drains()
        changed = found != self._board.drained()
        self._board.drains = found
        return changed

    async def _stored_drains(self) -> dict[str, Drain]:
        """Those on the bus that are in force, by target."""
        lying = (await self._publisher.drains(-math.inf)).values()
        self._board.ends.keep([*lying, *self._board.drains.values()])
        return self._board.ends.in_force(lying)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _drains(value: object) -> list[Drain]:
    found = []
    for entry in value if isinstance(value, list) else ():
        try:
            found.append(Drain(**entry))
        except TypeError:
            _log.warning("a drain in the state directory is of no use", entry=orjson.dumps(entry).decode())
    return found
