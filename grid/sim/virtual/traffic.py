"""Who sends requests: clients in closed loops, arrivals at random, and what gateways never see."""

import random
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

from grid.sim.virtual.clock import Clock
from grid.sim.virtual.site import Site
from grid.sim.virtual.work import Done, Outcome, Request, Work


class Entry(Protocol):
    """Where requests are sent: a gateway of ours, or one that goes by another rule."""

    def send(self, request: Request, done: Done) -> None:
        """Take a request; ``done`` hears how it ends."""
        ...


def closed_loop(
    clock: Clock,
    entries: Sequence[Entry],
    work: Work,
    *,
    clients: int,
    rng: random.Random,
    heard: Done,
    start: float = 0.0,
    spread: float = 0.2,
    until: float = float("inf"),
    pause: float = 0.5,
) -> None:
    """``clients`` that send their next request as soon as one is answered; client ``n`` uses entry ``n`` modulo all.

    They begin within ``spread`` s from ``start`` on. Whoever is refused or failed comes back after ``pause`` s.
    """

    def begin(client: int) -> None:
        entry = entries[client % len(entries)]

        def done(request: Request, outcome: Outcome) -> None:
            heard(request, outcome)
            if clock.now >= until:
                return
            if outcome is Outcome.ANSWERED:
                entry.send(work(rng), done)
            else:
                clock.after(pause, lambda: entry.send(work(rng), done))

        entry.send(work(rng), done)

    for client in range(clients):
        clock.at(start + spread * client / clients, lambda client=client: begin(client))  # type: ignore[misc]


def poisson(
    clock: Clock,
    entries: Sequence[Entry],
    work: Work,
    *,
    rate: Callable[[float], float] | float,
    rng: random.Random,
    heard: Done,
    shares: Sequence[float] | None = None,
    start: float = 0.0,
    until: float = float("inf"),
) -> None:
    """Arrivals at random, ``rate`` a second (a number, or one that changes with time), each at one of ``entries``.

    ``shares``: how much of the traffic each entry has; None: all alike.
    """
    bounds = list(accumulate(shares if shares is not None else [1.0] * len(entries)))
    total = bounds[-1]

    def arrive() -> None:
        now = clock.now
        if now >= until:
            return
        a_second = rate(now) if callable(rate) else rate
        clock.at(now + rng.expovariate(a_second), arrive)
        request = work(rng)
        entries[bisect(bounds, rng.random() * total)].send(request, heard)

    first = rate(start) if callable(rate) else rate
    clock.at(start + rng.expovariate(first), arrive)


def invisible(clock: Clock, site: Site, work: Work, *, rate: float, rng: random.Random) -> None:
    """Traffic that reaches a site past all gateways, ``rate`` requests a second."""

    def ignore(_: Request, __: Outcome) -> None:
        return None

    def arrive() -> None:
        clock.after(rng.expovariate(rate), arrive)
        request = work(rng)
        request.left = ignore
        site.take(request)

    clock.after(rng.expovariate(rate), arrive)
