"""``grid simulate admission``: what interactive requests wait while hundreds of batch requests run, in virtual time.

Sites with a fixed number of slots each, and a first-come queue at the engines that nothing holds back. Batch clients
form a closed loop: whoever is answered sends the next request at once. Interactive requests arrive at random (Poisson),
with the same arrivals and durations in every case:

- **idle**: interactive requests alone;
- **off**: batch beside them, and a gateway that lets everything through at once;
- **on**: the same with admission control in front.

Pages, passes, frames, the router and admission control are those of production; capacity is declared, or learned by it.
"""

import random
from dataclasses import dataclass
from typing import Any, Final

from grid.flow import AdmissionCore, AdmissionPolicy, Band
from grid.gateway import Settings
from grid.sim.virtual.gateways import Habits
from grid.sim.virtual.gauges import Page
from grid.sim.virtual.measure import quantile
from grid.sim.virtual.pictures import Show, Waits, longer
from grid.sim.virtual.progress import Progress
from grid.sim.virtual.traffic import closed_loop, poisson
from grid.sim.virtual.work import Outcome, Request, Work
from grid.sim.virtual.world import Fleet, Shape, World

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
    """``pools``: slots of each. Durations are exponential with the means given, s; ``rate``: interactive requests/s.

    ``interval``: s between two readings of a page.
    """

    pools: tuple[int, ...] = (32, 32)
    batch_clients: int = 500
    batch_s: float = 10.0
    interactive_s: float = 0.5
    rate: float = 10.0
    seconds: float = 600.0
    warm_up: float = 60.0
    interval: float = 1.0
    declared: bool = True


WITHOUT_FLOW_CONTROL: Final = Page(release="v0.9")
"""An EPP that counts what is in flight and holds nothing back: what queues does so in the engines."""


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
        shapes = [Shape(slots, declared=scenario.declared, page=WITHOUT_FLOW_CONTROL) for slots in scenario.pools]
        habits = Habits(Settings(sheds=False), policy)
        self.world = world = World(Fleet(tuple(shapes), interval=scenario.interval, habits=habits), seed=seed)
        self.answers: list[float] = []
        """s from the door to the end of the answer, of those that came after the warm-up."""
        self._open = 0
        # Traffic begins once every page has been read.
        start = 2 * scenario.interval
        end = start + scenario.seconds
        self._counted_from = start + scenario.warm_up
        poisson(
            world.clock,
            world.gateways,
            self._interactive(scenario.interactive_s),
            rate=scenario.rate,
            rng=world.rng(INTERACTIVE),
            heard=self._heard,
            start=start,
            until=end,
        )
        if batch:
            closed_loop(
                world.clock,
                world.gateways,
                _batch(scenario.batch_s),
                clients=scenario.batch_clients,
                rng=world.rng(BATCH),
                heard=lambda *_: None,
                start=start,
                spread=0.0,
            )
        world.clock.run(end)
        while self._open:
            world.clock.run(world.clock.now + 1.0)

    @property
    def core(self) -> AdmissionCore | None:
        """Admission control of the gateway."""
        return self.world.gateways[0].core

    @property
    def now(self) -> float:
        """Virtual s that were played."""
        return self.world.clock.now

    def p99(self) -> float:
        """99th percentile of the interactive answers, s."""
        return quantile(self.answers, 0.99)

    def _interactive(self, mean: float) -> Work:
        def work(rng: random.Random) -> Request:
            self._open += 1
            return Request(rng.expovariate(1 / mean), band=INTERACTIVE)

        return work

    def _heard(self, request: Request, outcome: Outcome) -> None:
        self._open -= 1
        if outcome is Outcome.ANSWERED and request.born >= self._counted_from:
            self.answers.append(self.now - request.born)


def _batch(mean: float) -> Work:
    return lambda rng: Request(rng.expovariate(1 / mean), band=BATCH)


def ceilings(scenario: Scenario | None = None, *, seed: int = 1) -> list[dict[str, Any]]:
    """The same with other ceilings: what it costs to be bound to a pool early, and to find batch queued there."""
    return [
        {"interactive_ceiling": interactive, "batch_ceiling": batch}
        | run(scenario, seed=seed, policy=bands(interactive, batch))
        for interactive, batch in CEILINGS
    ]
