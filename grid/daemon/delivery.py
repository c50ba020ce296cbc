"""From decided documents to the bus: what differs is published, and nothing else waits for it.

A cycle hands over all documents and waits a moment for the outcome, so that it can say in its sentence what was
published; where the bus is slow or away the next cycle goes on without it, and the newest documents go out as soon as
they can. A publication under way is never cut in the middle: stopping waits for it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from grid.bus.publisher import Published, Publisher
from grid.daemon.leadership import Leadership
from grid.daemon.link import Link
from grid.daemon.metrics import Metrics
from grid.daemon.tasks import Bell
from grid.model import BusError, GatewayPlan, LeaseError, Reason
from grid.overlay import Document

ATTENTION = 0.25
"""S that a cycle waits for the outcome of its publication."""


@dataclass(slots=True)
class Order:
    """Documents to be published, with their plans, and the reason for the history by gateway.

    ``news_at``: monotonic s of the receipt of the oldest sample that this answers; None where no sample caused it.
    """

    documents: Mapping[str, Document]
    plans: Mapping[str, GatewayPlan]
    reasons: Mapping[str, str]
    news_at: float | None = None
    published: list[Published] = field(default_factory=list)
    """Those that carried a new revision."""
    faults: dict[str, BusError] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Delivery:
    """Publishes the newest order. ``on_published(order)`` hears of those that brought new documents."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        leadership: Leadership,
        link: Link,
        clock: Callable[[], float],
        metrics: Metrics,
        on_published: Callable[[Order], None],
    ) -> None:
        self._publisher = publisher
        self._leadership = leadership
        self._link = link
        self._clock = clock
        self._metrics = metrics
        self._on_published = on_published
        self._bell = Bell()
        self._order: Order | None = None
        self._work: asyncio.Task[None] | None = None
        self._confirmed: Mapping[str, str] = {}
        self._confirmed_at = -float("inf")
        self._confirmed_epoch = 0
        self.publications: Counter[str] = Counter()
        self.failures: dict[str, Counter[str]] = {}

    def due(self, documents: Mapping[str, Document], recheck: float) -> bool:
        """Whether the bus is not known to hold some revision, or nobody has looked for ``recheck`` s."""
        if self._confirmed_epoch != self._leadership.lease.epoch or self._clock() - self._confirmed_at >= recheck:
            return True
        return any(self._confirmed.get(name) != one.revision for name, one in documents.items())

    async def deliver(self, order: Order) -> bool:
        """Take the order and wait a moment for its outcome; False where it is still open. A newer order replaces it."""
        self._order = order
        self._bell.ring()
        try:
            async with asyncio.timeout(ATTENTION):
                await order.done.wait()
        except TimeoutError:
            return False
        return True

    def retry(self) -> None:
        """The bus is back, or we lead again: try the newest order once more."""
        self._bell.ring()

    async def step(self) -> None:
        """Wait for an order and carry it out."""
        await self._bell.wait()
        order = self._order
        if order is None or not self._leadership.leading:
            return
        self._work = asyncio.create_task(self._carry_out(order), name="publish")
        await asyncio.shield(self._work)

    async def finish(self) -> None:
        """Wait for the publication under way."""
        if self._work is not None and not self._work.done():
            await asyncio.wait([self._work])

    async def _carry_out(self, order: Order) -> None:
        started = self._clock()
        order.published.clear()
        try:
            await self._publish(order)
        except LeaseError as error:
            self._leadership.refused(error)
            return
        finally:
            if order.published:
                self._note(order, started)
        self._confirmed = {name: one.revision for name, one in order.documents.items() if name not in order.faults}
        self._confirmed_at, self._confirmed_epoch = started, self._leadership.lease.epoch
        if not order.faults or self._link.up:
            order.done.set()

    async def _publish(self, order: Order) -> None:
        documents = list(order.documents.values())
        if not documents:
            return
        before = dict(self._publisher.positions)
        order.faults.clear()
        try:
            with self._link.watch():
                found = await self._publisher.publish_all(documents, self._leadership.lease, order.reasons)
                order.published.extend(one for one in found if one.changed)
                return
        except LeaseError:
            raise
        except BusError as error:
            if error.reason not in (Reason.BUS_REFUSED, Reason.BUS_WRONG_TYPE):
                self._failed(order, {document.gateway: error for document in documents})
                return
        # One document's fault must not stop the others, and it should be known whose it is: one by one.
        for document in documents:
            try:
                with self._link.watch():
                    one = await self._publisher.publish(
                        document, self._leadership.lease, order.reasons[document.gateway]
                    )
            except LeaseError:
                raise
            except BusError as error:
                self._failed(order, {document.gateway: error})
            else:
                # It may have gone out with the first attempt, whose outcome the error has hidden.
                ours = one.epoch == self._leadership.lease.epoch
                if one.changed or (ours and before.get(one.gateway) != one.position):
                    order.published.append(one)

    def _failed(self, order: Order, faults: Mapping[str, BusError]) -> None:
        order.faults.update(faults)
        for name, error in faults.items():
            self.failures.setdefault(name, Counter())[error.reason.value] += 1

    def _note(self, order: Order, started: float) -> None:
        now = self._clock()
        self._metrics.publish_duration.observe(now - started)
        if order.news_at is not None:
            self._metrics.propagation.observe(max(0.0, now - order.news_at))
        for one in order.published:
            self.publications[one.gateway] += 1
        self._on_published(order)
