"""The signal frame: the fast-moving numbers of all providers, one per network, sent every second.

A frame of another bus protocol is refused; unknown members of this one are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple, NotRequired

import orjson
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from grid import PROTOCOL_VERSION
from grid.model import OverlayError, Reason
from grid.overlay.wire import first_fault

MAX_FRAME_BYTES: Final = 8 * 1024 * 1024

_OPEN = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class ProviderSignal(NamedTuple):
    """What is known of one provider now. None is unknown, never 0.

    ``held``, ``capacity`` and ``queue`` count requests; ``saturation`` = held / capacity and may exceed 1; ``load`` is
    the number that providers are compared by, from ``load_source`` (a value of ``grid.model.LoadSource``; a newer
    daemon may know more); ``kv`` is mean KV-cache use; ``ready`` counts endpoints. ``age_s``: age of the sample when
    the frame was sent, ``bound_s``: its freshness bound, both in s. ``queue_capacity`` (requests per ready endpoint)
    and ``kv_ceiling`` are the healthy limits that admission control goes by. ``held_source`` and ``capacity_source``
    say where ``held`` and ``capacity`` come from (values of ``grid.model.HeldSource`` and ``CapacitySource``): what the
    EPP counts live or engines' means up to 7 s older than the sample; a declared limit or a learned mark.
    """

    site: str
    cluster: str
    held: float | None = None
    capacity: float | None = None
    load: float | None = None
    load_source: str | None = None
    saturation: float | None = None
    queue: float | None = None
    kv: float | None = None
    ready: int | None = None
    age_s: float | None = None
    bound_s: float | None = None
    queue_capacity: float | None = None
    kv_ceiling: float | None = None
    held_source: str | None = None
    capacity_source: str | None = None


class GatewaySignal(NamedTuple):
    """What the live instances of one gateway reported: their number, and requests in flight by ``site/cluster``."""

    instances: int
    in_flight: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SignalFrame:
    """One frame. It is the heartbeat too.

    ``epoch`` and ``sequence`` order frames; ``interval_s``: when the next one is due at the latest; ``sent_at``: wall
    clock of the sender, Unix s, for people (ages travel as ages). ``documents``: the current ``(epoch, version)`` of
    every gateway's document; ``providers`` by provider id; ``gateways`` by name.
    """

    network: str
    epoch: int
    sequence: int
    interval_s: float
    sent_at: float
    documents: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    providers: Mapping[str, ProviderSignal] = field(default_factory=dict)
    gateways: Mapping[str, GatewaySignal] = field(default_factory=dict)

    @property
    def instances(self) -> int:
        """Live gateway instances of the whole network: the scale of a gateway's own changes."""
        return sum(gateway.instances for gateway in self.gateways.values())

    def encode(self) -> bytes:
        """The bytes of the frame. A number that is not finite goes out as null: unknown."""
        return orjson.dumps(
            {
                "protocol": PROTOCOL_VERSION,
                "network": self.network,
                "epoch": self.epoch,
                "sequence": self.sequence,
                "interval_s": self.interval_s,
                "sent_at": self.sent_at,
                "documents": {
                    name: {"epoch": epoch, "version": version} for name, (epoch, version) in self.documents.items()
                },
                "providers": {name: signal._asdict() for name, signal in self.providers.items()},
                "gateways": {name: signal._asdict() for name, signal in self.gateways.items()},
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> "SignalFrame":
        """The frame in ``data``.

        Raises OverlayError: ``too_large``, ``malformed_structure`` or ``unsupported_protocol``.
        """
        shape = _typed(data)
        return cls(
            network=shape["network"],
            epoch=shape["epoch"],
            sequence=shape["sequence"],
            interval_s=shape["interval_s"],
            sent_at=shape["sent_at"],
            documents={name: (at["epoch"], at["version"]) for name, at in shape["documents"].items()},
            providers={name: ProviderSignal(**signal) for name, signal in shape["providers"].items()},
            gateways={name: GatewaySignal(**signal) for name, signal in shape["gateways"].items()},
        )


Count = Annotated[int, Field(ge=0, le=2**64 - 1)]
Amount = Annotated[float, Field(ge=0)]


@with_config(_OPEN)
class ProviderSignalShape(TypedDict):
    """One provider. null and absent are unknown, never 0."""

    site: str
    cluster: str
    held: NotRequired[Amount | None]
    capacity: NotRequired[Amount | None]
    load: NotRequired[Amount | None]
    load_source: NotRequired[str | None]
    saturation: NotRequired[Amount | None]
    queue: NotRequired[Amount | None]
    kv: NotRequired[Amount | None]
    ready: NotRequired[Count | None]
    age_s: NotRequired[Amount | None]
    bound_s: NotRequired[Amount | None]
    queue_capacity: NotRequired[Amount | None]
    kv_ceiling: NotRequired[Amount | None]
    held_source: NotRequired[str | None]
    capacity_source: NotRequired[str | None]


@with_config(_OPEN)
class GatewaySignalShape(TypedDict):
    """What the live instances of one gateway reported; ``in_flight`` by ``site/cluster``."""

    instances: Count
    in_flight: dict[str, Count]


@with_config(_OPEN)
class PositionShape(TypedDict):
    """Where a gateway's current document stands."""

    epoch: Count
    version: Count


@with_config(_OPEN)
class FrameShape(TypedDict):
    """A signal frame of bus protocol 1."""

    protocol: Annotated[int, Field(json_schema_extra={"const": PROTOCOL_VERSION})]
    network: str
    epoch: Count
    sequence: Count
    interval_s: Amount
    sent_at: Amount
    documents: dict[str, PositionShape]
    providers: dict[str, ProviderSignalShape]
    gateways: dict[str, GatewaySignalShape]


FRAME: Final = TypeAdapter(FrameShape)


def _typed(data: bytes) -> FrameShape:
    if len(data) > MAX_FRAME_BYTES:
        raise OverlayError(
            f"a signal frame of {len(data)} bytes, the limit is {MAX_FRAME_BYTES}", reason=Reason.TOO_LARGE, hint=""
        )
    try:
        value: Any = orjson.loads(data)
        protocol = value.get("protocol") if isinstance(value, dict) else None
        if isinstance(protocol, int) and protocol != PROTOCOL_VERSION:
            raise OverlayError(
                f"a signal frame of protocol {protocol}, this side speaks {PROTOCOL_VERSION}",
                reason=Reason.UNSUPPORTED_PROTOCOL,
            )
        return FRAME.validate_python(value)
    except orjson.JSONDecodeError as error:
        raise OverlayError(f"a signal frame that is no JSON: {error}", reason=Reason.MALFORMED_STRUCTURE) from error
    except ValidationError as error:
        raise OverlayError(
            f"a signal frame with a fault: {first_fault(error)}", reason=Reason.MALFORMED_STRUCTURE
        ) from error
