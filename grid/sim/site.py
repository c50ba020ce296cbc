"""A simulated site on loopback: an EPP's metric page on one port, OpenAI-like requests on another."""

import asyncio
import gzip
import random
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import orjson

from grid.sim.epp import SimulatedEpp
from grid.sim.exposition import CONTENT_TYPE
from grid.sim.loopback import Answer, BrokenBodyError, LoopbackServer, Request
from grid.sim.pages import check_token
from grid.sim.pool import Outcome, PoolShape, SimulatedPool, Ticket
from grid.sim.values import Flow

TENANT_HEADERS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
_JSON = {"content-type": "application/json"}
_CHUNKS = 4
_LOCAL_PAUSE = 0.25


@dataclass(frozen=True, slots=True)
class SiteShape:
    """What a site is. ``service``: mean s an engine needs for a request, spread evenly over +-``spread`` of it."""

    name: str
    profile: str = "v0.10"
    models: tuple[str, ...] = ("sim-model",)
    pool: PoolShape = field(default_factory=PoolShape)
    service: float = 0.4
    spread: float = 0.2

    @property
    def rate(self) -> float:
        """Requests per second at which every slot is busy."""
        return self.pool.capacity / self.service


class _Waiter:
    __slots__ = ("finished", "started")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.started: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[Outcome] = loop.create_future()


class SimulatedSite:
    """Serves a site until ``stop``. Everything runs on the event loop that ``start`` was called on.

    ``token``: bearer token its metric page wants (None: none); ``page_delay``: s it lets a scrape wait. ``uptime``: s
    for which its EPP seems to have run already when it starts; below 5 its page has no means yet.
    """

    def __init__(self, shape: SiteShape, *, rng: random.Random | None = None, uptime: float = 0.0) -> None:
        self.shape = shape
        self._uptime = uptime
        self.token: str | None = None
        self.page_delay = 0.0
        self.scrapes = 0
        self.outcomes: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        """How requests from outside ended; the site's own are not in it."""
        self.met_full = 0
        """Requests from outside that came when every slot was taken."""
        self._rng = rng or random.Random()
        self._waiters: dict[Ticket, _Waiter] = {}
        self._local: set[asyncio.Task[None]] = set()
        self._metrics = LoopbackServer(self._serve_metrics)
        self._requests = LoopbackServer(self._serve_request)
        self._wake: asyncio.TimerHandle | None = None
        self._epp: SimulatedEpp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """Where requests go; ``/v1/...`` is added to it."""
        return self._requests.url

    @property
    def metrics_url(self) -> str:
        """The EPP's page."""
        return f"{self._metrics.url}/metrics"

    @property
    def epp(self) -> SimulatedEpp:
        """What is simulated; only between ``start`` and ``stop``."""
        if self._epp is None:
            raise RuntimeError(f"site {self.shape.name} has not been started")
        return self._epp

    @property
    def held(self) -> int:
        """Requests the site holds now: at its engines and in its EPP."""
        return self.epp.pool.held

    async def start(self) -> None:
        """Take two ports and come to life."""
        self._loop = asyncio.get_running_loop()
        started = self._loop.time() - self._uptime
        pool = SimulatedPool(
            self.shape.pool, rng=self._rng, on_started=self._started, on_finished=self._finished, now=started
        )
        wall = time.time() - self._uptime
        self._epp = SimulatedEpp(self.shape.profile, self.shape.name, pool, started=started, started_wall=wall)
        await self._metrics.start()
        await self._requests.start()
        self._arm()

    async def stop(self) -> None:
        """End everything the site does."""
        await self.empty()
        await self._metrics.stop()
        await self._requests.stop()
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    # --- the operator's hand ----------------------------------------------------------------------------------------

    def fill(self, clients: int) -> None:
        """Let so many more clients of the site's own send one request after another, past every gateway."""
        loop = self._running_loop()
        for index in range(clients):
            task = loop.create_task(self._local_client(), name=f"{self.shape.name} local client {index}")
            self._local.add(task)
            task.add_done_callback(self._local.discard)

    async def empty(self) -> None:
        """Send the site's own clients home."""
        tasks = list(self._local)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def kill(self) -> None:
        """All engines die and take with them what they hold; the EPP lives, holds new requests and says so."""
        self.epp.advance(self._now())
        self.epp.pool.kill(self._now())
        self._arm()

    def hang(self) -> None:
        """All engines stand still with what they hold."""
        self.epp.advance(self._now())
        self.epp.pool.hang(self._now())
        self._arm()

    async def refuse_scrapes(self) -> None:
        """The metrics port closes while requests go on, as when an EPP drains before it ends."""
        await self._metrics.close()

    async def vanish(self) -> None:
        """The whole site is gone: connections break, and new ones are refused."""
        self.kill()
        await self._metrics.close()
        await self._requests.close()

    async def revive(self) -> None:
        """Everything works again."""
        await self._metrics.open()
        await self._requests.open()
        self.epp.advance(self._now())
        self.epp.pool.revive(self._now())
        self._arm()

    # --- time -------------------------------------------------------------------------------------------------------

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError(f"site {self.shape.name} has not been started")
        return self._loop

    def _now(self) -> float:
        return self._running_loop().time()

    def _arm(self) -> None:
        """Wake up for the next thing that happens by itself."""
        if self._wake is not None:
            self._wake.cancel()
        self._wake = self._running_loop().call_at(self.epp.next_event(), self._tick)

    def _tick(self) -> None:
        self.epp.advance(self._now())
        self._arm()

    def _started(self, ticket: Ticket) -> None:
        waiter = self._waiters.get(ticket)
        if waiter is not None and not waiter.started.done():
            waiter.started.set_result(None)

    def _finished(self, ticket: Ticket) -> None:
        waiter = self._waiters.pop(ticket, None)
        if waiter is None or ticket.outcome is None:
            return
        if not waiter.started.done():
            waiter.started.set_result(None)
        if not waiter.finished.done():
            waiter.finished.set_result(ticket.outcome)

    def _submit(self, flow: Flow) -> tuple[Ticket, _Waiter]:
        shape = self.shape
        service = shape.service * self._rng.uniform(1 - shape.spread, 1 + shape.spread)
        ticket = self.epp.submit(flow, service, self._now())
        waiter = _Waiter(self._running_loop())
        if ticket.started_at is not None:
            waiter.started.set_result(None)
        self._waiters[ticket] = waiter
        if ticket.outcome is not None:
            self._finished(ticket)
        self._arm()
        return ticket, waiter

    def _give_up(self, ticket: Ticket) -> None:
        """Take back a request whose client has gone; nothing where it has ended."""
        self._waiters.pop(ticket, None)
        if ticket.outcome is None:
            self.epp.cancel(ticket, self._now())
            self._arm()

    async def _local_client(self) -> None:
        flow = Flow("local", self.shape.models[0])
        while True:
            ticket, waiter = self._submit(flow)
            try:
                outcome = await waiter.finished
            finally:
                self._give_up(ticket)
            if outcome is not Outcome.ANSWERED:
                await asyncio.sleep(_LOCAL_PAUSE)

    # --- HTTP -------------------------------------------------------------------------------------------------------

    async def _serve_metrics(self, request: Request) -> Answer:
        if request.path != "/metrics":
            return Answer(404, b"404 page not found\n")
        if self.page_delay:
            await asyncio.sleep(self.page_delay)
        refused = check_token(request, self.token)
        if refused is not None:
            return refused
        self.scrapes += 1
        body = self.epp.page(self._now())
        self._arm()
        headers = {"content-type": CONTENT_TYPE}
        if request.accepts_gzip():
            headers["content-encoding"] = "gzip"
            body = gzip.compress(body, 1)
        return Answer(200, body, headers)

    async def _serve_request(self, request: Request) -> Answer:
        if request.path == "/health":
            alive = any(not engine.stale for engine in self.epp.pool.engines())
            return Answer(200 if alive else 503, b"ok\n" if alive else b"no engine answers\n")
        if request.path == "/v1/models":
            models = [{"id": model, "object": "model", "owned_by": self.shape.name} for model in self.shape.models]
            return Answer(200, orjson.dumps({"object": "list", "data": models}), dict(_JSON))
        if request.method != "POST" or request.path not in ("/v1/chat/completions", "/v1/completions"):
            return _error(404, "not_found", f"no {request.method} {request.path} here")
        try:
            wanted: Any = orjson.loads(request.body)
        except orjson.JSONDecodeError:
            return _error(400, "bad_body", "the body is not JSON")
        if not isinstance(wanted, dict) or wanted.get("model") not in self.shape.models:
            return _error(404, "model_not_found", f"this site serves {', '.join(self.shape.models)}")
        tenant = next((request.headers[name] for name in TENANT_HEADERS if name in request.headers), "default-flow")
        flow = Flow(tenant, wanted["model"])
        self.met_full += self.held >= self.shape.pool.capacity
        ticket, waiter = self._submit(flow)
        if wanted.get("stream"):
            return await self._stream(ticket, waiter)
        try:
            outcome = await waiter.finished
        except asyncio.CancelledError:
            self.outcomes[Outcome.CANCELLED] += 1
            raise
        finally:
            self._give_up(ticket)
        self.outcomes[outcome] += 1
        if outcome is not Outcome.ANSWERED:
            return self._refusal(outcome)
        return Answer(200, orjson.dumps(self._completion(flow.model)), dict(_JSON))

    async def _stream(self, ticket: Ticket, waiter: _Waiter) -> Answer:
        """Wait until an engine has taken the request up, then answer in chunks as it works."""
        try:
            await waiter.started
        except asyncio.CancelledError:
            self.outcomes[Outcome.CANCELLED] += 1
            self._give_up(ticket)
            raise
        if ticket.outcome is not None and ticket.outcome is not Outcome.ANSWERED:
            self.outcomes[ticket.outcome] += 1
            return self._refusal(ticket.outcome)
        return Answer(200, self._events(ticket, waiter), {"content-type": "text/event-stream"})

    async def _events(self, ticket: Ticket, waiter: _Waiter) -> AsyncGenerator[bytes, None]:
        outcome = Outcome.CANCELLED
        try:
            for index in range(_CHUNKS):
                delta = {"role": "assistant", "content": ""} if index == 0 else {"content": "word "}
                yield _event({"object": "chat.completion.chunk", "model": ticket.flow.model,
                              "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})  # fmt: skip
                await asyncio.wait([waiter.finished], timeout=ticket.service / _CHUNKS)
            outcome = await waiter.finished
            if outcome is not Outcome.ANSWERED:
                raise BrokenBodyError
            yield _event({"object": "chat.completion.chunk", "model": ticket.flow.model,
                          "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})  # fmt: skip
            yield b"data: [DONE]\n\n"
        finally:
            self.outcomes[outcome] += 1
            self._give_up(ticket)

    def _refusal(self, outcome: Outcome) -> Answer:
        """The status a client of this release's EPP would see, and why its request was dropped."""
        empty = all(engine.stale for engine in self.epp.pool.engines())
        newer = self.epp.profile.stale_series
        if outcome is Outcome.LOST:
            return _error(503, "engine_lost", "the engine that had the request went away")
        if outcome is Outcome.EXPIRED:
            answer = _error(429 if newer else 503, "ttl_expired", "the request waited too long in the EPP")
            answer.headers["x-llm-d-request-dropped-reason"] = (
                "rejected-no-endpoints" if empty else "rejected-ttl-expired"
            )
            return answer
        answer = _error(503 if empty else 429, "rejected", "no engine is ready" if empty else "the EPP's queue is full")
        answer.headers["x-llm-d-request-dropped-reason"] = "rejected-no-endpoints" if empty else "rejected-saturated"
        return answer

    def _completion(self, model: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": f"answered at {self.shape.name}"}
        return {
            "id": f"sim-{self._rng.getrandbits(48):012x}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 8, "completion_tokens": 40, "total_tokens": 48},
        }


def _event(data: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(data)


def _error(status: int, code: str, text: str) -> Answer:
    body = {
        "error": {"message": text, "type": "server_error" if status >= 500 else "invalid_request_error", "code": code}
    }
    return Answer(status, orjson.dumps(body), dict(_JSON))
