"""The way to Redis: one server, TLS, unix socket, Sentinel, Cluster, embedded; every error a BusError with its reason.

All keys of a network lie in one Cluster slot, so one node serves them all: Sentinel and Cluster differ from a single
server only in how its address is found. It is looked up again after every fault, and so are password and TLS files.
"""

import asyncio
import contextlib
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from redis import exceptions as redis_errors
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio import connection as redis_connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from grid.bus.address import BusAddress, Place, endpoint
from grid.bus.faults import CLIENT_ERRORS, bus_error, moved_away
from grid.bus.keys import Keys
from grid.bus.scripts import Script
from grid.bus.server import embedded_socket
from grid.model import BusError, Reason

OLDEST = (6, 2)
_MESSAGES = (b"message", b"smessage")
_ENDINGS = (b"unsubscribe", b"sunsubscribe")


class TlsFiles(Protocol):
    """The part of the configuration that names TLS files."""

    @property
    def ca_file(self) -> Path | str | None: ...
    @property
    def cert_file(self) -> Path | str | None: ...
    @property
    def key_file(self) -> Path | str | None: ...


class BusConfig(Protocol):
    """The part of the configuration that says where the bus is and how to log in."""

    @property
    def url(self) -> str: ...
    @property
    def username(self) -> str | None: ...
    @property
    def password_file(self) -> Path | str | None: ...
    @property
    def tls(self) -> TlsFiles | None: ...


@dataclass(frozen=True, slots=True)
class BusSettings:
    """How to reach the bus. ``timeout`` (s) bounds connecting and every answer; a whole call takes at most twice that.

    TLS is spoken with ``rediss`` addresses, where ``with_tls`` says so, and where a TLS file is named; never on a unix
    socket. A ``password_file`` is read again at every new connection.
    """

    address: BusAddress = field(default_factory=lambda: BusAddress(Place.EMBEDDED))
    username: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    with_tls: bool = False
    timeout: float = 2.0

    @classmethod
    def from_url(cls, url: str, **kwargs: Any) -> Self:
        """Settings for a ``bus.url``; raises ConfigError."""
        return cls(BusAddress.parse(url), **kwargs)

    @classmethod
    def from_config(cls, bus: BusConfig) -> Self:
        """Settings from the ``bus`` section of the configuration; raises ConfigError."""
        tls = bus.tls
        return cls(
            BusAddress.parse(bus.url),
            username=bus.username,
            password_file=_path(bus.password_file),
            ca_file=_path(tls.ca_file) if tls else None,
            cert_file=_path(tls.cert_file) if tls else None,
            key_file=_path(tls.key_file) if tls else None,
            with_tls=tls is not None,
        )

    @property
    def tls(self) -> bool:
        if self.address.place in (Place.UNIX, Place.EMBEDDED):
            return False
        return self.address.tls or self.with_tls or any((self.ca_file, self.cert_file, self.key_file))


@dataclass(frozen=True, slots=True)
class _Access:
    """What the files said: login and TLS context of one look-up."""

    username: str | None
    password: str | None
    context: ssl.SSLContext | None


class _TlsConnection(redis_connection.SSLConnection):
    """A TLS connection on a context made beforehand: making one reads files, and the loop must not wait for them."""

    def __init__(self, *, context: ssl.SSLContext, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ssl_context.context = context


_Question = Callable[[_Access, tuple[str, int]], Coroutine[Any, Any, tuple[str, int]]]


class Feed:
    """One connection that is subscribed to channels and reads nothing else."""

    def __init__(self, connection: redis_connection.AbstractConnection, where: str) -> None:
        self._connection = connection
        self._where = where

    async def next(self) -> tuple[bytes, bytes]:
        """The next ``(channel, message)``; waits as long as it takes. Raises BusError when the connection breaks."""
        try:
            while True:
                # Without a timeout of its own: a dead link shows in missing heartbeats.
                answer = await self._connection.read_response(timeout=math.inf, disconnect_on_error=False)
                if answer[0] in _MESSAGES:
                    return answer[1], answer[2]
                if answer[0] in _ENDINGS:
                    raise BusError(
                        f"{self._where} ended the subscription: the slot has moved to another node",
                        reason=Reason.BUS_REFUSED,
                        hint="its owner is looked up again at the next try",
                    )
        except CLIENT_ERRORS as error:
            raise bus_error(error, self._where, "reading messages") from error

    async def aclose(self) -> None:
        """Close at once; never raises."""
        with contextlib.suppress(*CLIENT_ERRORS):
            await self._connection.disconnect(nowait=True)


class Connection:
    """Commands to the server that holds one network's keys. Made by ``connect()``; safe for use by several tasks.

    After a fault the next call looks the server up afresh, so a Connection outlives restarts and failovers of Redis.
    """

    def __init__(self, settings: BusSettings, network: str, state_dir: Path | str | None = None) -> None:
        self.settings = settings
        self.keys = Keys(network)
        self.sharded = False
        """Whether the server has sharded pub/sub (Redis 7, Valkey): then both sides use it."""
        self._state_dir = state_dir
        self._client: Redis | None = None
        self._where = str(settings.address)
        self._opening = asyncio.Lock()

    @property
    def where(self) -> str:
        """The address in use, safe to show; behind Sentinel or a Cluster the node found last is added."""
        return self._where

    @property
    def publish_command(self) -> str:
        return "SPUBLISH" if self.sharded else "PUBLISH"

    async def open(self) -> Self:
        """Connect now and learn what the server can do. Raises BusError."""
        await self._ready()
        return self

    async def command(self, *args: Any) -> Any:
        """One command; its raw answer (bytes, int, list or None). Raises BusError."""
        return await self._call(str(args[0]), lambda client: client.execute_command(*args))

    async def many(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Several commands in one round trip, without a transaction; raises BusError where one of them fails."""

        async def send(client: Redis) -> Any:
            pipeline = client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute()

        answers: list[Any] = await self._call(str(commands[0][0]), send)
        return answers

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script, by its hash where the server knows it. Raises BusError."""

        async def send(client: Redis) -> Any:
            try:
                return await client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            except redis_errors.NoScriptError:
                return await client.execute_command("EVAL", script.source, len(keys), *keys, *args)

        return await self._call(f"script {script.name}", send)

    async def subscribe(self, *channels: str) -> Feed:
        """A connection of its own, subscribed to ``channels``: when this returns the server has confirmed. BusError."""

        async def send(client: Redis) -> Feed:
            pool = client.connection_pool
            connection = pool.connection_class(**pool.connection_kwargs)
            try:
                await connection.connect()
                await connection.send_command("SSUBSCRIBE" if self.sharded else "SUBSCRIBE", *channels)
                for _ in channels:
                    await connection.read_response(disconnect_on_error=False)
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
            return Feed(connection, self._where)

        feed: Feed = await self._call("subscribing", send)
        return feed

    async def aclose(self) -> None:
        """Close every connection; never raises, never waits long for a dead server."""
        client, self._client = self._client, None
        if client is not None:
            await _close(client)

    async def _call(self, doing: str, send: Callable[[Redis], Awaitable[Any]]) -> Any:
        client: Redis | None = None
        try:
            async with asyncio.timeout(2 * self.settings.timeout), _no_lost_cancellation():
                client = await self._ready()
                return await send(client)
        except CLIENT_ERRORS as error:
            if moved_away(error) and client is not None and client is self._client:
                self._client = None
                await _close(client)
            raise bus_error(error, self._where, doing) from error
        finally:
            # Another call may have given the client up while this one was opening a connection in its pool.
            if client is not None and client is not self._client:
                await _close(client)

    async def _ready(self) -> Redis:
        if self._client is None:
            async with self._opening:
                if self._client is None:
                    self._client = await self._open()
        return self._client

    async def _open(self) -> Redis:
        client: Redis | None = None
        try:
            async with asyncio.timeout(2 * self.settings.timeout):
                access = await asyncio.to_thread(_read_access, self.settings)
                client = self._build(access, await self._locate(access))
                await self._greet(client)
                return client
        except BaseException as error:
            if client is not None:
                await _close(client)
            if isinstance(error, CLIENT_ERRORS):
                found = bus_error(error, self._where, "connecting to Redis")
                # Whatever the server said: without a connection there is no bus.
                raise BusError(found.message, reason=found.reason, hint=found.hint) from error
            raise

    async def _greet(self, client: Redis) -> None:
        raw = await client.execute_command("HELLO")
        facts = {key.decode(): value for key, value in zip(raw[::2], raw[1::2], strict=True)}
        version = facts["version"].decode()
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise BusError(f"{self._where} is Redis {version}; 6.2 or newer is needed", reason=Reason.BUS_REFUSED)
        if facts["mode"] == b"cluster" and self.settings.address.place is not Place.CLUSTER:
            raise BusError(
                f"{self._where} is a node of a Cluster",
                reason=Reason.BUS_REFUSED,
                hint="write the address as redis+cluster://host:port",
            )
        if facts["role"] != b"master":
            raise BusError(
                f"{self._where} is a replica",
                reason=Reason.BUS_REFUSED,
                hint="name the master, or use redis+sentinel:// so that it is looked up",
            )
        self.sharded = bool((await client.execute_command("COMMAND", "INFO", "SPUBLISH"))[0])

    async def _locate(self, access: _Access) -> tuple[str, int] | Path:
        address = self.settings.address
        match address.place:
            case Place.EMBEDDED:
                path = embedded_socket(self.keys.network, self._state_dir)
                self._where = f"embedded redis {path}"
                return path
            case Place.UNIX:
                return Path(address.path)
            case Place.STANDALONE:
                return address.nodes[0]
            case Place.SENTINEL:
                found = await self._first_answer(access, self._ask_sentinel)
            case Place.CLUSTER:
                found = await self._first_answer(access, self._ask_cluster)
        self._where = f"{address} ({endpoint(*found)})"
        return found

    async def _first_answer(self, access: _Access, ask: _Question) -> tuple[str, int]:
        """Ask all nodes of the address at once: a dead one among them must not cost the others their time."""
        self._where = str(self.settings.address)
        last: BaseException = redis_errors.ConnectionError("no node answered")
        tasks = [asyncio.create_task(ask(access, node)) for node in self.settings.address.nodes]
        try:
            for answer in asyncio.as_completed(tasks):
                try:
                    return await answer
                except CLIENT_ERRORS as error:
                    last = error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        raise last

    async def _ask_sentinel(self, access: _Access, node: tuple[str, int]) -> tuple[str, int]:
        # Sentinels often have no password even where the servers do, and refuse one that is sent all the same.
        try:
            return await self._ask_master(access, node, login=False)
        except redis_errors.AuthenticationError:
            return await self._ask_master(access, node, login=True)

    async def _ask_master(self, access: _Access, node: tuple[str, int], *, login: bool) -> tuple[str, int]:
        client = self._build(access, node, login=login, db=0)
        master = self.settings.address.master
        try:
            found = await client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", master)
        finally:
            await _close(client)
        if found is None:
            raise redis_errors.ConnectionError(f"Sentinel {endpoint(*node)} knows no master {master!r}")
        return found[0].decode(), int(found[1])

    async def _ask_cluster(self, access: _Access, node: tuple[str, int]) -> tuple[str, int]:
        slot = key_slot(self.keys.prefix.encode())
        client = self._build(access, node)
        try:
            ranges = await client.execute_command("CLUSTER", "SLOTS")
        finally:
            await _close(client)
        for first, final, owner, *_ in ranges:
            if first <= slot <= final:
                # An empty name means the node that was asked.
                return (owner[0] or b"").decode() or node[0], int(owner[1])
        raise redis_errors.ClusterDownError(f"no node serves slot {slot}")

    def _build(
        self, access: _Access, place: tuple[str, int] | Path, *, login: bool = True, db: int | None = None
    ) -> Redis:
        timeout = self.settings.timeout
        kwargs: dict[str, Any] = {
            "db": self.settings.address.db if db is None else db,
            "protocol": 2,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "socket_read_size": 1 << 18,
            "health_check_interval": 15,
            "driver_info": None,
            # A pooled connection may have died since: one more try, at once. A timeout is not tried again.
            "retry": Retry(NoBackoff(), 1, (redis_errors.ConnectionError,)),
        }
        if login:
            kwargs |= {"username": access.username, "password": access.password}
        kind: type[redis_connection.AbstractConnection]
        if isinstance(place, Path):
            kind = redis_connection.UnixDomainSocketConnection
            kwargs["path"] = str(place)
        else:
            kind = redis_connection.Connection
            kwargs |= {"host": place[0], "port": place[1], "socket_keepalive": True}
            if access.context is not None:
                kind = _TlsConnection
                kwargs["context"] = access.context
        pool = BlockingConnectionPool(max_connections=8, timeout=timeout, connection_class=kind, **kwargs)
        client = Redis.from_pool(pool)
        client.response_callbacks.clear()  # answers as they come: one form whatever the version of server and client
        return client


async def connect(settings: BusSettings, network: str, state_dir: Path | str | None = None) -> Connection:
    """A Connection that has answered once. ``state_dir`` as configured: it decides where an embedded server is found.

    Raises BusError: bus_unreachable, bus_timeout, bus_auth, bus_tls or bus_refused, with the address and no password.
    """
    return await Connection(settings, network, state_dir).open()


@contextlib.asynccontextmanager
async def _no_lost_cancellation() -> AsyncIterator[None]:
    """Raise a cancellation that came inside and went nowhere.

    The Redis client waits with ``asyncio.wait_for``, which before Python 3.12 drops a cancellation that comes while
    what it waits for ends; the task would then go on for good.
    """
    task = asyncio.current_task()
    asked = task.cancelling() if task else 0
    yield
    if task and task.cancelling() > asked:
        raise asyncio.CancelledError


def _read_access(settings: BusSettings) -> _Access:
    password = settings.address.password
    if settings.password_file is not None:
        try:
            password = settings.password_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BusError(f"password file {settings.password_file}: {error}", reason=Reason.BUS_AUTH) from error
    context: ssl.SSLContext | None = None
    if settings.tls:
        try:
            context = ssl.create_default_context(cafile=settings.ca_file)
            if settings.cert_file is not None:
                context.load_cert_chain(settings.cert_file, settings.key_file)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (settings.ca_file, settings.cert_file, settings.key_file) if file)
            raise BusError(f"TLS files {files}: {error}", reason=Reason.BUS_TLS) from error
    return _Access(settings.username or settings.address.username, password, context)


async def _close(client: Redis) -> None:
    with contextlib.suppress(*CLIENT_ERRORS):
        async with asyncio.timeout(0.5):
            await client.aclose()


def _path(value: Path | str | None) -> Path | None:
    return None if value is None else Path(value)
