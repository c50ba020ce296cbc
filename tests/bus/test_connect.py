"""Every way to Redis, on real servers, and what is said when one is barred."""

import asyncio
import contextlib
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme

from grid.bus import BusSettings, Connection, EmbeddedServer, connect
from grid.bus.address import Place
from grid.bus.connect import Feed
from grid.bus.faults import RefusedError
from grid.bus.scripts import Script
from grid.model import BusError, Reason
from tests.bus.conftest import Connect
from tests.bus.waiting import eventually
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, RedisServers
from tests.support.until import PATIENCE, until

ECHO = Script("echo", "return {ARGV[1], KEYS[1]}")


async def works(connection: Connection) -> None:
    """Commands, scripts and messages all come through."""
    assert await connection.run(ECHO, [connection.keys.leader], ["hi"]) == [b"hi", connection.keys.leader.encode()]
    answers = await connection.many([("SET", connection.keys.signal, "x"), ("GET", connection.keys.signal)])
    assert answers == [b"OK", b"x"]
    feed = await connection.subscribe(connection.keys.overlays, connection.keys.signals)
    try:
        await connection.command(connection.publish_command, connection.keys.signals, b"\x00\xff")
        assert await asyncio.wait_for(feed.next(), PATIENCE) == (connection.keys.signals.encode(), b"\x00\xff")
    finally:
        await feed.aclose()


async def refusal(url: str, **settings: object) -> BusError:
    settings.setdefault("timeout", 5.0)
    started = time.monotonic()
    with pytest.raises(BusError) as caught:
        await connect(BusSettings.from_url(url, **settings), "acme")
    assert time.monotonic() - started < PATIENCE
    return caught.value


async def test_one_server_of_either_line(server: RedisServer, open_bus: Connect) -> None:
    connection = await open_bus(server.url)
    await works(connection)
    with server.client() as client:
        assert connection.sharded == (client.info("server")["redis_version"] >= "7")
    assert connection.where == f"redis://127.0.0.1:{server.port}"


async def test_unix_socket(servers: RedisServers, open_bus: Connect) -> None:
    await works(await open_bus(servers.start(unix=True).url))


async def test_the_embedded_server(tmp_path: Path, open_bus: Connect) -> None:
    server = EmbeddedServer("acme", tmp_path)
    await server.start()
    try:
        await works(await open_bus("embedded", state_dir=tmp_path))
    finally:
        await server.stop()


async def test_a_missing_embedded_server_is_unreachable_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(BusError) as caught:
        await connect(BusSettings.from_url("embedded"), "acme", tmp_path)
    assert caught.value.reason is Reason.BUS_UNREACHABLE
    assert str(tmp_path) in str(caught.value)


async def test_a_cluster_of_one_shard(cluster: RedisServer, open_bus: Connect) -> None:
    connection = await open_bus(f"redis+cluster://127.0.0.1:{cluster.port}")
    await works(connection)
    assert f"(127.0.0.1:{cluster.port})" in connection.where


async def test_a_dead_node_among_the_named_ones_costs_nothing(
    cluster: RedisServer, servers: RedisServers, open_bus: Connect
) -> None:
    frozen = servers.start()
    frozen.freeze()
    await works(await open_bus(f"redis+cluster://127.0.0.1:{frozen.port},127.0.0.1:{cluster.port}"))


async def test_a_cluster_node_under_a_plain_address_is_refused(cluster: RedisServer) -> None:
    error = await refusal(cluster.url)
    assert error.reason is Reason.BUS_REFUSED
    assert "redis+cluster://" in error.hint


async def test_a_cluster_without_our_slot_is_refused(servers: RedisServers) -> None:
    server = servers.start("7", [("cluster-enabled", "yes")])
    error = await refusal(f"redis+cluster://127.0.0.1:{server.port}")
    assert error.reason is Reason.BUS_REFUSED
    assert "slot" in str(error)


async def test_a_replica_is_refused(server7: RedisServer, servers: RedisServers) -> None:
    replica = servers.start("7", [("replicaof", "127.0.0.1", str(server7.port))])
    error = await refusal(replica.url)
    assert error.reason is Reason.BUS_REFUSED
    assert "replica" in str(error)


class TestTls:
    @pytest.fixture
    def ca(self) -> trustme.CA:
        return trustme.CA()

    @pytest.fixture
    def ca_file(self, ca: trustme.CA, tmp_path: Path) -> Path:
        path = tmp_path / "ca.pem"
        ca.cert_pem.write_to_path(str(path))
        return path

    async def test_with_the_right_authority(
        self, servers: RedisServers, open_bus: Connect, ca: trustme.CA, ca_file: Path
    ) -> None:
        server = servers.start(tls=ca)
        await works(await open_bus(server.url, ca_file=ca_file))
        # A TLS file alone says that TLS is meant.
        await works(await open_bus(f"redis://localhost:{server.port}", ca_file=ca_file))

    async def test_with_a_client_certificate(
        self, servers: RedisServers, open_bus: Connect, ca: trustme.CA, ca_file: Path, tmp_path: Path
    ) -> None:
        server = servers.start("7", [("tls-auth-clients", "yes")], tls=ca)
        pair = tmp_path / "client.pem"
        ca.issue_cert("daemon.test").private_key_and_cert_chain_pem.write_to_path(str(pair))
        await works(await open_bus(server.url, ca_file=ca_file, cert_file=pair, key_file=pair))
        error = await refusal(server.url, ca_file=ca_file)
        assert error.reason in (Reason.BUS_TLS, Reason.BUS_UNREACHABLE)

    async def test_with_another_authority(self, servers: RedisServers, ca: trustme.CA, tmp_path: Path) -> None:
        server = servers.start(tls=ca)
        other = tmp_path / "other.pem"
        trustme.CA().cert_pem.write_to_path(str(other))
        error = await refusal(server.url, ca_file=other)
        assert error.reason is Reason.BUS_TLS
        assert str(server.port) in str(error)

    async def test_against_a_server_without_tls(self, server7: RedisServer, ca_file: Path) -> None:
        error = await refusal(f"rediss://127.0.0.1:{server7.port}", ca_file=ca_file, timeout=0.5)
        # Redis waits for the rest of what it takes for a command.
        assert error.reason is Reason.BUS_TIMEOUT
        assert "TLS" in error.hint

    async def test_without_its_files(self, tmp_path: Path) -> None:
        error = await refusal("rediss://127.0.0.1:1", ca_file=tmp_path / "none.pem")
        assert error.reason is Reason.BUS_TLS
        assert "none.pem" in str(error)


class TestLogin:
    async def test_a_password(self, servers: RedisServers, open_bus: Connect, tmp_path: Path) -> None:
        server = servers.start("7", [("requirepass", "hunter2")])
        file = tmp_path / "password"
        file.write_text("hunter2\n")
        await works(await open_bus(server.url, password_file=file))
        await works(await open_bus(server.url.replace("//", "//:hunter2@")))

    async def test_a_wrong_one_is_refused_and_not_repeated(self, servers: RedisServers, tmp_path: Path) -> None:
        server = servers.start("7", [("requirepass", "hunter2")])
        file = tmp_path / "password"
        file.write_text("swordfish")
        for error in (
            await refusal(server.url, password_file=file),
            await refusal(server.url),
            await refusal(server.url.replace("//", "//nobody:swordfish@")),
        ):
            assert error.reason is Reason.BUS_AUTH
            assert str(server.port) in str(error)
            assert "swordfish" not in str(error)
            assert "hunter2" not in str(error)

    async def test_a_missing_password_file(self, server7: RedisServer, tmp_path: Path) -> None:
        error = await refusal(server7.url, password_file=tmp_path / "none")
        assert error.reason is Reason.BUS_AUTH
        assert "none" in str(error)

    async def test_the_file_is_read_again_after_a_rotation(
        self, servers: RedisServers, open_bus: Connect, tmp_path: Path
    ) -> None:
        server = servers.start("7", [("requirepass", "old")])
        file = tmp_path / "password"
        file.write_text("old")
        connection = await open_bus(server.url, password_file=file)
        server.options[:] = [("requirepass", "new")]
        await asyncio.to_thread(server.restart)
        with pytest.raises(BusError) as caught:
            await connection.command("PING")
        assert caught.value.reason is Reason.BUS_AUTH
        file.write_text("new")
        assert await connection.command("PING") == b"PONG"

    async def test_an_acl_user_with_what_the_protocol_page_lists(
        self, servers: RedisServers, open_bus: Connect
    ) -> None:
        rules = ("on", ">secret", "resetchannels", "~grid:{acme}:*", "&grid:{acme}:*", "-@all")
        commands = "+hello +ping +command|info +eval +evalsha +hmget +hget +hset +hexists +hdel +hgetall +pexpire +pttl"
        commands += " +get +set +del +time +xadd +xdel +xlen +xrevrange +zadd +zrange +zremrangebyscore"
        commands += " +publish +spublish +subscribe +ssubscribe"
        server = servers.start("7", [("user", "daemon", *rules, *commands.split())])
        connection = await open_bus(server.url.replace("//", "//daemon:secret@"))
        await works(connection)
        with pytest.raises(BusError) as caught:
            await connection.command("GET", "grid:{other}:leader")
        assert caught.value.reason is Reason.BUS_REFUSED
        assert "ACL" in caught.value.hint


class TestSentinel:
    async def test_it_names_the_master(self, server7: RedisServer, servers: RedisServers, open_bus: Connect) -> None:
        sentinel = servers.start_sentinel(server7)
        connection = await open_bus(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}/mymaster")
        await works(connection)
        assert f"(127.0.0.1:{server7.port})" in connection.where

    async def test_a_password_that_only_the_servers_have(self, servers: RedisServers, open_bus: Connect) -> None:
        server = servers.start("7", [("requirepass", "hunter2")])
        sentinel = servers.start_sentinel(server)
        await works(await open_bus(f"redis+sentinel://:hunter2@127.0.0.1:{sentinel.port}/mymaster"))

    async def test_a_name_it_does_not_know(self, server7: RedisServer, servers: RedisServers) -> None:
        sentinel = servers.start_sentinel(server7)
        error = await refusal(f"redis+sentinel://127.0.0.1:{sentinel.port}/other")
        assert error.reason is Reason.BUS_UNREACHABLE
        assert "'other'" in str(error)

    async def test_a_failover_is_followed(self, server7: RedisServer, servers: RedisServers, open_bus: Connect) -> None:
        replica = servers.start("7", [("replicaof", "127.0.0.1", str(server7.port)), ("repl-diskless-sync-delay", "0")])
        with replica.client() as client:
            await until(lambda: client.info("replication")["master_link_status"] == "up")
        sentinel = servers.start_sentinel(server7)
        with sentinel.client() as client:
            await until(lambda: client.info("sentinel")["master0"]["slaves"] == 1)
        connection = await open_bus(f"redis+sentinel://127.0.0.1:{sentinel.port}/mymaster")
        await connection.command("SET", connection.keys.signal, "x")
        server7.kill()
        reasons = set()
        async with asyncio.timeout(60):
            while True:
                try:
                    await connection.command("SET", connection.keys.signal, "y")
                    break
                except BusError as error:
                    reasons.add(error.reason)
                    await asyncio.sleep(0.05)
        assert reasons <= {Reason.BUS_UNREACHABLE, Reason.BUS_REFUSED, Reason.BUS_TIMEOUT}
        assert f"(127.0.0.1:{replica.port})" in connection.where

    async def test_a_password_that_it_has_too(self, servers: RedisServers, open_bus: Connect) -> None:
        server = servers.start("7", [("requirepass", "hunter2")])
        sentinel = servers.start_sentinel(server, options=[("requirepass", "hunter2")])
        await works(await open_bus(f"redis+sentinel://:hunter2@127.0.0.1:{sentinel.port}/mymaster"))
        error = await refusal(f"redis+sentinel://:swordfish@127.0.0.1:{sentinel.port}/mymaster")
        assert error.reason is Reason.BUS_AUTH


def test_settings_from_the_configuration() -> None:
    files = SimpleNamespace(ca_file=Path("/ca"), cert_file=None, key_file=None)
    bus = SimpleNamespace(url="redis+cluster://a", username="grid", password_file="/password", tls=files)
    settings = BusSettings.from_config(bus)
    assert settings.address.nodes == (("a", 6379),)
    assert (settings.username, settings.password_file, settings.ca_file) == ("grid", Path("/password"), Path("/ca"))
    assert settings.tls
    plain = SimpleNamespace(url="redis://a", username=None, password_file=None, tls=None)
    assert not BusSettings.from_config(plain).tls
    on_a_socket = SimpleNamespace(url="unix:///a", username=None, password_file=None, tls=files)
    assert not BusSettings.from_config(on_a_socket).tls
    assert BusSettings().address.place is Place.EMBEDDED


class TestFaults:
    async def test_an_old_server_is_refused_by_its_version(self) -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.readline():
                facts = {"server": "redis", "version": "6.0.16", "mode": "standalone", "role": "master"}
                parts = [part for item in facts.items() for part in item]
                writer.write(f"*{len(parts)}\r\n".encode() + b"".join(f"+{part}\r\n".encode() for part in parts))
                await reader.readline()
                await reader.readline()
            writer.close()

        other = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with other:
            error = await refusal(f"redis://127.0.0.1:{other.sockets[0].getsockname()[1]}")
        assert error.reason is Reason.BUS_REFUSED
        assert "6.0.16" in str(error)

    async def test_nothing_listens(self) -> None:
        port = free_port()
        error = await refusal(f"redis://127.0.0.1:{port}")
        assert error.reason is Reason.BUS_UNREACHABLE
        assert f"127.0.0.1:{port}" in str(error)
        assert "bus.url" in str(error)

    async def test_a_name_that_does_not_resolve(self) -> None:
        error = await refusal("redis://no-such-host.invalid", timeout=1.0)
        assert error.reason in (Reason.BUS_UNREACHABLE, Reason.BUS_TIMEOUT)

    async def test_something_that_accepts_and_never_answers(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            error = await refusal(f"redis://127.0.0.1:{silent.getsockname()[1]}", timeout=0.5)
        assert error.reason is Reason.BUS_TIMEOUT

    async def test_something_that_is_no_redis(self) -> None:
        async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        other = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with other:
            error = await refusal(f"redis://127.0.0.1:{other.sockets[0].getsockname()[1]}")
        assert error.reason in (Reason.BUS_UNREACHABLE, Reason.BUS_REFUSED)

    async def test_a_frozen_server_times_out_and_is_found_again(self, server: RedisServer, open_bus: Connect) -> None:
        connection = await open_bus(server.url, timeout=1.0)
        server.freeze()
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(BusError) as caught:
                await connection.command("PING")
            assert caught.value.reason is Reason.BUS_TIMEOUT
            assert time.monotonic() - started < 10
        server.thaw()

        async def found() -> bool:
            with contextlib.suppress(BusError):
                return bool(await connection.command("PING") == b"PONG")
            return False

        await eventually(found)

    async def test_closing_does_not_wait_for_a_frozen_server(self, server: RedisServer, open_bus: Connect) -> None:
        connection = await open_bus(server.url, timeout=60.0)
        feed: Feed = await connection.subscribe(connection.keys.signals)
        server.freeze()
        started = time.monotonic()
        await feed.aclose()
        await connection.aclose()
        assert time.monotonic() - started < 30

    async def test_a_restarted_server_is_used_at_once(self, server: RedisServer, open_bus: Connect) -> None:
        connection = await open_bus(server.url)
        await asyncio.to_thread(server.restart)
        # The pooled connection is dead; that alone must not fail a call. The script is gone too.
        await works(connection)

    async def test_a_feed_ends_with_its_connection(self, server: RedisServer, open_bus: Connect) -> None:
        connection = await open_bus(server.url)
        feed = await connection.subscribe(connection.keys.signals)
        server.kill()
        with pytest.raises(BusError) as caught:
            await asyncio.wait_for(feed.next(), PATIENCE)
        assert caught.value.reason is Reason.BUS_UNREACHABLE
        await feed.aclose()

    async def test_a_command_that_redis_refuses(self, server: RedisServer, open_bus: Connect) -> None:
        connection = await open_bus(server.url)
        await connection.command("SET", connection.keys.leader, "x")
        with pytest.raises(BusError) as caught:
            await connection.command("HGET", connection.keys.leader, "epoch")
        assert caught.value.reason is Reason.BUS_WRONG_TYPE
        assert "WRONGTYPE" in str(caught.value)
        with pytest.raises(RefusedError):
            await connection.many([("GET", connection.keys.signal), ("HGET", connection.keys.leader, "epoch")])
        assert await connection.command("PING") == b"PONG"
