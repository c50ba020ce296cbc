"""Keeping a session where its cache is.

Two modes. **table**: the first pick of a session is remembered in this process and repeated while the candidate may
take existing work; bounded, least recently used first out, each use starts the time to live anew. **hash**: the
session's key decides, so that all gateways agree without sharing anything: weighted rendezvous hashing inside the
group, with the bound of consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, 2016) on the
estimate.

A session's key is never kept or shown: only a keyed hash of it, scoped by tenant and capability.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Protocol

from grid.model import Kind

EPSILON = 0.25
"""How far above its fair share of what the group holds a member may be loaded before a session moves on."""

_MASK = (1 << 64) - 1
_SPAN = float(1 << 64)


class Bound(StrEnum):
    """What affinity did to a decision."""

    NONE = "none"
    CREATED = "created"
    REUSED = "reused"
    FAILOVER = "failover"


def session_key(secret: bytes, kind: Kind, name: str, session: str, tenant: str = "") -> bytes:
    """16 bytes that stand for a session: a keyed BLAKE2b hash over tenant, kind, name and session, length-prefixed."""
    digest = blake2b(key=secret[:64], digest_size=16)
    for part in (tenant, kind, name, session):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "big") + data)
    return digest.digest()


class AffinityTable:
    """Session to stable id, bounded in number and time. ``ttl`` in s, counted from the last use."""

    __slots__ = ("_entries", "evicted", "max_sessions", "ttl")

    def __init__(self, ttl: float, max_sessions: int) -> None:
        self.ttl = ttl
        self.max_sessions = max_sessions
        self.evicted = 0
        self._entries: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes, now: float) -> str | None:
        """Where the session is bound, if it still is; a use starts its time to live anew."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        stable_id, expires = entry
        if expires <= now:
            del self._entries[key]
            return None
        self._entries[key] = (stable_id, now + self.ttl)
        self._entries.move_to_end(key)
        return stable_id

    def bind(self, key: bytes, stable_id: str, now: float) -> None:
        """Bind the session, or bind it elsewhere. A full table lets the least recently used go."""
        self._entries[key] = (stable_id, now + self.ttl)
        self._entries.move_to_end(key)
        while len(self._entries) > self.max_sessions:
            self._entries.popitem(last=False)
            self.evicted += 1


def seed(stable_id: str) -> int:
    """The 64-bit number a candidate takes part in the hashing with: BLAKE2b-64 of its stable id, big-endian."""
    return int.from_bytes(blake2b(stable_id.encode(), digest_size=8).digest(), "big")


def mixed(session: int, candidate: int) -> int:
    """64 bits from a session's and a candidate's number: the finalizer of SplitMix64 over their exclusive or."""
    value = (session ^ candidate) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Hashed(Protocol):
    """A member of the group that sessions are hashed over."""

    @property
    def seed(self) -> int: ...

    @property
    def weight(self) -> float: ...

    @property
    def capacity(self) -> float: ...

    @property
    def estimate(self) -> float: ...


def ranking(key: bytes, members: Sequence[Hashed]) -> list[int]:
    """Places of ``members`` in the order in which the session prefers them.

    Score = -weight / ln(u) with u in (0, 1) from :func:`mixed`: the highest wins with probability weight / sum, and
    adding, removing or reweighing a member moves only the sessions it gains or loses (weighted rendezvous hashing).
    """
    session = int.from_bytes(key[:8], "big")
    scores = [-member.weight / math.log((mixed(session, member.seed) + 0.5) / _SPAN) for member in members]
    return sorted(range(len(members)), key=lambda place: (-scores[place], place))


def bounded(order: Sequence[int], members: Sequence[Hashed]) -> int:
    """The first member of ``order`` that this request would not take past its bound.

    The bound is ceil((1 + EPSILON) x (all held + 1) x capacity share) requests, held = estimate x capacity. The bounds
    add up to more than is held, so with whole requests one member always qualifies; with fractions, which estimates
    have, all may be just past it, and then the first is taken.
    """
    capacity = sum(member.capacity for member in members)
    held = sum(member.estimate * member.capacity for member in members)
    for place in order:
        member = members[place]
        limit = math.ceil((1 + EPSILON) * (held + 1) * member.capacity / capacity)
        if member.estimate * member.capacity + 1 <= limit + 1e-9:
            return place
    return order[0]
