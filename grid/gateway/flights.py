"""What this process has under way, by provider: counted where requests begin and end, reported to the daemon."""

from collections import Counter
from types import TracebackType
from typing import Protocol

from grid.gateway.pick import Pick
from grid.model import Kind


class Flights:
    """Requests in flight and begun, by ``site/cluster``. For the thread of the event loop alone."""

    __slots__ = ("_begun", "_in_flight", "_told", "_told_at")

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()
        self._begun: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._told_at: float | None = None

    @property
    def in_flight(self) -> dict[str, int]:
        """Requests under way now; providers without any are left out."""
        return {place: number for place, number in self._in_flight.items() if number}

    def begin(self, place: str) -> None:
        """One more is under way to ``place`` (``site/cluster``)."""
        self._in_flight[place] += 1
        self._begun[place] += 1

    def end(self, place: str) -> None:
        """One of them has ended, whatever way."""
        self._in_flight[place] -= 1

    def rates(self, now: float) -> dict[str, float]:
        """Requests/s begun since the last call (``now``: monotonic s); empty the first time."""
        elapsed = 0.0 if self._told_at is None else now - self._told_at
        rates = {
            place: (number - self._told[place]) / elapsed
            for place, number in self._begun.items()
            if elapsed > 0 and number > self._told[place]
        }
        self._told, self._told_at = self._begun.copy(), now
        return rates


class Picks(Protocol):
    """What a route picks with."""

    def pick(self, model: str, kind: Kind = ...) -> Pick:
        """The next pick. Raises RoutingError."""
        ...


class Route:
    """A request's way: ``with`` picks and counts it, and takes it back on every way out, once."""

    __slots__ = ("_flights", "_kind", "_model", "_picks", "_place")

    def __init__(self, picks: Picks, flights: Flights, model: str, kind: Kind) -> None:
        self._picks = picks
        self._flights = flights
        self._model = model
        self._kind = kind
        self._place: str | None = None

    def __enter__(self) -> Pick:
        # Nothing waits between the two, so nobody picks on a count that is about to change.
        pick = self._picks.pick(self._model, self._kind)
        self._place = f"{pick.site}/{pick.cluster}"
        self._flights.begin(self._place)
        return pick

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        place, self._place = self._place, None
        if place is not None:
            self._flights.end(place)
