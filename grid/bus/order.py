"""The order of publications, and what a reader does with one. Pure.

A higher epoch wins even with a lower version; within an epoch versions only rise. The same place with another revision
is a clash: two writers, or a server that lost data. Then the held document stays, the clash is reported, and the next
higher place ends it.
"""

from enum import Enum
from typing import NamedTuple


class Position(NamedTuple):
    """Where a publication stands: ``(epoch, version)``, compared in that order."""

    epoch: int
    version: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.version}"


NOWHERE = Position(0, 0)
"""Before every publication."""


class Choice(Enum):
    """What to do with an offered publication."""

    APPLY = "apply"
    SAME = "same"
    OLDER = "older"
    CLASH = "clash"


def choose(held: Position, held_revision: str | None, offered: Position, offered_revision: str | None) -> Choice:
    """What a holder of ``held`` does with ``offered``. A revision of None is unknown and clashes with nothing."""
    if offered > held:
        return Choice.APPLY
    if offered < held:
        return Choice.OLDER
    if held_revision is not None and offered_revision is not None and held_revision != offered_revision:
        return Choice.CLASH
    return Choice.SAME


def skipped(last: Position, announced: Position) -> bool:
    """Whether a publication between two announcements was missed: same epoch, and not the very next version."""
    return announced.epoch == last.epoch and announced.version > last.version + 1
