"""What a daemon keeps on its own disk: the policy's memory, drains, the last documents, the greatest epoch.

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

_STATE = "state.json"
_OVERLAYS = "overlays"


class StateDir:
    """Files under ``path``; every method may be awaited from the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.epoch_file = path / "epoch"
        """Where the lease keeps the greatest epoch it has led in."""
        self._lock = asyncio.Lock()

    async def load_state(self) -> dict[str, object] | None:
        """What :meth:`save_state` saved last."""
        return await asyncio.to_thread(self._read, _STATE)

    async def save_state(self, state: Mapping[str, object]) -> None:
        """Keep what the daemon must remember."""
        await self._save(_STATE, orjson.dumps(state))

    async def save_document(self, gateway: str, document: bytes) -> None:
        """Keep the newest document of a gateway."""
        await self._save(f"{_OVERLAYS}/{gateway}.json", document)

    async def load_documents(self) -> dict[str, bytes]:
        """The newest documents by gateway."""
        return await asyncio.to_thread(self._read_documents)

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
