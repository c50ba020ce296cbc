"""Requests, and how long an engine needs for them."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from statistics import NormalDist
from typing import Protocol

from grid.flow import Ticket
from grid.gateway import Decision


class Outcome(Enum):
    """How a request ended at a site, or at the gateway.

    ``ANSWERED``; ``FAILED`` answered with an error of the site's own (500); ``UNAVAILABLE`` turned away (503): no
    engine is ready, or the one that had it died before the first byte; ``SATURATED`` turned away (429): the EPP's line
    is full, or it stood there too long; ``UNREACHABLE`` no connection; ``BROKEN`` cut off under way; ``REFUSED`` by the
    gateway (429, 503, 504); ``CANCELLED`` given up by its client.
    """

    ANSWERED = "answered"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    SATURATED = "saturated"
    UNREACHABLE = "unreachable"
    BROKEN = "broken"
    REFUSED = "refused"
    CANCELLED = "cancelled"

    # Counted by the hundred thousand, and hashing the name takes longer than all the rest of it.
    __hash__ = object.__hash__


FAULTS = (Outcome.FAILED, Outcome.UNAVAILABLE, Outcome.SATURATED, Outcome.UNREACHABLE, Outcome.BROKEN)
"""What a client sees that was a fault of a site."""


class Request:
    """One request on its way.

    ``service``: s an engine of usual speed needs; ``first``: s of it up to the first byte, from which on nobody else
    can answer it (inf: the answer comes whole, at the end); ``prompt`` and ``output``: tokens, for KV-cache use.
    ``born``: when it came to a gateway; ``arrived`` and ``started`` at the site that has it now (``started`` None while
    it waits); ``waited``: s it stood in line at sites. ``left``: what its sender does once the site is done with it.
    ``decision``, ``tried``, ``ticket``, ``rescued`` and ``done`` belong to the gateway that has it, ``turn``,
    ``first_at``, ``unseen``, ``kv``, ``kv_base`` and ``kv_rate`` to the site.
    """

    __slots__ = (
        "arrived", "band", "born", "decision", "done", "first", "first_at", "kv", "kv_base", "kv_rate", "left",
        "output", "prompt", "rescued", "service", "session", "started", "tenant", "ticket", "tried", "turn", "unseen",
        "waited",
    )  # fmt: skip

    decision: Decision | None
    done: "Done"
    first_at: float
    kv: int
    kv_base: float
    kv_rate: float
    left: "Done"
    rescued: bool
    ticket: Ticket
    tried: tuple[Decision, ...]
    unseen: bool

    def __init__(
        self,
        service: float,
        *,
        first: float = math.inf,
        prompt: int = 0,
        output: int = 0,
        band: str | None = None,
        tenant: str = "",
        session: str | None = None,
    ) -> None:
        self.service = service
        self.first = first
        self.prompt = prompt
        self.output = output
        self.band = band
        self.tenant = tenant
        self.session = session
        self.born = 0.0
        self.arrived = 0.0
        self.started: float | None = None
        self.waited = 0.0
        self.turn = 0


Done = Callable[[Request, Outcome], None]
"""Hears how a request ended."""


class Work(Protocol):
    """Makes requests."""

    def __call__(self, rng: random.Random) -> Request:
        """The next request."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every request takes ``seconds``, ``jitter`` (a fraction) either way, or closed loops march in step for ever."""

    seconds: float
    jitter: float = 0.01

    def __call__(self, rng: random.Random) -> Request:
        return Request(self.seconds * (1 + self.jitter * (2 * rng.random() - 1)))


@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential durations of ``mean`` s; the first byte comes after ``first`` s (inf: with the last)."""

    mean: float
    first: float = math.inf

    def __call__(self, rng: random.Random) -> Request:
        return Request(rng.expovariate(1 / self.mean), first=self.first)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Prompts and answers of lognormal length, as chat traffic has them: most are short, a few are very long.

    ``prompt`` and ``output``: medians in tokens; ``spread``: sigma of both logarithms. An engine reads
    ``prefill`` tokens/s and writes ``decode`` tokens/s per request; the first byte comes once the prompt is read.
    """

    prompt: float = 400.0
    output: float = 200.0
    spread: float = 1.0
    prefill: float = 8000.0
    decode: float = 100.0
    longest: int = 32_000

    @property
    def mean(self) -> float:
        """Mean duration, s."""
        return self._mean(self.prompt) / self.prefill + self._mean(self.output) / self.decode

    def _mean(self, median: float) -> float:
        """Mean of a lognormal variable that is cut at ``longest``."""
        edge = math.log(self.longest / median) / self.spread
        below = NormalDist().cdf
        return median * math.exp(self.spread**2 / 2) * below(edge - self.spread) + self.longest * (1 - below(edge))

    def __call__(self, rng: random.Random) -> Request:
        prompt, output = self._length(self.prompt, rng), self._length(self.output, rng)
        first = prompt / self.prefill
        return Request(first + output / self.decode, first=first, prompt=prompt, output=output)

    def _length(self, median: float, rng: random.Random) -> int:
        return min(self.longest, max(1, round(rng.lognormvariate(math.log(median), self.spread))))
