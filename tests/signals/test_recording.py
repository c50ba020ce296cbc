"""Recordings: written without waiting, read back as they were, refused where they do not fit."""

import contextlib
import errno
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.model import (
    Access,
    Capability,
    Drain,
    Gateway,
    Kind,
    Network,
    Picker,
    Pressure,
    Problem,
    Provider,
    Reading,
    ReadySource,
    Reason,
    RecordingError,
    Site,
)
from grid.signals.readiness import ProbeResult
from grid.signals.recording import (
    DrainsLine,
    ErrorLine,
    GapLine,
    Line,
    NetworkLine,
    ProbeLine,
    RecordingReader,
    RecordingWriter,
    ScrapeLine,
)
from grid.signals.scrape import Scrape
from grid.signals.store import SampleStore
from tests.support.until import until

BEGIN = datetime(2026, 9, 1, 12, 0, tzinfo=UTC)
NETWORK = Network(
    name="acme",
    sites=MappingProxyType({"east": Site("east", region="eu", labels=MappingProxyType({"tier": "gold"}))}),
    providers={
        "east-llama": Provider(
            id="east-llama",
            site="east",
            cluster="east-llama",
            capabilities=(Capability(Kind.INFERENCE_MODEL, "llama é\n"),),
            access=Access(frozenset({"east", "west"}), {"tier": "gold"}),
            pressure=Pressure(),
        )
    },
    gateways={"edge": Gateway("edge", "east", picker=Picker.SATURATION)},
)
READING = Reading(
    dialect="llm_d_epp", pool="a", ready=2, ready_source=ReadySource.LIVE, in_flight=7.0, started_at=1.7e9
)


def writer(path: Path, **more: Any) -> RecordingWriter:
    return RecordingWriter(path, NETWORK, epoch=100.0, started_at=BEGIN, **more)


def read(path: Path) -> tuple[RecordingReader, list[Line]]:
    with path.open("rb") as file:
        reader = RecordingReader(file, name=path.name)
        return reader, list(reader)


async def filled(path: Path, count: int) -> None:
    recording = writer(path)
    await recording.start()
    for number in range(count):
        recording.scrape("east-llama", Scrape(READING, received_at=100.0 + number), interval=2.0, now=100.0 + number)
    await recording.close()


async def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recording = writer(path)
    await recording.start()
    scrape = Scrape(
        READING,
        problems=(Problem(Reason.ENDPOINTS_STALE, "1 of 3"),),
        received_at=101.5,
        cost_s=0.02,
        page_bytes=64_000,
        sampled_at=1.7e9 + 3,
        observed_every=15.0,
    )
    denied = ProbeResult(False, Problem(Reason.PROBE_DENIED, "status 503"))
    drain = Drain("d1", "east", "works", 1.0, None)
    recording.scrape("east-llama", scrape, interval=2.5, now=103.0)
    recording.error("east-llama", Problem(Reason.TIMEOUT, "late"), now=104.0)
    recording.probe("east-llama", denied, now=105.0)
    recording.network(NETWORK, now=106.0)
    recording.drains(MappingProxyType({"east": drain}), now=107.0)
    await recording.close()
    await recording.close()
    reader, lines = read(path)
    assert reader.header.network == NETWORK
    assert reader.header.started_at == BEGIN
    first = lines[0]
    assert isinstance(first, ScrapeLine)
    assert (first.t, first.provider, first.interval, first.received) == (3.0, "east-llama", 2.5, 1.5)
    assert first.scrape(100.0) == scrape
    assert lines[1:] == [
        ErrorLine(4.0, "east-llama", Problem(Reason.TIMEOUT, "late")),
        ProbeLine(5.0, "east-llama", denied),
        NetworkLine(6.0, NETWORK),
        DrainsLine(7.0, {"east": drain}),
    ]
    assert (reader.cut, recording.dropped, recording.failed) == (False, 0, None)


async def test_replayed_scrapes_give_the_same_samples(tmp_path: Path) -> None:
    live = SampleStore(["east-llama"])
    path = tmp_path / "run.jsonl"
    recording = writer(path)
    await recording.start()
    for number in range(5):
        reading = Reading(ready=number, started_at=100.0 * (number // 3))
        scrape = Scrape(reading, received_at=100.0 + number)
        live.apply("east-llama", scrape, interval=2.0)
        recording.scrape("east-llama", scrape, interval=2.0, now=100.0 + number)
    await recording.close()
    again = SampleStore(["east-llama"])
    for line in read(path)[1]:
        assert isinstance(line, ScrapeLine)
        again.apply(line.provider, line.scrape(100.0), interval=line.interval)
    assert again.snapshot().samples == live.snapshot().samples
    assert again.state("east-llama").restarts == 1


async def test_an_older_file_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await filled(path, 1)
    before = path.read_bytes()
    await filled(path, 2)
    assert (tmp_path / "run.jsonl.old").read_bytes() == before
    assert len(read(path)[1]) == 2


async def test_a_path_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file or directory") as caught:
        await writer(tmp_path / "nowhere" / "run.jsonl").start()
    assert (caught.value.reason, caught.value.exit_code) == (Reason.RECORDING_FAILED, 2)


async def test_a_slow_disk_loses_lines_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    recording = writer(path, capacity=4)
    gate, writing = threading.Event(), threading.Event()
    write = RecordingWriter._write

    def slow(self: RecordingWriter, file: Any, lines: Any) -> None:
        writing.set()
        gate.wait(60)
        write(self, file, lines)

    monkeypatch.setattr(RecordingWriter, "_write", slow)
    await recording.start()
    assert writing.wait(30)  # the header is in the thread's hands and counts as one of the four
    begin = time.monotonic()
    for number in range(10):
        recording.error("p", Problem(Reason.TIMEOUT, str(number)), now=100.0 + number)
    assert time.monotonic() - begin < 30
    assert recording.dropped == 7
    gate.set()
    await until(lambda: recording._submitted == recording._done)
    recording.error("p", Problem(Reason.TIMEOUT, "after"), now=150.0)
    await recording.close()
    assert [
        (line.t, line.missing) if isinstance(line, GapLine) else line.problem.detail
        for line in read(path)[1]
        if isinstance(line, GapLine | ErrorLine)
    ] == ["0", "1", "2", (3.0, 7), "after"]


async def test_a_gap_at_the_end_is_said_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    recording = writer(path, capacity=1)
    monkeypatch.setattr(recording, "_write_all", _later(recording))
    await recording.start()
    recording.error("p", Problem(Reason.TIMEOUT), now=101.0)
    await recording.close()
    assert read(path)[1] == [GapLine(1.0, 1)]


def _later(recording: RecordingWriter) -> Any:
    write_all = recording._write_all

    def delayed(file: Any) -> None:
        deadline = time.monotonic() + 30
        while not recording.dropped and time.monotonic() < deadline:
            time.sleep(0.001)
        write_all(file)

    return delayed


async def test_a_full_disk_ends_the_recording_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        written = 0

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, data: bytes) -> int:
            if self.written > 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.written += 60
            return min(60, len(data))

    recording = writer(tmp_path / "run.jsonl")
    monkeypatch.setattr(recording, "_open", Full)
    await recording.start()
    await until(lambda: recording.failed)
    recording.error("p", Problem(Reason.TIMEOUT), now=101.0)
    await recording.close()
    assert recording.failed is not None
    assert recording.failed.code is Reason.RECORDING_FAILED
    assert "No space left" in recording.failed.detail
    assert recording.dropped == 1
    assert "recording ended early" in caplog.text


async def test_a_value_that_cannot_be_written_ends_the_recording(tmp_path: Path) -> None:
    recording = writer(tmp_path / "run.jsonl")
    await recording.start()
    recording.error("p", Problem(Reason.TIMEOUT, object()), now=101.0)  # type: ignore[arg-type]
    await recording.close()
    assert recording.failed is not None
    assert "serializable" in recording.failed.detail


async def test_nothing_is_taken_before_start_and_after_close(tmp_path: Path) -> None:
    recording = writer(tmp_path / "run.jsonl")
    recording.error("p", Problem(Reason.TIMEOUT), now=101.0)
    await recording.start()
    await recording.close()
    recording.error("p", Problem(Reason.TIMEOUT), now=102.0)
    assert (read(tmp_path / "run.jsonl")[1], recording.dropped) == ([], 0)


async def test_a_cut_file_reads_up_to_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await filled(path, 5)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    header = len(lines[0])
    ends = {header + sum(map(len, lines[1 : number + 1])): number for number in range(6)}
    for size in range(header, len(whole) + 1, 7):
        path.write_bytes(whole[:size])
        reader, found = read(path)
        complete = max(number for end, number in ends.items() if end <= size + 1)
        assert len(found) == complete
        assert reader.cut == (size not in ends and size + 1 not in ends)


async def test_whatever_else_does_not_fit_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await filled(path, 3)
    good = path.read_bytes().splitlines(keepends=True)
    line = orjson.loads(good[2])
    for change, words in [
        ({"t": "1"}, "scrape.t: Input should be a valid number"),
        ({"kind": "other"}, "'other'"),
        ({"more": 1}, "scrape.more"),
        ({"reading": {"ready": 2.5}}, "scrape.reading.ready"),
        ({"reading": {"reddy": 2}}, "scrape.reading.reddy"),
        ({"problems": [{"code": "no_such_code", "detail": ""}]}, "scrape.problems.0.code"),
        ({"provider": None}, "scrape.provider"),
    ]:
        path.write_bytes(b"".join([*good[:2], orjson.dumps(line | change) + b"\n", *good[3:]]))
        with pytest.raises(RecordingError) as caught:
            read(path)
        assert caught.value.reason is Reason.RECORDING_DAMAGED
        assert caught.value.message.startswith("run.jsonl, line 3: ")
        assert words in caught.value.message
    for middle in (b"\n", b"{\n", good[2][:40] + b"\n", b"\x00\xff\n", good[2].replace(b'"t":1.0', b'"t":NaN')):
        path.write_bytes(b"".join([*good[:2], middle, *good[3:]]))
        with pytest.raises(RecordingError, match=r"run\.jsonl, line 3: "):
            read(path)
    path.write_bytes(b"".join([*good, *good]))
    with pytest.raises(RecordingError, match="line 5: a second header"):
        read(path)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"", "the file is empty"),
        (b"\n", "not JSON"),
        (b"# HELP llm_d_epp_info\n", "not JSON"),
        (b"[1]\n", "no grid_recording"),
        (b'{"t":1}\n', "no grid_recording"),
        (b'{"grid_recording":2}\n', "format version 2, this program reads version 1"),
        (b'{"grid_recording":1,"kind":"header"}\n', "header.started_at"),
        (b'{"grid_recording":1,"kind":"gap","t":1.0,"missing":2}\n', "gap.grid_recording"),
        (b'{"grid_recording":"1"}\n', "format version '1'"),
    ],
)
def test_what_is_no_recording_is_refused(first: bytes, words: str) -> None:
    with pytest.raises(RecordingError) as caught:
        RecordingReader([first] if first else [], name="thing")
    assert words in caught.value.message
    assert caught.value.message.startswith("thing, line 1: ")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(noise: bytes) -> None:
    lines = noise.splitlines(keepends=True)
    with pytest.raises(RecordingError):
        list(RecordingReader(lines))
    header = orjson.dumps({
        "grid_recording": 1, "kind": "header", "started_at": BEGIN,
        "network": {"name": "n", "sites": {}, "providers": {}, "gateways": {}},
    })  # fmt: skip
    with contextlib.suppress(RecordingError):
        list(RecordingReader([header + b"\n", *lines]))
