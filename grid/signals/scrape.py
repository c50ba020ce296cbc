"""What every source hands over: one scrape, and the protocol of those who take it."""

from dataclasses import dataclass
from typing import Protocol

from grid.model import Problem, Reading


@dataclass(frozen=True, slots=True)
class Scrape:
    """One successful exchange with a source.

    ``received_at``: monotonic s of the moment the answer had arrived, minus the age that a Prometheus reported.
    ``cost_s``: s of the source's own time that the exchange took (the scrape budget is counted from it).
    ``page_bytes``: size of what was read, after decompression.
    ``sampled_at`` and ``observed_every`` are for sources that observe the EPP in their own time (a Prometheus): the s
    of the observation on the *source's* clock, compared for equality only, and the s between its observations. Reading
    one observation twice is no new one. None and 0 where every scrape observes anew.
    """

    reading: Reading
    problems: tuple[Problem, ...] = ()
    received_at: float = 0.0
    cost_s: float = 0.0
    page_bytes: int = 0
    sampled_at: float | None = None
    observed_every: float = 0.0


class Scraper(Protocol):
    """A source of one provider. At most one ``scrape`` is in flight at a time; the schedule sees to that."""

    async def scrape(self) -> Scrape:
        """Read the source once, within the deadline the scraper was built with.

        Raises :class:`grid.model.ScrapeError` with a reason; never anything else but cancellation.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections and threads. Safe to call twice."""
        ...
