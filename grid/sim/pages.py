"""Serves given metric pages over HTTP, as their EPPs did, and fails in every way an EPP or a proxy before it fails.

From a shell, to run a daemon on captured pages: ``python -m grid.sim.pages --port 9191 east=busy.txt west=idle.txt.gz``
serves ``http://127.0.0.1:9191/east`` and ``/west``.
"""

import argparse
import asyncio
import gzip
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from grid.sim.exposition import CONTENT_TYPE
from grid.sim.loopback import Answer, LoopbackServer, Request

_GZIP_MAGIC = b"\x1f\x8b"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
_HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body><form>Who are you?</form></body></html>\n"
_BOMB_PIECE = 16 * 1024 * 1024


class Failure(StrEnum):
    """Ways to fail. The first four are what a real EPP answers; the others what networks and proxies make of it."""

    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    REJECTED = "500-authentication"
    GATHER = "500-gather"
    HANG = "hang"
    CUT = "cut"
    CUT_GZIP = "cut-gzip"
    HTML = "html"
    EMPTY = "empty"
    BOMB = "bomb"
    REDIRECT = "redirect"


@dataclass(frozen=True, slots=True)
class _Page:
    plain: bytes | None
    packed: bytes | None
    content_type: str

    @classmethod
    def of(cls, data: bytes) -> "_Page":
        if data.startswith(_GZIP_MAGIC):
            return cls(None, data, CONTENT_TYPE)
        kind = _OPENMETRICS if data.rstrip().endswith(b"# EOF") else CONTENT_TYPE
        return cls(data, gzip.compress(data, 1), kind)

    def body(self) -> bytes:
        """The page unpacked."""
        return gzip.decompress(self.packed or b"") if self.plain is None else self.plain


def bomb(size: int = 1 << 30) -> bytes:
    """A valid gzip stream, about a thousandth of ``size``, that unpacks to ``size`` bytes (rounded up to 16 MiB)."""
    return _bomb(-(-size // _BOMB_PIECE))


@cache
def _bomb(pieces: int) -> bytes:
    line = b"go_simulated_bomb_total 1\n"
    piece = (line * (_BOMB_PIECE // len(line) + 1))[:_BOMB_PIECE]
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # After a full flush nothing refers back, so the packed piece may be repeated as it is.
    packed = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(pieces):
        check = zlib.crc32(piece, check)
    head = _GZIP_MAGIC + b"\x08\x00\x00\x00\x00\x00\x00\xff"
    tail = b"\x03\x00" + check.to_bytes(4, "little") + (pieces * _BOMB_PIECE % (1 << 32)).to_bytes(4, "little")
    return head + packed * pieces + tail


class PageServer:
    """One server, one path per page. ``failures``, ``delays`` (s) and ``tokens`` are by page and may change any time.

    ``requests`` counts what came in by page. A page with a token answers 401 without one and 500 with a wrong one.
    """

    def __init__(self, pages: Mapping[str, Path | bytes], *, port: int = 0) -> None:
        self.failures: dict[str, Failure] = {}
        self.delays: dict[str, float] = {}
        self.tokens: dict[str, str] = {}
        self.requests: dict[str, int] = dict.fromkeys(pages, 0)
        self._sources = dict(pages)
        self._pages: dict[str, _Page] = {}
        self._server = LoopbackServer(self._handle, port=port)

    async def start(self) -> None:
        """Read the pages and accept connections."""
        for name, source in self._sources.items():
            await self.put(name, source)
        await self._server.start()

    async def stop(self) -> None:
        """Break all connections and give the port back."""
        await self._server.stop()

    async def refuse(self) -> None:
        """Refuse connections until ``accept``."""
        await self._server.close()

    async def accept(self) -> None:
        """Accept connections again, on the same port."""
        await self._server.open()

    async def put(self, name: str, source: Path | bytes) -> None:
        """Serve ``source`` under ``/name`` from now on."""
        data = source if isinstance(source, bytes) else await asyncio.to_thread(source.read_bytes)
        self._pages[name] = await asyncio.to_thread(_Page.of, data)
        self.requests.setdefault(name, 0)

    def url(self, name: str) -> str:
        """Where a page is."""
        return f"{self._server.url}/{name}"

    async def _handle(self, request: Request) -> Answer:
        name = request.path.strip("/")
        page = self._pages.get(name)
        if page is None:
            return Answer(404, f"no page {name!r}; there are {', '.join(sorted(self._pages))}\n".encode())
        self.requests[name] += 1
        if delay := self.delays.get(name):
            await asyncio.sleep(delay)
        refused = check_token(request, self.tokens.get(name))
        if refused is not None:
            return refused
        failure = self.failures.get(name)
        if failure is not None:
            return await self._fail(failure, page)
        return _served(page, packed=request.accepts_gzip())

    async def _fail(self, failure: Failure, page: _Page) -> Answer:
        match failure:
            case Failure.UNAUTHORIZED | Failure.FORBIDDEN | Failure.REJECTED:
                return refusal(failure)
            case Failure.GATHER:
                text = b"An error has occurred while serving metrics:\n\ncollected metric was collected before\n"
                return Answer(500, text)
            case Failure.HANG:
                await asyncio.Event().wait()
            case Failure.CUT:
                answer = _served(page, packed=False)
                answer.cut_at = len(page.body()) // 2
                return answer
            case Failure.CUT_GZIP:
                # The whole (shorter) body arrives; it is the compressed stream in it that ends too early.
                packed = page.packed or b""
                return Answer(200, packed[: len(packed) // 2], _headers(page, packed=True))
            case Failure.HTML:
                return Answer(200, _HTML, {"content-type": "text/html; charset=utf-8"})
            case Failure.EMPTY:
                return Answer(200, b"", _headers(page, packed=False))
            case Failure.BOMB:
                return Answer(200, await asyncio.to_thread(bomb), _headers(page, packed=True))
            case Failure.REDIRECT:
                return Answer(302, b"", {"location": "http://127.0.0.2:9/metrics"})
        raise AssertionError(failure)


def _headers(page: _Page, *, packed: bool) -> dict[str, str]:
    headers = {"content-type": page.content_type}
    if packed:
        headers["content-encoding"] = "gzip"
    return headers


def _served(page: _Page, *, packed: bool) -> Answer:
    body = page.packed if packed and page.packed is not None else page.body()
    return Answer(200, body, _headers(page, packed=packed))


def refusal(failure: Failure) -> Answer:
    """What an EPP answers to a missing token (401), a token without the right (403) and a wrong token (500)."""
    if failure is Failure.UNAUTHORIZED:
        return Answer(401, b"Unauthorized\n")
    if failure is Failure.FORBIDDEN:
        return Answer(403, b"Authorization denied for user system:serviceaccount:grid:daemon\n")
    return Answer(500, b"Authentication failed\n")


def check_token(request: Request, token: str | None) -> Answer | None:
    """The refusal where ``token`` is wanted and the request brings none or another; else None."""
    if token is None:
        return None
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not given.strip():
        return refusal(Failure.UNAUTHORIZED)
    return None if given.strip() == token else refusal(Failure.REJECTED)


async def _serve(pages: Mapping[str, Path | bytes], port: int) -> None:
    server = PageServer(pages, port=port)
    await server.start()
    try:
        for name in pages:
            sys.stdout.write(f"{server.url(name)}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()
    finally:
        await server.stop()


def main(arguments: list[str] | None = None) -> None:
    """Serve files until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m grid.sim.pages", description="Serve metric pages on loopback.")
    parser.add_argument("pages", nargs="+", metavar="NAME=FILE", help="a page file, plain or .gz, and its path")
    parser.add_argument("--port", type=int, default=0, help="a free one where not given")
    given = parser.parse_args(arguments)
    pages: dict[str, Path | bytes] = {}
    for pair in given.pages:
        name, equals, file = pair.partition("=")
        if not equals or not Path(file).is_file():
            parser.error(f"{pair!r} is not NAME=FILE with a file that exists")
        pages[name] = Path(file)
    try:
        asyncio.run(_serve(pages, given.port))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
