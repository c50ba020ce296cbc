"""Leader or follower: the daemon's term.

Renewal comes strictly before any write, and losing the lease ends publishing at once: every write asks ``leading``
first, and the bus refuses what a late ex-leader sends all the same. A follower asks for the lease about once a second,
so that a leader that let go is replaced in a second and one that died within the life of its lease.

While the bus is away the attempts here are the only ones that are made, with growing pauses; all others wait for them.
"""

from collections.abc import Awaitable, Callable

from grid.bus.backoff import Backoff
from grid.bus.lease import LeaderLease
from grid.daemon.link import Link
from grid.daemon.tasks import Bell
from grid.model import BusError, LeaseError

PAUSES = (0.2, 2.0)
"""First and longest bound of the pauses between attempts while the bus is away, in s."""


class Leadership:
    """Runs the lease.

    ``take_over()`` reads what a new leader must know before it may publish; ``on_lead()`` and ``on_follow(why)`` hear
    of changes, the latter also when the first attempt found another leader.
    """

    def __init__(
        self,
        lease: LeaderLease,
        link: Link,
        clock: Callable[[], float],
        *,
        take_over: Callable[[], Awaitable[None]],
        on_lead: Callable[[], None],
        on_follow: Callable[[str], None],
    ) -> None:
        self.lease = lease
        self.bell = Bell()
        self._link = link
        self._clock = clock
        self._take_over = take_over
        self._on_lead = on_lead
        self._on_follow = on_follow
        self._backoff = Backoff(*PAUSES)
        self._term = 0
        """Epoch of the term that was taken over; 0 while following."""
        self._told = False

    @property
    def leading(self) -> bool:
        """Whether publishing is allowed now."""
        return self._term != 0 and self.lease.held()

    async def step(self) -> None:
        """Wait for the next beat and do what is due: acquire, take over, renew, or step down."""
        await self.bell.wait(self._backoff.next() if self._link.fault is not None else None)
        try:
            with self._link.watch():
                await self._act()
        except LeaseError as error:
            self.step_down(error.message)
        except BusError:
            if self._term and not self.lease.held():
                self._ran_out()
        else:
            self._backoff.reset()

    def step_down(self, why: str) -> None:
        """Stop publishing at once; the next beat asks for the lease again."""
        self.lease.lose()
        self._follow(why)

    def refused(self, error: LeaseError) -> None:
        """A write was refused: another term has begun."""
        self.step_down(error.message)
        self.bell.ring()

    async def _act(self) -> None:
        if self._term and not self.lease.held():
            self._ran_out()
        if self._term:
            if self._clock() >= self.lease.renew_at or self._link.fault is not None:
                await self.lease.renew()
                if self.lease.epoch != self._term:
                    # A gateway has seen a higher epoch than ours: the renewal began a new term above it.
                    self._term = self.lease.epoch
                    self._on_lead()
            return
        if not self.lease.held() and not await self.lease.acquire():
            other = self.lease.other
            self._follow(f"{other.holder} leads with epoch {other.epoch}" if other else "another daemon leads")
            return
        await self._take_over()
        self._term = self.lease.epoch
        self._told = False
        self._on_lead()

    def _ran_out(self) -> None:
        fault = self._link.fault
        self._follow("the lease ran out" + (f" while the bus was away: {fault.message}" if fault is not None else ""))

    def _follow(self, why: str) -> None:
        if self._term or not self._told:
            self._term = 0
            self._told = True
            self._on_follow(why)
