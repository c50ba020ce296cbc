"""The whole of a delivery on a real Redis: what comes, what is refused, what stays, and what the status says."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from grid.bus import LeaderLease, Publisher, Store
from grid.config import parse
from grid.model import BusError, ConfigError, DeliveryError, OverlayError, Picker, Reason
from grid.overlay import verify
from grid.proxy import sync as module
from grid.proxy.addresses import Addresses
from grid.proxy.forms import FormName
from grid.proxy.sync import Sync, SyncOptions
from tests.overlay.build import document
from tests.proxy.conftest import Daemon
from tests.proxy.words import EXISTING, NONE, SERVICE, grouped, write_config
from tests.support.redis_server import RedisServer
from tests.support.until import PATIENCE, until

pytestmark = pytest.mark.real_server

ABSENT = "redis://127.0.0.1:1"
URLS: dict[str, str | None] = {"east": "http://127.0.0.1:1001", "west": "http://127.0.0.1:1002"}


class Place:
    """The files of one delivery, looked at from outside."""

    def __init__(self, home: Path, bus: str) -> None:
        self.home = home
        self.out = home / "out" / "routing.json"
        self.status_file = home / "out" / "routing.json.status.json"
        self.config = write_config(home / "grid.yaml", bus, URLS)

    def sync(self, **options: Any) -> Sync:
        addresses = options.pop("addresses", None)
        made = SyncOptions(**{"config": self.config, "gateway": "edge", "out": self.out, **options})
        return Sync(parse(self.config.read_text()), made, addresses=addresses)

    def eds(self, **options: Any) -> Sync:
        return self.sync(form=FormName.ENVOY_EDS, **options)

    @property
    def version(self) -> int | None:
        """Version of the envelope in the file; None where there is no good one."""
        found = verify(self.out.read_bytes()).envelope if self.out.exists() else None
        return None if found is None or found.publication is None else found.publication.version

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.status_file.read_bytes())
        return found

    @property
    def ports(self) -> dict[int, str]:
        """Ports of the endpoints in the file, with their health."""
        resource = next(one for one in json.loads(self.out.read_bytes())["resources"] if one["cluster_name"] == SERVICE)
        return {
            one["endpoint"]["address"]["socket_address"]["port_value"]: one.get("health_status", "UNKNOWN")
            for level in resource["endpoints"]
            for one in level["lb_endpoints"]
        }

    def publishes(self, version: int) -> bool:
        return self.version == version


@pytest.fixture
def place(tmp_path: Path, server: RedisServer) -> Place:
    return Place(tmp_path, server.url)


@contextlib.asynccontextmanager
async def running(sync: Sync) -> AsyncIterator[Sync]:
    """Run it while the block lasts; it has to end when told."""
    task = asyncio.create_task(sync.run())
    try:
        yield sync
    finally:
        sync.stop()
        async with asyncio.timeout(PATIENCE):
            await task


class TestEnvelopes:
    async def test_the_bytes_as_published_and_what_the_status_says(self, place: Place, daemon: Daemon) -> None:
        published = await daemon.publish(grouped(("east", 0, 100)))
        async with running(place.sync()):
            await until(lambda: place.version == 1)
            stored = await Store(daemon.bus).read("edge")
            assert stored is not None
            assert place.out.read_bytes() == stored.document
            await until(lambda: place.status["state"] == "ready")
            status = place.status
        assert status["degraded_reason"] is status["degraded_detail"] is None
        for word in ("observed", "written"):
            assert status[f"{word}_overlay_revision"] == published.revision
            assert (status[f"{word}_epoch"], status[f"{word}_version"]) == published.position
            assert status[f"last_{word}_at"].startswith("20")
        assert (status["network"], status["gateway"], status["format"]) == ("acme", "edge", "envelope")
        assert status["file"] == str(place.out)
        assert status["pid"] == os.getpid()
        assert status["bus_connected"] is True
        assert status["envoy"] is None

    async def test_changes_follow_and_each_is_the_newest(self, place: Place, daemon: Daemon) -> None:
        await daemon.publish(grouped(("east", 0, 100)))
        async with running(place.sync()) as sync:
            await until(lambda: place.version == 1)
            for weight in range(1, 30):
                await daemon.publish(grouped(("east", 0, weight)))
            await until(lambda: place.version == 30)
            assert sync.state == "ready"

    async def test_the_same_document_in_a_new_term_is_written_too(self, place: Place, daemon: Daemon) -> None:
        await daemon.publish(grouped(("east", 0, 100)))
        async with running(place.sync()):
            await until(lambda: place.version == 1)
            await daemon.bus.command("FLUSHALL")
            lease = LeaderLease(daemon.bus, "daemon-2")
            assert await lease.acquire()
            published = await Publisher(daemon.bus, "daemon-2").publish(grouped(("east", 0, 100)), lease, "test")
            await until(lambda: place.status["written_epoch"] == published.epoch)
        found = verify(place.out.read_bytes()).envelope
        assert found is not None
        assert found.position == published.position

    @pytest.mark.parametrize(
        ("members", "reason"),
        [
            ({"namespace": "other"}, Reason.SCOPE_MISMATCH),
            ({"site": "west"}, Reason.SCOPE_MISMATCH),
        ],
    )
    async def test_a_document_for_another_is_refused(
        self, place: Place, daemon: Daemon, server: RedisServer, members: dict[str, str], reason: Reason
    ) -> None:
        write_config(place.config, server.url, URLS, **members)
        await daemon.publish(grouped(("east", 0, 100)))
        async with running(place.sync()) as sync:
            await until(lambda: place.status_file.exists() and place.status["degraded_reason"] == reason)
            assert place.status["state"] == sync.state == "cold"
            assert "scope." in place.status["degraded_detail"]
            assert not place.out.exists()

    async def test_a_refused_change_keeps_the_file_and_says_why_until_a_good_one_comes(
        self, place: Place, daemon: Daemon
    ) -> None:
        published = await daemon.publish(grouped(("east", 0, 100)))
        async with running(place.sync()):
            await until(lambda: place.status_file.exists() and place.status["state"] == "ready")
            before = place.out.read_bytes()
            bad = before.replace(b'"version":1', b'"version":2').replace(b"east-llama", b"evil-llama")
            await self.plant(daemon, bad, published.epoch, 2, published.revision)
            await until(lambda: place.status["degraded_reason"] == Reason.DIGEST_MISMATCH)
            status = place.status
            assert status["state"] == "ready_degraded"
            assert status["written_version"] == status["observed_version"] == 1
            assert place.out.read_bytes() == before
            daemon.publisher.positions.clear()
            await daemon.publisher.publish(grouped(("east", 0, 1)), daemon.lease, "test")
            await until(lambda: (place.version or 0) > 2)
            await daemon.beat()
            await until(lambda: place.status["state"] == "ready")

    @staticmethod
    async def plant(daemon: Daemon, data: bytes, epoch: int, version: int, revision: str) -> None:
        """Put something on the bus past the publisher, and have it looked at."""
        fields = {"epoch": epoch, "version": version, "revision": revision, "document": data}
        await daemon.bus.command("HSET", daemon.bus.keys.overlay("edge"), *(x for item in fields.items() for x in item))
        message = orjson.dumps({"gateway": "edge", "epoch": epoch, "version": version, "revision": revision})
        await daemon.bus.command(daemon.bus.publish_command, daemon.bus.keys.overlays, message)

    async def test_a_bad_message_is_forgotten_once_the_leader_names_what_is_held(
        self, place: Place, daemon: Daemon
    ) -> None:
        await daemon.publish(grouped(("east", 0, 100)))
        async with running(place.sync()):
            await until(lambda: place.status_file.exists() and place.status["state"] == "ready")
            await daemon.bus.command(daemon.bus.publish_command, daemon.bus.keys.overlays, b'{"gateway":"edge","x"}')
            await until(lambda: place.status["degraded_reason"] == Reason.MALFORMED_STRUCTURE or place.status["state"])
            await daemon.beat()
            await until(lambda: place.status["state"] == "ready")

    async def test_what_is_gone_from_the_disk_is_put_back(
        self, place: Place, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "CHECK", 0.05)
        await daemon.publish(grouped(("east", 0, 100)))
        async with running(place.sync()):
            await until(lambda: place.version == 1)
            place.out.unlink()
            await until(lambda: place.version == 1)
            place.out.unlink()
            place.out.mkdir()
            await until(lambda: place.status["degraded_reason"] == Reason.FILE_UNWRITABLE)
            place.out.rmdir()
            await until(lambda: place.version == 1)

    async def test_what_cannot_be_written_is_tried_again(
        self, place: Place, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "RETRY", 0.05)
        monkeypatch.setattr(module, "LOOK", 0.02)
        status = place.home / "status.json"
        async with running(place.sync(status=status)):
            await until(status.exists)
            place.out.mkdir(parents=True)
            await daemon.publish(grouped(("east", 0, 100)))
            await until(lambda: json.loads(status.read_bytes())["degraded_reason"] == Reason.FILE_UNWRITABLE)
            assert json.loads(status.read_bytes())["state"] == "cold"
            place.out.rmdir()
            await until(lambda: place.version == 1)
            await until(lambda: json.loads(status.read_bytes())["state"] == "ready")

    async def test_the_daemon_sees_what_is_in_the_file(
        self, place: Place, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("grid.bus.subscriber.REPORT_INTERVAL", 0.1)
        published = await daemon.publish(grouped(("east", 0, 100)))
        async with running(place.sync()):
            await until(lambda: place.version == 1)
            reports = await self.reports(daemon, published.revision)
        assert [(one.gateway, one.position, one.revision) for one in reports] == [
            ("edge", published.position, published.revision)
        ]
        assert reports[0].applied_at is not None

    @staticmethod
    async def reports(daemon: Daemon, revision: str) -> list[Any]:
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await daemon.publisher.reports()
                if found and found[0].revision == revision:
                    return list(found)
                await asyncio.sleep(0.02)


class TestOutages:
    async def test_the_last_good_one_of_an_earlier_run_stays_while_the_bus_is_away(
        self, place: Place, daemon: Daemon, server: RedisServer
    ) -> None:
        await daemon.publish(grouped(("east", 0, 100)))
        await place.sync().once(PATIENCE)
        before = place.out.read_bytes()
        server.kill()
        async with running(place.sync()) as sync:
            await until(lambda: place.status["degraded_reason"] == Reason.BUS_UNREACHABLE)
            assert place.status["state"] == sync.state == "ready_degraded"
            assert place.status["written_version"] == 1
            assert place.status["observed_version"] is None
            assert place.out.read_bytes() == before

    async def test_a_bus_that_comes_back_with_an_older_document_changes_nothing(
        self, place: Place, daemon: Daemon
    ) -> None:
        old = await daemon.publish(grouped(("east", 0, 1)))
        stored = await Store(daemon.bus).read("edge")
        assert stored is not None
        await daemon.publish(grouped(("east", 0, 2)))
        await place.sync().once(PATIENCE)
        newest = place.out.read_bytes()
        await TestEnvelopes.plant(daemon, stored.document, old.epoch, old.version, old.revision)
        async with running(place.sync()):
            await until(lambda: place.status["degraded_reason"] == Reason.FILE_NEWER)
            assert place.status["state"] == "ready_degraded"
            assert place.out.read_bytes() == newest
            assert (place.status["written_version"], place.status["observed_version"]) == (2, 1)
        assert "still holds" not in await place.sync().once(PATIENCE)
        assert place.out.read_bytes() == newest

    async def test_one_place_with_another_revision_is_a_clash(self, place: Place, daemon: Daemon) -> None:
        first = await daemon.publish(grouped(("east", 0, 1)))
        await place.sync().once(PATIENCE)
        before = place.out.read_bytes()
        other = grouped(("east", 0, 2))
        data = other.published(first.version, first.epoch, leader="x", published_at="2026-01-02T00:00:00Z")
        await TestEnvelopes.plant(daemon, data, first.epoch, first.version, other.revision)
        with pytest.raises(DeliveryError) as caught:
            await place.sync().once(PATIENCE)
        assert caught.value.reason is Reason.VERSION_CLASH
        assert place.out.read_bytes() == before

    async def test_no_daemon_is_said_and_over_when_one_speaks(self, place: Place, daemon: Daemon) -> None:
        await daemon.publisher.publish(grouped(("east", 0, 1)), daemon.lease, "test")
        async with running(place.sync()):
            await until(
                lambda: place.status_file.exists() and place.status["degraded_reason"] == Reason.HEARTBEAT_MISSED
            )
            assert place.status["state"] == "ready_degraded"
            assert place.version == 1
            await daemon.beat()
            await until(lambda: place.status["state"] == "ready")

    async def test_no_document_on_the_bus_is_said(self, place: Place, daemon: Daemon) -> None:
        await daemon.beat()
        async with running(place.sync()):
            await until(lambda: place.status_file.exists() and place.status["degraded_reason"] == Reason.NO_OVERLAY)
            assert place.status["state"] == "cold"


class TestOnce:
    async def test_it_ends_when_the_file_holds_the_document(self, place: Place, daemon: Daemon) -> None:
        await daemon.publish(grouped(("east", 0, 1)))
        for _ in range(2):
            said = await place.sync().once(PATIENCE)
            assert f"{place.out} holds {daemon.lease.epoch}.1" in said
        assert place.version == 1
        assert place.status["written_version"] == 1
        assert await daemon.publisher.reports() == []

    async def test_it_waits_for_a_document(self, place: Place, daemon: Daemon) -> None:
        task = asyncio.create_task(place.sync().once(8))
        await until(place.status_file.exists)
        await daemon.publish(grouped(("east", 0, 1)))
        await task
        assert place.version == 1

    async def test_nothing_to_have(self, place: Place, daemon: Daemon) -> None:
        with pytest.raises(BusError) as caught:
            await place.sync().once(0.3)
        assert (caught.value.reason, caught.value.exit_code) == (Reason.NO_OVERLAY, 3)
        assert place.status["state"] == "cold"
        assert not place.out.exists()

    async def test_no_bus_and_nothing_held(self, tmp_path: Path) -> None:
        with pytest.raises(BusError) as caught:
            await Place(tmp_path, ABSENT).sync().once(0.3)
        assert (caught.value.reason, caught.value.exit_code) == (Reason.BUS_UNREACHABLE, 3)

    async def test_no_bus_and_a_good_one_held_will_do(self, place: Place, daemon: Daemon, server: RedisServer) -> None:
        await daemon.publish(grouped(("east", 0, 1)))
        await place.sync().once(PATIENCE)
        server.kill()
        said = await place.sync().once(0.3)
        assert f"{place.out} still holds {daemon.lease.epoch}.1" in said
        assert place.status["state"] == "ready_degraded"

    async def test_refused(self, place: Place, daemon: Daemon, server: RedisServer) -> None:
        await daemon.publish(grouped(("east", 0, 1)))
        await place.sync().once(PATIENCE)
        before = place.out.read_bytes()
        write_config(place.config, server.url, URLS, namespace="other")
        with pytest.raises(OverlayError) as caught:
            await place.sync().once(PATIENCE)
        assert (caught.value.reason, caught.value.exit_code) == (Reason.SCOPE_MISMATCH, 1)
        assert "scope.namespace is 'default', expected 'other'" in caught.value.message
        assert place.out.read_bytes() == before

    async def test_a_key_asks_for_a_signature(self, place: Place, daemon: Daemon) -> None:
        await daemon.publish(grouped(("east", 0, 1)))
        with pytest.raises(OverlayError) as caught:
            await place.sync(key=b"k" * 32).once(PATIENCE)
        assert caught.value.reason is Reason.SIGNATURE_MISSING

    async def test_what_cannot_be_written(self, place: Place, daemon: Daemon) -> None:
        await daemon.publish(grouped(("east", 0, 1)))
        place.out.mkdir(parents=True)
        with pytest.raises(DeliveryError) as caught:
            await place.sync(status=place.home / "status.json").once(PATIENCE)
        assert (caught.value.reason, caught.value.exit_code) == (Reason.FILE_UNWRITABLE, 1)

    async def test_a_status_that_cannot_be_written_ends_it_at_once(self, place: Place) -> None:
        with pytest.raises(DeliveryError, match="status file"):
            await place.sync(status=place.config / "status.json").run()


class TestOptions:
    def test_a_gateway_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            Place(tmp_path, ABSENT).sync(gateway="egde")
        assert caught.value.problems[0].hint == "did you mean edge?"

    def test_an_admin_side_without_an_envoy(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="envoy-eds only"):
            Place(tmp_path, ABSENT).sync(envoy_admin="http://127.0.0.1:1")

    def test_no_url_at_all_for_envoy(self, tmp_path: Path) -> None:
        place = Place(tmp_path, ABSENT)
        write_config(place.config, ABSENT, {"east": None, "west": "http://127.0.0.1/west"})
        with pytest.raises(ConfigError) as caught:
            place.eds()
        assert [one.detail for one in caught.value.problems] == [
            "provider east-llama has no url",
            "the url of provider west-llama has a path, and an endpoint has none",
        ]


class TestEds:
    async def test_endpoints_follow_the_document(self, place: Place, daemon: Daemon) -> None:
        published = await daemon.publish(grouped(("east", 0, 100), ("west", 1, 100, EXISTING)))
        async with running(place.eds()):
            await until(place.out.exists)
            assert place.ports == {1001: "UNKNOWN", 1002: "DRAINING"}
            await daemon.publish(grouped(("west", 0, 100), ("east", 1, 100, NONE)))
            await until(lambda: place.ports == {1002: "UNKNOWN"})
            await until(lambda: place.status["written_version"] == 2)
            assert place.status["state"] == "ready"
            assert place.status["written_epoch"] == published.epoch
            version = json.loads(place.out.read_bytes())["version_info"]
            assert version.startswith(f"acme/edge/{published.epoch}.2/{place.status['written_overlay_revision']}/")

    async def test_an_unchanged_document_is_not_written_again(self, place: Place, daemon: Daemon) -> None:
        await daemon.publish(grouped(("east", 0, 100)))
        await place.eds().once(PATIENCE)
        before = place.out.stat()
        async with running(place.eds()) as sync:
            await until(lambda: sync.state == "ready" and place.status["state"] == "ready")
        assert place.out.stat().st_ino == before.st_ino

    async def test_never_an_older_one_after_a_restart(self, place: Place, daemon: Daemon) -> None:
        old = await daemon.publish(grouped(("east", 0, 1)))
        stored = await Store(daemon.bus).read("edge")
        assert stored is not None
        await daemon.publish(grouped(("west", 0, 2)))
        await place.eds().once(PATIENCE)
        await TestEnvelopes.plant(daemon, stored.document, old.epoch, old.version, old.revision)
        async with running(place.eds()):
            await until(lambda: place.status["degraded_reason"] == Reason.FILE_NEWER)
            assert place.ports == {1002: "UNKNOWN"}

    async def test_a_model_that_is_gone_is_emptied_also_after_a_restart(self, place: Place, daemon: Daemon) -> None:
        await daemon.publish(grouped(("east", 0, 1), model="old"))
        await place.eds().once(PATIENCE)
        await daemon.publish(grouped(("east", 0, 1)))
        await place.eds().once(PATIENCE)
        found = {one["cluster_name"]: one["endpoints"] for one in json.loads(place.out.read_bytes())["resources"]}
        assert found["grid|inference_model|old"] == []
        assert len(found[SERVICE]) == 1

    async def test_a_new_provider_is_taken_from_the_changed_configuration(
        self, place: Place, daemon: Daemon, server: RedisServer
    ) -> None:
        await daemon.publish(grouped(("east", 0, 100)))
        async with running(place.eds()):
            await until(place.out.exists)
            write_config(place.config, server.url, {**URLS, "north": "http://127.0.0.1:1003"})
            await daemon.publish(grouped(("east", 0, 100), ("north", 0, 100)))
            await until(lambda: place.ports == {1001: "UNKNOWN", 1003: "UNKNOWN"})

    async def test_a_provider_without_a_url_is_left_out_and_named(
        self, place: Place, daemon: Daemon, server: RedisServer
    ) -> None:
        write_config(place.config, server.url, {"east": None, "west": "http://127.0.0.1:1002"})
        await daemon.publish(grouped(("east", 0, 100), ("west", 0, 100)))
        said = await place.eds().once(PATIENCE)
        assert "left out: east/east-llama: provider east-llama has no url" in said
        assert place.ports == {1002: "UNKNOWN"}
        assert (place.status["state"], place.status["degraded_reason"]) == ("ready_degraded", Reason.ADDRESS_UNKNOWN)
        assert [one["code"] for one in place.status["problems"]] == [Reason.ADDRESS_UNKNOWN]

    async def test_a_document_of_which_nothing_can_be_reached_changes_nothing(
        self, place: Place, daemon: Daemon, server: RedisServer
    ) -> None:
        await daemon.publish(grouped(("west", 0, 100)))
        await place.eds().once(PATIENCE)
        before = place.out.read_bytes()
        write_config(place.config, server.url, {"east": None, "west": "http://127.0.0.1:1002"})
        await daemon.publish(grouped(("east", 0, 100)))
        with pytest.raises(DeliveryError) as caught:
            await place.eds().once(PATIENCE)
        assert caught.value.reason is Reason.ADDRESS_UNKNOWN
        assert place.out.read_bytes() == before

    async def test_names_are_looked_up_again_and_survive_a_dead_name_server(
        self, place: Place, daemon: Daemon, server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("grid.proxy.forms.SETTLED", 0.05)
        monkeypatch.setattr("grid.proxy.forms.UNSETTLED", 0.05)
        write_config(place.config, server.url, {"east": "http://east.test:1001"})
        known = {"east.test": ["10.0.0.1"]}

        def look_up(host: str) -> list[str]:
            if host not in known:
                raise OSError("no such name")
            return known[host]

        def addresses() -> list[str]:
            resource = json.loads(place.out.read_bytes())["resources"][0]
            found = [one["endpoint"] for level in resource["endpoints"] for one in level["lb_endpoints"]]
            assert all(one["hostname"] == "east.test" for one in found)
            return [one["address"]["socket_address"]["address"] for one in found]

        await daemon.publish(grouped(("east", 0, 100)))
        async with running(place.eds(addresses=Addresses(look_up))):
            await until(lambda: place.out.exists() and addresses() == ["10.0.0.1"])
            known["east.test"] = ["10.0.0.2", "10.0.0.3"]
            await until(lambda: addresses() == ["10.0.0.2", "10.0.0.3"])
            known.clear()
        await place.eds(addresses=Addresses(look_up)).once(PATIENCE)
        assert addresses() == ["10.0.0.2", "10.0.0.3"]

    async def test_the_plain_form_goes_to_envoy_too(self, place: Place, daemon: Daemon) -> None:
        await daemon.publish(document(picker=Picker.DETERMINISTIC))
        await place.eds().once(PATIENCE)
        assert list(place.ports) == [1001, 1002]


async def test_two_deliveries_into_one_file_agree(place: Place, daemon: Daemon) -> None:
    async with running(place.sync()), running(place.sync(status=place.home / "other.json")):
        for weight in range(1, 21):
            await daemon.publish(grouped(("east", 0, weight)))
        await until(lambda: place.version == 20)
        await until(lambda: place.status_file.exists() and place.status["state"] == "ready")
