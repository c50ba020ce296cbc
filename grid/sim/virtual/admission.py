"""``grid simulate admission``: what interactive requests wait while hundreds of batch requests run, in virtual time.

Event simulation of pools with a fixed number of slots each and a first-come queue at the engine. Batch clients form a
closed loop: whoever is answered sends the next request at once. Interactive requests arrive at random (Poisson), with
the same arrivals and durations in every case:

- **idle**: interactive requests alone;
- **off**: batch beside them, every request goes to the least filled pool at once;
- **on**: the same with admission control in front. Pools are sampled every ``frame`` s, as the bus would tell, and what
  the gateway did since is its own count; capacity is declared or learned, by the code that runs in production.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from grid.flow import AdmissionCore, AdmissionPolicy, Band, PoolSignal, State
from grid.flow.tickets import Ticket as Grant
from grid.sim.pool import PoolShape, SimulatedPool
from grid.sim.pool import Ticket as Job
from grid.sim.values import Flow
from grid.sim.virtual.pictures import Show, Waits, longer
from grid.sim.virtual.progress import Progress

MODEL: Final = "sim-model"
INTERACTIVE: Final = "interactive"
BATCH: Final = "batch"


def bands(interactive: float, batch: float) -> AdmissionPolicy:
    """Two bands with these ceilings. KV pressure is let go to the healthy limit, so that slots are what counts."""
    return AdmissionPolicy(
        bands=(Band(INTERACTIVE, interactive, kv=1.0), Band(BATCH, batch, kv=1.0)), max_queued=10_000, max_wait=3600.0
    )


POLICY: Final = bands(0.0, 0.0)
"""Every slot may be filled and nothing queues in a pool: who waits goes to whichever pool has the next free slot."""

CEILINGS: Final = ((0.0, 0.0), (1.5, 0.0), (1.5, 0.2), (1.5, 0.7))


@dataclass(frozen=True, slots=True)
class Scenario:
    """``pools``: slots of each. Durations are exponential with the means given, s; ``rate``: interactive requests/s."""

    pools: tuple[int, ...] = (32, 32)
    batch_clients: int = 500
    batch_s: float = 10.0
    interactive_s: float = 0.5
    rate: float = 10.0
    seconds: float = 600.0
    warm_up: float = 60.0
    frame: float = 1.0
    declared: bool = True


@dataclass(slots=True)
class _Request:
    kind: str
    arrived: float
    service: float
    pool: str = ""
    grant: Grant | None = None


def run(
    scenario: Scenario | None = None,
    *,
    seed: int = 1,
    policy: AdmissionPolicy = POLICY,
    progress: Progress | None = None,
    show: Show | None = None,
) -> dict[str, Any]:
    """The published figures: 99th percentiles of interactive answers in ms, and their ratios to the idle one."""
    scenario = scenario or Scenario()
    cases = {"idle": (False, policy), "on": (True, policy), "off": (True, None)}
    p99, lines = {}, {}
    for number, (case, (batch, guard)) in enumerate(cases.items(), 1):
        found = Simulation(scenario, seed, batch=batch, policy=guard)
        p99[case] = found.p99()
        lines[f"batch beside, admission {case}" if batch else "interactive alone"] = longer(found.answers)
        if progress is not None:
            progress(number, len(cases), found.now)
    if show is not None:
        title = f"Interactive requests beside {scenario.batch_clients} batch clients"
        show("admission-answers", Waits(title, lines, what="from the door to the end of the answer"))
    idle, on, off = p99["idle"], p99["on"], p99["off"]
    return {
        "idle_p99_ms": round(idle * 1e3, 1),
        "on_p99_ms": round(on * 1e3, 1),
        "off_p99_ms": round(off * 1e3, 1),
        "ratio_on": round(on / idle, 3),
        "ratio_off": round(off / idle, 1),
    }


class Simulation:
    """One run to its end: the answers of interactive requests, and the core as it then is (None without admission)."""

    def __init__(self, scenario: Scenario, seed: int, *, batch: bool, policy: AdmissionPolicy | None) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.answers: list[float] = []
        self._batch = random.Random(f"{seed} batch")
        self._order = itertools.count()
        self._open = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._jobs: dict[Job, _Request] = {}
        self._waiting: dict[Grant, _Request] = {}
        self.pools = {
            f"pool-{index}": SimulatedPool(
                PoolShape(endpoints=1, slots=slots, flow_control=False),
                rng=random.Random(f"{seed} pool {index}"),
                on_finished=self._answered,
            )
            for index, slots in enumerate(scenario.pools)
        }
        self.core: AdmissionCore | None = None
        if policy is not None:
            self.core = AdmissionCore(policy)
            self.core.reroute(0.0, {MODEL: tuple(self.pools)})
            self._frame()
        if batch:
            for _ in range(scenario.batch_clients):
                self._at(0.0, self._next_batch)
        self._interactive(random.Random(f"{seed} interactive"))
        self._play()

    def p99(self) -> float:
        """99th percentile of the interactive answers, s."""
        answers = sorted(self.answers)
        return answers[min(len(answers) - 1, int(len(answers) * 0.99))]

    # --- time ---------------------------------------------------------------------------------------------------------

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._order), what))

    def _play(self) -> None:
        while self.now < self.scenario.seconds or self._open:
            times = [at for pool in self.pools.values() if (at := pool.next_event()) is not None]
            if self._due:
                times.append(self._due[0][0])
            self.now = min(times)
            for pool in self.pools.values():
                pool.advance(self.now)
            while self._due and self._due[0][0] <= self.now:
                heapq.heappop(self._due)[2]()

    def _interactive(self, rng: random.Random) -> None:
        at = 0.0
        while (at := at + rng.expovariate(self.scenario.rate)) < self.scenario.seconds:
            self._open += 1
            request = _Request(INTERACTIVE, at, rng.expovariate(1 / self.scenario.interactive_s))
            self._at(at, lambda request=request: self._arrive(request))  # type: ignore[misc]

    def _next_batch(self) -> None:
        self._arrive(_Request(BATCH, self.now, self._batch.expovariate(1 / self.scenario.batch_s)))

    def _frame(self) -> None:
        if self.core is not None:
            self._deliver(self.core.update(self.now, [self._signal(key) for key in self.pools]))
            self._at(self.now + self.scenario.frame, self._frame)

    def _signal(self, key: str) -> PoolSignal:
        pool = self.pools[key]
        engines = pool.engines()
        return PoolSignal(
            key,
            ready=len(engines),
            max_running=pool.shape.slots if self.scenario.declared else None,
            held=pool.held,
            running=sum(engine.running for engine in engines),
            queued=sum(engine.waiting for engine in engines),
            kv=sum(engine.kv for engine in engines) / len(engines),
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    def _arrive(self, request: _Request) -> None:
        core = self.core
        if core is None:
            self._send(request, tuple(self.pools))
            return
        grant = request.grant = core.arrive(self.now, MODEL, request.kind)
        self._waiting[grant] = request
        self._deliver([grant, *core.collect()])

    def _deliver(self, news: list[Grant]) -> None:
        for grant in news:
            if grant.state is State.GRANTED and (request := self._waiting.pop(grant, None)) is not None:
                self._send(request, grant.allowed)

    def _send(self, request: _Request, allowed: tuple[str, ...]) -> None:
        pools = self.pools
        key = min(allowed, key=lambda key: pools[key].held / pools[key].shape.capacity)
        if self.core is not None and request.grant is not None:
            self.core.bind(self.now, request.grant, key)
            self.core.started(self.now, request.grant)
        self._jobs[pools[key].submit(Flow(model=MODEL), request.service, self.now)] = request

    def _answered(self, job: Job) -> None:
        request = self._jobs.pop(job)
        if request.kind == BATCH:
            self._at(self.now, self._next_batch)
        else:
            self._open -= 1
            if request.arrived >= self.scenario.warm_up:
                self.answers.append(self.now - request.arrived)
        if self.core is not None and request.grant is not None:
            self._deliver(self.core.finished(self.now, request.grant))


def ceilings(scenario: Scenario | None = None, *, seed: int = 1) -> list[dict[str, Any]]:
    """The same with other ceilings: what it costs to be bound to a pool early, and to find batch queued there."""
    return [
        {"interactive_ceiling": interactive, "batch_ceiling": batch}
        | run(scenario, seed=seed, policy=bands(interactive, batch))
        for interactive, batch in CEILINGS
    ]
