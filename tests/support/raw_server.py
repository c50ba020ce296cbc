"""Loopback servers for answers that no HTTP library would give, and for TLS that says no in its own words."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What to do once a request's head has been read; the connection is closed after it."""


@dataclass
class RawServer:
    """``origin`` to connect to, and the heads of all requests in the order they came."""

    origin: str
    heads: list[str] = field(default_factory=list)
    connections: int = 0


@contextlib.asynccontextmanager
async def raw_server(script: Script, *, ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """Serve ``script`` on a free loopback port, one request per connection unless the script reads on."""
    tasks: set[asyncio.Task[None]] = set()
    found = RawServer("")

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        found.connections += 1
        try:
            found.heads.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            await script(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=ssl_context)
    found.origin = f"{'https' if ssl_context else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def abort(writer: asyncio.StreamWriter) -> None:
    """Make the close that follows a reset instead of a proper end."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@contextlib.contextmanager
def refusing_tls_server(context: ssl.SSLContext) -> Iterator[str]:
    """A TLS server in a thread that sends its alert and then waits for the client to hang up, as Go's does.

    It never answers a request: for handshakes that fail.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    stopped = threading.Event()

    def serve() -> None:
        while not stopped.is_set():
            try:
                plain, _ = listener.accept()
            except TimeoutError:
                continue
            plain.settimeout(10)
            with plain:
                secure = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
                with secure, contextlib.suppress(OSError):
                    try:
                        secure.do_handshake()
                    except ssl.SSLError:
                        # What the client has sent meanwhile is read, or closing would reset the connection.
                        while socket.socket.recv(secure, 65536):
                            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stopped.set()
        thread.join()
        listener.close()
