"""Small worlds for the policy's tests: readings, samples, networks, and a daemon's memory from pass to pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from grid.model import (
    AdmissionState,
    Candidate,
    Capability,
    Drain,
    Gateway,
    Kind,
    Network,
    Picker,
    Provider,
    Reading,
    ReadySource,
    Sample,
    Site,
)
from grid.policy import PolicyInput, PolicyMemory, PolicyOutcome, PreviousCandidate, as_previous, decide

LLAMA = Capability(Kind.INFERENCE_MODEL, "llama")
QWEN = Capability(Kind.INFERENCE_MODEL, "qwen")


def reading(ready: int | None = 2, **numbers: Any) -> Reading:
    """A page of an EPP that counts ready endpoints the same way everywhere."""
    found: dict[str, Any] = {"ready": ready, "ready_endpoints": ready, "ready_source": ReadySource.EPP, **numbers}
    return Reading(**found)


def busy(in_flight: float, ready: int | None = 2, **numbers: Any) -> Reading:
    """A page with live in-flight counts."""
    return reading(ready, in_flight=in_flight, **numbers)


def sample(page: Reading, at: float = 0.0, sequence: int = 1, *, provider: str = "a", interval: float = 2.0) -> Sample:
    return Sample(provider=provider, sequence=sequence, received_at=at, reading=page, interval=interval)


def provider(name: str, site: str | None = None, **fields: Any) -> Provider:
    given = {"capabilities": (LLAMA,), "max_running": 10, **fields}
    return Provider(id=name, site=site or name, cluster=f"{name}-cluster", **given)


def network(*providers: Provider, gateways: tuple[Gateway, ...] = (), sites: tuple[Site, ...] = ()) -> Network:
    """A network with a site per provider (no region: all tiers unknown) unless ``sites`` says more."""
    named = {entry.name: entry for entry in sites}
    for entry in providers:
        named.setdefault(entry.site, Site(entry.site))
    return Network(
        name="test",
        sites=dict(sorted(named.items())),
        providers={entry.id: entry for entry in sorted(providers, key=lambda entry: entry.id)},
        gateways={entry.name: entry for entry in sorted(gateways, key=lambda entry: entry.name)},
    )


def edge(site: str = "edge", picker: Picker | None = Picker.ROUND_ROBIN, **fields: Any) -> Gateway:
    return Gateway(name=fields.pop("name", "edge"), site=site, picker=picker, **fields)


@dataclass
class World:
    """Runs passes one after the other, as a daemon does: pages in, outcome out, memory kept."""

    network: Network
    now: float = 100.0
    memory: PolicyMemory = field(default_factory=PolicyMemory)
    samples: dict[str, Sample] = field(default_factory=dict)
    probes: dict[str, bool | None] = field(default_factory=dict)
    drains: dict[str, Drain] = field(default_factory=dict)
    previous: dict[str, tuple[PreviousCandidate, ...]] = field(default_factory=dict)
    round_complete: bool = True

    def scrape(self, **pages: Reading) -> PolicyOutcome:
        """The named providers are read now, then a pass runs."""
        for name, page in pages.items():
            known = self.samples.get(name)
            interval = self.network.providers[name].interval
            number = 1 if known is None else known.sequence + 1
            self.samples[name] = sample(page, self.now, number, provider=name, interval=interval)
        return self.run()

    def run(self) -> PolicyOutcome:
        outcome = decide(
            PolicyInput(
                network=self.network,
                samples=self.samples,
                memory=self.memory,
                now=self.now,
                probes=self.probes,
                drains=self.drains,
                round_complete=self.round_complete,
                previous=self.previous,
            )
        )
        self.memory = outcome.memory
        self.previous = {name: as_previous(plan) for name, plan in outcome.plans.items()}
        return outcome

    def after(self, seconds: float, **pages: Reading) -> PolicyOutcome:
        self.now += seconds
        return self.scrape(**pages)

    def restart(self, *, memory: bool = True, documents: bool = True, clock: float = 5000.0) -> "World":
        """Another daemon with another clock, that has the memory, the documents or both, and has read nothing yet."""
        data = self.memory.to_json(self.now)
        return World(
            network=self.network,
            now=clock,
            memory=PolicyMemory.from_json(data, clock) if memory else PolicyMemory(),
            previous=dict(self.previous) if documents else {},
            round_complete=False,
        )

    def without(self, name: str) -> None:
        """Take a provider out of the configuration."""
        left = {key: value for key, value in self.network.providers.items() if key != name}
        self.network = replace(self.network, providers=left)


def admissions(outcome: PolicyOutcome) -> dict[str, AdmissionState]:
    return {name: decision.admission for name, decision in outcome.decisions.items()}


def candidates(outcome: PolicyOutcome, gateway: str = "edge", capability: Capability = LLAMA) -> list[Candidate]:
    found = outcome.plans[gateway].candidates
    return [entry for entry in found if (entry.kind, entry.name) == (capability.kind, capability.name)]


def order(outcome: PolicyOutcome, gateway: str = "edge", capability: Capability = LLAMA) -> list[str]:
    return [entry.provider for entry in candidates(outcome, gateway, capability)]


def groups(outcome: PolicyOutcome, gateway: str = "edge", capability: Capability = LLAMA) -> list[list[str]]:
    found: dict[int | None, list[str]] = {}
    for entry in candidates(outcome, gateway, capability):
        found.setdefault(entry.selection_group, []).append(entry.provider)
    return list(found.values())


def weights(outcome: PolicyOutcome, gateway: str = "edge") -> dict[str, int | None]:
    return {entry.provider: entry.traffic_weight for entry in candidates(outcome, gateway)}


def reasons(outcome: PolicyOutcome, name: str) -> Mapping[str, str]:
    """Reason codes of a decision's chain, by rule."""
    return {step.rule: step.reason.value for step in outcome.decisions[name].steps}
