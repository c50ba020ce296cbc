"""A loopback HTTP server whose answers a test decides byte by byte."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        fields = {"content-length": str(len(self.body)), **self.headers}
        lines = [f"HTTP/1.1 {self.status} Status", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


Handler = Callable[[Request], Awaitable[Answer | bytes | None]]
"""Bytes are sent as they are and the connection is closed; None closes it without a word."""


@contextlib.asynccontextmanager
async def serve(handler: Handler, *, ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve on a free loopback port and yield the origin, such as ``http://127.0.0.1:40001``."""
    connections: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            while await answer_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            connections.discard(task)
            writer.close()

    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        pairs = (line.split(":", 1) for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        answer = await handler(Request(method, target, headers, body))
        if answer is None:
            return False
        writer.write(answer if isinstance(answer, bytes) else answer.encode())
        await writer.drain()
        return isinstance(answer, Answer)

    server = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=ssl_context)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"{'https' if ssl_context else 'http'}://127.0.0.1:{port}"
    finally:
        server.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
