"""Whether the bus answers, as the daemon's own calls find it; there is no extra probing while it does.

A server that refuses a command has answered: that is no outage, and it is said once, not at every try.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from grid.bus.faults import RefusedError
from grid.model import BusError, LeaseError, Reason

QUIET = 300.0
"""S after which a refusal that goes on is told again."""
RECENT = 5.0
"""S for which a refusal counts as of now."""
_REMEMBERED = 64


class Told:
    """What was said lately, so that what goes on is not said at every turn. ``clock``: monotonic s."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said: dict[str, float] = {}

    def news(self, text: str) -> bool:
        """Whether ``text`` was not said for :data:`QUIET` s; then it counts as said now."""
        now = self._clock()
        last = self._said.get(text)
        if last is not None and now - last < QUIET:
            return False
        if len(self._said) >= _REMEMBERED:
            self._said.clear()
        self._said[text] = now
        return True


class Link:
    """Remembers the last fault of the bus.

    ``on_change`` hears when it goes away (the error) and returns (None), ``on_refused`` whenever it refuses a command,
    and whether that is news. ``clock``: monotonic s.
    """

    def __init__(
        self,
        on_change: Callable[[BusError | None], None],
        on_refused: Callable[[RefusedError, bool], None] = lambda _, __: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fault: BusError | None = None
        """Why the bus cannot be used; None while it can."""
        self.proven = False
        """Whether it has answered at all."""
        self._on_change = on_change
        self._on_refused = on_refused
        self._clock = clock
        self._refusal: RefusedError | None = None
        self._refused_at = -float("inf")
        self._told = Told(clock)

    @property
    def up(self) -> bool:
        """Whether the last call was answered."""
        return self.proven and self.fault is None

    @property
    def refusal(self) -> RefusedError | None:
        """What was refused in the last :data:`RECENT` s, if anything."""
        return self._refusal if self._clock() - self._refused_at < RECENT else None

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
        except RefusedError as error:
            self._answered()
            self._refused(error)
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

    def _refused(self, error: RefusedError) -> None:
        self._refusal, self._refused_at = error, self._clock()
        self._on_refused(error, self._told.news(error.message))
