"""The program on the page runs as it stands there."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from grid.model import Gateway, GatewayPlan
from grid.overlay import render
from tests.gateway.conftest import Daemon
from tests.overlay.build import candidate, network
from tests.support.redis_server import RedisServer

ROOT = Path(__file__).parents[2]


def programs() -> dict[str, str]:
    """Every program with the client on the pages, by page."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {
        page.name: block
        for page in pages
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        if "GridClient(" in block
    }
    assert "gateway.md" in found
    return found


@pytest.mark.real_server
@pytest.mark.parametrize("page", sorted(programs()))
async def test_the_program_on_the_page_prints_where_to_send(page: str, server: RedisServer, daemon: Daemon) -> None:
    made = GatewayPlan("edge-east", "east", None, (candidate("east-llama", "llama-3.1-70b"),))
    await daemon.publish(render(network(), Gateway("edge-east", "east"), made, rendered_at="2026-01-02T03:04:05Z"))
    program = programs()[page].replace("redis://127.0.0.1:6379", server.url)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", program, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        printed, _ = await process.communicate()
    assert process.returncode == 0
    assert printed.decode() == "east east-llama\n"
