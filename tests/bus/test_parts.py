"""Small parts: files that are whole or old, tasks that do not fail unnoticed."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from grid.bus.files import write_atomic
from grid.bus.tasks import first_of, guarded, stop


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [found.name for found in path.parent.iterdir()] == ["file"]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomic(path, b"one")
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


async def test_a_task_that_fails_is_told() -> None:
    async def failing() -> None:
        raise ValueError("why")

    with capture_logs() as logs:
        task = guarded(failing(), "the task")
        await stop(task)
        task = guarded(failing(), "the task")
        await asyncio.wait([task])
    told = [entry for entry in logs if entry["log_level"] == "error"]
    assert told
    assert (told[-1]["task"], told[-1]["error"]) == ("the task", "why")


async def test_the_first_to_end_ends_all() -> None:
    ended: list[str] = []

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waiting")

    async def failing() -> None:
        raise ValueError("why")

    async def done() -> None:
        pass

    with pytest.raises(ValueError, match="why"):
        await first_of({"a": waiting(), "b": failing()})
    await first_of({"a": waiting(), "b": done()})
    assert ended == ["waiting", "waiting"]
    outer = asyncio.create_task(first_of({"a": waiting()}))
    await asyncio.sleep(0)
    await stop(outer)
    assert outer.cancelled()
    assert len(ended) == 3
