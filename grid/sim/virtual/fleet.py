"""Sites and gateways in virtual time: what the simulations of choosing are made of.

A site has slots and a first-come queue. A gateway is the product's own :class:`grid.gateway.Router`, told by frames as
the bus would tell it: a sample of every site every so often, and what each gateway last said it has in flight.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from grid.bus.subscriber import REPORT_INTERVAL
from grid.gateway import Router, Settings
from grid.gateway.fleet import PERIOD
from grid.model import AdmissionState, Candidate, Gateway, GatewayPlan, Kind, Network, Picker, Tier, stable_id
from grid.overlay import Envelope, GatewaySignal, ProviderSignal, SignalFrame, render, verify
from grid.sim.virtual.gateways import MODEL

NETWORK: Final = "simulated"


class Clock:
    """Virtual time, and what is due in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Do ``what`` at ``when``."""
        heapq.heappush(self._due, (when, next(self._order), what))

    def every(self, interval: float, what: Callable[[], None], *, first: float = 0.0) -> None:
        """Do ``what`` at ``first`` and every ``interval`` s after that."""

        def again() -> None:
            what()
            self.at(self.now + interval, again)

        self.at(first, again)

    def run(self, until: float) -> None:
        """Do everything that is due before ``until``."""
        while self._due and self._due[0][0] <= until:
            self.now, _, what = heapq.heappop(self._due)
            what()
        self.now = until


class Job:
    """One request at a site."""

    __slots__ = ("arrived", "done", "service")

    def __init__(self, arrived: float, service: float, done: Callable[[float], None]) -> None:
        self.arrived = arrived
        self.service = service
        self.done = done


class Slots:
    """A site: ``capacity`` requests at once, the others wait in line.

    ``done`` of a job is called with the s it waited when it ends.
    """

    def __init__(self, name: str, capacity: int, clock: Clock) -> None:
        self.name = name
        self.capacity = capacity
        self.running = 0
        self.queue: deque[Job] = deque()
        self.seen = 0
        """Requests that ever came through the gateways."""
        self.met_full = 0
        """Those of them that came while every slot was taken."""
        self._clock = clock

    @property
    def held(self) -> int:
        """Requests running and waiting."""
        return self.running + len(self.queue)

    def send(self, service: float, done: Callable[[float], None]) -> None:
        """A request of a gateway arrives."""
        self.seen += 1
        self.met_full += self.running >= self.capacity
        self.take(service, done)

    def take(self, service: float, done: Callable[[float], None]) -> None:
        """A request arrives, whoever sent it."""
        job = Job(self._clock.now, service, done)
        if self.running < self.capacity:
            self._start(job)
        else:
            self.queue.append(job)

    def _start(self, job: Job) -> None:
        self.running += 1
        waited = self._clock.now - job.arrived
        self._clock.at(self._clock.now + job.service, lambda: self._end(job, waited))

    def _end(self, job: Job, waited: float) -> None:
        self.running -= 1
        if self.queue:
            self._start(self.queue.popleft())
        job.done(waited)

    def signal(self, age: float, bound: float) -> ProviderSignal:
        """What a scrape says now, told ``age`` s later."""
        saturation = self.held / self.capacity
        return ProviderSignal(
            self.name,
            cluster_of(self.name),
            held=self.held,
            capacity=self.capacity,
            load=saturation,
            load_source="saturation",
            saturation=saturation,
            queue=len(self.queue),
            ready=1,
            age_s=age,
            bound_s=bound,
        )


def cluster_of(site: str) -> str:
    """The routing cluster of a simulated site."""
    return f"{site}-cluster"


def document(
    sites: Sequence[str], picker: Picker = Picker.SATURATION, *, groups: Mapping[str, int] | None = None
) -> Envelope:
    """A document that offers all ``sites``; in one group, or in those given."""
    kind = Kind.INFERENCE_MODEL
    candidates = tuple(
        Candidate(
            kind=kind,
            name=MODEL,
            site=site,
            cluster=cluster_of(site),
            provider=site,
            stable_id=stable_id(kind, MODEL, site, cluster_of(site)),
            admission_state=AdmissionState.NEW_AND_EXISTING,
            selection_tier=Tier.CROSS_REGION,
            fresh=True,
            rank=rank,
            selection_group=(groups or {}).get(site, 0),
            traffic_weight=100,
        )
        for rank, site in enumerate(sites)
    )
    gateway = Gateway("gateway", sites[0], picker=picker)
    made = render(
        Network(NETWORK, {}, {}, {}, uid="simulated"),
        gateway,
        GatewayPlan("gateway", sites[0], picker, candidates),
        rendered_at="2026-01-01T00:00:00Z",
    )
    envelope = verify(made.body).envelope
    assert envelope is not None  # noqa: S101 - what was just rendered verifies
    return envelope


class Fleet:
    """Gateways that follow the same sites. ``sample`` s between samples, each told ``delay`` s later."""

    def __init__(
        self,
        clock: Clock,
        sites: Sequence[Slots],
        gateways: int,
        rng: random.Random,
        *,
        sample: float,
        delay: float = 0.1,
        settings: Settings | None = None,
        on_error: Callable[[float], None] | None = None,
    ) -> None:
        self.clock = clock
        self.sites = {site.name: site for site in sites}
        envelope = document(list(self.sites))
        self.routers = [
            Router(
                f"gateway-{number}",
                settings=settings or Settings(sheds=False),
                bits=random.Random(rng.getrandbits(64)).getrandbits,
                clock=lambda: clock.now,
                on_estimate_error=None if on_error is None else lambda _, error: on_error(error),
            )
            for number in range(gateways)
        ]
        self._said: dict[str, GatewaySignal] = {}
        self._sequence = 0
        self._delay = delay
        self._bound = 3 * sample + 2.0
        for number, router in enumerate(self.routers):
            router.apply(envelope)
            clock.every(PERIOD, lambda router=router: router.tick(clock.now))  # type: ignore[misc]
            phase = REPORT_INTERVAL * number / len(self.routers)
            clock.every(REPORT_INTERVAL, lambda router=router: self._report(router), first=phase)  # type: ignore[misc]
        clock.every(sample, self._sample)

    def join(self, site: Slots) -> None:
        """One more site: the gateways hear of it at once, and of its load with the next sample."""
        self.sites[site.name] = site
        envelope = document(list(self.sites))
        for router in self.routers:
            router.apply(envelope)

    def _report(self, router: Router) -> None:
        self._said[router.gateway] = GatewaySignal(1, router.in_flight)

    def _sample(self) -> None:
        self._sequence += 1
        signals = {name: site.signal(self._delay, self._bound) for name, site in self.sites.items()}
        frame = SignalFrame(NETWORK, 1, self._sequence, 1.0, 0.0, {}, signals, dict(self._said))
        self.clock.at(self.clock.now + self._delay, lambda: self._tell(frame))

    def _tell(self, frame: SignalFrame) -> None:
        for router in self.routers:
            router.observe(frame, self.clock.now)
