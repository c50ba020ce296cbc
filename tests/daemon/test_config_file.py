"""Whether the file is what runs. Looks come as the test makes them."""

import asyncio
import os
from pathlib import Path

import pytest

from grid.config import load
from grid.daemon import config_file
from grid.daemon.config_file import ConfigFile, load_with_print, take
from grid.model import ConfigError
from tests.daemon.parts import CONFIG


class Watched:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[bool] = []
        self.file = ConfigFile(path, lambda since: self.said.append(since is not None))

    async def runs(self) -> None:
        self.file.runs(await asyncio.to_thread(take, self.path))

    async def write(self, text: str) -> None:
        await asyncio.to_thread(self.path.write_text, text)

    async def look(self, times: int = 2) -> bool:
        for _ in range(times):
            await self.file.look()
        return self.file.differs_since is not None


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    path = tmp_path / "grid.yaml"
    path.write_text(CONFIG)
    return Watched(path)


async def test_an_unchanged_file_does_not_differ(watched: Watched) -> None:
    await watched.runs()
    assert not await watched.look(5)
    await asyncio.to_thread(os.utime, watched.path)
    assert not await watched.look(5), "a touch changes nothing"
    await watched.write(CONFIG)
    assert not await watched.look(5)
    assert watched.said == []


async def test_a_changed_file_differs_at_the_second_look_and_is_said_once(watched: Watched) -> None:
    await watched.runs()
    await watched.write(CONFIG + "# more\n")
    assert not await watched.look(1)
    assert await watched.look(1)
    assert await watched.look(3)
    assert watched.said == [True]
    await watched.write(CONFIG)
    assert not await watched.look(1)
    assert watched.said == [True, False]


async def test_a_file_that_is_being_written_is_no_difference_yet(watched: Watched) -> None:
    await watched.runs()
    for length in range(10):
        await watched.write(CONFIG[: length * 10])
        assert not await watched.look(1)
    await watched.write(CONFIG)
    assert not await watched.look(3)
    assert watched.said == []


async def test_a_symlink_that_is_swapped_and_a_file_that_is_gone(tmp_path: Path) -> None:
    def swap(target: str) -> None:
        (tmp_path / "next").symlink_to(target)
        (tmp_path / "next").rename(tmp_path / "grid.yaml")

    def make() -> None:
        for name in ("one", "two"):
            (tmp_path / name).write_text(CONFIG + f"# {name}\n")
        swap("one")

    await asyncio.to_thread(make)
    watched = Watched(tmp_path / "grid.yaml")
    await watched.runs()
    await asyncio.to_thread(swap, "two")
    assert await watched.look()
    await asyncio.to_thread(swap, "one")
    assert not await watched.look()
    await asyncio.to_thread((tmp_path / "one").unlink)
    assert await watched.look()


async def test_a_reload_ends_the_difference(watched: Watched) -> None:
    await watched.runs()
    await watched.write(CONFIG + "# more\n")
    assert await watched.look()
    await watched.runs()
    assert not await watched.look()


async def test_without_a_file_nothing_differs() -> None:
    file = ConfigFile(None, lambda _: None)
    await file.look()
    assert file.differs_since is None


async def test_the_print_is_that_of_what_was_loaded(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file changes just while it is loaded: what is noted is what was read last."""
    calls = 0

    def loading(path: Path) -> object:
        nonlocal calls
        calls += 1
        found = load(path)
        if calls == 1:
            path.write_text(CONFIG.replace("acme", "second"))
        return found

    monkeypatch.setattr(config_file, "load", loading)
    config, found = await asyncio.to_thread(load_with_print, watched.path)
    assert config.network == "second"
    watched.file.runs(found)
    assert not await watched.look(3)
    await watched.write("network: [")
    with pytest.raises(ConfigError):
        await asyncio.to_thread(load_with_print, watched.path)
