"""An ASGI application on a real loopback socket, in the test's own loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import uvicorn

from tests.support.until import until


class _Quiet(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serve ``app`` with its lifespan and yield the origin."""
    bound = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1)
    server = _Quiet(config)
    task = asyncio.create_task(server.serve([bound]), name="served")
    try:
        await until(lambda: server.started or task.done())
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait([task])
        bound.close()


@contextlib.asynccontextmanager
async def client(origin: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=origin, trust_env=False, timeout=60.0) as made:
        yield made
