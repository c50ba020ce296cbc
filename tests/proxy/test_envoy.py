"""A real Envoy on the endpoints that are delivered: shares, failover, draining, live changes, what it runs."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from grid.bus import Position
from grid.config import parse
from grid.model import DeliveryError, Reason
from grid.overlay import Document
from grid.proxy import eds
from grid.proxy.delivery import Held, OutFile
from grid.proxy.envoy_admin import EnvoyAdmin, Running
from grid.proxy.forms import FormName
from grid.proxy.sync import Sync, SyncOptions
from tests.overlay.build import accepted
from tests.proxy.conftest import Daemon
from tests.proxy.envoy import Client, Envoy, Upstream, running, upstreams
from tests.proxy.words import EXISTING, MODEL, NONE, SERVICE, grouped, position, reached, write_config
from tests.support.http_server import Answer, Request, serve
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.until import PATIENCE, until

pytestmark = pytest.mark.real_server

EJECT: dict[str, Any] = {
    "outlier_detection": {
        "consecutive_5xx": 1,
        "consecutive_gateway_failure": 1,
        "enforcing_consecutive_gateway_failure": 100,
        "base_ejection_time": "3s",
        "interval": "0.1s",
        "max_ejection_percent": 100,
    }
}


class World:
    """Upstreams ``east``, ``west``, ``north``, a file of endpoints, and an Envoy that reads it."""

    def __init__(self, envoy: Envoy, file: Path, sites: list[Upstream]) -> None:
        self.envoy = envoy
        self.sites = {one.name: one for one in sites}
        self.version = 0
        self._file = OutFile(file, lambda data: found.held if (found := eds.read(data, "acme", "edge")) else None)
        self._client = Client(envoy.listener)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def write(
        self, document: Document, endpoints: Mapping[eds.Place, eds.Endpoint] | None = None
    ) -> eds.Assignments:
        """Put the endpoints of a document into the file, as its next version."""
        self.version += 1
        known = endpoints or reached(**{name: one.port for name, one in self.sites.items()})
        made = eds.assign(accepted(document.body), position(self.version), document.revision, known)
        await self._file.put(made.data, Held(position(self.version), document.revision))
        return made

    async def applied(self) -> None:
        """Wait until Envoy runs what was written last."""
        wanted = f"/{position(self.version)}/"
        await until(lambda: wanted in self.envoy.stats("version_text")[f"cluster.{MODEL}.version_text"])

    async def deliver(self, document: Document) -> None:
        await self.write(document)
        await self.applied()

    async def ask(self, client: Client | None = None) -> str:
        """Which site answers the next request; the status where it is no good one."""
        status, _, body = await (client or self._client).ask({"x-model": MODEL})
        return body.decode() if status == 200 else str(status)

    async def many(self, number: int) -> Counter[str]:
        return Counter([await self.ask() for _ in range(number)])

    async def until_from(self, site: str) -> None:
        """Ask until ``site`` answers."""
        async with asyncio.timeout(PATIENCE):
            while (answered := await self.ask()) != site:
                assert answered in {*self.sites, "503"}


def assigned(document: Document, version: int, ports: Mapping[str, int]) -> eds.Assignments:
    return eds.assign(accepted(document.body), position(version), document.revision, reached(**ports))


@contextlib.asynccontextmanager
async def world(
    home: Path, first: Document, *, hosts: Mapping[str, tuple[str, ...]] | None = None, **cluster: Any
) -> AsyncIterator[World]:
    file = home / "eds" / "eds.json"
    async with upstreams("east", "west", "north", **(hosts or {})) as sites:
        file.parent.mkdir()
        made = assigned(first, 1, {one.name: one.port for one in sites})
        file.write_bytes(made.data)
        with running(file, {MODEL: SERVICE}, **cluster) as envoy:
            found = World(envoy, file, sites)
            found.version = 1
            try:
                yield found
            finally:
                await found.aclose()


async def test_shares_follow_the_weights(tmp_path: Path) -> None:
    first = grouped(("east", 0, 500), ("west", 0, 300), ("north", 0, 200))
    async with world(tmp_path, first) as found:
        shares = await found.many(2000)
    for site, wanted in (("east", 0.5), ("west", 0.3), ("north", 0.2)):
        assert shares[site] / 2000 == pytest.approx(wanted, abs=0.02), shares


async def test_a_change_is_live_soon_and_no_request_fails(tmp_path: Path) -> None:
    async with world(tmp_path, grouped(("east", 0, 500), ("west", 0, 500))) as found:
        seen: list[tuple[float, str]] = []
        ending = asyncio.Event()

        async def load() -> None:
            client = Client(found.envoy.listener)
            while not ending.is_set() and len(seen) < 50_000:
                begun = time.monotonic()
                seen.append((begun, await found.ask(client)))
            await client.aclose()

        workers = [asyncio.create_task(load()) for _ in range(4)]
        await until(lambda: len(seen) > 200)
        changed = time.monotonic()
        await found.write(grouped(("north", 0, 100), ("east", 0, 900), ("west", 1, 1)))
        await found.applied()
        live = time.monotonic()
        assert live - changed < 10
        await until(lambda: seen[-1][0] > live + 1.2)
        ending.set()
        await asyncio.gather(*workers)
        assert {site for _, site in seen} == {"east", "west", "north"}
        assert Counter(site for begun, site in seen if begun < changed).keys() == {"east", "west"}
        assert "west" not in {site for begun, site in seen if begun > live + 1}
        shares = await found.many(1000)
    assert shares["east"] / 1000 == pytest.approx(0.9, abs=0.02), shares
    assert shares["north"] / 1000 == pytest.approx(0.1, abs=0.02), shares


async def test_the_next_group_takes_over_and_gives_back(tmp_path: Path) -> None:
    async with world(tmp_path, grouped(("east", 0, 100), ("west", 1, 100)), **EJECT) as found:
        assert await found.many(20) == {"east": 20}
        await found.sites["east"].stop()
        await found.until_from("west")
        assert await found.ask() == "west"
        await found.sites["east"].start()
        await found.until_from("east")


async def test_draining_takes_no_new_work_and_ends_what_it_has(tmp_path: Path) -> None:
    async with world(tmp_path, grouped(("east", 0, 100))) as found:
        east = found.sites["east"]
        east.gate.clear()
        client = Client(found.envoy.listener)
        under_way = asyncio.create_task(found.ask(client))
        await until(lambda: east.served == 1)
        await found.deliver(grouped(("west", 0, 100), ("east", 1, 100, EXISTING)))
        assert await found.many(20) == {"west": 20}
        east.gate.set()
        assert await under_way == "east"
        await client.aclose()

        # Nobody left for new work: it is refused, not sent to who is draining.
        await found.deliver(grouped(("east", 0, 100, EXISTING), ("west", 1, 100, NONE)))
        assert await found.many(5) == {"503": 5}
        assert east.served == 1
        await found.deliver(grouped(("east", 0, 100, NONE)))
        assert await found.many(5) == {"503": 5}
        await found.deliver(grouped(("east", 0, 100)))
        assert await found.many(5) == {"east": 5}


async def test_the_addresses_of_a_provider_share_its_weight(tmp_path: Path) -> None:
    hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    async with world(tmp_path, grouped(("east", 0, 100)), hosts={"west": hosts}) as found:
        ports = {name: one.port for name, one in found.sites.items()}
        endpoints = {**reached(**ports), ("west", "west-llama"): eds.Endpoint("w.test", ports["west"], addresses=hosts)}
        await found.write(grouped(("east", 0, 100), ("west", 0, 200)), endpoints)
        await found.applied()
        shares = await found.many(900)
    assert shares["west"] / 900 == pytest.approx(2 / 3, abs=0.02), shares


class TestAdmin:
    async def test_the_version_that_runs_is_read_back_with_what_is_in_flight(self, tmp_path: Path) -> None:
        async with world(tmp_path, grouped(("east", 0, 100), ("west", 0, 100))) as found:
            made = await found.write(grouped(("east", 0, 50), ("west", 0, 50)))
            await found.applied()
            for one in found.sites.values():
                one.gate.clear()
            clients = [Client(found.envoy.listener) for _ in range(4)]
            asking = [asyncio.create_task(found.ask(client)) for client in clients]
            await until(lambda: sum(one.served for one in found.sites.values()) == 4)
            admin = EnvoyAdmin(found.envoy.admin, "acme", "edge")
            running_now = await admin.read(made.places)
            of_another = EnvoyAdmin(found.envoy.admin, "acme", "other")
            other = await of_another.read(made.places)
            await admin.aclose()
            await of_another.aclose()
            for one in found.sites.values():
                one.gate.set()
            assert Counter(await asyncio.gather(*asking)) == {"east": 2, "west": 2}
            for client in clients:
                await client.aclose()
        assert running_now.versions == {MODEL: made.version}
        assert running_now.oldest == made.version
        assert running_now.in_flight == {"east/east-llama": 2, "west/west-llama": 2}
        assert running_now.rejected == 0
        assert other == Running()

    async def test_what_it_refuses_it_does_not_run(self, tmp_path: Path) -> None:
        async with world(tmp_path, grouped(("east", 0, 100))) as found:
            made = assigned(grouped(("east", 0, 7)), 2, {"east": found.sites["east"].port})
            bad = made.data.replace(b'"load_balancing_weight": 7', b'"load_balancing_weight": 0')
            assert bad != made.data
            await found._file.put(bad, Held(position(2), made.version.revision))
            admin = EnvoyAdmin(found.envoy.admin, "acme", "edge")
            await until(lambda: found.envoy.stats("update_rejected")[f"cluster.{MODEL}.update_rejected"] == "1")
            now = await admin.read(made.places)
            await admin.aclose()
            assert now.rejected == 1
            assert now.oldest is not None
            assert now.oldest.position == position(1)
            assert await found.many(3) == {"east": 3}

    @pytest.mark.parametrize(
        "answer",
        [
            Answer(500),
            Answer(200, b"not json"),
            Answer(200, b"[]"),
            Answer(200, b'{"stats": [{"name": 3}]}'),
            None,
            b"SSH-2.0-OpenSSH_9.2\r\n",
        ],
    )
    async def test_an_answer_that_is_none(self, answer: Answer | bytes | None) -> None:
        async def say(_: Request) -> Answer | bytes | None:
            return answer

        async with serve(say) as url:
            await self.fails(EnvoyAdmin(url, "acme", "edge"))

    async def test_no_answer_in_time_and_nobody_there(self) -> None:
        async def wait(_: Request) -> None:
            await asyncio.sleep(30)

        async with serve(wait) as url:
            begun = time.monotonic()
            await self.fails(EnvoyAdmin(url, "acme", "edge", timeout=0.1))
            assert time.monotonic() - begun < 15
        await self.fails(EnvoyAdmin(f"http://127.0.0.1:{free_port()}", "acme", "edge"))

    @staticmethod
    async def fails(admin: EnvoyAdmin) -> DeliveryError:
        with pytest.raises(DeliveryError) as caught:
            await admin.read({})
        await admin.aclose()
        assert caught.value.reason is Reason.ENVOY_UNREACHABLE
        assert admin.url in caught.value.message
        return caught.value

    async def test_an_endless_answer_is_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("grid.proxy.envoy_admin.LARGEST", 1000)

        async def much(_: Request) -> Answer:
            return Answer(200, b"x" * 5000)

        async with serve(much) as url:
            error = await self.fails(EnvoyAdmin(url, "acme", "edge"))
        assert "more than 1000 bytes" in error.message


async def test_from_the_bus_to_a_running_envoy_and_back(
    tmp_path: Path, daemon: Daemon, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: published, delivered, applied soon, and reported as what Envoy runs."""
    monkeypatch.setattr("grid.bus.subscriber.REPORT_INTERVAL", 0.1)
    out = tmp_path / "eds" / "eds.json"
    async with upstreams("east", "west") as (east, west):
        config = write_config(
            tmp_path / "grid.yaml", server.url, {one.name: f"http://localhost:{one.port}" for one in (east, west)}
        )
        first = await daemon.publish(grouped(("east", 0, 100), ("west", 1, 100)))
        options = SyncOptions(config=config, gateway="edge", out=out, form=FormName.ENVOY_EDS)
        await Sync(parse(config.read_text()), options).once(PATIENCE)
        with running(out, {MODEL: SERVICE}) as envoy:
            found = World(envoy, out, [east, west])
            following = SyncOptions(
                config=config, gateway="edge", out=out, form=FormName.ENVOY_EDS, envoy_admin=envoy.admin
            )
            sync = Sync(parse(config.read_text()), following)
            task = asyncio.create_task(sync.run())
            try:
                assert await found.many(5) == {"east": 5}
                await _reported(daemon, first.position)
                begun = time.monotonic()
                second = await daemon.publish(grouped(("west", 0, 100), ("east", 1, 100)))
                while await found.ask() != "west":
                    assert time.monotonic() - begun < 10
                report = await _reported(daemon, second.position)
                assert report.revision == second.revision
                assert report.applied_at is not None
                await until(lambda: sync.state == "ready")
                assert sync._facts().running is not None
            finally:
                sync.stop()
                await asyncio.wait_for(task, PATIENCE)
                await found.aclose()


async def _reported(daemon: Daemon, wanted: Position) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            reports = await daemon.publisher.reports()
            if [one.position for one in reports] == [wanted]:
                return reports[0]
            await asyncio.sleep(0.02)


async def test_an_envoy_that_reads_another_file_is_said(
    tmp_path: Path, daemon: Daemon, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grid.bus.subscriber.REPORT_INTERVAL", 0.1)
    monkeypatch.setattr("grid.proxy.applied.GRACE", 0.3)
    await daemon.publish(grouped(("east", 0, 100)))
    config = write_config(tmp_path / "grid.yaml", server.url, {"east": "http://127.0.0.1:1"})
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text('{"version_info": "v1", "resources": []}')
    out = tmp_path / "eds.json"
    with running(elsewhere, {MODEL: SERVICE}) as envoy:
        options = SyncOptions(config=config, gateway="edge", out=out, form=FormName.ENVOY_EDS, envoy_admin=envoy.admin)
        sync = Sync(parse(config.read_text()), options)
        task = asyncio.create_task(sync.run())
        try:
            await until(lambda: (found := sync._facts().envoy) is not None and found.code is Reason.NOT_APPLIED)
            assert sync.state == "ready_degraded"
            assert "no cluster of the Envoy" in sync._facts().envoy.detail  # type: ignore[union-attr]
            report = await _reported(daemon, Position(0, 0))
            assert report.revision == ""
        finally:
            sync.stop()
            await asyncio.wait_for(task, PATIENCE)
