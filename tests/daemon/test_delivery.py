import asyncio

import pytest

from grid.daemon.delivery import ATTENTION, Delivery, Order
from grid.daemon.leadership import Leadership
from grid.daemon.link import Link
from grid.daemon.metrics import Metrics
from grid.daemon.tasks import TaskGuard
from grid.model import BusError, LeaseError, Reason
from grid.overlay import Document, Scope
from tests.daemon.parts import PretendedLease, PretendedPublisher, now, value

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

AWAY = BusError("no connection", reason=Reason.BUS_UNREACHABLE)
REFUSED = BusError("WRONGTYPE", reason=Reason.BUS_REFUSED)


class Delivered:
    def __init__(self) -> None:
        self.lease = PretendedLease()
        self.publisher = PretendedPublisher(self.lease)
        self.link = Link(lambda _: None)
        self.followed: list[str] = []
        self.leadership = Leadership(
            self.lease,  # type: ignore[arg-type]
            self.link,
            now,
            take_over=self.nothing,
            on_lead=lambda: None,
            on_follow=self.followed.append,
        )
        self.published: list[list[str]] = []
        self.metrics = Metrics()
        self.delivery = Delivery(
            self.publisher,  # type: ignore[arg-type]
            leadership=self.leadership,
            link=self.link,
            clock=now,
            metrics=self.metrics,
            on_published=lambda order: self.published.append([one.gateway for one in order.published]),
        )
        self.guard = TaskGuard()
        self.loop = self.guard.loop("publish", self.delivery.step)

    async def nothing(self) -> None:
        pass

    async def lead(self) -> None:
        self.leadership.bell.ring()
        await self.leadership.step()
        assert self.leadership.leading


def order(news_at: float | None = None, **revisions: str) -> Order:
    documents = {name: Document(name, revision, Scope(), {}, b"{}") for name, revision in revisions.items()}
    return Order(documents, {}, dict.fromkeys(documents, "why"), news_at)


async def test_what_changed_is_published_and_told() -> None:
    it = Delivered()
    await it.lead()
    first = order(east="a", west="a", news_at=now())
    assert await it.delivery.deliver(first)
    assert sorted(one.gateway for one in first.published) == ["east", "west"]
    second = order(east="b", west="a")
    assert await it.delivery.deliver(second)
    assert [one.gateway for one in second.published] == ["east"]
    assert it.published == [["east", "west"], ["east"]]
    assert dict(it.delivery.publications) == {"east": 2, "west": 1}
    assert value(it.metrics.propagation, "grid_propagation_seconds_count") == 1
    await it.guard.stop()


async def test_nothing_is_published_by_one_who_does_not_lead() -> None:
    it = Delivered()
    assert not await it.delivery.deliver(order(east="a"))
    assert it.publisher.calls == []
    await it.lead()
    it.delivery.retry()
    await asyncio.sleep(0.01)
    assert it.publisher.stored == {"east": "a"}
    await it.guard.stop()


async def test_a_slow_bus_holds_up_nobody_and_the_newest_documents_win() -> None:
    it = Delivered()
    await it.lead()

    async def slow() -> None:
        await asyncio.sleep(3)

    it.publisher.before = slow
    before = now()
    assert not await it.delivery.deliver(order(east="a"))
    assert now() - before == pytest.approx(ATTENTION, abs=0.01)
    for revision in ("b", "c"):
        await it.delivery.deliver(order(east=revision))
    await asyncio.sleep(7)
    assert it.publisher.stored == {"east": "c"}
    assert len(it.publisher.calls) == 2
    await it.guard.stop()


async def test_while_the_bus_is_away_the_order_waits() -> None:
    it = Delivered()
    await it.lead()
    it.publisher.faults["east"] = AWAY
    waiting = order(east="a", west="a")
    assert not await it.delivery.deliver(waiting)
    assert set(waiting.faults) == {"east", "west"}
    assert not it.link.up
    it.publisher.faults.clear()
    it.delivery.retry()
    await asyncio.sleep(0.01)
    assert waiting.done.is_set()
    assert waiting.faults == {}
    assert [one.gateway for one in waiting.published] == ["west", "east"] or it.publisher.stored == {
        "east": "a",
        "west": "a",
    }
    assert {name: dict(count) for name, count in it.delivery.failures.items()} == {
        "east": {"bus_unreachable": 1},
        "west": {"bus_unreachable": 1},
    }
    await it.guard.stop()


async def test_one_bad_gateway_does_not_stop_the_others() -> None:
    it = Delivered()
    await it.lead()
    it.publisher.faults["bad"] = REFUSED
    one = order(bad="a", east="a", west="a")
    assert await it.delivery.deliver(one)
    assert it.publisher.stored == {"east": "a", "west": "a"}
    assert one.faults == {"bad": REFUSED}
    assert it.delivery.due({"bad": one.documents["bad"]}, 100), "it is tried again with the next cycle"
    assert not it.delivery.due({"east": one.documents["east"]}, 100)
    await it.guard.stop()


async def test_what_went_out_beside_a_fault_is_told_too() -> None:
    it = Delivered()
    await it.lead()
    assert await it.delivery.deliver(order(bad="a", east="a"))
    it.publisher.faults["bad"] = REFUSED
    second = order(bad="b", east="b")
    assert await it.delivery.deliver(second)
    assert [one.gateway for one in second.published] == ["east"]
    await it.guard.stop()


async def test_a_refused_write_ends_leading() -> None:
    it = Delivered()
    await it.lead()
    it.publisher.faults["east"] = LeaseError("host-2 leads", reason=Reason.STALE_EPOCH)
    assert not await it.delivery.deliver(order(east="a"))
    assert not it.leadership.leading
    assert it.followed == ["host-2 leads"]
    await it.guard.stop()


async def test_it_looks_again_from_time_to_time_and_in_a_new_term() -> None:
    it = Delivered()
    await it.lead()
    one = order(east="a")
    assert it.delivery.due(one.documents, 2)
    await it.delivery.deliver(one)
    assert not it.delivery.due(one.documents, 2)
    await asyncio.sleep(2)
    assert it.delivery.due(one.documents, 2)
    await it.delivery.deliver(order(east="a"))
    assert not it.delivery.due(one.documents, 2)
    it.leadership.step_down("test")
    await it.lead()
    assert it.delivery.due(one.documents, 2)
    await it.guard.stop()


async def test_a_publication_under_way_is_not_cut() -> None:
    it = Delivered()
    await it.lead()

    async def slow() -> None:
        await asyncio.sleep(2)

    it.publisher.before = slow
    await it.delivery.deliver(order(east="a"))
    await it.guard.stop({it.loop})
    assert it.publisher.stored == {}
    await it.delivery.finish()
    assert it.publisher.stored == {"east": "a"}
    await it.delivery.finish()
