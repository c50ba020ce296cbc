"""One document as Envoy reads endpoints from a file (EDS): a ClusterLoadAssignment per capability. Pure.

Selection groups become priorities, traffic weights ``load_balancing_weight``; what admits no one is left out and what
keeps its sessions only is ``DRAINING``. A document without groups, or with picker ``deterministic``, means the first
candidate that works, in order: then each candidate is a priority of its own. Within a priority Envoy's ``lb_policy``
chooses; for ``roundRobin`` and ``random``, which know no weights, all weigh the same.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Self
from urllib.parse import quote

import orjson

from grid.bus import Position
from grid.model import AdmissionState, Kind, Picker, Problem, Reason
from grid.overlay import Envelope, WireCandidate
from grid.proxy.delivery import Held

TYPE_URL: Final = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
PREFIX: Final = "grid"
MAX_PRIORITY: Final = 128
"""Envoy's highest priority; candidates of a longer order share it."""
DEFAULT_WEIGHT: Final = 100
"""Weight of a candidate that carries none, as gateways count it."""

_FINEST = 1000
"""A candidate's weight is split among its addresses exactly where a factor up to this makes that possible."""
_VERSION = re.compile(r"([^/\s]+)/([^/\s]+)/(\d{1,20})\.(\d{1,20})/([0-9a-f]{64})/([0-9a-f]{12})", re.ASCII)

Place = tuple[str, str]
"""``(site, cluster)``: stands for one provider."""


def cluster_name(kind: Kind, name: str, prefix: str = PREFIX) -> str:
    """What Envoy knows a capability by (``service_name``): ``grid|inference_model|llama-3.1-70b``.

    All but ASCII letters, digits, ``-``, ``.``, ``_``, ``~`` and ``/`` is percent-encoded (as UTF-8), so that two names
    never become one and none upsets Envoy's statistics, in which a colon has a meaning.
    """
    return f"{prefix}|{kind}|{quote(name, safe='/')}"


@dataclass(frozen=True, slots=True)
class Version:
    """What ``version_info`` says: whose document it is, where it stands, its revision, and which endpoints are meant.

    ``digest``: 12 hex digits of the SHA-256 over the assignments; it tells apart two files of one document, whose
    addresses changed in between. Envoy shows the whole as ``cluster.NAME.version_text``.
    """

    network: str
    gateway: str
    position: Position
    revision: str
    digest: str

    def __str__(self) -> str:
        return f"{self.network}/{self.gateway}/{self.position}/{self.revision}/{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """What ``text`` says; None where it is not one of ours."""
        found = _VERSION.fullmatch(text)
        if found is None:
            return None
        network, gateway, epoch, version, revision, digest = found.groups()
        return cls(network, gateway, Position(int(epoch), int(version)), revision, digest)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider is reached. ``addresses``: IP literals, none where no one is known; then ``problem`` says why.

    ``host`` is as in the provider's url; ``tls`` whether that is https.
    """

    host: str
    port: int
    tls: bool = False
    addresses: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Assignments:
    """The file's content. ``endpoints`` counts what is in it, ``wanted`` the candidates that should be."""

    data: bytes
    version: Version
    names: tuple[str, ...]
    endpoints: int
    wanted: int
    problems: tuple[Problem, ...]
    unknown: frozenset[Place]
    """Places of the document that no provider of the configuration stands for."""
    places: Mapping[str, Mapping[tuple[str, int], Place]]
    """By cluster name: which provider an address stands for."""


def assign(
    envelope: Envelope,
    position: Position,
    revision: str,
    endpoints: Mapping[Place, Endpoint],
    *,
    prefix: str = PREFIX,
    known: Iterable[str] = (),
) -> Assignments:
    """The endpoints of every capability of ``envelope``, whose scope names network and gateway.

    ``endpoints``: the providers of the configuration. ``known``: cluster names of earlier files. One that the document
    has no more gets an empty assignment: Envoy keeps the old endpoints of a name that is merely missing.
    """
    served: dict[str, list[WireCandidate]] = {name: [] for name in known}
    for candidate in envelope.candidates:
        served.setdefault(cluster_name(candidate.kind, candidate.name, prefix), []).append(candidate)
    builder = _Builder(envelope.picker, endpoints)
    resources = [builder.assignment(name, served[name]) for name in sorted(served)]
    network, gateway = envelope.scope.network or "", envelope.scope.gateway or ""
    version = Version(network, gateway, position, revision, _digest(resources))
    return Assignments(
        data=orjson.dumps({"version_info": str(version), "resources": resources}, option=orjson.OPT_INDENT_2),
        version=version,
        names=tuple(sorted(served)),
        endpoints=builder.count,
        wanted=builder.wanted,
        problems=tuple(builder.problems.values()),
        unknown=frozenset(builder.unknown),
        places=builder.places,
    )


class _Builder:
    """Makes the assignments of one file, and remembers what was found on the way."""

    def __init__(self, picker: Picker | None, endpoints: Mapping[Place, Endpoint]) -> None:
        self.count = 0
        self.wanted = 0
        self.problems: dict[tuple[Place, Reason], Problem] = {}
        self.unknown: set[Place] = set()
        self.places: dict[str, dict[tuple[str, int], Place]] = {}
        self._picker = picker
        self._endpoints = endpoints

    def assignment(self, name: str, served: Sequence[WireCandidate]) -> dict[str, Any]:
        places = self.places.setdefault(name, {})
        localities: list[dict[str, Any]] = []
        for level in _levels(served, self._picker):
            found = self._level(level, places)
            if found:
                localities.append({"priority": len(localities), "lb_endpoints": found})
        self.count += len(places)
        return {"@type": TYPE_URL, "cluster_name": name, "endpoints": localities}

    def _level(self, level: Sequence[WireCandidate], places: dict[tuple[str, int], Place]) -> list[dict[str, Any]]:
        self.wanted += len(level)
        reachable = [(one, endpoint) for one in level if (endpoint := self._endpoint(one)) is not None]
        weights = _weights(self._picker, reachable)
        made: dict[tuple[str, int], dict[str, Any]] = {}
        for (candidate, endpoint), weight in zip(reachable, weights, strict=True):
            for address in endpoint.addresses:
                socket = (address, endpoint.port)
                owner = places.setdefault(socket, (candidate.site, candidate.cluster))
                if owner != (candidate.site, candidate.cluster):
                    self._note(candidate, Reason.ADDRESS_SHARED, f"{address}:{endpoint.port} is {'/'.join(owner)} too")
                if socket in made:
                    made[socket]["load_balancing_weight"] += weight
                elif owner == (candidate.site, candidate.cluster):
                    made[socket] = _lb_endpoint(candidate, endpoint, address, weight)
        return list(made.values())

    def _endpoint(self, candidate: WireCandidate) -> Endpoint | None:
        endpoint = self._endpoints.get((candidate.site, candidate.cluster))
        if endpoint is not None and endpoint.addresses:
            return endpoint
        if endpoint is None:
            self.unknown.add((candidate.site, candidate.cluster))
        self._note(
            candidate,
            Reason.ADDRESS_UNKNOWN,
            endpoint.problem if endpoint is not None else "the configuration has no such provider",
        )
        return None

    def _note(self, candidate: WireCandidate, code: Reason, detail: str) -> None:
        place = (candidate.site, candidate.cluster)
        self.problems.setdefault((place, code), Problem(code, f"{'/'.join(place)}: {detail}"))


def _levels(served: Sequence[WireCandidate], picker: Picker | None) -> list[list[WireCandidate]]:
    """The candidates that take work of any kind, by priority."""
    admitted = [one for one in served if one.admission_state is not AdmissionState.NONE]
    if _in_order(admitted, picker):
        levels = [[one] for one in admitted]
    else:
        levels = [list(group) for _, group in groupby(admitted, key=lambda one: one.selection_group)]
    tail = [one for level in levels[MAX_PRIORITY:] for one in level]
    return [*levels[:MAX_PRIORITY], *([tail] if tail else [])]


def _in_order(served: Sequence[WireCandidate], picker: Picker | None) -> bool:
    return picker in (None, Picker.DETERMINISTIC) or any(one.selection_group is None for one in served)


def _weights(picker: Picker | None, level: Sequence[tuple[WireCandidate, Endpoint]]) -> list[int]:
    """The weight of each address of each candidate. One with several addresses has its share split among them."""
    shares = [_share(one, picker) for one, _ in level]
    factor = min(math.lcm(*(len(endpoint.addresses) for _, endpoint in level)), _FINEST)
    return [
        max(1, round(share * factor / len(endpoint.addresses)))
        for share, (_, endpoint) in zip(shares, level, strict=True)
    ]


def _share(candidate: WireCandidate, picker: Picker | None) -> int:
    if picker in (Picker.WEIGHTED_RANDOM, Picker.SATURATION):
        return DEFAULT_WEIGHT if candidate.traffic_weight is None else candidate.traffic_weight
    return 1


def _lb_endpoint(candidate: WireCandidate, endpoint: Endpoint, address: str, weight: int) -> dict[str, Any]:
    where: dict[str, Any] = {"address": {"socket_address": {"address": address, "port_value": endpoint.port}}}
    if endpoint.host != address:
        where["hostname"] = endpoint.host
    metadata = {
        "grid": {"site": candidate.site, "cluster": candidate.cluster, "stable_id": candidate.stable_id},
        **({"envoy.transport_socket_match": {"scheme": "https"}} if endpoint.tls else {}),
    }
    made = {"endpoint": where, "load_balancing_weight": weight, "metadata": {"filter_metadata": metadata}}
    if candidate.admission_state is AdmissionState.EXISTING_ONLY:
        made["health_status"] = "DRAINING"
    return made


# --- reading a file back ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What an earlier file holds: its version, the cluster names in it, the addresses it has for host names."""

    version: Version
    names: tuple[str, ...]
    addresses: Mapping[str, tuple[str, ...]]

    @property
    def held(self) -> Held:
        """Where it stands."""
        return Held(self.version.position, self.version.revision)


def read(data: bytes, network: str, gateway: str) -> Found | None:
    """An earlier file of this gateway; None where it is none, or damaged."""
    try:
        file = orjson.loads(data)
        version = Version.parse(file["version_info"])
        resources = file["resources"]
        if version is None or (version.network, version.gateway) != (network, gateway):
            return None
        if version.digest != _digest(resources):
            return None
        names = tuple(str(one["cluster_name"]) for one in resources)
        pairs = list(_host_addresses(resources))
    except (ValueError, KeyError, TypeError):
        return None
    hosts = dict.fromkeys(host for host, _ in pairs)
    return Found(version, names, {host: tuple(dict.fromkeys(a for h, a in pairs if h == host)) for host in hosts})


def _host_addresses(resources: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for one in resources:
        for locality in one["endpoints"]:
            for entry in locality["lb_endpoints"]:
                where = entry["endpoint"]
                if "hostname" in where:
                    yield str(where["hostname"]), str(where["address"]["socket_address"]["address"])


def _digest(resources: object) -> str:
    return hashlib.sha256(orjson.dumps(resources, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]
