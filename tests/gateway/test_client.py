"""The client on a real Redis: first document, changes, outages, the saved document, reports."""

import asyncio
import contextlib
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grid.bus import BusSettings, EmbeddedServer, LeaderLease, Publisher, Store, connect
from grid.gateway import Affinity, GridClient, RoutingError, Settings, Status
from grid.model import ConfigError, Picker, Reason
from grid.overlay import Document, ProviderSignal, SignalFrame
from tests.bus.waiting import eventually
from tests.gateway.conftest import Daemon
from tests.overlay.build import candidate, document
from tests.support.redis_server import RedisServer, RedisServers
from tests.support.until import PATIENCE, until

pytestmark = pytest.mark.real_server


def client(server: RedisServer, **options: Any) -> GridClient:
    return GridClient(network="acme", gateway="edge", bus_url=server.url, **{"rng": random.Random(1), **options})


def turns(*sites: str) -> Document:
    """A document that takes turns among ``sites``."""
    made = [
        candidate(f"{site}-llama", rank=rank, selection_group=0, traffic_weight=100) for rank, site in enumerate(sites)
    ]
    return document(*made, picker=Picker.ROUND_ROBIN)


def sites(client: GridClient, number: int) -> str:
    return " ".join(client.pick("llama").site for _ in range(number))


async def test_a_client_picks_from_what_is_published(server: RedisServer, daemon: Daemon) -> None:
    published = await daemon.publish(document())
    await daemon.beat()
    async with client(server) as found:
        pick = found.pick("llama")
        assert (pick.site, pick.cluster) == ("east", "east-llama")
        assert (pick.revision, pick.epoch, pick.version) == (published.revision, daemon.lease.epoch, 1)
        await until(lambda: found.state.status is Status.SYNCED)
        state = found.state
        assert (state.epoch, state.version, state.revision) == (daemon.lease.epoch, 1, published.revision)
        assert state.connected
        assert state.stale_since is None
    assert found.pick("llama").site == "east"


async def test_changes_arrive_and_restart_the_turns(server: RedisServer, daemon: Daemon) -> None:
    await daemon.publish(turns("a", "b", "c"))
    async with client(server) as found:
        assert sites(found, 4) == "a b c a"
        changed = await daemon.publish(turns("a", "b", "d"))
        await until(lambda: found.state.version == changed.position.version)
        assert sites(found, 4) == "a b d a"


async def test_a_new_leader_with_the_same_document_keeps_the_turns(server: RedisServer, daemon: Daemon) -> None:
    await daemon.publish(turns("a", "b", "c"))
    async with client(server) as found:
        assert sites(found, 2) == "a b"
        # The server was emptied: the next leader writes the same document at another place in the order.
        await daemon.bus.command("FLUSHALL")
        lease = LeaderLease(daemon.bus, "daemon-2")
        assert await lease.acquire()
        await Publisher(daemon.bus, "daemon-2").publish(turns("a", "b", "c"), lease, "test")
        await until(lambda: found.state.epoch == lease.epoch)
        assert sites(found, 2) == "c a"
        assert found.pick("llama").epoch == lease.epoch


async def test_without_a_document_there_is_a_reason(server: RedisServer) -> None:
    begun = time.monotonic()
    async with client(server, wait=0.05) as found:
        assert time.monotonic() - begun < 20
        state = found.state
        assert (state.status, state.epoch, state.version, state.revision) == (Status.NEVER, 0, 0, None)
        with pytest.raises(RoutingError) as caught:
            found.pick("llama")
        assert (caught.value.reason, caught.value.status) == (Reason.NO_OVERLAY, 503)
        assert caught.value.retry_after in range(3, 8)
        assert "gateway edge" in caught.value.message
        with pytest.raises(RoutingError) as caught:
            found.pick(" ")
        assert caught.value.status == 400


async def test_starting_twice_is_starting_once(server: RedisServer, daemon: Daemon) -> None:
    await daemon.publish(document())
    found = client(server)
    found.start()
    before = asyncio.all_tasks()
    found.start()
    assert asyncio.all_tasks() == before
    assert await found.first_document(PATIENCE)
    await found.close()
    await found.close()


async def test_a_document_that_comes_later_is_taken(server: RedisServer, daemon: Daemon) -> None:
    async with client(server, wait=0.01) as found:
        assert not await found.first_document(0.01)
        await daemon.publish(document())
        assert await found.first_document(PATIENCE)
        assert found.pick("llama").site == "east"


async def test_entering_that_is_cut_short_leaves_nothing_running(server: RedisServer) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), client(server, wait=30.0):
            pytest.fail("there is no document")
    assert asyncio.all_tasks() == before


async def test_leaving_is_prompt_whenever_it_comes(server: RedisServer, daemon: Daemon) -> None:
    await daemon.publish(document())
    rng = random.Random(4)
    for _ in range(25):
        async with asyncio.timeout(PATIENCE):
            async with client(server):
                await asyncio.sleep(rng.uniform(0, 0.004))


async def test_everything_away_is_an_outage_and_no_end(server: RedisServer, daemon: Daemon) -> None:
    await daemon.publish(document())
    async with client(server) as found:

        async def synced() -> bool:
            await daemon.beat(0.1)  # which counts for three intervals only
            return found.state.status is Status.SYNCED

        await eventually(synced)
        server.kill()
        await until(lambda: found.state.status is Status.STALE)
        state = found.state
        assert state.stale_since is not None
        assert abs(time.time() - state.stale_since) < 60
        assert state.problem is not None
        assert {found.pick("llama").site for _ in range(100)} == {"east"}
        assert found.state.version == 1


async def test_the_saved_document_serves_while_everything_is_away(
    server: RedisServer, daemon: Daemon, tmp_path: Path
) -> None:
    saved = tmp_path / "edge.json"
    published = await daemon.publish(turns("a", "b"))
    async with client(server, save_to=saved) as found:
        await until(saved.exists)
        await found.close()
    server.kill()
    async with client(server, save_to=str(saved)) as found:
        assert sites(found, 3) == "a b a"
        state = found.state
        assert (state.status, state.revision) == (Status.STALE, published.revision)
        assert not state.connected
        server.start()


async def test_documents_for_others_are_refused(server: RedisServer, daemon: Daemon) -> None:
    await daemon.publish(document())
    async with client(server, local_site="west", wait=0.3) as found:
        await until(lambda: found.state.problem is not None)
        state = found.state
        assert state.status is Status.NEVER
        assert state.problem is not None
        assert state.problem.code is Reason.SCOPE_MISMATCH


async def test_an_unsigned_document_is_refused_where_a_key_is_given(server: RedisServer, daemon: Daemon) -> None:
    pytest.importorskip("cryptography")
    await daemon.publish(document())
    async with client(server, key=bytes(32), wait=0.3) as found:
        await until(lambda: found.state.problem is not None)
        problem = found.state.problem
        assert problem is not None
        assert problem.code is Reason.SIGNATURE_MISSING


def test_what_is_no_key_or_address_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match="has the unknown scheme"):
        GridClient(network="acme", gateway="edge", bus_url="http://127.0.0.1")
    pytest.importorskip("cryptography")
    with pytest.raises(ConfigError, match="no PEM public key"):
        GridClient(network="acme", gateway="edge", bus_url="redis://127.0.0.1", key=b"secret")


async def test_login_and_tls_come_with_settings(servers: RedisServers, tmp_path: Path) -> None:
    server = servers.start("7", [("requirepass", "open-sesame")])
    password = tmp_path / "password"
    password.write_text("open-sesame\n")
    settings = BusSettings.from_url(server.url, password_file=password)
    bus = await connect(settings, "acme")
    lease = LeaderLease(bus, "daemon-1")
    assert await lease.acquire()
    await Publisher(bus, "daemon-1").publish(document(), lease, "test")
    await bus.aclose()
    async with GridClient(network="acme", gateway="edge", bus=settings) as found:
        assert found.pick("llama").site == "east"


async def test_the_embedded_server_is_found_by_the_state_directory(tmp_path: Path) -> None:
    embedded = EmbeddedServer("acme", tmp_path)
    await embedded.start()
    try:
        bus = await connect(BusSettings(), "acme", tmp_path)
        lease = LeaderLease(bus, "daemon-1")
        assert await lease.acquire()
        await Publisher(bus, "daemon-1").publish(document(), lease, "test")
        await bus.aclose()
        async with GridClient(network="acme", gateway="edge", state_dir=tmp_path) as found:
            assert found.pick("llama").site == "east"
    finally:
        await embedded.stop()


async def test_a_client_reports_what_it_uses_and_has_under_way(server: RedisServer, daemon: Daemon) -> None:
    published = await daemon.publish(document())
    async with client(server, instance="edge-1") as found:
        with found.route("llama") as pick, found.route("llama"):
            assert pick.site == "east"
            assert found.in_flight == {"east/east-llama": 2}
            store = Store(daemon.bus)

            async def report() -> Any:
                reports = await store.reports()
                return next((one for one in reports if one.in_flight), None)

            deadline = time.monotonic() + PATIENCE
            while (seen := await report()) is None:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
        assert (seen.gateway, seen.instance) == ("edge", "edge-1")
        assert (seen.epoch, seen.version, seen.revision) == (daemon.lease.epoch, 1, published.revision)
        assert seen.in_flight == {"east/east-llama": 2}
        assert seen.applied_at is not None
        assert abs(seen.at - time.time()) < 60
        assert found.in_flight == {}


def test_instances_of_a_gateway_have_names_of_their_own() -> None:
    one, other = (GridClient(network="acme", gateway="edge", bus_url="redis://127.0.0.1") for _ in range(2))
    assert one.instance != other.instance


async def test_threads_may_pick_while_documents_change(server: RedisServer, daemon: Daemon) -> None:
    """Each pick belongs whole to one document, and no two picks of one document share a turn."""
    documents = [turns("a", "b", "c"), turns("d", "e", "f", "g")] * 10
    await daemon.publish(documents[0])
    async with client(server) as found:
        stop = threading.Event()
        seen: list[list[tuple[int | None, str]]] = [[] for _ in range(4)]

        def call(mine: list[tuple[int | None, str]]) -> None:
            while not stop.is_set() and len(mine) < 200_000:
                pick = found.pick("llama")
                mine.append((pick.version, pick.site))

        threads = [threading.Thread(target=call, args=(mine,)) for mine in seen]
        for thread in threads:
            thread.start()
        try:
            for made in documents[1:]:
                revision = (await daemon.publish(made)).revision
                await until(lambda revision=revision: found.state.revision == revision)  # type: ignore[misc]
        finally:
            stop.set()
            for thread in threads:
                await asyncio.to_thread(thread.join, PATIENCE)
    counts: dict[int | None, Counter[str]] = {}
    for version, site in (one for mine in seen for one in mine):
        counts.setdefault(version, Counter())[site] += 1
    assert len(counts) > 1
    for number, by_site in counts.items():
        assert number is not None
        members = "abc" if number % 2 else "defg"
        assert set(by_site) <= set(members)
        assert max(by_site.values()) - min(by_site[site] for site in members) <= 1


async def test_frames_reach_the_estimates(server: RedisServer, daemon: Daemon) -> None:
    """The estimate starts from the newest frame, own requests count at once, and errors of it are heard."""
    made = [candidate(f"{site}-llama", rank=n, selection_group=0, traffic_weight=1) for n, site in enumerate("ab")]
    await daemon.publish(document(*made, picker=Picker.SATURATION))
    errors: list[float] = []
    async with client(server, on_estimate_error=lambda _, error: errors.append(error)) as found:

        async def told(load: float) -> None:
            signals = {
                site: ProviderSignal(
                    site,
                    f"{site}-llama",
                    held=10 * load,
                    capacity=10,
                    load=load,
                    saturation=load,
                    age_s=0.0,
                    bound_s=60.0,
                )
                for site, load in (("a", load), ("b", 0.5))
            }
            daemon.sequence += 1
            frame = SignalFrame("acme", daemon.lease.epoch, daemon.sequence, 1.0, 0.0, {}, signals)
            await daemon.publisher.send_frame(frame, daemon.lease)

        await told(0.2)
        await until(lambda: found.targets[0].known)
        assert found.pick("llama").site == "a"
        with contextlib.ExitStack() as held:
            for _ in range(4):
                held.enter_context(found.route("llama"))
            assert sum(found.in_flight.values()) == 4
            assert found.in_flight["a/a-llama"] >= 3
        await asyncio.sleep(0.15)
        await told(0.9)
        await until(lambda: bool(errors))
        assert found.pick("llama").site == "b"
    assert max(errors) == pytest.approx(0.7, abs=0.11)


async def test_first_bytes_are_reported_as_means(server: RedisServer, daemon: Daemon) -> None:
    await daemon.publish(document())
    await daemon.beat(30.0)  # or the link would count as dead just when a report is due
    async with client(server, instance="edge-1") as found:
        decision = found.pick("llama")
        found.first_byte(decision, 0.2)
        found.first_byte(decision, 0.4)
        store = Store(daemon.bus)
        deadline = time.monotonic() + PATIENCE
        while not (seen := [one.first_byte_s for one in await store.reports() if one.first_byte_s]):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert seen == [{"east/east-llama": pytest.approx(0.3)}]


def test_hashed_sessions_are_keyed_by_the_network_where_no_secret_is_given() -> None:
    def secret(**affinity: Any) -> bytes:
        settings = Settings(affinity=Affinity(**affinity))
        return GridClient(network="acme", gateway="e", bus_url="redis://127.0.0.1", settings=settings)._secret

    assert secret(hashed=True) == secret(hashed=True) == b"acme"
    assert secret(hashed=True, secret=b"ours") == b"ours"
    assert secret() != secret()


async def test_a_pick_costs_little(server: RedisServer, daemon: Daemon) -> None:
    """A pick against the cheapest thing a gateway could do instead: one draw and one look-up, in the same run."""
    if sys.gettrace() is not None:
        pytest.skip("whoever traces every step makes steps dear")
    made = [
        candidate(f"s{n}-llama", rank=n, selection_group=0, traffic_weight=1 + n % 1000, site=f"s{n}")
        for n in range(1000)
    ]
    await daemon.publish(document(*made, picker=Picker.WEIGHTED_RANDOM))
    async with client(server) as found:
        bits, table = random.Random(1).getrandbits, list(range(1024))

        def measure(work: Any) -> float:
            begun = time.thread_time()
            for _ in range(20_000):
                work()
            return time.thread_time() - begun

        ours = min(measure(lambda: found.pick("llama")) for _ in range(5))
        least = min(measure(lambda: table[bits(10)]) for _ in range(5))
        assert ours < 20 * least
