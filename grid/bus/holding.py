"""What one gateway holds, and whether an offered document takes its place. No I/O, no clock."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from grid.bus.lease import MAX_NUMBER
from grid.bus.order import NOWHERE, Choice, Position, choose
from grid.model import Problem, Reason
from grid.overlay import Envelope, Scope, Verdict, verify


class Source(StrEnum):
    """How a document came."""

    SAVED = "saved"
    READ = "read"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A verified document that is newer than the one before. ``document`` is its bytes as published.

    ``same_revision``: what it says equals what was held before, only its place in the order is new; nothing needs to be
    rebuilt.
    """

    envelope: Envelope
    document: bytes
    position: Position
    revision: str
    source: Source
    same_revision: bool = False


@dataclass(frozen=True, slots=True)
class Announcement:
    """A message on the channel of overlays."""

    gateway: str
    position: Position
    revision: str
    document: bytes | None = None


class Holding:
    """The last good document of one gateway. Only a verified, newer one replaces it."""

    def __init__(self, scope: Scope, key: bytes | None = None) -> None:
        self.held: Delivery | None = None
        self._scope = scope
        self._key = key

    @property
    def position(self) -> Position:
        return self.held.position if self.held else NOWHERE

    @property
    def revision(self) -> str | None:
        return self.held.revision if self.held else None

    def choose(self, position: Position, revision: str | None) -> Choice:
        """What to do with a publication of this place and revision."""
        return choose(self.position, self.revision, position, revision) if self.held else Choice.APPLY

    def offer(
        self, document: bytes, source: Source, position: Position | None = None, revision: str | None = None
    ) -> Delivery | Problem | None:
        """Judge a document and hold it if it is newer.

        ``position`` and ``revision`` are what the bus says of it; None where nothing was said. Gives the delivery, the
        problem for which it was refused, or None where what is held is as new.
        """
        if position is not None and (choice := self.choose(position, revision)) is not Choice.APPLY:
            return self._declined(choice, position, revision)
        verdict = judge(document, self._scope, self._key)
        if verdict.envelope is None:
            return Problem(verdict.reason or Reason.MALFORMED_STRUCTURE, verdict.detail)
        own = verdict.envelope.position
        found = verdict.envelope.revision or verdict.computed or ""
        if own is not None and position is not None and position != own:
            return Problem(Reason.PUBLICATION_MISMATCH, f"announced as {position}, the document says {Position(*own)}")
        if revision is not None and revision != found:
            return Problem(Reason.PUBLICATION_MISMATCH, f"announced as revision {revision}, the document has {found}")
        place = Position(*own) if own is not None else position or NOWHERE
        if position is None and (choice := self.choose(place, found)) is not Choice.APPLY:
            return self._declined(choice, place, found)
        same = self.held is not None and self.held.revision == found
        self.held = Delivery(verdict.envelope, document, place, found, source, same)
        return self.held

    def clash(self, position: Position, revision: str | None) -> Problem:
        """The problem of the held place with another revision."""
        return Problem(
            Reason.VERSION_CLASH, f"{position} is held with revision {self.revision} and was offered with {revision}"
        )

    def _declined(self, choice: Choice, position: Position, revision: str | None) -> Problem | None:
        return self.clash(position, revision) if choice is Choice.CLASH else None


@dataclass(frozen=True, slots=True)
class _Judged:
    document: bytes
    scope: Scope
    key: bytes | None
    verdict: Verdict


_judged: tuple[_Judged, ...] = ()
"""The newest judgements of this process. Gateways that share a process get the same bytes, and judge them once."""
_JUDGED = 4


def judge(document: bytes, scope: Scope, key: bytes | None) -> Verdict:
    """``verify`` of these very bytes, remembered for a few documents."""
    global _judged  # noqa: PLW0603 - one reference, swapped whole
    for known in _judged:
        if known.document == document and known.key == key and known.scope == scope:
            return known.verdict
    verdict = verify(document, scope=scope, key=key)
    _judged = (_Judged(document, scope, key, verdict), *_judged[: _JUDGED - 1])
    return verdict


def read_announcement(data: bytes) -> Announcement | Problem:
    """A message on the channel of overlays, or what is wrong with it."""
    try:
        raw: Any = orjson.loads(data)
        gateway, epoch, version, revision = (raw[name] for name in ("gateway", "epoch", "version", "revision"))
        document = raw.get("document")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Problem(Reason.MALFORMED_STRUCTURE, f"an announcement that cannot be read: {error!r}")
    texts = isinstance(gateway, str) and isinstance(revision, str) and isinstance(document, str | None)
    if not texts or not all(type(number) is int and 0 < number <= MAX_NUMBER for number in (epoch, version)):
        return Problem(Reason.MALFORMED_STRUCTURE, "an announcement with a field of a wrong type or range")
    return Announcement(
        gateway, Position(epoch, version), revision, document.encode() if document is not None else None
    )


def saved_position(document: bytes) -> Position:
    """Where a saved document says it stands; NOWHERE where it cannot be read."""
    try:
        publication = orjson.loads(document)["publication"]
        return Position(int(publication["epoch"]), int(publication["version"]))
    except (ValueError, KeyError, TypeError):
        return NOWHERE
