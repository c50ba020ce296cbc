"""Undoing a body's content encoding as it streams in, within limits."""

import zlib
from collections.abc import Iterator
from typing import Final

from grid.model import Reason, ScrapeError

MAX_PAGE: Final = 64 * 1024 * 1024
"""Bytes of a page after decompression. A real EPP page reaches 40 MB at its cap of 1000 tenants."""

PIECE: Final = 128 * 1024
"""Bytes handed on at once. Small enough to stay in the processor's cache and to hold the loop for well under 1 ms."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_MAX_RATIO: Final = 256
"""Real pages shrink about 50-fold; gzip's own limit is 1032."""
_RATIO_FROM: Final = 1024 * 1024


class Decompressor:
    """Turns the raw bytes of one body into the page, never holding more than a piece of it.

    ``encoding`` is the Content-Encoding: none, ``identity`` or ``gzip``, the only one asked for. ``raw_bytes`` and
    ``page_bytes`` count what went in and came out.

    Raises :class:`ScrapeError`: ``bad_encoding`` where the body is not what it claims to be, ``too_large`` past
    ``limit`` bytes or where it unpacks to more than any page does (a bomb stops at its first MiB), ``truncated`` from
    :meth:`finish` where the gzip stream has no end.
    """

    def __init__(self, encoding: str = "", *, limit: int = MAX_PAGE) -> None:
        named = encoding.strip().lower()
        if named not in ("", "identity", "gzip", "x-gzip"):
            raise ScrapeError(
                f"the body comes in the encoding {encoding[:40]!r}, and only gzip was asked for",
                reason=Reason.BAD_ENCODING,
            )
        self._stream = zlib.decompressobj(31) if named in ("gzip", "x-gzip") else None
        self._limit = limit
        self.raw_bytes = 0
        self.page_bytes = 0

    def expect(self, content_length: str) -> None:
        """Refuse at once a body that is announced as larger than the limit, as far as that says anything."""
        if content_length.isdecimal() and int(content_length) > self._limit:
            raise self._too_large(int(content_length))

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` adds to the page, in pieces of at most :data:`PIECE` bytes."""
        self.raw_bytes += len(data)
        if self.raw_bytes > self._limit:
            raise self._too_large(self.raw_bytes)
        if self._stream is not None:
            yield from self._inflated(self._stream, data)
            return
        for start in range(0, len(data), PIECE):
            piece = data if len(data) <= PIECE else data[start : start + PIECE]
            self._count(piece, self.raw_bytes)
            yield piece

    def feed(self, data: bytes) -> bytes:
        """What ``data`` adds to the page, in one; for data known to be small."""
        return b"".join(self.pieces(data))

    def finish(self) -> bytes:
        """End of the body; nothing is ever left to hand on."""
        if self._stream is not None and self.raw_bytes and not self._stream.eof:
            raise ScrapeError(
                f"the gzip stream breaks off after {self.raw_bytes} bytes ({self.page_bytes} unpacked)",
                reason=Reason.TRUNCATED,
            )
        return b""

    def _inflated(self, stream: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
        while True:
            if stream.eof:
                # Streams may follow one another; some writers pad with zeros.
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._stream = stream = zlib.decompressobj(31)
            try:
                piece = stream.decompress(data, PIECE)
            except zlib.error as error:
                told = str(error).rpartition(": ")[2]
                raise ScrapeError(
                    f"the body claims to be gzip and cannot be unpacked beyond {self.page_bytes} bytes ({told})",
                    reason=Reason.BAD_ENCODING,
                ) from error
            ended = stream.eof
            data = stream.unused_data if ended else stream.unconsumed_tail
            if piece:
                self._count(piece, self.raw_bytes - len(data))
                yield piece
            if not ended and not data and len(piece) < PIECE:
                return

    def _count(self, piece: bytes, consumed: int) -> None:
        self.page_bytes += len(piece)
        if self.page_bytes > self._limit:
            raise self._too_large(self.page_bytes)
        if self.page_bytes > _RATIO_FROM and self.page_bytes > _MAX_RATIO * consumed:
            raise ScrapeError(
                f"the page unpacks to more than {_MAX_RATIO} times its size ({consumed} bytes gave {self.page_bytes})",
                reason=Reason.TOO_LARGE,
                hint="no EPP page does; look at what answers at this URL",
            )

    def _too_large(self, size: int) -> ScrapeError:
        return ScrapeError(f"{size} bytes or more, where {self._limit} are allowed", reason=Reason.TOO_LARGE)


def is_gzip(data: bytes) -> bool:
    """Whether ``data`` begins like a gzip stream."""
    return data.startswith(_GZIP_MAGIC)
