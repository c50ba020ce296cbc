"""Who sends requests: clients in closed loops, arrivals at random, and what gateways never see."""

import random
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

from grid.sim.virtual.clock import Clock
from grid.sim.virtual.site import Site
from grid.sim.virtual.work import Done, Outcome, Request, Work

_LOOK = 0.1
"""s between two looks at a rate of 0."""


class Entry(Protocol):
    """Where requests are sent: a gateway of ours, or one that goes by another rule."""

    def send(self, request: Request, done: Done) -> None:
        """Take a request; ``done`` hears how it ends."""
        ...


class Giving(Entry, Protocol):
    """An entry from which requests may be taken back."""

    def cancel(self, request: Request) -> None:
        """The client of a request has gone; nothing where it has ended."""
        ...


class Impatient:
    """An entry for clients that give up ``patience`` s after they have sent."""

    def __init__(self, clock: Clock, entry: Giving, patience: float) -> None:
        self._clock = clock
        self._entry = entry
        self._patience = patience

    def send(self, request: Request, done: Done) -> None:
        """Take a request; ``done`` hears how it ends."""
        self._entry.send(request, done)
        self._clock.after(self._patience, self._entry.cancel, request)


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
        clock.at(start + spread * client / clients, begin, client)


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

    ``shares``: how much of the traffic each entry has; None: all alike. A ``rate`` that changes is asked at each
    arrival for the way to the next one, so it should change slowly; while it is 0, it is asked ten times a second.
    """
    bounds = list(accumulate(shares if shares is not None else [1.0] * len(entries)))
    total = bounds[-1]

    def arrive() -> None:
        if clock.now >= until:
            return
        following()
        request = work(rng)
        entries[bisect(bounds, rng.random() * total)].send(request, heard)

    def following() -> None:
        a_second = rate(clock.now) if callable(rate) else rate
        if a_second > 0:
            clock.after(rng.expovariate(a_second), arrive)
        elif clock.now < until:
            clock.after(_LOOK, following)

    clock.at(start, following)


def invisible(clock: Clock, site: Site, work: Work, *, rate: float, rng: random.Random, bypass: bool = False) -> None:
    """Traffic that reaches a site past all gateways, ``rate`` requests a second; with ``bypass`` past its EPP too."""
    take = site.bypass if bypass else site.take

    def ignore(_: Request, __: Outcome) -> None:
        return None

    def arrive() -> None:
        clock.after(rng.expovariate(rate), arrive)
        request = work(rng)
        request.left = ignore
        take(request)

    clock.after(rng.expovariate(rate), arrive)
