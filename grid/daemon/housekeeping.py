"""What is looked after once a second: who leads, what gateways report, drains and documents of others, the memory."""

from collections.abc import Callable

from grid.bus.publisher import Publisher
from grid.daemon.board import Board
from grid.daemon.keeper import Keeper
from grid.daemon.leadership import Leadership
from grid.daemon.link import Link
from grid.daemon.tasks import Bell
from grid.model import BusError, LeaseError

EVERY = 1.0
"""S between looks."""


class Housekeeping:
    """Runs the looks. ``on_drains()`` hears when another daemon was told to drain or undrain something.

    ``alone``: nobody else in this daemon finds out whether the bus is back (a dry run has no lease to renew).
    """

    def __init__(
        self,
        board: Board,
        publisher: Publisher,
        *,
        keeper: Keeper,
        leadership: Leadership,
        link: Link,
        clock: Callable[[], float],
        on_drains: Callable[[], None],
        alone: bool = False,
    ) -> None:
        self.bell = Bell()
        self._board = board
        self._publisher = publisher
        self._keeper = keeper
        self._leadership = leadership
        self._link = link
        self._clock = clock
        self._on_drains = on_drains
        self._alone = alone

    async def step(self) -> None:
        """Wait for the bell and look around."""
        await self.bell.wait()
        try:
            if self._link.fault is None or self._alone:
                with self._link.watch():
                    await self._look()
            await self._keeper.save()
        except LeaseError as error:
            self._leadership.refused(error)
        except BusError:
            pass  # the link has told; the next look is a second away

    async def _look(self) -> None:
        board, now = self._board, self._clock()
        board.leader, board.leader_at = await self._publisher.leader(), now
        board.reports, board.reported_at = tuple(await self._publisher.reports()), now
        if self._leadership.leading:
            self._publisher.observe(board.reports, self._leadership.lease)
        else:
            await self._keeper.refresh_documents()
        if await self._keeper.refresh_drains():
            self._on_drains()
