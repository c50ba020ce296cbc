"""A site in virtual time: endpoints with slots, a first-come queue, and everything that can befall them.

What it looks like from outside is the business of :mod:`grid.sim.virtual.gauges`.
"""

from collections import deque

from grid.sim.virtual.clock import Clock
from grid.sim.virtual.work import Outcome, Request

ERROR_S = 0.005
"""s in which a broken engine answers with an error."""


class Site:
    """``endpoints`` of ``slots`` each; who finds none free waits in line.

    ``kv_tokens``: KV cache of one endpoint, in tokens; None: never what is short. A request takes its prompt when it
    starts and grows evenly to prompt and answer; it starts only where its whole need fits beside what the running ones
    will need, as an engine that never preempts would have it.
    """

    def __init__(
        self, name: str, slots: int, clock: Clock, *, endpoints: int = 1, kv_tokens: int | None = None
    ) -> None:
        self.name = name
        self.slots = slots
        self.endpoints = endpoints
        self.kv_tokens = kv_tokens
        self.ready = endpoints
        self.running: dict[Request, None] = {}
        self.queue: deque[Request] = deque()
        self.failing = False
        """Whether it answers everything at once with an error, as an engine does whose GPU fell off the bus."""
        self.seen = 0
        """Requests that gateways ever sent."""
        self.met_full = 0
        """Those of them that came while every slot was taken."""
        self._clock = clock
        self._room = slots * endpoints
        self._committed = 0
        self._cold_until = 0.0
        self._cold_factor = 1.0

    @property
    def capacity(self) -> int:
        """Requests that all its ready endpoints run at once."""
        return self._room

    @property
    def held(self) -> int:
        """Requests running and waiting."""
        return len(self.running) + len(self.queue)

    def kv_use(self) -> float:
        """Part of the KV cache of the ready endpoints that is taken now."""
        if self.kv_tokens is None or not self.ready:
            return 0.0
        now, used = self._clock.now, 0.0
        for request in self.running:
            done = (now - (request.started or now)) / max(1e-9, request.ends - (request.started or now))
            used += request.prompt + request.output * min(1.0, done)
        return min(1.0, used / (self.kv_tokens * self.ready))

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """A request of a gateway arrives."""
        self.seen += 1
        if len(self.running) >= self._room:
            self.met_full += 1
        self.take(request)

    def take(self, request: Request) -> None:
        """A request arrives, whoever sent it."""
        clock = self._clock
        request.arrived = clock.now
        request.started = None
        if self.failing:
            clock.after(ERROR_S, lambda: request.left(request, Outcome.FAILED))
        elif not self.ready:
            clock.after(0.0, lambda: request.left(request, Outcome.UNREACHABLE))
        elif not self.queue and self._fits(request):
            self._start(request)
        else:
            self.queue.append(request)

    def withdraw(self, request: Request) -> bool:
        """Take a request back that has not started; False where it has."""
        if request.started is not None:
            return False
        self.queue.remove(request)
        request.waited += self._clock.now - request.arrived
        return True

    def _fits(self, request: Request) -> bool:
        if len(self.running) >= self._room:
            return False
        if self.kv_tokens is None:
            return True
        need = min(request.prompt + request.output, self.kv_tokens)
        return self._committed + need <= self.kv_tokens * self.ready

    def _start(self, request: Request) -> None:
        clock = self._clock
        request.started = now = clock.now
        request.waited += now - request.arrived
        service = request.service
        if now < self._cold_until:
            service *= self._cold_factor
        request.ends = now + service
        if self.kv_tokens is not None:
            request.kv = min(request.prompt + request.output, self.kv_tokens)
            self._committed += request.kv
        self.running[request] = None
        clock.at(request.ends, lambda: self._end(request, now))

    def _end(self, request: Request, started: float) -> None:
        # It may have been cut off, and run anew somewhere by now.
        if request not in self.running or request.started != started:
            return
        del self.running[request]
        self._committed -= request.kv
        self._fill()
        request.left(request, Outcome.ANSWERED)

    def _fill(self) -> None:
        queue = self.queue
        while queue and self._fits(queue[0]):
            self._start(queue.popleft())

    # --- what befalls it ----------------------------------------------------------------------------------------------

    def kill(self, endpoints: int | None = None) -> None:
        """Endpoints die (all, where no number is given) and what ran there breaks.

        Who waits in line goes on waiting in the EPP, which does not refuse them; new connections fail where all died.
        """
        lost = self.ready if endpoints is None else min(endpoints, self.ready)
        cut = list(self.running)[: round(len(self.running) * lost / max(1, self.ready))]
        self.ready -= lost
        self._room = self.slots * self.ready
        for request in cut:
            del self.running[request]
            self._committed -= request.kv
        for request in cut:
            request.left(request, Outcome.BROKEN)

    def revive(self, *, cold: float = 0.0, factor: float = 1.0) -> None:
        """All endpoints are back; for ``cold`` s requests take ``factor`` times as long, until caches are warm."""
        self.ready = self.endpoints
        self._room = self.slots * self.ready
        self._cold_until, self._cold_factor = self._clock.now + cold, factor
        self._fill()
