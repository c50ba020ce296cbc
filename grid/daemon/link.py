"""Whether the bus answers, as the daemon's own calls find it; there is no extra probing while it does."""

import contextlib
from collections.abc import Callable, Iterator

from grid.model import BusError, LeaseError, Reason


class Link:
    """Remembers the last fault of the bus. ``on_change`` hears when it goes away (the error) and returns (None)."""

    def __init__(self, on_change: Callable[[BusError | None], None]) -> None:
        self.fault: BusError | None = None
        """Why the bus cannot be used; None while it can."""
        self.proven = False
        """Whether it has answered at all."""
        self._on_change = on_change

    @property
    def up(self) -> bool:
        """Whether the last call was answered."""
        return self.proven and self.fault is None

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Around a call to the bus, and only where one is made; what it raises goes on."""
        try:
            yield
        except LeaseError as error:
            # A refusal of the server's is an answer; that our time has run out we know without asking.
            if error.reason is Reason.STALE_EPOCH:
                self._answered()
            raise
        except BusError as error:
            news = self.fault is None or self.fault.reason is not error.reason
            self.fault = error
            if news:
                self._on_change(error)
            raise
        self._answered()

    def _answered(self) -> None:
        if not self.up:
            self.proven, self.fault = True, None
            self._on_change(None)
