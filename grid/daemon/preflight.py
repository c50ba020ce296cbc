"""``grid check --live``: asks every source, probe, secret file and the bus once, as the daemon would."""

import asyncio
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel

from grid.bus import BusSettings, connect, embedded_socket
from grid.bus.server import server_program
from grid.config import Config, Listen
from grid.daemon import sources
from grid.daemon.observe import Source
from grid.debug.server import bind
from grid.model import DaemonError, GridError, Provider, Reason, Sample
from grid.policy import ProviderMemory, assess
from grid.signals.scrape import Scrape

_AT_ONCE = 50
_ANSWER = 2.0


@dataclass(frozen=True, slots=True)
class Result:
    """One thing that was tried: what was found, and the next step where it did not work."""

    name: str
    ok: bool
    detail: str
    hint: str = ""


async def preflight(config: Config) -> list[Result]:
    """Everything that ``grid run`` will need, tried once; sources all at once, each under its scrape timeout."""
    files = await asyncio.to_thread(lambda: [_readable(name, path) for name, path in _files(config)])
    made = await sources.make(sources.declared(config))
    network = config.to_network()
    gate = asyncio.Semaphore(_AT_ONCE)
    tried = (_source(name, made[name], network.providers[name], gate) for name in sorted(made))
    found = [result for results in await asyncio.gather(*tried) for result in results]
    own = [await asyncio.to_thread(_state_dir, path)] if (path := config.daemon.state_dir) is not None else []
    return [*files, *own, *found, await _bus(config), await _listen(config.daemon.listen)]


def _files(config: Config) -> Iterator[tuple[str, Path]]:
    """Every file that a ``*_file`` key names, with the dotted path of the key."""
    yield from _named(config, "")


def _named(value: Any, path: str) -> Iterator[tuple[str, Path]]:
    items: Iterable[tuple[str, Any]] = ()
    if isinstance(value, BaseModel):
        items = ((key, getattr(value, key)) for key in type(value).model_fields)
    elif isinstance(value, dict):
        items = value.items()
    for key, inner in items:
        where = f"{path}.{key}" if path else str(key)
        if isinstance(inner, Path) and key.endswith("_file"):
            yield where, inner
        else:
            yield from _named(inner, where)


def _readable(name: str, path: Path) -> Result:
    try:
        content = path.read_bytes()
    except OSError as error:
        return Result(f"file: {name}", False, f"{path}: {error.strerror}", Reason.CREDENTIAL_FILE.hint)
    if not content.strip():
        return Result(f"file: {name}", False, f"{path} is empty", Reason.CREDENTIAL_FILE.hint)
    return Result(f"file: {name}", True, f"{path}: {len(content)} bytes")


def _state_dir(path: Path) -> Result:
    """Whether the directory can be written to, or made."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    hint = "make the directory, and let the user that runs the daemon write there"
    if not there.is_dir():
        return Result("state_dir", False, f"{path}: {there} is no directory", hint)
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Result("state_dir", False, f"{path}: {there} cannot be written to: {error.strerror or error}", hint)
    return Result("state_dir", True, f"{path}: writable" if there == path else f"{path}: will be made in {there}")


async def _listen(listen: Listen) -> Result:
    """Whether the HTTP side can listen there, or a daemon does already."""
    try:
        bound = await asyncio.to_thread(bind, *listen)
    except DaemonError as error:
        url = f"http://[{listen.host}]:{listen.port}" if ":" in listen.host else f"http://{listen.host}:{listen.port}"
        if await _is_daemon(url):
            return Result("listen", True, f"{listen}: a grid daemon answers there already")
        return Result("listen", False, error.message, error.hint)
    bound.close()
    return Result("listen", True, f"{listen}: free")


async def _is_daemon(url: str) -> bool:
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=_ANSWER) as client:
            answer = (await client.get(f"{url}/version")).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False
    # One that wants a token says so in its own way.
    return isinstance(answer, dict) and ("protocol" in answer or str(answer.get("type")).startswith("urn:grid:"))


async def _source(name: str, source: Source, provider: Provider, gate: asyncio.Semaphore) -> list[Result]:
    async with gate:
        results = [await _page(name, source, provider)]
        if source.probe is not None:
            found = await source.probe.check()
            detail = "ready" if found.healthy else (found.problem.detail if found.problem else "not ready")
            hint = "" if found.problem is None else found.problem.code.hint
            results.append(Result(f"readiness: {name}", found.healthy is True, detail, hint))
        await source.aclose()
        return results


async def _page(name: str, source: Source, provider: Provider) -> Result:
    try:
        async with asyncio.timeout(source.timeout + 1.0):
            scrape = await source.scraper.scrape()
    except GridError as error:
        return Result(f"source: {name}", False, f"{error.message} [{error.reason}]", error.hint)
    except TimeoutError:
        detail = f"no page within {source.timeout:g} s [{Reason.TIMEOUT}]"
        return Result(f"source: {name}", False, detail, Reason.TIMEOUT.hint)
    return _judged(name, scrape, provider, source.interval)


def _judged(name: str, scrape: Scrape, provider: Provider, interval: float) -> Result:
    reading = scrape.reading
    sample = Sample(provider.id, 1, scrape.received_at, reading, interval)
    load, _, _ = assess(provider, sample, ProviderMemory(), scrape.received_at)
    problem = min(scrape.problems, key=lambda one: one.code is not Reason.NO_READY_ENDPOINTS, default=None)
    said = f"{reading.dialect or 'no pool metrics'}, pool {reading.pool or '-'}, {reading.ready or 0} ready"
    if load.load is not None:
        said += f", load {load.load:.2f} ({load.load_source})"
    if reading.ready and load.load is not None:
        return Result(f"source: {name}", True, said)
    if problem is None:
        return Result(f"source: {name}", False, f"{said}: its load is unknown", Reason.LOAD_UNKNOWN.hint)
    return Result(
        f"source: {name}",
        False,
        f"{said}: {problem.detail or problem.code.meaning} [{problem.code}]",
        problem.code.hint,
    )


async def _bus(config: Config) -> Result:
    url = config.bus.url
    if url == "embedded":
        socket = embedded_socket(config.network, config.daemon.state_dir)
        if not await asyncio.to_thread(socket.exists):
            program = server_program()
            if program is None:
                return Result("bus", False, "no redis-server on this machine", Reason.BUS_NO_SERVER.hint)
            return Result("bus", True, f"embedded: grid run will start {program}")
    connection = None
    try:
        async with asyncio.timeout(5.0):
            connection = await connect(BusSettings.from_config(config.bus), config.network, config.daemon.state_dir)
            await connection.command("PING")
    except GridError as error:
        return Result("bus", False, f"{error.message} [{error.reason}]", error.hint)
    except TimeoutError:
        return Result("bus", False, f"no answer from {url} within 5 s", Reason.BUS_TIMEOUT.hint)
    finally:
        if connection is not None:
            await connection.aclose()
    return Result("bus", True, f"{connection.where} answers")
