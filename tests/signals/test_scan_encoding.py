"""Unpacking a body as it streams in, within its limits."""

import collections
import gzip
import zlib
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.model import Reason, ScrapeError
from grid.signals.encoding import PIECE
from grid.signals.scan import MAX_PAGE, Decompressor, read_page
from tests.signals.pages import current, page

MIB = 1024 * 1024


def unpacked(chunks: Iterable[bytes], encoding: str = "gzip", limit: int = MAX_PAGE) -> bytes:
    decompressor = Decompressor(encoding, limit=limit)
    pieces = [piece for chunk in chunks for piece in decompressor.pieces(chunk)]
    assert all(0 < len(piece) <= PIECE for piece in pieces)
    decompressor.finish()
    data = b"".join(pieces)
    assert decompressor.page_bytes == len(data)
    return data


def bomb(size: int) -> bytes:
    """The beginning of a gzip stream of ``size`` zeros, at the best ratio there is."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    first = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the same block may come again.
    again = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + again * (size // MIB - 1)


@given(st.binary(max_size=2000), st.integers(1, 50), st.integers(1, 3))
def test_any_split_gives_the_same(data: bytes, step: int, members: int) -> None:
    packed = gzip.compress(data) * members
    chunks = [packed[start : start + step] for start in range(0, len(packed), step)]
    assert unpacked(chunks) == data * members


def test_data_that_leaves_the_output_exactly_full() -> None:
    for size in (PIECE - 1, PIECE, PIECE + 1, 3 * PIECE):
        data = bytes(range(256)) * (size // 256 + 1)
        assert unpacked([gzip.compress(data[:size])]) == data[:size]


@pytest.mark.parametrize("encoding", ["", "identity", " Identity "])
def test_plain_bodies_pass_through_in_pieces(encoding: str) -> None:
    data = bytes(range(256)) * 2000
    assert unpacked([data[:5], data[5:]], encoding) == data


def test_x_gzip_and_padding() -> None:
    assert unpacked([gzip.compress(b"abc") + bytes(20), bytes(5)], "x-gzip") == b"abc"


def test_feed_gives_all_at_once() -> None:
    decompressor = Decompressor("gzip")
    assert decompressor.feed(gzip.compress(b"x" * 300_000)) + decompressor.finish() == b"x" * 300_000


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip"])
def test_what_was_not_asked_for(encoding: str) -> None:
    with pytest.raises(ScrapeError, match="only gzip") as caught:
        Decompressor(encoding)
    assert caught.value.reason is Reason.BAD_ENCODING


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"# HELP plain text\n", "beyond 0 bytes .incorrect header"),
        (gzip.compress(b"abc" * 1000, mtime=0)[:-8] + b"\0" * 8, "incorrect data check"),
        (gzip.compress(b"abc", mtime=0) + b"garbage behind it", "beyond 3 bytes"),
        (b"\x1f\x8b\x09" + bytes(20), "beyond 0 bytes"),
    ],
    ids=["plain text", "wrong sum", "garbage behind", "unknown method"],
)
def test_what_is_not_gzip(data: bytes, words: str) -> None:
    with pytest.raises(ScrapeError, match=words) as caught:
        unpacked([data])
    assert caught.value.reason is Reason.BAD_ENCODING


@pytest.mark.parametrize("left", [1, 10, 200])
def test_a_stream_without_its_end(left: int) -> None:
    packed = gzip.compress(bytes(range(256)) * 40)
    with pytest.raises(ScrapeError, match="breaks off") as caught:
        unpacked([packed[:left]])
    assert caught.value.reason is Reason.TRUNCATED


def test_an_empty_body_is_no_broken_stream() -> None:
    assert unpacked([]) == b""


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_the_limit_counts_what_comes_out(encoding: str) -> None:
    # Of many sizes of lines, so that the ratio of a bomb is not reached.
    data = b"".join(b"%d\n" % (number * 7919 % 100_003) for number in range(40_000))
    packed = gzip.compress(data) if encoding else data
    assert unpacked([packed], encoding, limit=len(data)) == data
    with pytest.raises(ScrapeError) as caught:
        unpacked([packed], encoding, limit=len(data) - 1)
    assert caught.value.reason is Reason.TOO_LARGE


def test_an_announced_length_over_the_limit_is_refused_at_once() -> None:
    decompressor = Decompressor(limit=1000)
    for harmless in ("", "1000", "-5", "x", "1e9"):
        decompressor.expect(harmless)
    with pytest.raises(ScrapeError) as caught:
        decompressor.expect("1001")
    assert caught.value.reason is Reason.TOO_LARGE


def test_a_bomb_stops_early() -> None:
    """1 GB in 1 MB: given up after the first MiB or so, not at the limit."""
    decompressor = Decompressor("gzip")
    data = bomb(1024 * MIB)
    assert len(data) < 1.2 * MIB
    with pytest.raises(ScrapeError, match="more than 256 times") as caught:
        collections.deque(decompressor.pieces(data), maxlen=0)
    assert caught.value.reason is Reason.TOO_LARGE
    assert decompressor.page_bytes < 4 * MIB


def test_a_bomb_of_empty_streams_stops_at_the_limit() -> None:
    decompressor = Decompressor("gzip", limit=MIB)
    chunk = gzip.compress(b"") * 1000
    for _ in range(MIB // len(chunk)):
        assert list(decompressor.pieces(chunk)) == []
    with pytest.raises(ScrapeError) as caught:
        list(decompressor.pieces(chunk))
    assert caught.value.reason is Reason.TOO_LARGE


def test_pages_in_memory() -> None:
    data = page(*current())
    assert read_page(gzip.compress(data)) == read_page(data)
    with pytest.raises(ScrapeError) as caught:
        read_page(gzip.compress(data)[:-4])
    assert caught.value.reason is Reason.TRUNCATED
    with pytest.raises(ScrapeError) as caught:
        read_page(data, limit=len(data) - 1)
    assert caught.value.reason is Reason.TOO_LARGE
