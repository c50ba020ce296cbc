"""Small worlds for the tests of admission control."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grid.flow import AdmissionCore, AdmissionPolicy, Band, PoolSignal, State, Ticket

MODEL = "llama"


def signal(key: str = "east", *, slots: float | None = 8, held: float | None = 0, **numbers: Any) -> PoolSignal:
    """One pool of one endpoint with ``slots`` declared, and a queue limit of 5."""
    return PoolSignal(key, **{"ready": 1, "max_running": slots, "held": held, **numbers})


def core(
    *bands: tuple[str, float],
    pools: Sequence[PoolSignal] = (),
    routes: Mapping[str, Sequence[str]] | None = None,
    phase: float = 0.0,
    **policy: Any,
) -> AdmissionCore:
    """A core at time 0 that knows its pools: one of 8 slots for one model, and one band with ceiling 0."""
    known = list(pools) or [signal()]
    made = AdmissionCore(
        AdmissionPolicy(bands=tuple(Band(name, ceiling) for name, ceiling in bands or (("only", 0.0),)), **policy),
        phase=phase,
    )
    made.reroute(0.0, routes or {MODEL: tuple(one.key for one in known)})
    made.update(0.0, known)
    return made


def arrive(made: AdmissionCore, count: int, *, at: float = 0.0, band: str | None = None, **more: Any) -> list[Ticket]:
    """So many requests in one instant."""
    return [made.arrive(at, more.get("model", MODEL), band, **_without(more, "model")) for _ in range(count)]


def run(made: AdmissionCore, tickets: Iterable[Ticket], *, at: float = 0.0) -> list[Ticket]:
    """Start those that have a slot; gives them back."""
    granted = [ticket for ticket in tickets if ticket.state is State.GRANTED]
    for ticket in granted:
        made.started(at, ticket)
    return granted


def states(tickets: Iterable[Ticket]) -> list[str]:
    return [ticket.state.value for ticket in tickets]


def granted(tickets: Iterable[Ticket]) -> int:
    return sum(ticket.state is State.GRANTED for ticket in tickets)


def _without(mapping: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys}
