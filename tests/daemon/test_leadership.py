import asyncio

import pytest

from grid.bus.lease import Leader
from grid.daemon.leadership import Leadership
from grid.daemon.link import Link
from grid.daemon.tasks import TaskGuard
from grid.model import BusError, LeaseError, Reason
from tests.daemon.parts import PretendedLease, gaps, now

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

AWAY = BusError("no connection", reason=Reason.BUS_UNREACHABLE)


class Led:
    def __init__(self) -> None:
        self.lease = PretendedLease()
        self.link_changes: list[BusError | None] = []
        self.link = Link(self.link_changes.append)
        self.said: list[str] = []
        self.taken = 0
        self.take_over_fault: Exception | None = None
        self.guard = TaskGuard()
        self.leadership = Leadership(
            self.lease,  # type: ignore[arg-type]
            self.link,
            now,
            take_over=self.take_over,
            on_lead=lambda: self.said.append("leads"),
            on_follow=self.said.append,
        )
        self.beating: asyncio.Task[None] | None = None

    def leads(self) -> bool:
        return self.leadership.leading

    async def take_over(self) -> None:
        self.taken += 1
        if self.take_over_fault is not None:
            raise self.take_over_fault

    async def beat(self, seconds: float) -> None:
        """Run it for a while, with a beat each second."""
        self.guard.loop("lease", self.leadership.step)
        end = now() + seconds
        while now() < end:
            self.leadership.bell.ring()
            await asyncio.sleep(1.0)
        await self.guard.stop()


async def test_a_free_lease_is_taken_and_renewed_at_a_third_of_its_life() -> None:
    led = Led()
    await led.beat(21)
    assert led.said == ["leads"]
    assert led.leads()
    kinds = [kind for kind, _ in led.lease.calls]
    assert kinds[0] == "acquire"
    assert set(kinds[1:]) == {"renew"}
    moments = [moment for _, moment in led.lease.calls]
    apart = gaps(moments)
    assert max(apart) <= 4.1, "a third of 10 s, at the beat that follows"


async def test_a_follower_asks_every_second_and_leads_when_it_may() -> None:
    led = Led()
    led.lease.other = Leader("host-2", 7)
    await led.beat(5)
    assert led.said == ["host-2 leads with epoch 7"]
    assert not led.leads()
    assert len(led.lease.calls) == 5
    led.lease.other = None
    await led.beat(1)
    assert led.said[1:] == ["leads"]


async def test_publishing_is_not_allowed_before_the_take_over_is_done() -> None:
    led = Led()
    led.take_over_fault = AWAY
    await led.beat(3)
    assert led.lease.held()
    assert not led.leads()
    assert led.said == []
    led.take_over_fault = None
    await led.beat(1)
    assert led.leads()
    assert [kind for kind, _ in led.lease.calls].count("acquire") == 1


async def test_a_lease_that_is_lost_ends_leading_at_once() -> None:
    led = Led()
    await led.beat(1)
    led.lease.fault = LeaseError("host-2 leads with epoch 9", reason=Reason.LEASE_LOST)
    led.lease.deadline = now() + 1
    led.lease.other = Leader("host-2", 9)
    await led.beat(2)
    assert not led.leads()
    assert led.said == ["leads", "host-2 leads with epoch 9"]


async def test_a_refused_write_steps_down_and_asks_again_at_once() -> None:
    led = Led()
    await led.beat(1)
    led.leadership.refused(LeaseError("another term", reason=Reason.STALE_EPOCH))
    assert not led.leads()
    assert not led.lease.held()
    assert led.said == ["leads", "another term"]
    assert led.leadership.bell.rung
    await led.beat(1)
    assert led.leads()
    assert led.taken == 2, "a new term reads again what it must know"


async def test_while_the_bus_is_away_the_lease_is_kept_to_its_end_and_no_longer() -> None:
    led = Led()
    await led.beat(1)
    led.lease.fault = AWAY
    last = led.lease.deadline
    seen: list[tuple[float, bool]] = []
    led.guard.loop("lease", led.leadership.step)
    while now() < last + 3:
        led.leadership.bell.ring()
        await asyncio.sleep(0.1)
        seen.append((now(), led.leads()))
    await led.guard.stop()
    assert all(leading is (moment < last) for moment, leading in seen)
    assert led.said[0] == "leads"
    assert led.said[1].startswith("the lease ran out while the bus was away")
    assert len(led.said) == 2


async def test_when_the_bus_is_back_it_is_noticed_soon() -> None:
    led = Led()
    led.lease.fault = AWAY
    await led.beat(30)
    assert led.link_changes == [AWAY]
    led.lease.fault = None
    await led.beat(4)
    assert led.link_changes == [AWAY, None]
    assert led.leads()


async def test_a_renewal_that_begins_a_new_term_is_told() -> None:
    led = Led()
    await led.beat(1)

    async def renew() -> None:
        led.lease.epoch = 50
        led.lease.deadline = now() + led.lease.ttl

    led.lease.renew = renew  # type: ignore[method-assign]
    await led.beat(6)
    assert led.said == ["leads", "leads"]
    assert led.leads()
    assert led.taken == 1


async def test_a_bus_that_was_away_for_a_moment_is_proven_before_the_next_renewal_is_due() -> None:
    led = Led()
    await led.beat(1)
    with pytest.raises(BusError), led.link.watch():
        raise AWAY
    await led.beat(1.5)
    assert led.link.up
    assert led.lease.calls[-1][0] == "renew"
    assert led.leads()
