"""Keys of ours that somebody else wrote as another type: found, removed, and named, so that they can be written anew.

Nothing of value is lost: what such a key held is gone already, and no side of the protocol can read what lies there.
"""

from collections.abc import Iterable
from typing import NamedTuple

from grid.bus import scripts
from grid.bus.connect import Connection

_HASH, _STREAM, _STRING, _SORTED = "hash", "stream", "string", "zset"


class Removed(NamedTuple):
    """A key that was removed, and the type it had."""

    key: str
    kind: str


async def repair(connection: Connection, gateways: Iterable[str]) -> list[Removed]:
    """Remove every key of the network that has another type than its own. Raises BusError.

    Looks at the network's fixed keys, those of ``gateways`` and the reports of their instances.
    """
    keys = connection.keys
    types = {
        keys.leader: _HASH,
        keys.memory: _HASH,
        keys.drains: _HASH,
        keys.signal: _STRING,
        keys.gateways: _SORTED,
    }
    for gateway in gateways:
        types |= {keys.overlay(gateway): _HASH, keys.history(gateway): _STREAM}
    removed = await _remove(connection, types)
    members = [member.decode() for member in await connection.command("ZRANGE", keys.gateways, 0, -1)]
    reports = {keys.report(*member.split(":", 1)): _HASH for member in members if ":" in member}
    return [*removed, *(await _remove(connection, reports) if reports else ())]


async def _remove(connection: Connection, types: dict[str, str]) -> list[Removed]:
    answer = await connection.run(scripts.REPAIR, list(types), list(types.values()))
    texts = [text.decode() for text in answer]
    return [Removed(key, kind) for key, kind in zip(texts[::2], texts[1::2], strict=True)]
