"""A real Redis, and the writing side of the bus to publish with."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from grid.bus import BusSettings, Connection, LeaderLease, Position, Published, Publisher, connect
from grid.overlay import Document, SignalFrame
from tests.support.redis_server import RedisServer, RedisServers


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServers]:
    """Starts servers on demand; all are gone when the test ends."""
    found = RedisServers(tmp_path_factory.mktemp("r"))
    yield found
    found.stop()


@pytest.fixture
def server(servers: RedisServers) -> RedisServer:
    return servers.start()


@dataclass
class Daemon:
    """What a leading daemon does to the bus."""

    bus: Connection
    lease: LeaderLease
    publisher: Publisher
    sequence: int = 0

    async def publish(self, document: Document) -> Published:
        published: Published = await self.publisher.publish(document, self.lease, "test")
        return published

    async def beat(self, interval: float = 1.0) -> None:
        """Send a frame that names what was published last."""
        self.sequence += 1
        documents = {name: Position(*position) for name, position in self.publisher.positions.items()}
        frame = SignalFrame("acme", self.lease.epoch, self.sequence, interval, 1_700_000_000.0, documents)
        await self.publisher.send_frame(frame, self.lease)


@pytest.fixture
async def daemon(server: RedisServer) -> AsyncIterator[Daemon]:
    """A daemon that leads network ``acme``."""
    bus = await connect(BusSettings.from_url(server.url), "acme")
    lease = LeaderLease(bus, "daemon-1", ttl=120.0)
    assert await lease.acquire()
    yield Daemon(bus, lease, Publisher(bus, "daemon-1"))
    await bus.aclose()
