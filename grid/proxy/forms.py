"""The forms a document is delivered in: the envelope's own bytes, or endpoints as Envoy reads them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

import structlog

from grid.bus import Delivery, Position
from grid.config import Config, load
from grid.model import ConfigError, Problem
from grid.overlay import Scope, verify
from grid.proxy import eds
from grid.proxy.addresses import Addresses, endpoints
from grid.proxy.delivery import Held

log = structlog.get_logger(__name__)

SETTLED: Final = 30.0
"""s between look-ups of names that resolve."""
UNSETTLED: Final = 5.0
"""s between look-ups while something is missing."""


class FormName(StrEnum):
    """What ``--format`` takes."""

    ENVELOPE = "envelope"
    ENVOY_EDS = "envoy-eds"


@dataclass(frozen=True, slots=True)
class Made:
    """A document in its form. ``data`` None: it has nothing that could be used, so the file stays as it is."""

    data: bytes | None
    problems: tuple[Problem, ...] = ()


class Form(Protocol):
    """How a document becomes the content of a file."""

    name: FormName

    def read(self, data: bytes) -> Held | None:
        """What a content holds; None where it is no good document of this gateway. Called in worker threads."""
        ...

    def restore(self, data: bytes) -> None:
        """Learn from the file of an earlier run."""
        ...

    async def make(self, delivery: Delivery) -> Made:
        """The content for a document."""
        ...

    async def refresh(self) -> bool:
        """Look again at what else the content depends on; whether it has to be made anew."""
        ...

    @property
    def pause(self) -> float:
        """Time until the next ``refresh``, in s."""
        ...


class EnvelopeForm:
    """The bytes as published."""

    name = FormName.ENVELOPE
    pause = SETTLED

    def __init__(self, scope: Scope, key: bytes | None = None) -> None:
        self._scope = scope
        self._key = key

    def read(self, data: bytes) -> Held | None:
        """As a gateway would."""
        envelope = verify(data, scope=self._scope, key=self._key).envelope
        if envelope is None or envelope.revision is None:
            return None
        return Held(Position(*(envelope.position or (0, 0))), envelope.revision)

    def restore(self, data: bytes) -> None:
        """Nothing is to be learned."""

    async def make(self, delivery: Delivery) -> Made:
        """The document itself."""
        return Made(delivery.document)

    async def refresh(self) -> bool:
        """It depends on nothing else."""
        return False


class EdsForm:
    """Endpoints for Envoy, with the addresses of the providers of a configuration.

    ``source``: the configuration's file. It is read again where a document names a provider that it did not have, and
    whenever names are looked up; one that cannot be used changes nothing.
    """

    name = FormName.ENVOY_EDS

    def __init__(
        self, config: Config, gateway: str, *, prefix: str, source: Path, addresses: Addresses | None = None
    ) -> None:
        self.places: Mapping[str, Mapping[tuple[str, int], eds.Place]] = {}
        """By cluster name: which provider an address stands for."""
        self._network = config.network
        self._gateway = gateway
        self._prefix = prefix
        self._endpoints = endpoints(config)
        self._addresses = addresses or Addresses()
        self._names: tuple[str, ...] = ()
        self._source = source
        self._stamp: tuple[int, int, int] | None = None
        self._hosts: frozenset[str] = frozenset()
        self._missing = False

    @property
    def pause(self) -> float:
        """Short while an address is missing."""
        return UNSETTLED if self._missing or self._addresses.problems(self._hosts) else SETTLED

    def read(self, data: bytes) -> Held | None:
        """The version that the file says."""
        found = eds.read(data, self._network, self._gateway)
        return None if found is None else found.held

    def restore(self, data: bytes) -> None:
        """Its cluster names stay, and so do the addresses of host names until they are looked up."""
        found = eds.read(data, self._network, self._gateway)
        if found is not None:
            self._names = found.names
            self._addresses.remember(found.addresses)

    async def make(self, delivery: Delivery) -> Made:
        """The assignments. Waits about 2 s at most, and only for names of which nothing is known yet."""
        served = {(one.site, one.cluster) for one in delivery.envelope.candidates}
        if not served <= self._endpoints.keys():
            await self._reload()
        self._hosts = frozenset(
            one.host
            for place, one in self._endpoints.items()
            if place in served and one.host and not (one.addresses or one.problem)
        )
        if unasked := self._addresses.unasked(self._hosts):
            await self._addresses.refresh(unasked)
        known = self._addresses.fill(self._endpoints)
        made = await asyncio.to_thread(
            eds.assign,
            delivery.envelope,
            delivery.position,
            delivery.revision,
            known,
            prefix=self._prefix,
            known=self._names,
        )
        self._missing = bool(made.problems)
        if made.wanted and not made.endpoints:
            return Made(None, made.problems)
        self._names, self.places = made.names, made.places
        return Made(made.data, made.problems)

    async def refresh(self) -> bool:
        """The configuration, and the names of the newest document."""
        reloaded = await self._reload()
        before = self._addresses.problems(self._hosts)
        changed = await self._addresses.refresh(self._hosts)
        after = self._addresses.problems(self._hosts)
        for host in sorted(after.keys() - before.keys()):
            log.warning("no new address for a name; the last known one stays in use", host=host, problem=after[host])
        return reloaded or changed

    async def _reload(self) -> bool:
        """Take the configuration's file anew where it has changed; whether the providers' addresses differ."""
        stamp = await asyncio.to_thread(_stamp, self._source)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            config = await asyncio.to_thread(load, self._source)
        except ConfigError as error:
            log.warning("the configuration has changed and cannot be used; the old one stays", error=str(error))
            return False
        if config.network != self._network or self._gateway not in config.gateways:
            log.warning("the configuration has another network, or no such gateway any more; the old one stays")
            return False
        found = endpoints(config)
        changed, self._endpoints = found != self._endpoints, found
        return changed


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Differs where a file was changed or replaced. Blocking."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
