"""What the HTTP side may ask of a daemon, and the values it gets.

Everything here is a snapshot: reading it waits for nothing but, where a method is ``async``, the bus. Times are
wall-clock seconds since the epoch, durations seconds; ages and what is left are counted at the moment of asking.
"""

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from grid.model import Decision, Drain, GatewayPlan, Problem, Provider, Reason


class Placed(Protocol):
    """What has a version and a revision."""

    @property
    def version(self) -> int: ...
    @property
    def revision(self) -> str: ...


D = TypeVar("D", bound=Placed)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask. ``token_file`` None: everyone on this machine; ``loopback``: it listens on this machine only."""

    loopback: bool = True
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a health report. One that is not ``required`` is told but does not decide."""

    name: str
    ok: bool
    detail: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True)
class LastError:
    """The newest fault of a provider's source; it stays after the source is well again, with its time."""

    code: Reason
    detail: str
    at: float
    in_a_row: int = 0
    """Failures without a success since; 0: the source has been read again."""


@dataclass(frozen=True, slots=True)
class ProviderView:
    """One provider: what is configured, what was decided in the newest cycle, how its source does.

    ``decision`` is None before the first cycle. ``interval`` is s between scrapes as in force (stretched by the scrape
    budget), ``cost`` s the last exchange took. ``problems``: what was wrong with the newest page, though it was read.
    """

    provider: Provider
    decision: Decision | None = None
    last_error: LastError | None = None
    drain: Drain | None = None
    interval: float | None = None
    cost: float | None = None
    page_bytes: int | None = None
    scrapes: int = 0
    failures: int = 0
    age: float | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentView:
    """One published document: its place in the order, and its bytes as stored and sent."""

    gateway: str
    epoch: int
    version: int
    revision: str
    published_at: str
    data: bytes
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Which:
    """Which of a gateway's documents is meant: that of a version, or one whose revision begins so.

    A number of up to 7 digits is a version; where no version of that number is kept, it may begin a revision.
    """

    version: int | None
    revision: str | None

    @classmethod
    def of(cls, text: str) -> "Which | None":
        """As it stands in a path; None where it is neither."""
        text = text.lower()
        version = int(text) if re.fullmatch(r"[0-9]{1,7}", text) else None
        revision = text if re.fullmatch(r"[0-9a-f]{4,64}", text) else None
        return None if version is None and revision is None else cls(version, revision)

    def choose(self, documents: Iterable[D]) -> D | None:
        """The first that is meant; ``documents`` newest first."""
        kept = list(documents)
        if self.version is not None:
            found = next((one for one in kept if one.version == self.version), None)
            if found is not None:
                return found
        if self.revision is None:
            return None
        return next((one for one in kept if one.revision.startswith(self.revision)), None)


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One live instance of a gateway, from its report."""

    id: str
    epoch: int
    version: int
    revision: str
    applied_at: float | None
    last_seen: float
    in_flight: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatewayView:
    """One gateway: what it should run, and what its instances say they run."""

    name: str
    site: str
    epoch: int | None = None
    version: int | None = None
    revision: str | None = None
    published_at: str | None = None
    candidates: int | None = None
    instances: tuple[InstanceView, ...] = ()
    fault: str = ""
    """Why no document could be made for it in the newest cycle; empty where one could."""


@dataclass(frozen=True, slots=True)
class LeaderView:
    """Who publishes. ``role`` of the daemon asked: leader, follower, or dry_run; ``holder`` None: nobody known."""

    role: str
    this: str
    holder: str | None
    epoch: int | None
    since: float | None
    lease: float
    lease_left: float | None


@dataclass(frozen=True, slots=True)
class DrainView:
    """A drain in force; ``kind`` says whether its target is a provider or a site.

    ``extended`` False: a drain of the same target with a later end was in force already and stays as it is.
    """

    drain: Drain
    kind: str
    extended: bool = True


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """A reload that took place: the configuration's generation and what changed, in words."""

    generation: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, as one sentence. ``id`` rises by one per event of this daemon."""

    id: int
    at: float
    kind: str
    sentence: str
    fields: Mapping[str, object] = field(default_factory=dict)


class EventFeed(Protocol):
    """One client's bounded stream of events. ``async for`` gives them; it ends when the daemon stops.

    None stands for "nothing for a while", so that the connection can be kept alive. ``lost`` counts events that were
    dropped because the client read too slowly; ``take_lost`` gives the number since the last call.
    """

    def __aiter__(self) -> AsyncIterator[Event | None]: ...

    def take_lost(self) -> int: ...

    def close(self) -> None: ...


class DaemonView(Protocol):
    """The read side of a daemon, and the three things an operator may do to it."""

    @property
    def access(self) -> Access: ...

    def alive(self) -> Check:
        """Whether the daemon's own loop beats."""
        ...

    def checks(self) -> Sequence[Check]:
        """What readiness is made of."""
        ...

    async def metrics(self) -> bytes:
        """The exposition text of the daemon's own metrics."""
        ...

    def providers(self) -> Sequence[ProviderView]: ...

    def provider(self, name: str) -> ProviderView | None: ...

    def plans(self) -> Mapping[str, GatewayPlan]:
        """Every gateway's plan in the newest cycle."""
        ...

    def gateways(self) -> Sequence[GatewayView]: ...

    def leader(self) -> LeaderView: ...

    def config(self) -> Mapping[str, object]:
        """The configuration in force, secrets hidden, ready for JSON.

        Its ``differs_since`` (ISO-8601) says since when the file is another, null while it is not.
        """
        ...

    def drains(self) -> Sequence[DrainView]: ...

    def history(self) -> Sequence[Event]:
        """What happened, oldest first."""
        ...

    def cycles(self) -> Sequence[Event]:
        """The newest cycles, also those that changed nothing, oldest first."""
        ...

    def events(self, after: int | None) -> EventFeed:
        """A feed of what happens from now on, after those kept with an id above ``after``.

        Raises :class:`grid.model.DaemonError` where too many clients listen already.
        """
        ...

    async def document(self, gateway: str) -> DocumentView | None:
        """The current document, None where none was published."""
        ...

    async def past_documents(self, gateway: str, limit: int) -> Sequence[DocumentView]:
        """The documents kept of a gateway, newest first."""
        ...

    async def past_document(self, gateway: str, which: Which) -> DocumentView | None:
        """The newest document of the bounded history that is meant."""
        ...

    async def drain(self, target: str, *, for_s: float | None, reason: str) -> DrainView:
        """Drain a provider or a site. Raises :class:`grid.model.GridError`."""
        ...

    async def undrain(self, drain_id: str) -> None:
        """Take a drain back. Raises :class:`grid.model.GridError` where there is none."""
        ...

    async def reload(self) -> ReloadResult:
        """Load the configuration again, whole or not at all. Raises :class:`grid.model.ConfigError`."""
        ...
