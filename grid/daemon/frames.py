"""Signal frames: what every gateway's estimates start from, once a second and at once when a provider is lost."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

from grid.bus.order import Position
from grid.bus.publisher import Publisher
from grid.bus.reports import Report, gateway_signals
from grid.daemon.board import Board
from grid.daemon.leadership import Leadership
from grid.daemon.link import Link
from grid.daemon.metrics import Metrics
from grid.daemon.observe import Observer
from grid.daemon.tasks import Bell
from grid.model import BusError, Decision, LeaseError, Network, Sample
from grid.overlay import ProviderSignal, SignalFrame

INTERVAL = 1.0
"""S between frames."""
SHORTEST = 0.1
"""S between two frames however much happens."""


def build(
    network: Network,
    decisions: Mapping[str, Decision],
    samples: Mapping[str, Sample],
    reports: Iterable[Report],
    positions: Mapping[str, Position],
    *,
    epoch: int,
    sequence: int,
    now: float,
    wall: float,
) -> SignalFrame:
    """The frame of this moment: ``now`` monotonic, ``wall`` wall-clock s. Ages are counted to ``now``."""
    return SignalFrame(
        network=network.name,
        epoch=epoch,
        sequence=sequence,
        interval_s=INTERVAL,
        sent_at=wall,
        documents={
            name: (positions[name].epoch, positions[name].version) for name in network.gateways if name in positions
        },
        providers={
            name: _signal(network, decision, samples.get(name), now)
            for name, decision in decisions.items()
            if name in network.providers
        },
        gateways={name: one for name, one in gateway_signals(reports).items() if name in network.gateways},
    )


def _signal(network: Network, decision: Decision, sample: Sample | None, now: float) -> ProviderSignal:
    provider, load = network.providers[decision.provider], decision.load
    return ProviderSignal(
        site=provider.site,
        cluster=provider.cluster,
        held=load.held,
        capacity=load.capacity,
        load=load.load,
        load_source=load.load_source,
        saturation=load.saturation,
        queue=load.queue,
        kv=load.kv,
        ready=load.ready,
        age_s=None if sample is None else max(0.0, now - sample.received_at),
        bound_s=decision.bound,
        queue_capacity=provider.queue_capacity,
        kv_ceiling=provider.kv_ceiling,
        held_source=load.held_source,
        capacity_source=load.capacity_source,
    )


def lost(before: Mapping[str, Decision], after: Mapping[str, Decision]) -> list[str]:
    """Providers that fell behind since the last decision: demoted, no longer fresh, or closed to new work."""
    return [
        name
        for name, decision in after.items()
        if (known := before.get(name)) is not None
        and ((known.trusted and not decision.trusted) or decision.admission.rank > known.admission.rank)
    ]


class Pace:
    """When the next frame may go: on demand, but never sooner than :data:`SHORTEST` s after the last."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent_at = -float("inf")

    def wait(self) -> float:
        """S to wait before the next frame."""
        return max(0.0, self._sent_at + SHORTEST - self._clock())

    def sent(self) -> None:
        """A frame has gone out."""
        self._sent_at = self._clock()


class FrameSender:
    """Sends frames while this daemon leads: one a second, and at once when ``bell`` rings for a loss."""

    def __init__(
        self,
        board: Board,
        publisher: Publisher,
        *,
        observer: Observer,
        leadership: Leadership,
        link: Link,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.bell = Bell()
        self._board = board
        self._publisher = publisher
        self._observer = observer
        self._leadership = leadership
        self._link = link
        self._metrics = metrics
        self._clock = clock
        self._pace = Pace(clock)
        self._sequence = 0

    async def step(self) -> None:
        """Wait for the bell and send a frame."""
        await self.bell.wait()
        await asyncio.sleep(self._pace.wait())
        planned, lease = self._board.planned, self._leadership.lease
        if planned is None or not self._leadership.leading or self._link.fault is not None:
            return
        self._sequence += 1
        frame = build(
            self._board.network,
            planned.decisions,
            self._observer.store.snapshot().samples,
            self._board.reports,
            self._publisher.positions,
            epoch=lease.epoch,
            sequence=self._sequence,
            now=self._clock(),
            wall=time.time(),
        )
        self._pace.sent()
        outcome = "failed"
        try:
            with self._link.watch():
                await self._publisher.send_frame(frame, lease)
            outcome = "sent"
        except LeaseError as error:
            self._leadership.refused(error)
        except BusError:
            pass  # the link has told
        finally:
            self._metrics.frames.labels(outcome).inc()
