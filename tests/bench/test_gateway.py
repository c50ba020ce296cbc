import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from grid.sim.bench import gateway as bench


@pytest.mark.real_server
def test_the_bench_measures_the_gateway_beside_a_bare_pass_through() -> None:
    rows = bench.run(serial=60, streams=16, rounds=2, pause=0.01)
    assert [row["case"] for row in rows] == [
        "1 stream, first byte", "1 stream, each event", "16 streams, first byte", "16 streams, each event",
    ]  # fmt: skip
    assert [row["load"].partition(",")[0] for row in rows] == ["closed loop"] * 2 + ["open loop"] * 2
    for row in rows:
        assert row["requests"] > 0
        assert row["direct_p50_ms"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert row["better"] == "less"
    # A busy machine may hold up one way of a row and not the others, but hardly of most rows.
    told = [row for row in rows if row["added_p50_us"] > 0 and row["peer_added_p50_us"] > 0]
    assert len(told) >= 2
    # The full run holds 2; a short one beside other tests only shows that nothing is far off.
    assert min(row["ratio"] for row in told) < 5


def test_when_requests_are_due_is_drawn_in_advance_and_keeps_so_many_under_way() -> None:
    load = bench._many(256, 0.05, random.Random(1))
    assert load.kind == "open loop, 256 a second"
    assert len(load.due) == load.requests == 5 * 256
    assert list(load.due) == sorted(load.due)
    assert load.due[-1] == pytest.approx(5.0, rel=0.1)
    assert load.settled == 1.0


class _Stalling(asyncio.Protocol):
    """Answers with one event that is due as the request comes; whoever comes first waits."""

    stall = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        wait, _Stalling.stall = _Stalling.stall, 0.0
        event = bench._HEAD + bench._chunk(monotonic()) + bench._LAST
        asyncio.get_running_loop().call_later(wait, self._transport.write, event)  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def _server() -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(_Stalling, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_slow_answer_delays_no_later_request_and_counts_from_when_it_was_due() -> None:
    times = bench._Times()
    _Stalling.stall = 1.5
    load = bench._Load("stalled", "open", 1, 0.0, 4, due=(0.0, 0.02, 0.04, 0.06), settled=-1.0)
    async with _server() as port:
        began = monotonic()
        await bench._clients(port, load, times)
        assert monotonic() - began >= 1.5
    assert max(times.first) >= 1.5
    assert sorted(times.first)[2] < max(times.first) - 0.2, "the others did not wait for the one that stalled"


async def test_a_request_that_begins_late_has_waited_since_it_was_due() -> None:
    times = bench._Times()
    load = bench._Load("late", "open", 1, 0.0, 2, due=(-0.5, -0.25), settled=-1.0)
    async with _server() as port:
        await bench._clients(port, load, times)
    assert min(times.first) >= 0.25
    assert max(times.first) >= 0.5
    assert len(times.event) == 2


async def test_events_that_come_together_count_each() -> None:
    caller = bench._Caller()
    caller.connection_made(_Nowhere())
    answer = caller.call(b"")
    late = monotonic() - 1.0
    whole = bench._HEAD + bench._chunk(late) + bench._chunk(late + 0.5) + bench._LAST
    for cut in (whole[:120], whole[120:]):
        caller.data_received(cut)
    _, events = await answer
    assert events[0] - events[1] == pytest.approx(0.5, abs=0.1)
    assert events[1] >= 0.5


class _Nowhere(asyncio.Transport):
    def write(self, data: object) -> None:
        pass
