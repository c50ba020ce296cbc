# ruff: noqa: ASYNC240 - what a test looks at lies in small local files
"""The file that only moves forward."""

import asyncio
import errno
import fcntl
import os
import random
import stat
import threading
import time
from pathlib import Path

import pytest

from grid.model import DeliveryError, Reason
from grid.proxy import delivery
from grid.proxy.delivery import Held, OutFile, Put
from tests.proxy.words import position


def held(version: int, revision: str = "", epoch: int = 1) -> Held:
    return Held(position(version, epoch), revision or f"r{version}")


def content(one: Held, padding: int = 0) -> bytes:
    return f"{one.position.epoch}.{one.position.version} {one.revision} ".encode() + b"x" * padding + b" end"


def read(data: bytes) -> Held | None:
    """A content of these tests; None where it is not whole."""
    if not data.endswith(b" end"):
        return None
    place, revision, *_ = data.decode().split(" ")
    epoch, _, version = place.partition(".")
    return Held(position(int(version), int(epoch)), revision)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "below" / "out.json"


async def put(file: OutFile, one: Held) -> Put:
    return await file.put(content(one), one)


async def test_it_is_written_with_its_folder_for_all_to_read(path: Path) -> None:
    file = OutFile(path, read)
    assert await put(file, held(1)) is Put.WRITTEN
    assert path.read_bytes() == content(held(1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in path.parent.iterdir()] == ["out.json"]
    assert file.held == held(1)
    assert file.changed_at == pytest.approx(time.time(), abs=60)


async def test_only_something_else_is_written(path: Path) -> None:
    file = OutFile(path, read)
    await put(file, held(1))
    inode = path.stat().st_ino
    assert await put(file, held(1)) is Put.CURRENT
    assert path.stat().st_ino == inode
    assert await file.put(content(held(1), 5), held(1)) is Put.WRITTEN
    assert path.stat().st_ino != inode


async def test_never_older_than_what_was_written(path: Path) -> None:
    file = OutFile(path, read)
    await put(file, held(5, epoch=2))
    for older in (held(4, epoch=2), held(9, epoch=1)):
        assert await put(file, older) is Put.NEWER
        assert read(path.read_bytes()) == file.held == held(5, epoch=2)
    assert await put(file, held(1, epoch=3)) is Put.WRITTEN


async def test_never_older_than_what_somebody_else_wrote(path: Path) -> None:
    file = OutFile(path, read)
    await put(file, held(1))
    path.write_bytes(content(held(7)))
    assert await put(file, held(2)) is Put.NEWER
    assert file.held == held(7)


async def test_one_place_with_two_revisions_is_a_clash(path: Path) -> None:
    file = OutFile(path, read)
    await put(file, held(5, "a"))
    assert await put(file, held(5, "b")) is Put.CLASH
    assert read(path.read_bytes()) == file.held == held(5, "a")
    assert await put(file, held(6, "b")) is Put.WRITTEN


async def test_a_new_process_takes_up_what_is_there(path: Path) -> None:
    await put(OutFile(path, read), held(5))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    file = OutFile(path, read)
    assert await file.load() == content(held(5))
    assert (file.held, file.changed_at) == (held(5), 1_700_000_000)
    assert await put(file, held(4)) is Put.NEWER


async def test_what_is_no_document_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"half of somethi")
    file = OutFile(path, read)
    assert await file.load() == b"half of somethi"
    assert file.held is None
    assert await file.keep() is False
    assert await put(file, held(1)) is Put.WRITTEN


async def test_nothing_there_is_nothing_held(path: Path) -> None:
    file = OutFile(path, read)
    assert await file.load() is None
    assert file.held is None


@pytest.mark.parametrize("harm", ["gone", "damaged", "folder gone"])
async def test_what_went_missing_is_put_back(path: Path, harm: str) -> None:
    file = OutFile(path, read)
    await put(file, held(3))
    assert await file.keep() is False
    if harm == "damaged":
        path.write_bytes(b"?")
    else:
        path.unlink()
        if harm == "folder gone":
            path.parent.rmdir()
    assert await file.keep() is True
    assert path.read_bytes() == content(held(3))


async def test_the_last_good_one_of_an_earlier_run_is_put_back_too(path: Path) -> None:
    await put(OutFile(path, read), held(3))
    file = OutFile(path, read)
    await file.load()
    path.unlink()
    assert await file.keep() is True
    assert path.read_bytes() == content(held(3))


async def test_keeping_never_goes_back(path: Path) -> None:
    file = OutFile(path, read)
    await put(file, held(3))
    path.write_bytes(content(held(4)))
    assert await file.keep() is False
    assert read(path.read_bytes()) == file.held == held(4)


@pytest.mark.parametrize("kind", ["folder", "pipe", "below a file"])
async def test_what_cannot_be_written_says_so(path: Path, kind: str) -> None:
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.parent.rmdir()
        path.parent.write_bytes(b"")
    file = OutFile(path, read)
    with pytest.raises(DeliveryError) as caught:
        await put(file, held(1))
    assert caught.value.reason is Reason.FILE_UNWRITABLE
    assert str(path) in caught.value.message
    assert file.held is None


async def test_a_failed_writing_leaves_the_file_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OutFile(path, read)
    await put(file, held(1))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DeliveryError, match="No space left"):
        await put(file, held(2))
    assert path.read_bytes() == content(held(1))
    assert [one.name for one in path.parent.iterdir()] == ["out.json"]


async def test_another_writer_is_waited_for_but_not_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir()
    file = OutFile(path, read)
    with delivery._alone_in(path.parent):
        monkeypatch.setattr(delivery, "LOCK_TIME", 0.05)
        with pytest.raises(DeliveryError, match="another process"):
            await put(file, held(1))
    assert await put(file, held(1)) is Put.WRITTEN


@pytest.mark.parametrize(("number", "does"), [(errno.ENOLCK, True), (errno.EIO, False)])
async def test_a_file_system_without_locks_will_do(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, does: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    if does:
        assert await put(OutFile(path, read), held(1)) is Put.WRITTEN
    else:
        with pytest.raises(DeliveryError):
            await put(OutFile(path, read), held(1))


async def test_many_writers_in_any_order_end_with_the_newest_and_no_reader_sees_a_part(path: Path) -> None:
    versions = [*range(1, 61)]
    random.Random(7).shuffle(versions)
    path.parent.mkdir()
    seen: list[int] = []
    broken: list[bytes] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            if path.exists():
                data = path.read_bytes()
                found = read(data)
                if found is None:
                    broken.append(data)
                else:
                    seen.append(found.position.version)

    reader = threading.Thread(target=watch)
    reader.start()
    try:
        files = [OutFile(path, read) for _ in range(6)]
        await asyncio.gather(
            *(files[number % 6].put(content(held(one), 100_000), held(one)) for number, one in enumerate(versions))
        )
    finally:
        ended.set()
        reader.join()
    assert broken == []
    assert seen == sorted(seen)
    assert read(path.read_bytes()) == held(60)
