"""A small HTTP/1.1 server on loopback for simulated sites: cheap, and able to misbehave where a real one could not."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

_log = logging.getLogger(__name__)

_MAX_HEAD = 64 * 1024
_MAX_BODY = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read whole. Header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def accepts_gzip(self) -> bool:
        """Whether the client asked for gzip."""
        return "gzip" in self.headers.get("accept-encoding", "")


@dataclass(slots=True)
class Answer:
    """One answer. A body that is a generator goes out in chunks as they come.

    ``cut_at``: promise the whole body, send so many bytes of it and break the connection.
    """

    status: int = 200
    body: bytes | AsyncGenerator[bytes, None] = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut_at: int | None = None


Handler = Callable[[Request], Awaitable[Answer]]


class _BadRequestError(Exception):
    """What arrived is not HTTP that this server speaks."""


class BrokenBodyError(Exception):
    """Raised inside a body: break the connection here."""


class _GoneError(Exception):
    """The client has closed the connection."""


def _parse_head(data: bytes) -> tuple[str, str, dict[str, str]]:
    lines = data.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise _BadRequestError(f"no HTTP/1 request line: {lines[0]!r}")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise _BadRequestError(f"no header line: {line!r}")
        headers[name.strip().lower()] = value.strip()
    return parts[0], parts[1], headers


def _take_chunks(data: bytearray, start: int) -> tuple[bytes, int] | None:
    """A chunked body from ``start``: the body and where it ends; None while it is incomplete."""
    body = bytearray()
    at = start
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        try:
            size = int(bytes(data[at:end]).split(b";")[0], 16)
        except ValueError as error:
            raise _BadRequestError("a chunk without a size") from error
        at = end + 2
        if len(data) < at + size + 2:
            return None
        body += data[at : at + size]
        at += size + 2
        if size == 0:
            return bytes(body), at


class _Connection(asyncio.Protocol):
    def __init__(self, server: "LoopbackServer") -> None:
        self._server = server
        self._buffer = bytearray()
        self.task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  (a TCP server makes nothing else)
        self._transport = transport
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self._server.connections.discard(self)
        self._writable.set()
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self.task is None:
            self._begin()

    def abort(self) -> None:
        """Break the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    def _begin(self) -> None:
        """Start on the next request if it has arrived whole."""
        try:
            request = self._take_request()
        except _BadRequestError as error:
            _log.warning("loopback server: %s", error)
            self.abort()
            return
        if request is not None:
            self.task = asyncio.get_running_loop().create_task(self._serve(request), name=f"loopback {request.path}")

    def _take_request(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD:
                raise _BadRequestError(f"more than {_MAX_HEAD} bytes of headers")
            return None
        method, target, headers = _parse_head(bytes(self._buffer[:end]))
        start = end + 4
        if headers.get("transfer-encoding", "").lower() == "chunked":
            taken = _take_chunks(self._buffer, start)
            if taken is None:
                return None
            body, stop = taken
        else:
            length = headers.get("content-length", "0")
            if not length.isdigit() or int(length) > _MAX_BODY:
                raise _BadRequestError(f"content-length {length!r}")
            stop = start + int(length)
            if len(self._buffer) < stop:
                return None
            body = bytes(self._buffer[start:stop])
        del self._buffer[:stop]
        return Request(method, target.partition("?")[0], headers, body)

    async def _serve(self, request: Request) -> None:
        keep = request.headers.get("connection", "").lower() != "close"
        try:
            await self._send(await self._answer(request), keep=keep)
        except _GoneError:
            return
        except BrokenBodyError:
            self.abort()
            return
        except asyncio.CancelledError:
            self.abort()
            raise
        except Exception:  # noqa: BLE001 - a body that failed half-way; its client sees that, the log says why
            _log.exception("loopback server: the body of %s failed", request.path)
            self.abort()
            return
        self.task = None
        if not keep:
            self._close()
        elif not self._closing:
            self._begin()

    async def _answer(self, request: Request) -> Answer:
        try:
            return await self._server.handler(request)
        except Exception:  # noqa: BLE001 - whatever a handler does, one request must not end the server
            _log.exception("loopback server: %s %s failed", request.method, request.path)
            return Answer(500, b"internal error\n")

    async def _send(self, answer: Answer, *, keep: bool) -> None:
        body = answer.body
        headers = {"content-type": "text/plain; charset=utf-8", **answer.headers}
        headers["connection"] = "keep-alive" if keep else "close"
        if isinstance(body, bytes):
            headers["content-length"] = str(len(body))
        else:
            headers["transfer-encoding"] = "chunked"
        lines = [f"HTTP/1.1 {answer.status} {_phrase(answer.status)}", *(f"{key}: {headers[key]}" for key in headers)]
        start = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        if isinstance(body, bytes):
            await self._write(start + (body if answer.cut_at is None else body[: answer.cut_at]))
            if answer.cut_at is not None:
                # Closing lets what was written go out first; the promised length is then not kept.
                self._close()
            return
        await self._write(start)
        async with contextlib.aclosing(body) as chunks:
            async for chunk in chunks:
                if chunk:
                    await self._write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await self._write(b"0\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        if self._transport is None or self._closing:
            raise _GoneError
        self._transport.write(data)
        await self._writable.wait()

    @property
    def _closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


class LoopbackServer:
    """Serves one handler on a port of loopback that stays its own from ``start`` to ``stop``, also while closed.

    ``close`` refuses connections and breaks those there are; ``open`` accepts again on the same port.
    """

    def __init__(self, handler: Handler, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.handler = handler
        self.host = host
        self.port = port
        self.connections: set[_Connection] = set()
        self._held: socket.socket | None = None
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """``http://host:port``, without a slash at the end."""
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        """Take the port (a free one where none was given) and accept connections."""
        self._held = self._bound()
        await self.open()

    async def open(self) -> None:
        """Accept connections; nothing where it does already."""
        if self._server is not None:
            return
        held, self._held = self._held or self._bound(), None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), sock=held, backlog=512)

    async def close(self) -> None:
        """Refuse connections and break those there are; the port stays reserved."""
        await self._shut()
        self._held = self._held or self._bound()

    async def stop(self) -> None:
        """End for good."""
        await self._shut()
        if self._held is not None:
            self._held.close()
            self._held = None

    async def _shut(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        tasks = []
        for connection in list(self.connections):
            connection.abort()
            if connection.task is not None:
                connection.task.cancel()
                tasks.append(connection.task)
        await asyncio.gather(*tasks, return_exceptions=True)
        while self.connections:  # noqa: ASYNC110 - aborted transports report on the next turn of the loop
            await asyncio.sleep(0)
        await server.wait_closed()

    def _bound(self) -> socket.socket:
        """A socket that is bound and does not listen: connecting is refused, and nobody else gets the port."""
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        bound.bind((self.host, self.port))
        self.port = bound.getsockname()[1]
        return bound
