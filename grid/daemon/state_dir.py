"""What a daemon keeps on its own disk: the policy's memory, the epoch floor, the last documents.

Optional: the bus holds the same. It serves where the bus was wiped while the daemon was away. Every file is replaced by
an atomic rename, in a thread; one that cannot be read counts as absent and is said in the log.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import orjson
import structlog

from grid.bus.files import write_atomic

_log = structlog.get_logger("grid.daemon")

_MEMORY = "memory.json"
_EPOCH = "epoch"
_DRAINS = "drains.json"
_OVERLAYS = "overlays"


class StateDir:
    """Files under ``path``; every method may be awaited from the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()

    async def load_memory(self) -> dict[str, object] | None:
        """What :meth:`save_memory` saved last."""
        return await self._load(_MEMORY)

    async def save_memory(self, memory: Mapping[str, object]) -> None:
        """Keep the policy's memory."""
        await self._save(_MEMORY, orjson.dumps(memory))

    async def load_drains(self) -> dict[str, object] | None:
        """What :meth:`save_drains` saved last."""
        return await self._load(_DRAINS)

    async def save_drains(self, drains: Mapping[str, object]) -> None:
        """Keep the drains in force."""
        await self._save(_DRAINS, orjson.dumps(drains))

    async def load_epoch(self) -> int:
        """The highest epoch this daemon has led in; 0 where none is known."""
        found = await self._load(_EPOCH)
        epoch = found.get("epoch") if found else None
        return epoch if isinstance(epoch, int) else 0

    async def save_epoch(self, epoch: int) -> None:
        """Keep the epoch floor."""
        await self._save(_EPOCH, orjson.dumps({"epoch": epoch}))

    async def save_document(self, gateway: str, document: bytes) -> None:
        """Keep the newest document of a gateway."""
        await self._save(f"{_OVERLAYS}/{gateway}.json", document)

    async def load_documents(self) -> dict[str, bytes]:
        """The newest documents by gateway."""
        return await asyncio.to_thread(self._read_documents)

    async def _load(self, name: str) -> dict[str, object] | None:
        return await asyncio.to_thread(self._read, name)

    async def _save(self, name: str, data: bytes) -> None:
        async with self._lock:
            try:
                await asyncio.to_thread(write_atomic, self._path / name, data)
            except OSError as error:
                _log.warning("the state directory cannot be written", file=str(self._path / name), error=str(error))

    def _read(self, name: str) -> dict[str, object] | None:
        path = self._path / name
        try:
            found = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, orjson.JSONDecodeError) as error:
            _log.warning("a file of the state directory is of no use", file=str(path), error=str(error))
            return None
        return found if isinstance(found, dict) else None

    def _read_documents(self) -> dict[str, bytes]:
        found = {}
        for path in sorted((self._path / _OVERLAYS).glob("*.json")):
            try:
                found[path.stem] = path.read_bytes()
            except OSError as error:
                _log.warning("a file of the state directory is of no use", file=str(path), error=str(error))
        return found
