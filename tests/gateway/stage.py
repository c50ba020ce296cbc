"""Routers, documents and frames to test with: sites ``s0``, ``s1``, ... that serve ``llama``."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from grid.gateway import Router, Settings
from grid.gateway.draws import Bits
from grid.model import AdmissionState, Candidate, Picker
from grid.overlay import Envelope, GatewaySignal, ProviderSignal, SignalFrame
from tests.overlay.build import candidate, envelope

MANY = {"edge": (1, 0), "others": (63, 0)}
"""Reports of a fleet that is too large for one gateway's changes to stand for."""


class Time:
    """A monotonic clock that stands still until told."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def members(*groups: int | None, model: str = "llama", states: Sequence[AdmissionState] = ()) -> tuple[Candidate, ...]:
    """One candidate per entry of ``groups``, at a site of its own."""
    return tuple(
        candidate(
            f"s{n}-llama",
            model,
            n,
            site=f"s{n}",
            selection_group=group,
            traffic_weight=None if group is None else 100,
            admission_state=states[n] if states else AdmissionState.NEW_AND_EXISTING,
        )
        for n, group in enumerate(groups)
    )


def grouped(*groups: int | None, picker: Picker | None = Picker.SATURATION, **more: Any) -> Envelope:
    return envelope(*members(*groups, **more), picker=picker)


def signal(n: int, saturation: float | None, capacity: float | None = 10.0, /, **changes: Any) -> ProviderSignal:
    """Site ``n`` as a frame has it; ``saturation`` None: its load is unknown."""
    known = saturation is not None and capacity is not None
    fields: dict[str, Any] = {
        "site": f"s{n}",
        "cluster": f"s{n}-llama",
        "held": saturation * capacity if saturation is not None and capacity is not None else None,
        "capacity": capacity,
        "load": saturation,
        "saturation": saturation if known else None,
        "queue": 0.0 if saturation is not None else None,
        "ready": 1,
        "age_s": 0.0,
        "bound_s": 10.0,
    }
    return ProviderSignal(**{**fields, **changes})


def frame(
    *signals: ProviderSignal, sequence: int = 1, gateways: Mapping[str, tuple[int, int]] | None = None
) -> SignalFrame:
    """A frame; ``gateways`` by name: instances, and requests in flight at ``s0/s0-llama``."""
    return SignalFrame(
        "acme",
        1,
        sequence,
        1.0,
        0.0,
        {},
        {f"p{n}": one for n, one in enumerate(signals)},
        {
            name: GatewaySignal(instances, {"s0/s0-llama": number})
            for name, (instances, number) in (gateways or {}).items()
        },
    )


def loads(*saturations: float | None, capacity: float | None = 10.0, **changes: Any) -> SignalFrame:
    """A frame with these saturations for ``s0``, ``s1``, ...; ``changes`` for all of them."""
    return frame(*(signal(n, one, capacity, **changes) for n, one in enumerate(saturations)))


def router(
    *groups: int | None,
    bits: Bits | None = None,
    clock: Time | None = None,
    picker: Picker | None = Picker.SATURATION,
    settings: Settings | None = None,
    seed: int = 1,
    **more: Any,
) -> Router:
    """A router with a document whose candidates are in ``groups``."""
    made = Router(
        "edge", settings=settings, bits=bits or random.Random(seed).getrandbits, clock=clock or Time(), **more
    )
    made.apply(grouped(*groups, picker=picker))
    return made


def hold(router: Router, n: int, requests: int) -> None:
    """Let this gateway have ``requests`` more in flight at site ``n``."""
    target = next(target for target in router.targets if target.site == f"s{n}")
    for _ in range(requests):
        target.begin()


def chi_square(seen: Sequence[int], shares: Sequence[float]) -> float:
    """Pearson's statistic over its degrees of freedom; about 1 for draws that follow ``shares``."""
    total = sum(seen)
    whole = sum(shares)
    parts = [
        (number - total * share / whole) ** 2 / (total * share / whole)
        for number, share in zip(seen, shares, strict=True)
    ]
    return sum(parts) / max(1, len(parts) - 1)
