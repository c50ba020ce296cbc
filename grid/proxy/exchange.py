"""One request's way through the gateway: read, admitted, sent, sent elsewhere where that is safe, passed back.

What is in flight is counted from the pick to the end of the answer, and taken back whatever happens. A request goes to
another provider only while its client has seen nothing, and never when it is bound to what one provider keeps (see
``request_scan.STATEFUL``).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import aiohttp
import structlog

from grid.flow import Slot
from grid.gateway import Decision, refusals
from grid.model import Kind, Reason, RoutingError
from grid.proxy import answers
from grid.proxy.answers import refusal
from grid.proxy.asgi import Receive, Scope, Send
from grid.proxy.entrance import Entrance
from grid.proxy.headers import first, session_of, to_provider
from grid.proxy.inbound import EXTENSION, ClientGoneError, Inbound, too_large
from grid.proxy.interrupt import Cause, InterruptedWaitError, Interruptible
from grid.proxy.relay import Relay, answer_headers
from grid.proxy.shared import Shared
from grid.proxy.upstreams import BrokenExchangeError, ConnectFailedError, SilentError

log = structlog.get_logger(__name__)
T = TypeVar("T")

_IN_ONE: Final = 512 * 1024
"""Bodies up to here that have come whole are handed to the client library in one piece."""

_KEPT_ANSWER: Final = 64 * 1024
_KEPT_WITHIN: Final = 0.5
"""An answer that another try may replace is kept if it is that small and comes in so many s."""

_LINGER: Final = 2.0
_LINGER_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer that was kept, for when nothing better comes."""

    decision: Decision
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Exchange:
    """One request. ``run`` it once."""

    __slots__ = (
        "_current", "_decision", "_inbound", "_kept", "_model", "_path", "_rescued", "_reserved", "_scope", "_send",
        "_session", "_shared", "_slot", "_started", "_status", "_tenant", "_tried", "_waits",
    )  # fmt: skip

    def __init__(self, shared: Shared, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        shared.serial += 1
        self._shared = shared
        self._path = path
        self._scope = scope
        self._send = send
        self._waits = Interruptible()
        hangup = (scope.get("extensions") or {}).get(EXTENSION)
        self._inbound = Inbound(receive, shared.rules.limits, self._waits, hangup, f"request {shared.serial}")
        self._model = ""
        self._session: str | None = None
        self._tenant = ""
        self._slot: Slot | None = None
        self._tried: list[Decision] = []
        self._current: Decision | None = None
        self._reserved: Decision | None = None
        self._rescued = False
        self._kept: _Answer | None = None
        self._decision: Decision | None = None
        self._started = False
        self._status = 0

    async def run(self) -> None:
        """Answer the request. Raises BrokenAnswerError where the answer broke off half-way."""
        began = time.perf_counter()
        shared = self._shared
        shared.in_progress += 1
        try:
            await self._serve()
        except RoutingError as error:
            await self._refuse(error)
        except ClientGoneError:
            await self._nobody_listens()
        except BaseException:
            self._status = 0
            raise
        finally:
            self._inbound.stop()
            shared.in_progress -= 1
            site = "" if self._decision is None else self._decision.site
            shared.metrics.ended(site, self._status, time.perf_counter() - began)

    # --- in order -----------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        shared, inbound, headers = self._shared, self._inbound, self._scope["headers"]
        entrance, rules = shared.entrance, shared.rules
        self._check_head()
        self._model = await inbound.until_model(whole=entrance is not None and entrance.by_tokens)
        self._session = session_of(headers, rules.session_header, rules.session_cookie)
        inbound.watch()
        if entrance is None:
            await self._forward()
        else:
            await self._admitted(entrance)

    def _check_head(self) -> None:
        limit = self._shared.rules.limits.most
        for name, value in self._scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > limit:
                raise too_large(limit)
            if name == b"content-encoding" and value.lower() != b"identity":
                raise refusal(Reason.BAD_REQUEST, 415, "a compressed body cannot be routed; send it as it is")

    async def _admitted(self, entrance: Entrance) -> None:
        """Come in when it is this request's turn, and forward it."""
        client, scan = self._scope.get("client"), self._inbound.scan
        caller = entrance.callers.who(self._scope["headers"], client[0] if client else None)
        self._tenant = caller.tenant
        self._slot = slot = entrance.slot(self._model, caller.band, caller.tenant, scan.size, scan.max_tokens)
        try:
            if not slot.open():
                await self._interruptible(slot.wait)
            await self._forward()
        finally:
            slot.close()

    async def _forward(self) -> None:
        """Try providers until one answers. Raises RoutingError where none does."""
        decision: Decision | None = self._pick()
        self._shared.router.retries.request()
        self._count(decision)
        try:
            while decision is not None:
                decision = await self._attempt(decision)
        finally:
            if self._reserved is not None:
                self._reserved.place.target.end()

    def _pick(self, *also_tried: Decision) -> Decision:
        entrance, slot = self._shared.entrance, self._slot
        return self._shared.router.pick(
            self._model,
            session=self._session,
            tenant=self._tenant,
            tried=[*self._tried, *also_tried],
            allowed=None if entrance is None or slot is None else entrance.allowed(slot),
        )

    def _count(self, decision: Decision | None, *, rescued: bool = False) -> None:
        if decision is not None:
            self._shared.metrics.decided(decision.site, "rescue" if rescued else decision.reason)

    async def _attempt(self, decision: Decision) -> Decision | None:
        """Send the request to one provider and pass its answer on; or say who is to be tried next."""
        if self._inbound.gone:
            raise ClientGoneError
        target = decision.place.target
        if decision is self._reserved:
            self._reserved = None
        else:
            target.begin()
        self._current = decision
        try:
            if self._slot is not None:
                self._slot.bind(f"{target.site}/{target.cluster}")
            return await self._exchange(decision)
        finally:
            self._current = None
            target.end()

    async def _exchange(self, decision: Decision) -> Decision | None:
        sent = time.perf_counter()
        try:
            response = await self._ask(decision)
        except InterruptedWaitError as interrupted:
            if interrupted.cause is not Cause.RESCUED or self._reserved is None:
                raise self._ending(interrupted.cause) from None
            self._tried.append(decision)
            self._count(self._reserved, rescued=True)
            return self._reserved
        except ConnectFailedError as error:
            return await self._unreached(decision, error)
        except BrokenExchangeError as error:
            return await self._broken(decision, error)
        try:
            return await self._judge(decision, response, sent)
        finally:
            # Without effect where the answer was read to its end: then the connection is free for the next request.
            response.close()

    async def _ask(self, decision: Decision) -> aiohttp.ClientResponse:
        """Send it; the answer's head."""
        upstream = self._shared.upstreams.get(decision.site, decision.cluster)
        if upstream is None:
            raise ConnectFailedError("the configuration names no provider there")
        inbound, scope = self._inbound, self._scope
        try:
            headers = to_provider(scope["headers"], own_credential=upstream.own_credential)
        except ValueError:
            raise refusal(Reason.BAD_REQUEST, 400, "a header is no valid text") from None
        body: bytes | AsyncIterator[bytes]
        if inbound.complete and inbound.size <= _IN_ONE:
            body = inbound.whole()
        else:
            body = inbound.chunks()
            length = b"%d" % inbound.size if inbound.complete else first(scope["headers"], b"content-length")
            if length is not None:
                headers.append(("content-length", length.decode()))
        waiting, target = self._shared.waiting, decision.place.target
        with self._waits:
            mates = waiting.setdefault(target, set())
            mates.add(self)
            try:
                return await upstream.send(self._path, scope["query_string"], headers, body)
            finally:
                mates.discard(self)
                if not mates:
                    waiting.pop(target, None)

    # --- when it goes wrong -------------------------------------------------------------------------------------------

    def rescue(self) -> None:
        """Its provider has nothing ready: wait elsewhere, once, where there is an elsewhere."""
        current, inbound = self._current, self._inbound
        if current is None or self._rescued or inbound.gone or not inbound.complete or inbound.scan.stateful:
            return
        try:
            following = self._pick(current)
        except RoutingError:
            return
        target = following.place.target
        if target.dead:
            return
        # Taken before the wait here ends, so that the next to be rescued sees it.
        target.begin()
        self._reserved, self._rescued = following, True
        self._waits.interrupt(Cause.RESCUED)

    async def _unreached(self, decision: Decision, error: ConnectFailedError) -> Decision | None:
        log.info("connection failed", site=decision.site, cluster=decision.cluster, error=str(error))
        self._shared.connect_failed(decision)
        following = self._next(decision) if await self._may_retry("connect") else None
        if following is not None:
            return following
        kept = self._kept
        if kept is None:
            raise refusals.no_healthy_site(Kind.INFERENCE_MODEL, self._model, self._shared.retry_after())
        self._begin_answer(kept.decision, kept.status)
        headers = answer_headers(self._shared, kept.decision, self._slot, kept.status, kept.headers)
        await self._send({"type": "http.response.start", "status": kept.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": kept.body})
        return None

    async def _broken(self, decision: Decision, error: BrokenExchangeError) -> Decision | None:
        silent = isinstance(error, SilentError)
        log.info("exchange broken", site=decision.site, cluster=decision.cluster, error=str(error))
        self._shared.answered(decision, failed=True)
        following = self._next(decision) if await self._may_retry(504 if silent else 502) else None
        if following is not None:
            return following
        self._decision = decision
        if silent:
            raise refusal(Reason.UPSTREAM_TIMEOUT, 504, "the provider did not answer in time")
        raise refusal(Reason.UPSTREAM_FAILED, 502, "the provider broke the exchange before it answered")

    async def _judge(self, decision: Decision, response: aiohttp.ClientResponse, sent: float) -> Decision | None:
        """Pass an answer on, unless another try may give a better one."""
        self._note_health(decision, response)
        begun = b""
        if await self._may_retry(response.status):
            begun, whole = await self._peek(response)
            following = self._next(decision)
            if following is not None:
                if whole:
                    self._kept = _Answer(decision, response.status, response.raw_headers, begun)
                return following
        self._inbound.release()
        self._begin_answer(decision, response.status)
        await Relay(self._shared, decision, self._slot, sent).run(response, self._send, self._waits, begun)
        return None

    def _note_health(self, decision: Decision, response: aiohttp.ClientResponse) -> None:
        shared = self._shared
        upstream = shared.upstreams.get(decision.site, decision.cluster)
        refused = response.status == 401 and upstream is not None and upstream.own_credential
        empty = response.headers.get("x-llm-d-request-dropped-reason") == "rejected-no-endpoints"
        shared.answered(decision, failed=response.status >= 500 or refused or empty)
        if refused:
            log.warning("provider refuses the gateway's credential", site=decision.site, cluster=decision.cluster)
            self._decision = decision
            raise refusal(Reason.UPSTREAM_CREDENTIAL, 502, "the provider refuses the gateway's credential")

    async def _may_retry(self, cause: str | int) -> bool:
        """Whether another try after ``cause`` is safe. A body that still comes may say that it is not: waits for it."""
        if cause not in self._shared.rules.retry_on:
            return False
        inbound = self._inbound
        if not inbound.complete:
            await self._interruptible(inbound.completed)
        return not inbound.scan.stateful

    def _next(self, failed: Decision) -> Decision | None:
        """Where to try next, on the newest snapshot; None where nobody is left or the budget is spent."""
        self._tried.append(failed)
        try:
            following = self._pick()
        except RoutingError:
            return None
        if not self._shared.router.retries.take(time.monotonic()):
            self._shared.metrics.retries_denied.inc()
            return None
        self._count(following)
        return following

    async def _peek(self, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        """The beginning of an answer that another try may replace, and whether that is all of it."""
        begun, content = bytearray(), response.content
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(_KEPT_WITHIN):
                while not content.at_eof() and len(begun) < _KEPT_ANSWER:
                    begun += await self._interruptible(content.readany)
        return bytes(begun), content.at_eof()

    async def _interruptible(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            with self._waits:
                return await work()
        except InterruptedWaitError as interrupted:
            raise self._ending(interrupted.cause) from None

    def _ending(self, cause: Cause) -> Exception:
        """What an interrupt means for the request."""
        fault = self._inbound.fault
        return fault if cause is Cause.FAULT and fault is not None else ClientGoneError()

    # --- the gateway's own answers ------------------------------------------------------------------------------------

    def _begin_answer(self, decision: Decision, status: int) -> None:
        self._decision, self._status, self._started = decision, status, True

    async def _refuse(self, error: RoutingError) -> None:
        inbound, entrance, slot = self._inbound, self._shared.entrance, self._slot
        self._shared.metrics.refused(error.reason)
        inbound.stop()
        self._status = error.status
        added = [] if entrance is None or slot is None else entrance.headers(slot)
        if inbound.ended:
            await answers.send_error(self._send, error, added)
            return
        # The answer is whole with its first part; the connection closes once the client has had time to read it.
        added.append((b"connection", b"close"))
        body = answers.error_body(error)
        headers = answers.error_headers(error, body) + added
        await self._send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        if error.reason is not Reason.BODY_TIMEOUT:
            await inbound.drain(_LINGER, _LINGER_BYTES)
        await self._send({"type": "http.response.body", "body": b""})

    async def _nobody_listens(self) -> None:
        self._status = 0
        if not self._started:
            # For middleware that wants an answer to every request.
            with contextlib.suppress(OSError):
                await answers.send_bytes(self._send, answers.GONE, b"", b"text/plain")
