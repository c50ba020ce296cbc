"""Recordings: what the sources said, one JSON object a line, so that decisions can be made again offline.

The first line is the header: format version, the moment it began, and the network as configured, so that a recording
needs no other file. Every further line has its ``kind`` and ``t``, the monotonic s since the beginning at which the
daemon took it in. Feeding scrapes, errors and probe results to a :class:`grid.signals.store.SampleStore` in the order
of the file gives the samples that the daemon had.

Writing never waits: a line goes to a thread of the writer's own, and when that one falls behind by more than
``capacity`` lines, further ones are left out, counted, and a ``gap`` line says how many are missing there. A file whose
last line was cut, as a killed process leaves it, reads up to that line; anything else that does not fit is refused.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal, cast

import orjson
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from grid.model import Drain, Network, Problem, Reading, Reason, RecordingError
from grid.signals.readiness import ProbeResult
from grid.signals.scrape import Scrape

VERSION: Final = 1

_LOG = logging.getLogger(__name__)
_BATCH: Final = 512


@dataclass(frozen=True, slots=True)
class Header:
    """The first line. ``started_at``: wall-clock time of ``t`` 0, for people only."""

    grid_recording: int
    started_at: datetime
    network: Network
    kind: Literal["header"] = "header"


@dataclass(frozen=True, slots=True)
class ScrapeLine:
    """A successful scrape of one provider; ``received`` is ``Scrape.received_at`` counted like ``t``."""

    t: float
    provider: str
    interval: float
    received: float
    reading: Reading
    problems: tuple[Problem, ...] = ()
    cost_s: float = 0.0
    page_bytes: int = 0
    sampled_at: float | None = None
    observed_every: float = 0.0
    kind: Literal["scrape"] = "scrape"

    def scrape(self, epoch: float = 0.0) -> Scrape:
        """Return the scrape as it was, on a monotonic clock that read ``epoch`` at ``t`` 0."""
        return Scrape(
            reading=self.reading,
            problems=self.problems,
            received_at=epoch + self.received,
            cost_s=self.cost_s,
            page_bytes=self.page_bytes,
            sampled_at=self.sampled_at,
            observed_every=self.observed_every,
        )


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """A failed scrape of one provider."""

    t: float
    provider: str
    problem: Problem
    kind: Literal["error"] = "error"


@dataclass(frozen=True, slots=True)
class ProbeLine:
    """What the readiness probe of one provider found."""

    t: float
    provider: str
    result: ProbeResult
    kind: Literal["probe"] = "probe"


@dataclass(frozen=True, slots=True)
class NetworkLine:
    """The network after a reload of the configuration."""

    t: float
    network: Network
    kind: Literal["network"] = "network"


@dataclass(frozen=True, slots=True)
class DrainsLine:
    """All drains in force from here on, by target."""

    t: float
    drains: Mapping[str, Drain]
    kind: Literal["drains"] = "drains"


@dataclass(frozen=True, slots=True)
class GapLine:
    """Here ``missing`` lines are left out, the first at ``t``: the disk was slower than the scrapes."""

    t: float
    missing: int
    kind: Literal["gap"] = "gap"


Line = ScrapeLine | ErrorLine | ProbeLine | NetworkLine | DrainsLine | GapLine

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_LINE: TypeAdapter[Header | Line] = TypeAdapter(Annotated[Header | Line, Field(discriminator="kind")], config=_STRICT)


class RecordingWriter:
    """Writes one recording. Everything but :meth:`start` and :meth:`close` returns at once and may be called any time.

    ``epoch``: the monotonic s that count as ``t`` 0. A file of that name that is there already is kept beside it with
    ``.old`` appended. Once writing fails (a full disk), the recording ends there: ``failed`` says why, and what follows
    is only counted.
    """

    def __init__(
        self, path: Path, network: Network, *, epoch: float, started_at: datetime, capacity: int = 10_000
    ) -> None:
        self._path = path
        self._header = Header(VERSION, started_at, network)
        self._epoch = epoch
        self._capacity = capacity
        self._lines: queue.SimpleQueue[Header | Line | None] = queue.SimpleQueue()
        self._gap: GapLine | None = None
        self._submitted = 0
        self._done = 0
        self._thread: threading.Thread | None = None
        self.dropped = 0
        """Lines left out so far."""
        self.failed: Problem | None = None
        """Why the recording ended early."""

    async def start(self) -> None:
        """Open the file. Raises RecordingError where that cannot be done."""
        try:
            file = await asyncio.to_thread(self._open)
        except OSError as error:
            raise RecordingError(
                f"cannot record to {self._path}: {error.strerror or error}", reason=Reason.RECORDING_FAILED
            ) from error
        self._submitted = 1
        self._lines.put(self._header)
        self._thread = threading.Thread(target=self._write_all, args=(file,), name="grid-recording", daemon=True)
        self._thread.start()

    async def close(self, *, timeout: float = 5.0) -> None:  # noqa: ASYNC109 (a bound on a thread, not on awaiting)
        """Write what is queued and close the file; give up after ``timeout`` s. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._gap is not None:
            self._lines.put(self._gap)
        self._lines.put(None)
        await asyncio.to_thread(thread.join, timeout)

    def scrape(self, provider: str, scrape: Scrape, *, interval: float, now: float) -> None:
        """Note a successful scrape, with the s between scrapes in force."""
        line = ScrapeLine(
            t=now - self._epoch,
            provider=provider,
            interval=interval,
            received=scrape.received_at - self._epoch,
            reading=scrape.reading,
            problems=scrape.problems,
            cost_s=scrape.cost_s,
            page_bytes=scrape.page_bytes,
            sampled_at=scrape.sampled_at,
            observed_every=scrape.observed_every,
        )
        self._submit(line)

    def error(self, provider: str, problem: Problem, *, now: float) -> None:
        """Note a failed scrape."""
        self._submit(ErrorLine(now - self._epoch, provider, problem))

    def probe(self, provider: str, result: ProbeResult, *, now: float) -> None:
        """Note what a readiness probe found."""
        self._submit(ProbeLine(now - self._epoch, provider, result))

    def network(self, network: Network, *, now: float) -> None:
        """Note a changed configuration."""
        self._submit(NetworkLine(now - self._epoch, network))

    def drains(self, drains: Mapping[str, Drain], *, now: float) -> None:
        """Note the drains in force from now on, by target."""
        self._submit(DrainsLine(now - self._epoch, dict(drains)))

    def _submit(self, line: Line) -> None:
        if self._thread is None:
            return
        # The writer's thread alone raises _done and the loop's thread alone raises _submitted, so no lock is needed.
        if self.failed is not None or self._submitted - self._done >= self._capacity:
            self.dropped += 1
            self._gap = GapLine(self._gap.t if self._gap else line.t, self._gap.missing + 1 if self._gap else 1)
            return
        if self._gap is not None:
            self._lines.put(self._gap)
            self._submitted += 1
            self._gap = None
        self._lines.put(line)
        self._submitted += 1

    # --- in the writer's thread -------------------------------------------------------------------------------------

    def _open(self) -> BinaryIO:
        if self._path.is_file() and self._path.stat().st_size:
            self._path.replace(self._path.with_name(self._path.name + ".old"))
        return self._path.open("wb", buffering=0)

    def _write_all(self, file: BinaryIO) -> None:
        with file:
            ended = False
            while not ended:
                batch = [self._lines.get()]
                while len(batch) < _BATCH and not self._lines.empty():
                    batch.append(self._lines.get())
                ended = None in batch
                if self.failed is None:
                    self._write(file, [line for line in batch if line is not None])
                self._done += len(batch)

    def _write(self, file: BinaryIO, lines: list[Header | Line]) -> None:
        try:
            data = b"".join(map(_encode, lines))
            while data:
                data = data[file.write(data) :]
        except (OSError, TypeError) as error:
            self.failed = Problem(Reason.RECORDING_FAILED, f"{self._path}: {error}")
            _LOG.error("recording ended early, and the daemon goes on without it: %s", self.failed.detail)


class RecordingReader:
    """Reads a recording line by line: the header at once, the others by iterating.

    ``name`` is what errors call the file. Raises RecordingError with the line's number where a line does not fit.
    """

    def __init__(self, lines: Iterable[bytes], *, name: str = "recording") -> None:
        self._lines = enumerate(lines, start=1)
        self._name = name
        self.cut = False
        """Whether the last line was cut, known after the last one."""
        self.header = self._read_header()

    def __iter__(self) -> Iterator[Line]:
        for number, data in self._lines:
            try:
                line = _LINE.validate_json(data)
            except ValidationError as error:
                if not data.endswith(b"\n"):  # only the last line of a file has no end
                    self.cut = True
                    return
                raise self._damaged(number, _first_fault(error)) from error
            if isinstance(line, Header):
                raise self._damaged(number, "a second header: two recordings in one file")
            yield line

    def _read_header(self) -> Header:
        number, data = next(self._lines, (1, b""))
        try:
            found = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            detail = "the file is empty" if not data else "not a recording (the first line is not JSON)"
            raise self._damaged(number, detail) from error
        version = found.get("grid_recording") if isinstance(found, dict) else None
        if version is None:
            raise self._damaged(number, "not a recording (no grid_recording in the first line)")
        if version != VERSION:
            raise self._damaged(number, f"format version {version!r}, this program reads version {VERSION}")
        try:
            return cast("Header", _LINE.validate_json(data))  # no other kind of line may have grid_recording
        except ValidationError as error:
            raise self._damaged(number, _first_fault(error)) from error

    def _damaged(self, number: int, detail: str) -> RecordingError:
        return RecordingError(f"{self._name}, line {number}: {detail}", reason=Reason.RECORDING_DAMAGED)


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    return f"{where}: {fault['msg']}" if where else fault["msg"]


def _encode(line: Header | Line) -> bytes:
    return orjson.dumps(line, default=_plain, option=orjson.OPT_APPEND_NEWLINE)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"a recording cannot hold a {type(value).__name__}")
