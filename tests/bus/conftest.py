"""Real servers and ready-made documents for the tests of the bus."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from grid.bus import BusSettings, Connection, LeaderLease, Publisher, connect
from tests.support.redis_server import RedisServer, RedisServers

NETWORK = "acme"


class _Clusters(dict[str, RedisServer]):
    def __init__(self, servers: RedisServers) -> None:
        super().__init__()
        self._servers = servers

    def __missing__(self, line: str) -> RedisServer:
        self[line] = self._servers.start_cluster(line)
        return self[line]


Connect = Callable[..., Awaitable[Connection]]


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServers]:
    """Starts servers on demand; all are gone when the test ends."""
    found = RedisServers(tmp_path_factory.mktemp("r"))
    yield found
    found.stop()


@pytest.fixture(params=["7", "6.2"])
def server(request: pytest.FixtureRequest, servers: RedisServers) -> RedisServer:
    """One standalone server, of both lines in turn."""
    return servers.start(request.param)


@pytest.fixture
def server7(servers: RedisServers) -> RedisServer:
    """One standalone server of the newest line."""
    return servers.start("7")


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RedisServer]]:
    """Clusters by line. A Cluster takes two seconds to begin, so the tests of a session share one of each line."""
    found = RedisServers(tmp_path_factory.mktemp("c"))
    yield _Clusters(found)
    found.stop()


@pytest.fixture(params=["7", "6.2"])
def cluster(request: pytest.FixtureRequest, clusters: dict[str, RedisServer]) -> RedisServer:
    """An empty Cluster of one shard, of both lines in turn."""
    server = clusters[request.param]
    with server.client() as client:
        client.execute_command("FLUSHALL")
    return server


@pytest.fixture
async def open_bus() -> AsyncIterator[Connect]:
    """Connects to a URL; closes what it opened."""
    opened: list[Connection] = []

    async def opening(
        url: str, *, network: str = NETWORK, state_dir: Path | None = None, **settings: object
    ) -> Connection:
        settings.setdefault("timeout", 5.0)
        connection = await connect(BusSettings.from_url(url, **settings), network, state_dir)
        opened.append(connection)
        return connection

    yield opening
    for connection in opened:
        await connection.aclose()


@pytest.fixture
async def bus(server: RedisServer, open_bus: Connect) -> Connection:
    """A connection to ``server``."""
    return await open_bus(server.url)


@pytest.fixture
async def lease(bus: Connection) -> LeaderLease:
    """A lease that is held."""
    found = LeaderLease(bus, "daemon-1", ttl=120.0)
    assert await found.acquire()
    return found


@pytest.fixture
def publisher(bus: Connection) -> Publisher:
    """A publisher on ``bus``."""
    return Publisher(bus, "daemon-1")
