"""The reference gateway: its parts, their wiring, its beginning and its end."""

import asyncio
import contextlib
import difflib
import gc
import os
import random
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import disable_created_metrics

from grid.bus import BusSettings, Report
from grid.bus.tasks import guarded, stop
from grid.config import Config, load
from grid.config.gateways import AffinityConfig, AffinityMode, GatewayConfig
from grid.gateway import Affinity, Settings
from grid.model import ConfigError, ConfigProblem, Reason
from grid.overlay import SignalFrame
from grid.proxy.app import GatewayApp
from grid.proxy.client import GatewayClient
from grid.proxy.entrance import Entrance
from grid.proxy.gateway_metrics import GatewayMetrics
from grid.proxy.inbound import BodyLimits
from grid.proxy.listener import Listener
from grid.proxy.observed import EnvoyHealth
from grid.proxy.shared import Rules, Shared
from grid.proxy.upstreams import Pool, Upstreams

log = structlog.get_logger(__name__)

GRACE: Final = 30.0
"""s that requests under way may take to end."""
_POLL: Final = 0.02
_OPEN_FILES: Final = 65536


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that the configuration does not name. ``grace``: see :meth:`Gateway.drain`."""

    body_grace: float = 30.0
    body_rate: float = 16 * 1024
    grace: float = GRACE
    pool: Pool = field(default_factory=Pool)


class Gateway:
    """One reference gateway: ``start()``, then ``drain()`` and ``stop()``; several may live on one loop.

    ``listen``: host and port, 0 for any free one. ``key``: Ed25519 public key that must have signed documents. Raises
    ConfigError where the configuration has no gateway ``name``.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        *,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        key: bytes | None = None,
        limits: Limits | None = None,
        rng: random.Random | None = None,
    ) -> None:
        own = gateway_of(config, name)
        self.name = name
        self.limits = limits or Limits()
        self.metrics = GatewayMetrics()
        state_dir = config.daemon.state_dir
        self.client = GatewayClient(
            network=config.network,
            gateway=name,
            bus=BusSettings.from_config(config.bus),
            state_dir=state_dir,
            save_to=None if state_dir is None else state_dir / f"gateway-{name}.json",
            namespace=own.namespace,
            local_site=own.site,
            key=key,
            settings=_settings(own),
            rng=rng,
            on_estimate_error=self.metrics.estimate_was_off,
        )
        self.metrics.follow(self.client)
        self.shared = Shared(
            self.client,
            Upstreams(config.providers, self.limits.pool),
            _rules(own, self.limits),
            self.metrics,
            self._entrance(config, own),
        )
        self.app = GatewayApp(self.shared, own.trusted_proxies)
        self.listener = Listener(self.app, *listen)
        self.metrics_listener = (
            None if own.metrics_listen is None else Listener(self.app.operators, *own.metrics_listen)
        )
        self._envoy = (
            None if own.data_plane is None else EnvoyHealth(own.data_plane.envoy_admin, config, self._clusters_down)
        )
        self._watching: asyncio.Task[None] | None = None
        self.client.on_document = self._document
        self.client.on_frame = self._frame
        self.client.complete_report = self._complete

    def _entrance(self, config: Config, own: GatewayConfig) -> Entrance | None:
        if own.admission is None:
            return None
        return Entrance(
            config.admission[own.admission],
            self.client,
            declared={
                provider: float(one.max_running)
                for provider, one in config.providers.items()
                if one.max_running is not None
            },
            places={provider: f"{one.site}/{one.cluster}" for provider, one in config.providers.items()},
            trusted=own.trusted_proxies,
            phase=int.from_bytes(blake2b(self.client.instance.encode(), digest_size=4).digest()) / 2**32,
            registry=self.metrics.registry,
        )

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it answers."""
        return self.listener.url

    async def start(self) -> None:
        """Follow the bus and serve; ready once there is a document. Raises GridError where an address is taken."""
        try:
            await self.shared.upstreams.__aenter__()
            self.client.start()
            if self._envoy is not None:
                self._watching = guarded(self._envoy.run(), f"envoy health for {self.name}")
            if self.metrics_listener is not None:
                await self.metrics_listener.start()
            await self.listener.start()
        except BaseException:
            await self.stop()
            raise
        log.info("gateway listens", gateway=self.name, url=self.url)

    async def drain(self) -> bool:
        """Take no new work; whether what was under way has ended within ``limits.grace`` s.

        ``/readyz`` says no from now on, and what waits for admission is sent to another gateway.
        """
        self.app.draining = True
        if self.shared.entrance is not None:
            self.shared.entrance.admission.close()
        deadline = asyncio.get_running_loop().time() + self.limits.grace
        while self.in_progress:
            if asyncio.get_running_loop().time() > deadline:
                log.warning("requests are cut off", gateway=self.name, number=self.in_progress)
                return False
            await asyncio.sleep(_POLL)
        return True

    async def stop(self) -> None:
        """End at once; what is under way is cut off."""
        self.app.draining = True
        if self._watching is not None:
            await stop(self._watching)
            self._watching = None
        await self.listener.stop()
        if self.metrics_listener is not None:
            await self.metrics_listener.stop()
        if self.shared.entrance is not None:
            self.shared.entrance.admission.close()
        await self.client.close()
        await self.shared.upstreams.__aexit__()

    @property
    def in_progress(self) -> int:
        """Requests that have come and have not ended."""
        return self.shared.in_progress

    # --- what the bus and the data plane say --------------------------------------------------------------------------

    def _document(self) -> None:
        self._warn_of_strangers()
        if self.shared.entrance is not None:
            self.shared.entrance.routes_changed()

    def _frame(self, frame: SignalFrame, received_at: float) -> None:
        if self.shared.entrance is not None:
            self.shared.entrance.frame(frame, received_at)
        self.shared.rescue()

    def _complete(self, report: Report) -> Report:
        if self.shared.entrance is not None:
            self.shared.entrance.reported(report.in_flight)
        return replace(report, first_byte_s=self.shared.first_bytes.take())

    def _clusters_down(self, clusters: frozenset[str]) -> None:
        self.client.clusters_down(clusters)
        if self.shared.entrance is not None:
            self.shared.entrance.routes_changed()

    def _warn_of_strangers(self) -> None:
        for target in self.client.targets:
            upstream = self.shared.upstreams.get(target.site, target.cluster)
            problem = "the configuration names no provider there" if upstream is None else upstream.problem
            if problem is not None:
                log.warning("a provider cannot be reached", site=target.site, cluster=target.cluster, problem=problem)


def gateway_of(config: Config, name: str) -> GatewayConfig:
    """The section of gateway ``name``. Raises ConfigError."""
    found = config.gateways.get(name)
    if found is not None:
        return found
    near = difflib.get_close_matches(name, config.gateways, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(config.gateways) or 'none'}"
    fault = ConfigProblem(Reason.CONFIG_BAD_REFERENCE, "gateways", f"there is no gateway {name!r}", hint=hint)
    raise ConfigError(f"the configuration has no gateway {name!r}", [fault])


def _settings(own: GatewayConfig) -> Settings:
    return Settings(
        spill=own.spill,
        overflow=own.overflow,
        affinity=None if own.affinity is None else _affinity(own.affinity),
        retry_share=own.retry.budget,
        retry_min_per_s=own.retry.min_per_s,
        sheds=own.admission is None,
    )


def _affinity(config: AffinityConfig) -> Affinity:
    return Affinity(config.ttl, config.max_sessions, hashed=config.mode is AffinityMode.HASH)


def _rules(own: GatewayConfig, limits: Limits) -> Rules:
    affinity = own.affinity
    return Rules(
        retry_on=frozenset(own.retry.on),
        rescue=own.rescue,
        session_header=affinity.header.lower().encode() if affinity is not None and affinity.header else None,
        session_cookie=affinity.cookie.encode() if affinity is not None and affinity.cookie else None,
        limits=BodyLimits(own.max_body, limits.body_grace, limits.body_rate),
    )


# --- the process ------------------------------------------------------------------------------------------------------


def main(config: Path, name: str, *, listen: tuple[str, int], key: bytes | None = None, grace: float = GRACE) -> int:
    """Run a gateway until SIGTERM or Ctrl-C, let its requests end; the exit code. A second signal ends it at once.

    Raises GridError where it cannot start.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    _allow_files()
    # What is there by now stays. Looked at again and again it would cost the loop pauses of 50 ms.
    gc.freeze()
    return asyncio.run(_run(Gateway(load(config), name, listen=listen, key=key, limits=Limits(grace=grace))))


async def _run(gateway: Gateway) -> int:
    ended = asyncio.Event()
    with _signals(ended):
        await gateway.start()
        try:
            await ended.wait()
            await gateway.drain()
        finally:
            await gateway.stop()
    return 0


@contextlib.contextmanager
def _signals(ended: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    ending = (signal.SIGTERM, signal.SIGINT)

    def first(name: str) -> None:
        log.info("stopping", signal=name)
        ended.set()
        for one in ending:
            loop.remove_signal_handler(one)
            # Not through the loop: it must work even where the loop is stuck.
            signal.signal(one, _at_once)

    for one in ending:
        loop.add_signal_handler(one, first, one.name)
    try:
        yield
    finally:
        for one in ending:
            loop.remove_signal_handler(one)


def _at_once(number: int, _: object) -> None:
    os._exit(128 + number)


def _allow_files() -> None:
    """Every stream takes two sockets, and the usual soft limit of open files is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
