import asyncio
import os
from pathlib import Path

import pytest
import structlog

from grid.daemon.state_dir import StateDir


async def test_what_is_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "grid")
    await state.save_state({"saved_at": 5.0, "memory": {"east": {"admission": "none"}}})
    await state.save_document("edge-east", b'{"a":1}')
    again = StateDir(tmp_path / "grid")
    assert await again.load_state() == {"saved_at": 5.0, "memory": {"east": {"admission": "none"}}}
    assert await again.load_documents() == {"edge-east": b'{"a":1}'}


async def test_nothing_saved_is_nothing(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "never made")
    with structlog.testing.capture_logs() as logged:
        assert await state.load_state() is None
        assert await state.load_documents() == {}
    assert logged == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
async def test_a_broken_file_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    await asyncio.to_thread((tmp_path / "state.json").write_bytes, content)
    state = StateDir(tmp_path)
    with structlog.testing.capture_logs():
        assert await state.load_state() is None


async def test_a_half_written_file_never_shows(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    await asyncio.gather(*(state.save_state({"n": number, "pad": "x" * 50_000}) for number in range(20)))
    assert (await state.load_state() or {})["n"] == 19
    assert os.listdir(tmp_path) == ["state.json"]  # noqa: PTH208


async def test_a_directory_that_cannot_be_written_is_said_and_harms_nothing(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    await asyncio.to_thread(blocker.write_text, "not a directory")
    state = StateDir(blocker / "below")
    with structlog.testing.capture_logs() as logged:
        await state.save_state({"a": 3})
    assert [line["log_level"] for line in logged] == ["warning"]
