"""Admission control over loopback HTTP, on a smaller scale than the command's, and the command's option."""

import asyncio
import json

import pytest
import typer
from typer.testing import CliRunner

from grid.cli import simulate
from grid.sim import admission_real
from grid.sim.admission_real import Scale

FIGURES = {"idle_p99_ms": 1.0, "on_p99_ms": 2.0, "off_p99_ms": 9.0, "ratio_on": 2.0, "ratio_off": 9.0}


@pytest.mark.real_server
def test_interactive_requests_stay_fast_beside_batch_ones_with_admission_control_alone() -> None:
    """The command's bars, 1.5 and 10 times the idle figure, are for machines that do nothing else.

    A percentile of some twenty answers is the slowest of them, and one pause of a busy machine adds itself to any of
    the three figures. So the two that differ by admission control alone are compared, and so many batch requests wait
    that the difference is far longer than a pause: without it both are the same 4 s.
    """
    found = admission_real.run(Scale((4, 4), batch_clients=160, service=0.2, rate=10.0, seconds=2.2, warm_up=1.0))
    assert set(found) == set(FIGURES)
    assert found["idle_p99_ms"] >= 160, "no engine needs less"
    assert found["on_p99_ms"] <= found["off_p99_ms"] / 2
    assert 2000 <= found["off_p99_ms"] < 30_000, "they waited, and were answered"


async def test_an_answer_that_never_comes_counts_as_the_whole_patience() -> None:
    """What is refused at once must not look fast."""

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        scale = Scale((1,), batch_clients=2, service=0.05, rate=50.0, seconds=0.2, warm_up=0.0)
        assert await admission_real._p99(url, scale, 1, batch=True) == 30.0


def test_the_option_asks_for_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()
    simulate.register(app)
    app.command("other")(lambda: None)
    monkeypatch.setattr(admission_real, "run", lambda *, seed: FIGURES | {"seed": seed})
    found = CliRunner().invoke(app, ["simulate", "admission", "--real", "--seed", "7", "-o", "json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout) == FIGURES | {"seed": 7}
