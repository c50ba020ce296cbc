"""Recorded scrapes through the policy: the same passes as a daemon would have made, offline.

Takes plain events and does no I/O, so a recording, a test or a simulation can drive it alike. A pass is made after
each burst of events (those within ``JOIN`` of its first are one), and at least once every ``every`` seconds in
between, since samples also age while nothing arrives.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from grid.model import Drain, GatewayPlan, Network, Problem, Provider, Sample
from grid.policy.decide import PolicyInput, PolicyOutcome, decide
from grid.policy.memory import GRACE, PolicyMemory
from grid.policy.order import PreviousCandidate

JOIN: Final = 0.02
"""s within which events are joined into one pass."""


@dataclass(frozen=True, slots=True)
class Event:
    """What came in at ``at`` (monotonic s).

    Of ``provider``: a sample, or the problem that a scrape failed with, and what its probe said last. Of nobody in
    particular: the network as a reload made it, or all drains in force from here on, by target.
    """

    at: float
    provider: str = ""
    sample: Sample | None = None
    problem: Problem | None = None
    probe: bool | None = None
    network: Network | None = None
    drains: Mapping[str, Drain] | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: when, the events it joined (none: time alone moved), and what came out."""

    at: float
    events: tuple[Event, ...]
    outcome: PolicyOutcome


def as_previous(plan: GatewayPlan) -> tuple[PreviousCandidate, ...]:
    """The candidates of a plan, as the next pass sees them once the plan is published."""
    return tuple(
        PreviousCandidate(entry.kind, entry.name, entry.site, entry.cluster, entry.admission_state, entry.fresh)
        for entry in plan.candidates
    )


def replay(
    network: Network,
    events: Iterable[Event],
    *,
    memory: PolicyMemory | None = None,
    drains: Mapping[str, Drain] | None = None,
    every: float | None = None,
    until: float | None = None,
) -> Iterator[Pass]:
    """The passes over ``events``, which come in the order of their times.

    ``every``: s between passes while nothing arrives (default: the shortest scrape interval). ``until``: go on to that
    time after the last event, and take no event after it. Events of providers that the network does not have are
    ignored. The documents of one pass are the previous ones of the next.
    """
    if every is None:
        every = min((provider.interval for provider in network.providers.values()), default=1.0)
    state = _State(network, memory or PolicyMemory(), dict(drains or {}))
    burst: list[Event] = []
    last: float | None = None
    for event in events:
        if until is not None and event.at > until + GRACE:
            break
        if burst and event.at > burst[0].at + JOIN:
            last = burst[-1].at
            yield state.run(last, tuple(burst))
            burst = []
        if event.provider not in state.providers and event.network is None and event.drains is None:
            continue
        if not burst and last is not None:
            yield from state.idle(last, event.at, every)
        burst.append(event)
    if burst:
        last = burst[-1].at
        yield state.run(last, tuple(burst))
    if until is not None and last is not None:
        yield from state.idle(last, until, every)
        yield state.run(until, ())


class _State:
    """What a daemon would hold between passes."""

    def __init__(self, network: Network, memory: PolicyMemory, drains: Mapping[str, Drain]) -> None:
        self._given = PolicyInput(network, {}, memory, 0.0, drains=drains)
        self._samples: dict[str, Sample] = {}
        self._probes: dict[str, bool | None] = {}
        self._tried: set[str] = set()

    @property
    def providers(self) -> Mapping[str, Provider]:
        """The providers of the network in force."""
        return self._given.network.providers

    def run(self, at: float, events: tuple[Event, ...]) -> Pass:
        for event in events:
            if event.network is not None:
                self._given = replace(self._given, network=event.network)
            if event.drains is not None:
                self._given = replace(self._given, drains=event.drains)
            if event.provider not in self.providers:
                continue
            self._tried.add(event.provider)
            if event.sample is not None:
                self._samples[event.provider] = event.sample
            if event.probe is not None:
                self._probes[event.provider] = event.probe
            else:
                self._probes.pop(event.provider, None)
        outcome = decide(
            replace(
                self._given,
                samples=dict(self._samples),
                probes=dict(self._probes),
                now=at,
                round_complete=self._tried >= self.providers.keys(),
            )
        )
        previous = {name: as_previous(plan) for name, plan in outcome.plans.items()}
        self._given = replace(self._given, memory=outcome.memory, previous=previous)
        return Pass(at, events, outcome)

    def idle(self, start: float, end: float, every: float) -> Iterator[Pass]:
        """Passes of time alone, strictly between ``start`` and ``end``."""
        count = 1
        while start + count * every < end - JOIN:
            yield self.run(start + count * every, ())
            count += 1
