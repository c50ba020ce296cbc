"""The application on a socket, inside the daemon's own event loop: uvicorn without signal handlers and access log."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from ipaddress import ip_address

import uvicorn
from starlette.types import ASGIApp

from grid import sockets
from grid.debug.connections import WatchedConnection
from grid.model import DaemonError, Reason

_BACKLOG = 128


class _Quiet(uvicorn.Server):
    """A server whose host process has its own idea of signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class DebugServer:
    """Serves ``app`` on ``host:port`` until told to stop. Port 0 takes a free one; ``port`` then says which."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._config = uvicorn.Config(
            app,
            http=WatchedConnection,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
        )
        self._server: _Quiet | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        """Bind and serve. Raises DaemonError where the address cannot be had."""
        bound = await asyncio.to_thread(bind, self.host, self.port)
        self.port = bound.getsockname()[1]
        self._server = _Quiet(self._config)
        self._task = asyncio.create_task(self._server.serve([bound]), name="debug-http")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise DaemonError(f"the HTTP side at {self.url} did not start", reason=Reason.INTERNAL)
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Stop accepting, let answers under way end for a second, close the rest. Safe to call twice."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        await asyncio.wait([self._task])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """A listening socket there. Raises DaemonError (listen_failed). Blocks where the name has to be looked up."""
    return sockets.listen(host, port, backlog=_BACKLOG)
