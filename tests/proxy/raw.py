"""Requests by hand, byte by byte."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from tests.support.until import PATIENCE


@dataclass
class Line:
    """A connection to a gateway."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers and the JSON body of the next answer."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split(" ")[1]), headers, orjson.loads(body) if body else None

    async def closed(self) -> bool:
        """Whether the other side closes the connection within reason."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def hang_up(self) -> None:
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def line(url: str) -> AsyncIterator[Line]:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def request(body: bytes = b"", *headers: str, length: int | None = None, path: str = "/v1/chat/completions") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: gateway", f"content-length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\n" + body
