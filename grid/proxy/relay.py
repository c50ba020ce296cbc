"""A provider's answer on its way to the client: as it comes, byte for byte."""

import re
import time
from collections.abc import Iterable
from typing import Final

import aiohttp
import structlog

from grid.flow import Slot
from grid.gateway import Decision
from grid.proxy.asgi import Headers, Send
from grid.proxy.headers import to_client
from grid.proxy.inbound import ClientGoneError
from grid.proxy.interrupt import Cause, InterruptedWaitError, Interruptible
from grid.proxy.shared import Shared

log = structlog.get_logger(__name__)

_ASKS_FOR_PATIENCE: Final = (429, 503)
_TAIL: Final = 4096
_USAGE: Final = re.compile(rb'"total_tokens"\s*:\s*(\d{1,9})')


class BrokenAnswerError(Exception):
    """An answer that has begun cannot be ended; whoever serves has to break the connection, so that it shows."""


def answer_headers(
    shared: Shared, decision: Decision, slot: Slot | None, status: int, given: Iterable[tuple[bytes, bytes]]
) -> Headers:
    """A provider's headers as the client gets them, with where the request was served, and by which document."""
    pairs = list(given)
    added = [(b"x-grid-site", decision.site.encode()), (b"x-grid-backend", decision.cluster.encode())]
    if decision.revision is not None:
        added.append((b"x-grid-revision", decision.revision.encode()))
    if status in _ASKS_FOR_PATIENCE and all(name.lower() != b"retry-after" for name, _ in pairs):
        added.append((b"retry-after", b"%d" % shared.retry_after()))
    if slot is not None and shared.entrance is not None:
        added += shared.entrance.headers(slot)
    return to_client(pairs, added)


class Relay:
    """Passes one answer on. ``sent``: when the request was sent, in s of ``time.perf_counter``."""

    def __init__(self, shared: Shared, decision: Decision, slot: Slot | None, sent: float) -> None:
        self._shared = shared
        self._decision = decision
        self._slot = slot
        self._sent = sent
        self._first = True
        counts = slot is not None and shared.entrance is not None and shared.entrance.by_tokens
        self._tail: bytearray | None = bytearray() if counts else None

    async def run(self, response: aiohttp.ClientResponse, send: Send, waits: Interruptible, begun: bytes = b"") -> None:
        """``begun``: what was read of the body already. Raises BrokenAnswerError, ClientGoneError."""
        decision, shared = self._decision, self._shared
        headers = answer_headers(shared, decision, self._slot, response.status, response.raw_headers)
        try:
            with waits:
                await send({"type": "http.response.start", "status": response.status, "headers": headers})
                await self._body(response.content, send, begun)
        except InterruptedWaitError as interrupted:
            if interrupted.cause is Cause.GONE:
                raise ClientGoneError from None
            raise BrokenAnswerError("the request's body turned out to be no good") from None
        except (aiohttp.ClientError, TimeoutError) as error:
            shared.metrics.broken.labels(decision.site).inc()
            shared.answered(decision, failed=True)
            log.info("answer broke off", site=decision.site, cluster=decision.cluster, error=str(error))
            raise BrokenAnswerError("the provider's answer broke off") from None
        except OSError:
            # Some servers say by an error of send that the client has gone.
            raise ClientGoneError from None
        self._settle()

    async def _body(self, content: aiohttp.StreamReader, send: Send, chunk: bytes) -> None:
        while True:
            last = content.at_eof()
            if chunk and self._first:
                self._began()
            if chunk or last:
                await send({"type": "http.response.body", "body": chunk, "more_body": not last})
            if self._tail is not None:
                self._tail += chunk
                del self._tail[:-_TAIL]
            if last:
                return
            chunk = await content.readany()

    def _began(self) -> None:
        self._first = False
        seconds, decision = time.perf_counter() - self._sent, self._decision
        self._shared.metrics.began(decision.site, seconds)
        self._shared.first_bytes.note(f"{decision.site}/{decision.cluster}", seconds)

    def _settle(self) -> None:
        """Tell admission control what the answer cost in tokens, where it says so near its end."""
        if self._tail is not None and self._slot is not None:
            found = _USAGE.findall(self._tail)
            if found:
                self._slot.spent(int(found[-1]))
