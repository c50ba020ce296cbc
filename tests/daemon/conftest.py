from collections.abc import Iterator

import pytest

from tests.support.redis_server import RedisServer, RedisServers


@pytest.fixture
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis of this test's own."""
    servers = RedisServers(tmp_path_factory.mktemp("r"))
    yield servers.start("7")
    servers.stop()
