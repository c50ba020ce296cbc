"""A site in virtual time: an EPP with a line in front of its endpoints, and everything that can befall them.

The endpoints share one line at the engines, as an ideal EPP would have it: whoever is next takes the next free slot.
The EPP's own line moves up while the pool is not saturated. What it looks like from outside is the business of
:mod:`grid.sim.virtual.gauges`.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from grid.sim.values import KV_THRESHOLD, QUEUE_THRESHOLD, Engine, saturation
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.work import Outcome, Request

ERROR_S: Final = 0.005
"""s in which an error is answered, or a connection refused."""
TTL: Final = 60.0
"""s that a request may stand in the EPP's line."""
MAX_QUEUED: Final = 5000
"""Requests that may stand there."""
_POLLS: Final = 20
"""Times a second that an EPP reads each endpoint."""


@dataclass(frozen=True, slots=True)
class _Lost:
    """An endpoint that died ``at``, with the last numbers that its EPP has of it."""

    at: float
    running: int
    waiting: int
    kv: float


class Site:
    """``endpoints`` of ``slots`` each; who finds none free waits in line, first come first served.

    ``flow_control``: requests wait in the EPP while the pool is saturated; without it all go to the engines at once, or
    are turned away where none is ready. ``kv_tokens``: KV cache of one endpoint, in tokens; None: never what is short.
    A request takes its prompt when it starts and grows evenly to prompt and answer, at most to all of an endpoint's
    cache; it starts only where its whole need fits beside what the running ones will need, as an engine that never
    preempts would have it.
    """

    def __init__(
        self,
        name: str,
        slots: int,
        clock: Clock,
        *,
        endpoints: int = 1,
        kv_tokens: int | None = None,
        flow_control: bool = True,
    ) -> None:
        self.name = name
        self.slots = slots
        self.endpoints = endpoints
        self.kv_tokens = kv_tokens
        self.flow_control = flow_control
        self.ready = endpoints
        self.gone = False
        """Whether nothing answers at its address, neither to requests nor to scrapes."""
        self.running: dict[Request, None] = {}
        self.at_engines: OrderedDict[Request, None] = OrderedDict()
        """Who waits at the engines."""
        self.at_epp: OrderedDict[Request, None] = OrderedDict()
        """Who waits in front of them, in the EPP."""
        self.failing = False
        """Whether what starts now is answered at once with an error, as by an engine whose GPU fell off the bus."""
        self.seen = 0
        """Requests that gateways ever sent."""
        self.met_full = 0
        """Those of them that came while every slot was taken."""
        self.met = self.begun = False
        """Whether this process of the EPP has had a request, and has given one to an engine."""
        self.unseen = 0
        """Requests at the engines that the EPP does not count."""
        self._clock = clock
        self._room = slots * endpoints
        self._lost: list[_Lost] = []
        self._lost_polls = 0
        self._committed = 0
        self._kv_base = self._kv_rate = 0.0
        self._expiring = False
        self._cold_until = 0.0
        self._cold_factor = 1.0

    # --- what it looks like -------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Requests that all its ready endpoints run at once."""
        return self._room

    @property
    def waiting(self) -> int:
        """Requests that stand in line."""
        return len(self.at_engines) + len(self.at_epp)

    @property
    def queue(self) -> list[Request]:
        """Those who stand in line, the next one first."""
        return [*self.at_engines, *self.at_epp]

    @property
    def held(self) -> int:
        """Requests running and waiting."""
        return len(self.running) + len(self.at_engines) + len(self.at_epp)

    def kv_use(self) -> float:
        """Part of the KV cache of the ready endpoints that is taken now."""
        if self.kv_tokens is None or not self.ready or not self.running:
            return 0.0
        used = self._kv_base + self._kv_rate * self._clock.now
        return min(1.0, max(0.0, used / (self.kv_tokens * self.ready)))

    def engines(self) -> list[Engine]:
        """Every endpoint as its EPP sees it; one that died keeps its last numbers and grows older."""
        now, kv = self._clock.now, self.kv_use()
        running, waiting = _dealt(len(self.running), self.ready), _dealt(len(self.at_engines), self.ready)
        found = [Engine("alive", *numbers, kv) for numbers in zip(running, waiting, strict=True)]
        return found + [Engine("lost", one.running, one.waiting, one.kv, age=now - one.at) for one in self._lost]

    def poll_errors(self) -> int:
        """How often the EPP failed to read an endpoint so far."""
        return self._lost_polls + sum(int((self._clock.now - one.at) * _POLLS) for one in self._lost)

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """A request of a gateway arrives."""
        self.seen += 1
        if len(self.running) >= self._room:
            self.met_full += 1
        self.take(request)

    def take(self, request: Request) -> None:
        """A request arrives, whoever sent it."""
        request.arrived = self._clock.now
        request.started = None
        request.unseen = False
        if self.kv_tokens is None and not self.at_engines and not self.at_epp and len(self.running) < self._room:
            self.met = self.begun = True
            self._start(request)  # what nearly always happens, sooner
        elif self.gone:
            self._turn_away(request, Outcome.UNREACHABLE)
        elif not self.ready and self._unnoticed():
            self.met = self.begun = True
            self._turn_away(request, Outcome.UNAVAILABLE)
        elif not self.ready and not self.flow_control:
            self.met = True
            self._turn_away(request, Outcome.UNAVAILABLE)
        elif len(self.at_epp) >= MAX_QUEUED:
            self._turn_away(request, Outcome.SATURATED)
        else:
            self.met = True
            self.at_epp[request] = None
            self._move_up()
            if self.at_epp and not self._expiring:
                self._expiring = True
                self._clock.after(TTL, self._expire)

    def bypass(self, request: Request) -> None:
        """A request reaches the engines past the EPP, which does not count it."""
        request.arrived = self._clock.now
        request.started = None
        request.unseen = True
        if self.gone or not self.ready:
            self._turn_away(request, Outcome.UNREACHABLE)
            return
        self.unseen += 1
        self.at_engines[request] = None
        self._move_up()

    def withdraw(self, request: Request) -> bool:
        """Take a request back that has not started; False where it has."""
        if request.started is not None:
            return False
        self.cancel(request)
        return True

    def cancel(self, request: Request) -> None:
        """The sender of a request that is here has gone: its place is free at once, and nobody is told of it."""
        self._remove(request)
        self._move_up()

    # --- what befalls it ----------------------------------------------------------------------------------------------

    def kill(self, endpoints: int | None = None) -> None:
        """Endpoints die (all, where no number is given), and what they ran or had in line is lost.

        Who waits in the EPP goes on waiting there, and so does who comes, as long as the EPP lets them.
        """
        ready = self.ready
        lost = ready if endpoints is None else min(endpoints, ready)
        if not lost:
            return
        for engine in self.engines()[:lost]:
            self._lost.append(_Lost(self._clock.now, engine.running, engine.waiting, engine.kv))
        cut = [*_of_first(self.running, lost, ready), *_of_first(self.at_engines, lost, ready)]
        for request in cut:
            self._remove(request)
        self.ready = ready - lost
        self._room = self.slots * self.ready
        self._move_up()
        self._break(cut)

    def vanish(self) -> None:
        """The whole site is gone: its connections break, and nobody gets new ones, until it is revived."""
        waiting = [*self.at_epp]
        for request in waiting:
            self._remove(request)
        self.gone = True
        self.kill()
        self._break(waiting)

    def revive(self, *, cold: float = 0.0, factor: float = 1.0) -> None:
        """All endpoints are back; for ``cold`` s requests take ``factor`` times as long, until caches are warm."""
        self._lost_polls = self.poll_errors()
        self._lost.clear()
        self.gone = False
        self.ready = self.endpoints
        self._room = self.slots * self.ready
        self._cold_until, self._cold_factor = self._clock.now + cold, factor
        self._move_up()

    def forget(self) -> None:
        """Another process of the EPP takes over: who stood in its line is turned away, and what runs is not counted."""
        self.met = self.begun = False
        self._lost_polls = -sum(int((self._clock.now - one.at) * _POLLS) for one in self._lost)
        for request in (*self.running, *self.at_engines):
            request.unseen = True
        self.unseen = len(self.running) + len(self.at_engines)
        waiting = [*self.at_epp]
        for request in waiting:
            self._remove(request)
        self._break(waiting)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _unnoticed(self) -> bool:
        """Whether the EPP gives requests to endpoints that are all dead, since it does not know yet."""
        engines = self.engines()
        return saturation(engines) < 1.0 if self.flow_control else any(not engine.stale for engine in engines)

    def _turn_away(self, request: Request, outcome: Outcome) -> None:
        self._clock.after(ERROR_S, self._tell, request, request.turn, outcome)

    def _tell(self, request: Request, turn: int, outcome: Outcome) -> None:
        if request.turn == turn:
            request.turn += 1
            request.left(request, outcome)

    def _start(self, request: Request) -> None:
        clock = self._clock
        request.started = now = clock.now
        request.waited += now - request.arrived
        service, outcome = request.service, Outcome.ANSWERED
        if self.failing:
            service, outcome = ERROR_S, Outcome.FAILED
            request.first_at = math.inf
        elif now < self._cold_until:
            service *= self._cold_factor
            request.first_at = now + request.first * self._cold_factor
        else:
            request.first_at = now + request.first
        if self.kv_tokens is not None:
            self._commit(request, service)
        self.running[request] = None
        clock.at(now + service, self._end, request, request.turn, outcome)

    def _end(self, request: Request, turn: int, outcome: Outcome) -> None:
        # It may have been cut off, and be anywhere by now.
        if request.turn != turn:
            return
        self._stop(request)
        if self.at_engines or self.at_epp:
            self._move_up()
        request.left(request, outcome)

    def _stop(self, request: Request) -> None:
        """One that runs does so no longer."""
        request.turn += 1
        del self.running[request]
        if request.unseen:
            self.unseen -= 1
        if self.kv_tokens is not None:
            self._release(request)

    def _remove(self, request: Request) -> None:
        """Take a request out, wherever it is."""
        if request in self.running:
            self._stop(request)
            return
        request.turn += 1  # whatever is still to happen to it here is void
        if request in self.at_engines:
            del self.at_engines[request]
            self.unseen -= request.unseen
        elif request in self.at_epp:
            del self.at_epp[request]
        else:
            return
        request.waited += self._clock.now - request.arrived

    def _break(self, cut: Iterable[Request]) -> None:
        """Tell of requests that were cut off; those whose client had nothing yet are turned away."""
        now = self._clock.now
        for request, turn in [(request, request.turn) for request in cut]:
            begun = request.started is not None and now >= request.first_at
            # Whoever hears of one may cancel another.
            self._tell(request, turn, Outcome.BROKEN if begun or self.gone else Outcome.UNAVAILABLE)

    def _expire(self) -> None:
        """Turn away who has stood in the EPP's line for too long."""
        now, line = self._clock.now, self.at_epp
        outcome = Outcome.SATURATED if self.ready else Outcome.UNAVAILABLE
        while line and (head := next(iter(line))).arrived + TTL <= now:
            self._remove(head)
            head.left(head, outcome)
        self._expiring = bool(line)
        if line:
            self._clock.at(next(iter(line)).arrived + TTL, self._expire)

    # --- room ---------------------------------------------------------------------------------------------------------

    def _move_up(self) -> None:
        """Start whoever fits, and let the EPP's line move up to the engines while they are not saturated."""
        engines, epp = self.at_engines, self.at_epp
        while True:
            while engines and self._fits(next(iter(engines))):
                self._start(engines.popitem(last=False)[0])
            if not epp or not self._open():
                return
            request = epp.popitem(last=False)[0]
            self.begun = True
            engines[request] = None

    def _open(self) -> bool:
        """Whether the EPP gives another request to the engines."""
        if not self.ready:
            return False
        if not self.flow_control:
            return True
        return len(self.at_engines) < QUEUE_THRESHOLD * self.ready and self.kv_use() < KV_THRESHOLD

    def _fits(self, request: Request) -> bool:
        if len(self.running) >= self._room:
            return False
        kv = self.kv_tokens
        return kv is None or self._committed + min(request.prompt + request.output, kv) <= kv * self.ready

    def _commit(self, request: Request, service: float) -> None:
        kv = self.kv_tokens or 0
        prompt = min(request.prompt, kv)
        request.kv = min(request.prompt + request.output, kv)
        request.kv_rate = (request.kv - prompt) / service if service else 0.0
        request.kv_base = prompt - request.kv_rate * self._clock.now
        self._committed += request.kv
        self._kv_base += request.kv_base
        self._kv_rate += request.kv_rate

    def _release(self, request: Request) -> None:
        self._committed -= request.kv
        self._kv_base -= request.kv_base
        self._kv_rate -= request.kv_rate
        if not self.running:
            self._kv_base = self._kv_rate = 0.0  # nothing is left of sums and differences but their rounding


def _dealt(number: int, among: int) -> list[int]:
    """``number`` requests, dealt out one by one."""
    return [number // among + (place < number % among) for place in range(among)]


def _of_first(requests: Iterable[Request], some: int, all_: int) -> list[Request]:
    """Those that the first ``some`` of ``all_`` endpoints have, where they are dealt out one by one."""
    return [request for place, request in enumerate(requests) if place % all_ < some]
