"""The client for threads: one lock around choosing and counting, a loop of its own."""

import asyncio
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grid.gateway import RoutingError, Status, SyncGridClient
from grid.model import ConfigError, Picker, Reason
from grid.overlay import ProviderSignal, SignalFrame
from tests.gateway.conftest import Daemon
from tests.overlay.build import candidate, document
from tests.support.redis_server import RedisServer
from tests.support.until import PATIENCE, until

pytestmark = pytest.mark.real_server


def client(server: RedisServer, **options: Any) -> SyncGridClient:
    return SyncGridClient(network="acme", gateway="edge", bus_url=server.url, **{"rng": random.Random(1), **options})


def sites(picker: Picker = Picker.SATURATION) -> Any:
    return document(
        *(candidate(f"{site}-llama", rank=n, selection_group=0, traffic_weight=100) for n, site in enumerate("abc")),
        picker=picker,
    )


def in_threads(number: int, work: Any) -> None:
    failures: list[BaseException] = []

    def run(n: int) -> None:
        try:
            work(n)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=run, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


@pytest.mark.may_block
async def test_eight_threads_choose_and_count_in_one_step(server: RedisServer, daemon: Daemon) -> None:
    """At every moment the counts that a thread chooses on are whole, and they end at nothing."""
    await daemon.publish(sites())
    found = client(server)
    found.start()
    signals = {
        site: ProviderSignal(
            site, f"{site}-llama", held=0, capacity=10_000, load=0.0, saturation=0.0, age_s=0.0, bound_s=99.0
        )
        for site in "abc"
    }
    await daemon.publisher.send_frame(SignalFrame("acme", daemon.lease.epoch, 1, 30.0, 0.0, {}, signals), daemon.lease)
    await until(lambda: all(target.known for target in found._client.targets))
    start, all_in = threading.Barrier(8), threading.Barrier(8)
    peak: list[dict[str, int]] = []

    def work(n: int) -> None:
        start.wait()
        held = [found.route("llama") for _ in range(60)]
        for route in held:
            route.__enter__()
        if all_in.wait() == 0:
            peak.append(found.in_flight)
        all_in.wait()
        for route in held:
            route.__exit__(None, None, None)
        for _ in range(2000):
            with found.route("llama"):
                pass

    await asyncio.to_thread(lambda: in_threads(8, work))
    counts = sorted(peak[0].values())
    assert sum(counts) == 480
    assert counts[-1] - counts[0] <= 8, "nobody chose on a count that another was about to change"
    assert found.in_flight == {}
    await asyncio.to_thread(found.close)


@pytest.mark.may_block
async def test_turns_are_exact_across_threads_while_documents_change(server: RedisServer, daemon: Daemon) -> None:
    await daemon.publish(sites(Picker.ROUND_ROBIN))
    found = client(server)
    await asyncio.to_thread(found.start)
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def work(n: int) -> None:
        mine = Counter(found.pick("llama").site for _ in range(900))
        with lock:
            seen.update(mine)

    await asyncio.to_thread(lambda: in_threads(8, work))
    assert seen == {"a": 2400, "b": 2400, "c": 2400}
    await daemon.publish(document())
    await until(lambda: found.state.version == 2)
    assert found.pick("llama").site == "east"
    await asyncio.to_thread(found.close)
    assert found.pick("llama").site == "east", "the last document stays in use"


@pytest.mark.may_block
async def test_a_program_without_a_loop(server: RedisServer, daemon: Daemon) -> None:
    await daemon.publish(sites())
    told: list[Any] = []

    def program() -> None:
        with client(server) as found, found.route("llama") as decision:
            found.first_byte(decision, 0.1)
            found.answered(decision, failed=False)
            found.connect_failed(decision)
            other = found.pick("llama", tried=[decision])
            told.extend([decision.site, other.site, other.attempt, found.in_flight, found.first_document(PATIENCE)])
            told.append(found.state.status in Status)
            with pytest.raises(RoutingError):
                found.pick("gpt")

    await asyncio.to_thread(program)
    site, other, attempt, in_flight, there, known = told
    assert site != other
    assert (attempt, in_flight, there, known) == (2, {f"{site}/{site}-llama": 1}, True, True)
    assert [one for one in threading.enumerate() if one.name.startswith("grid-client")] == []


@pytest.mark.may_block
async def test_it_serves_a_saved_document_with_the_bus_gone_from_the_start(
    server: RedisServer, daemon: Daemon, tmp_path: Path
) -> None:
    saved = tmp_path / "edge.json"
    await daemon.publish(sites())

    def save() -> None:
        with client(server, save_to=saved):
            deadline = time.monotonic() + PATIENCE
            while not saved.exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)

    await asyncio.to_thread(save)
    server.kill()

    def serve() -> None:
        begun = time.monotonic()
        with client(server, save_to=saved) as found:
            assert time.monotonic() - begun < 20
            assert found.pick("llama").site in "abc"
            assert found.state.status is Status.STALE

    await asyncio.to_thread(serve)
    server.start()


@pytest.mark.may_block
async def test_without_a_document_it_waits_as_long_as_asked(server: RedisServer) -> None:
    def program() -> None:
        begun = time.monotonic()
        with client(server, wait=0.05) as found:
            assert time.monotonic() - begun < 20
            assert found.state.status is Status.NEVER
            found.start()
            with pytest.raises(RoutingError) as caught:
                found.pick("llama")
            assert caught.value.reason is Reason.NO_OVERLAY

    await asyncio.to_thread(program)


def test_what_is_not_started_says_so() -> None:
    found = SyncGridClient(network="acme", gateway="edge", bus_url="redis://127.0.0.1")
    found.close()
    with pytest.raises(RuntimeError, match="not started"):
        found.first_document(0.1)
    with pytest.raises(ConfigError):
        SyncGridClient(network="acme", gateway="edge", bus_url="http://127.0.0.1")


def test_a_start_that_fails_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SyncGridClient(network="acme", gateway="edge", bus_url="redis://127.0.0.1")

    def fail() -> None:
        raise OSError("no")

    monkeypatch.setattr(found._client, "start", fail)
    with pytest.raises(OSError, match="no"):
        found.start()
    assert [one for one in threading.enumerate() if one.name.startswith("grid-client")] == []
