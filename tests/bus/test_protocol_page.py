"""The page about the protocol says what the code does: rights, names, and enough to write a client from it alone."""

import asyncio
import re
from pathlib import Path
from typing import Any, Self

import orjson
import pytest

from grid.bus import Connection, LeaderLease, Publisher, Report, Store
from grid.bus.keys import INLINE_AT_ONCE, INLINE_LIMIT, Keys
from grid.bus.reports import write_report
from grid.model import BusError, Drain
from tests.bus.conftest import Connect
from tests.bus.documents import document, frame
from tests.support.redis_server import RedisServer, RedisServers
from tests.support.until import PATIENCE

PAGE = (Path(__file__).parents[2] / "docs" / "bus-protocol.md").read_text()


def rights() -> list[list[str]]:
    return [block.split() for block in re.findall(r"```acl\n(.*?)\n```", PAGE, re.DOTALL)]


async def as_user(rules: list[str], servers: RedisServers, open_bus: Connect) -> tuple[Connection, Connection]:
    """A connection with full rights, and one with ``rules``."""
    server = servers.start("7", [("user", "limited", "on", ">secret", "resetchannels", *rules)])
    return await open_bus(server.url), await open_bus(server.url.replace("//", "//limited:secret@"))


async def test_the_daemon_can_do_its_work_with_the_rights_listed(servers: RedisServers, open_bus: Connect) -> None:
    _, bus = await as_user(rights()[0], servers, open_bus)
    lease = LeaderLease(bus, "daemon-1", gateways=["edge"])
    assert await lease.acquire()
    publisher = Publisher(bus, "daemon-1")
    for tag in (1, 2, 2):
        await publisher.publish(document(tag), lease, "test")
    await publisher.send_frame(frame(lease.epoch, 1), lease)
    await publisher.save_memory({"a": 1}, lease)
    await publisher.set_drain(Drain("d", "east"))
    assert await publisher.load_memory()
    assert await publisher.drains()
    assert await publisher.remove_drain("d")
    assert await publisher.leader()
    assert await publisher.read("edge")
    assert len(await publisher.history("edge")) == 2
    await write_report(bus, Report("edge", "i"))
    assert await publisher.reports()
    await lease.renew()
    await lease.release()
    with pytest.raises(BusError, match="NoPermission"):
        await bus.command("GET", "grid:{other}:signal")


@pytest.mark.parametrize("number", [1, 2])
async def test_a_gateway_can_do_its_work_and_nothing_else(
    number: int, servers: RedisServers, open_bus: Connect
) -> None:
    full, bus = await as_user(rights()[number], servers, open_bus)
    lease = LeaderLease(full, "daemon-1")
    await lease.acquire()
    await Publisher(full, "daemon-1").publish(document(1), lease, "test")
    feed = await bus.subscribe(bus.keys.overlays, bus.keys.signals)
    assert await Store(bus).read("edge")
    await bus.many([("GET", bus.keys.signal), ("PTTL", bus.keys.signal)])
    await Publisher(full, "daemon-1").publish(document(2), lease, "test")
    await asyncio.wait_for(feed.next(), PATIENCE)
    await feed.aclose()
    if number == 1:
        await write_report(bus, Report("edge", "i"))
        assert [report.instance for report in await Store(full).reports()] == ["i"]
    with pytest.raises(BusError):
        await bus.command("HSET", bus.keys.overlay("edge"), "document", "{}")
    with pytest.raises(BusError):
        await bus.command("SPUBLISH", bus.keys.signals, "{}")


def test_every_key_of_the_code_is_on_the_page() -> None:
    keys = Keys("{N}")
    names = [getattr(keys, name) for name in Keys.__slots__ if name not in ("network", "prefix")]
    names += [keys.overlay("GATEWAY"), keys.history("GATEWAY"), keys.report("GATEWAY", "INSTANCE")]
    for name in names:
        assert f"`{name.replace('{{N}}', '{N}')}`" in PAGE
    assert f"at most {INLINE_LIMIT // 1024} KiB" in PAGE
    assert f"together at most {INLINE_AT_ONCE // 1024} KiB" in PAGE


class PlainClient:
    """A reader made from the page alone: a socket, RESP2, JSON. Nothing of Grid, no Redis client."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    def send(self, *parts: str) -> None:
        self._writer.write(f"*{len(parts)}\r\n".encode())
        for part in parts:
            self._writer.write(f"${len(part.encode())}\r\n{part}\r\n".encode())

    async def answer(self) -> Any:
        line = (await asyncio.wait_for(self._reader.readline(), PATIENCE)).rstrip()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return None if rest == b"-1" else [await self.answer() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else (await self._reader.readexactly(int(rest) + 2))[:-2]
        assert kind != b"-", rest
        return int(rest) if kind == b":" else rest


async def test_a_client_made_from_the_page_alone(
    server: RedisServer, bus: Connection, lease: LeaderLease, publisher: Publisher
) -> None:
    await publisher.publish(document(1), lease, "test")
    async with PlainClient(server.port) as feed, PlainClient(server.port) as asking:
        # 2: are channels sharded?
        asking.send("COMMAND", "INFO", "SPUBLISH")
        (found,) = await asking.answer()
        # 3.1: subscribe first and wait for both confirmations.
        feed.send("SUBSCRIBE" if found is None else "SSUBSCRIBE", "grid:{acme}:overlays", "grid:{acme}:signals")
        for _ in range(2):
            await feed.answer()
        # 3.2: then read.
        asking.send("HMGET", "grid:{acme}:overlay:edge", "epoch", "version", "revision", "document")
        epoch, version, revision, stored = await asking.answer()
        place = (int(epoch), int(version))
        envelope = orjson.loads(stored)
        assert (envelope["publication"]["epoch"], envelope["publication"]["version"]) == place
        assert envelope["revision"]["value"] == revision.decode() == document(1).revision
        # 3.3: then apply what comes.
        second = await publisher.publish(document(2), lease, "test")
        await publisher.send_frame(frame(lease.epoch, 1, interval=20.0, documents={"edge": second.position}), lease)
        _, channel, data = await feed.answer()
        assert channel == b"grid:{acme}:overlays"
        assert data.startswith(b'{"gateway":"edge",')
        heard = orjson.loads(data)
        assert (heard["epoch"], heard["version"]) > place
        assert heard["previous_revision"] == revision.decode()
        asking.send("HGET", "grid:{acme}:overlay:edge", "document")
        assert heard["document"].encode() == await asking.answer()
        _, channel, data = await feed.answer()
        assert channel == b"grid:{acme}:signals"
        signal = orjson.loads(data)
        assert signal["protocol"] == 1
        assert signal["documents"]["edge"] == {"epoch": second.epoch, "version": second.version}
        # 5: the age of a stored frame.
        asking.send("PTTL", "grid:{acme}:signal")
        assert 0 <= 3 * signal["interval_s"] - await asking.answer() / 1000 < 20
        # 6: report.
        asking.send("TIME")
        now = (await asking.answer())[0].decode()
        asking.send("MULTI")
        report = "grid:{acme}:gateway:edge:other-language:1"
        asking.send("HSET", report, "epoch", epoch.decode(), "version", version.decode(), "revision", revision.decode())
        asking.send("PEXPIRE", report, "15000")
        asking.send("ZADD", "grid:{acme}:gateways", now, "edge:other-language:1")
        asking.send("EXEC")
        for _ in range(5):
            await asking.answer()
    (seen,) = await publisher.reports()
    assert (seen.gateway, seen.instance, seen.position) == ("edge", "other-language:1", place)
