"""Requests, and how long an engine needs for them."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from grid.flow import Ticket
from grid.gateway import Decision


class Outcome(Enum):
    """How a request ended at a site, or at the gateway.

    ``ANSWERED``; ``FAILED`` answered with an error of the site's own (500); ``UNREACHABLE`` no connection; ``BROKEN``
    cut off under way; ``WITHDRAWN`` by its gateway, to be sent elsewhere; ``REFUSED`` by the gateway (429, 503, 504).
    """

    ANSWERED = "answered"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    BROKEN = "broken"
    WITHDRAWN = "withdrawn"
    REFUSED = "refused"


class Request:
    """One request on its way.

    ``service``: s an engine of usual speed needs; ``tokens``: prompt and answer, for KV-cache use. ``born``: when it
    came to a gateway; ``arrived`` and ``started`` at the site that has it now (``started`` None while it waits).
    ``left``: what its sender does once the site is done with it. ``decision``, ``tried``, ``ticket``, ``rescued`` and
    ``done`` belong to the gateway that has it.
    """

    __slots__ = (
        "arrived", "band", "born", "decision", "done", "ends", "kv", "left", "output", "prompt", "rescued", "service",
        "session", "started", "tenant", "ticket", "tried", "waited",
    )  # fmt: skip

    decision: Decision
    done: "Done"
    left: "Done"
    rescued: bool
    ticket: Ticket
    tried: tuple[Decision, ...]

    def __init__(
        self,
        service: float,
        *,
        prompt: int = 0,
        output: int = 0,
        band: str | None = None,
        tenant: str = "",
        session: str | None = None,
    ) -> None:
        self.service = service
        self.prompt = prompt
        self.output = output
        self.band = band
        self.tenant = tenant
        self.session = session
        self.born = 0.0
        self.arrived = 0.0
        self.started: float | None = None
        self.ends = math.inf
        self.waited = 0.0
        """s it stood in line at sites."""
        self.kv = 0
        """KV-cache tokens it holds when it is done."""


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
    """Exponential durations of ``mean`` s."""

    mean: float

    def __call__(self, rng: random.Random) -> Request:
        return Request(rng.expovariate(1 / self.mean))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Prompts and answers of lognormal length, as chat traffic has them: most are short, a few are very long.

    ``prompt`` and ``output``: medians in tokens; ``spread``: sigma of both logarithms. An engine reads
    ``prefill`` tokens/s and writes ``decode`` tokens/s per request.
    """

    prompt: float = 400.0
    output: float = 200.0
    spread: float = 1.0
    prefill: float = 8000.0
    decode: float = 100.0
    longest: int = 32_000

    @property
    def mean(self) -> float:
        """Mean duration, s, but for the cut at ``longest``."""
        stretch = math.exp(self.spread**2 / 2)
        return stretch * (self.prompt / self.prefill + self.output / self.decode)

    def __call__(self, rng: random.Random) -> Request:
        prompt = min(self.longest, 1 + int(rng.lognormvariate(math.log(self.prompt), self.spread)))
        output = min(self.longest, 1 + int(rng.lognormvariate(math.log(self.output), self.spread)))
        return Request(prompt / self.prefill + output / self.decode, prompt=prompt, output=output)
