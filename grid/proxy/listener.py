"""An ASGI application on a socket, inside a running event loop: uvicorn without its signals, logs and extra headers."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn

from grid import sockets
from grid.model import DaemonError, Reason
from grid.proxy.asgi import App
from grid.proxy.protocol import HttpProtocol
from grid.proxy.relay import BrokenAnswerError

KEEP_ALIVE: Final = 75
"""s that an unused connection from a client is kept: longer than load balancers in front keep theirs."""

_BACKLOG: Final = 2048


_EXPECTED_WORDS: Final = ("Invalid HTTP request", "Unsupported upgrade", "No supported WebSocket", "Cancel %s running")


class _Expected(logging.Filter):
    """What clients and providers do wrong, and what is cut off at the end, is no fault of the server."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], BrokenAnswerError | asyncio.CancelledError):
            return False
        return not str(record.msg).startswith(_EXPECTED_WORDS)


_EXPECTED: Final = _Expected()


class _Server(uvicorn.Server):
    """A server whose host process has its own idea of signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listener:
    """Serves ``app`` on ``host:port`` until told to stop. Port 0 takes a free one; ``port`` then says which.

    ``protocol``: the class that speaks HTTP, for other bounds than its own.
    """

    def __init__(self, app: App, host: str, port: int, *, protocol: type[HttpProtocol] = HttpProtocol) -> None:
        self.host = host
        self.port = port
        self._config = uvicorn.Config(
            app,
            interface="asgi3",
            http=protocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE,
            backlog=_BACKLOG,
        )
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """Clients connected now."""
        return 0 if self._server is None else len(self._server.server_state.connections)

    async def start(self) -> None:
        """Bind and serve. Raises DaemonError where the address cannot be had."""
        bound = await asyncio.to_thread(_bind, self.host, self.port)
        self.port = bound.getsockname()[1]
        logger = logging.getLogger("uvicorn.error")
        if _EXPECTED not in logger.filters:
            logger.addFilter(_EXPECTED)
        self._server = _Server(self._config)
        self._task = asyncio.create_task(self._server.serve([bound]), name=f"http on {self.host}:{self.port}")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise DaemonError(f"nothing listens on {self.url}", reason=Reason.INTERNAL)
            await asyncio.sleep(0.001)

    async def stop(self, grace: float = 1.0) -> None:
        """Stop accepting, let answers under way end for ``grace`` s, cut off the rest. Safe to call twice."""
        if self._server is None or self._task is None:
            return
        self._config.timeout_graceful_shutdown = max(1, round(grace))
        self._server.should_exit = True
        await asyncio.wait([self._task])


def _bind(host: str, port: int) -> socket.socket:
    hint = "take another address with --listen, or metrics_listen for the metrics"
    return sockets.listen(host, port, backlog=_BACKLOG, hint=hint)
