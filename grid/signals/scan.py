"""One metrics page, streamed in, becomes the reading of one pool.

The scan looks for the wanted names only (``exposition``), folds what it finds (``tally``) and reads the pool out of
that (``reading``): constant memory and one pass, whatever the size of the page. A gzipped body goes through
:class:`Decompressor` first.
"""

from dataclasses import dataclass
from typing import Final

from grid.model import Problem, Reading, Reason
from grid.signals.dialects import WANTED
from grid.signals.encoding import MAX_PAGE, PIECE, Decompressor, is_gzip
from grid.signals.exposition import LineReader, line_pattern
from grid.signals.reading import read_pool
from grid.signals.tally import Tally

__all__ = ["MAX_PAGE", "Decompressor", "PageScan", "ScanResult", "compare", "read_page"]

_PATTERN: Final = line_pattern(WANTED)
_UNUSABLE: Final = frozenset((Reason.NOT_METRICS, Reason.EMPTY_PAGE, Reason.POOL_MISSING, Reason.POOL_AMBIGUOUS))
_MARKUP: Final = {b"<": "html or xml", b"{": "JSON", b"[": "JSON"}
_BINARY: Final = frozenset(range(32)) - frozenset(b"\t\n\r\x0b\x0c\x1b")

_START_JITTER: Final = 2.0
"""s by which an EPP's own idea of its start moves while its node's clock is set right."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a page says of one pool. ``pools`` are the names of all pools on the page, sorted, at most 1024."""

    reading: Reading
    problems: tuple[Problem, ...]
    pools: tuple[str, ...] = ()

    @property
    def unusable(self) -> Problem | None:
        """The problem that makes the page worthless, None where it can be used.

        A page without pool gauges is still worth something where it gives the number of ready endpoints live.
        """
        for problem in self.problems:
            if problem.code in _UNUSABLE:
                return problem
            if problem.code is Reason.METRIC_MISSING and self.reading.ready is None:
                return problem
        return None


class PageScan:
    """Reads one page, fed in chunks of any size, in constant memory.

    ``pool`` is the EPP's name for the pool; None: the only one on the page. ``content_type`` is the answer's; of
    OpenMetrics it is known that the page must end in ``# EOF``.
    """

    def __init__(self, pool: str | None = None, *, content_type: str | None = None) -> None:
        self._pool = pool
        self._openmetrics = (content_type or "").strip().lower().startswith("application/openmetrics-text")
        self._reader = LineReader(_PATTERN)
        self._tally = Tally(pool)

    @property
    def size(self) -> int:
        """Bytes fed so far."""
        return self._reader.size

    def feed(self, chunk: bytes) -> None:
        """Scan the next part of the page."""
        lines = self._reader.feed(chunk)
        if lines:
            self._tally.add(lines)

    def finish(self) -> ScanResult:
        """What the page says. Never raises: what is wrong is in the result's problems, the gravest first."""
        reader = self._reader
        reader.finish()
        reading, problems = read_pool(self._tally, self._pool)
        if reading.dialect is None and problems and problems[0].code is Reason.METRIC_MISSING:
            problems = (_no_page(reader) or problems[0], *problems[1:])
        return ScanResult(reading, problems + self._ending(), tuple(sorted(self._tally.pools)))

    def _ending(self) -> tuple[Problem, ...]:
        """A page without a proper end still counts, but for a last line that may have been cut inside a number."""
        reader = self._reader
        if reader.cut:
            start = reader.cut[:40].decode("utf-8", "replace")
            return (Problem(Reason.TRUNCATED, f"the last line has no line end and was left out: {start!r}"),)
        if self._openmetrics and not reader.ends_in_eof:
            return (Problem(Reason.TRUNCATED, "an OpenMetrics page without # EOF at its end"),)
        return ()


def read_page(
    data: bytes, *, pool: str | None = None, content_type: str | None = None, limit: int = MAX_PAGE
) -> ScanResult:
    """Scan a whole page held in memory, gzipped or not.

    Raises :class:`grid.model.ScrapeError` only for what keeps the page from being unpacked: ``too_large``,
    ``bad_encoding``, ``truncated``.
    """
    scan = PageScan(pool, content_type=content_type)
    if len(data) <= min(PIECE, limit) and not is_gzip(data):
        scan.feed(data)
        return scan.finish()
    decompressor = Decompressor("gzip" if is_gzip(data) else "", limit=limit)
    for piece in decompressor.pieces(data):
        scan.feed(piece)
    decompressor.finish()
    return scan.finish()


def compare(previous: Reading, current: Reading) -> tuple[Problem, ...]:
    """What only two readings of one EPP in a row can tell: that it restarted, or that it lost polls in between."""
    same_process = False
    if previous.started_at is not None and current.started_at is not None:
        moved = current.started_at - previous.started_at
        if abs(moved) > _START_JITTER:
            return (Problem(Reason.RESTARTED, f"started {moved:+.0f} s from the process read before"),)
        same_process = True
    # The series comes into being with the first error, so in one process none before is none counted.
    before = previous.poll_errors if previous.poll_errors is not None else (0.0 if same_process else None)
    after = current.poll_errors
    if before is None or after is None or before == after:
        return ()
    if after < before:
        return (Problem(Reason.RESTARTED, f"its count of poll errors fell from {before:.0f} to {after:.0f}"),)
    return (Problem(Reason.POLL_ERRORS, f"{after - before:.0f} more since the last scrape"),)


def _no_page(reader: LineReader) -> Problem | None:
    """Why a page without any pool metric is no metrics page at all; None where it is one."""
    head = reader.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    looks_like = _MARKUP.get(head[:1], "")
    if not looks_like and not _BINARY.isdisjoint(head):
        looks_like = "binary"
    if looks_like:
        return Problem(Reason.NOT_METRICS, f"it looks like {looks_like}: {_opening(head)}")
    if not reader.has_content:
        return Problem(Reason.EMPTY_PAGE, f"{reader.size} bytes without a sample" if reader.size else "0 bytes")
    if not reader.has_samples:
        return Problem(Reason.NOT_METRICS, f"it begins {_opening(head)}")
    return None


def _opening(head: bytes) -> str:
    return repr("".join(char if char.isprintable() else " " for char in head[:60].decode("utf-8", "replace")).strip())
