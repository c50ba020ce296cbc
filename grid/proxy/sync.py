"""``grid sync``: one gateway's newest document in a file, for data planes that watch one.

Decided on the loop, done in threads. The bus wakes it; a look four times a second finds the rest (a refusal, a file
that went missing), since that does not tell by itself.
"""

import asyncio
import contextlib
import difflib
import secrets
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from grid.bus import BusSettings, Connection, Delivery, FrameDelivery, Position, Report, Subscriber, SubscriberState
from grid.bus import connect as connect_to_bus
from grid.bus.tasks import first_of
from grid.config import Config, GatewayConfig, load
from grid.model import BusError, ConfigError, ConfigProblem, DeliveryError, OverlayError, Problem, Reason
from grid.overlay import Scope, signing
from grid.proxy.addresses import Addresses, endpoints
from grid.proxy.applied import Applied
from grid.proxy.delivery import Held, OutFile, Put
from grid.proxy.eds import PREFIX
from grid.proxy.envoy_admin import EnvoyAdmin
from grid.proxy.forms import EdsForm, EnvelopeForm, Form, FormName
from grid.proxy.sync_status import Facts, State, StatusFile, judge, refusal

log = structlog.get_logger(__name__)

LOOK: Final = 0.25
"""s between looks at what does not tell by itself."""
CHECK: Final = 5.0
"""s between looks at the file."""
RETRY: Final = 1.0
"""s between tries of a writing that failed."""


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """What ``grid sync`` is told beside the configuration in the file ``config``.

    ``status`` None: ``OUT.status.json``. ``key``: public key that documents must be signed with. ``envoy_admin`` None:
    as the gateway's configuration says. ``prefix``: first part of the cluster names.
    """

    config: Path
    gateway: str
    out: Path
    form: FormName = FormName.ENVELOPE
    status: Path | None = None
    key: bytes | None = None
    envoy_admin: str | None = None
    prefix: str = PREFIX


class Sync:
    """Keeps a file at one gateway's newest document. Raises ConfigError for what cannot be meant."""

    def __init__(self, config: Config, options: SyncOptions, *, addresses: Addresses | None = None) -> None:
        name, network = options.gateway, config.network
        gateway = _gateway(config, name)
        scope = Scope(network, name, gateway.namespace, gateway.site)
        key = signing.public_key(options.key) if options.key is not None else None
        self._network = network
        self._gateway = name
        self._instance = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._settings = BusSettings.from_config(config.bus)
        self._state_dir = config.daemon.state_dir
        self._form: Form = EnvelopeForm(scope, key)
        self._applied: Applied | None = None
        if options.form is FormName.ENVOY_EDS:
            self._eds(config, options, addresses)
        elif options.envoy_admin is not None:
            raise ConfigError("an Envoy's admin side is of use with --format envoy-eds only", reason=Reason.USAGE)
        self._out = OutFile(options.out, self._form.read)
        self._status = StatusFile(
            options.status or options.out.with_name(options.out.name + ".status.json"),
            network=network,
            gateway=name,
            format=options.form,
            file=str(options.out),
        )
        self._scope = scope
        self._key = key
        self._subscriber = self._follow(None)
        self._delivery: Delivery | None = None
        self._observed_at: float | None = None
        self._named: Position | None = None
        self._named_at = 0.0
        self._due = False
        self._retry_at = 0.0
        self._file: Problem | None = None
        self._content: tuple[Problem, ...] = ()
        self._wake = asyncio.Event()
        self._stopping = False

    def _eds(self, config: Config, options: SyncOptions, addresses: Addresses | None) -> None:
        found = endpoints(config)
        if not any(one.host for one in found.values()):
            faults = [
                ConfigProblem(Reason.ADDRESS_UNKNOWN, "providers", one.problem, hint=Reason.ADDRESS_UNKNOWN.hint)
                for one in found.values()
            ]
            raise ConfigError("no provider has a url that Envoy could use", faults, reason=Reason.ADDRESS_UNKNOWN)
        form = EdsForm(config, options.gateway, prefix=options.prefix, source=options.config, addresses=addresses)
        plane = config.gateways[options.gateway].data_plane
        admin = options.envoy_admin or (plane.envoy_admin if plane is not None else None)
        self._form = form
        if admin is not None:
            self._applied = Applied(EnvoyAdmin(admin, config.network, options.gateway), lambda: form.places)

    # --- life --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Deliver until ``stop()``. Raises DeliveryError where file or status cannot be used to begin with."""
        await self._begin()
        works: dict[str, Coroutine[Any, Any, None]] = {
            "delivery": self._keep_delivering(),
            "addresses": self._keep_refreshing(),
        }
        if self._applied is not None:
            works["envoy"] = self._applied.keep_asking()
        self._subscriber = self._follow(self._report)
        self._subscriber.start()
        try:
            await first_of({f"{name} of {self._gateway}": work for name, work in works.items()})
        finally:
            await self._subscriber.close()
            if self._applied is not None:
                await self._applied.aclose()

    async def once(self, wait: float) -> str:
        """Deliver what the bus has now, waiting up to ``wait`` s for it; a sentence that says what was done.

        While the bus gives nothing, a good document that the file holds already will do. Raises OverlayError where the
        document is refused, DeliveryError where it cannot be written, BusError where there is none at all.
        """
        await self._begin()
        self._subscriber.start()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    while not self._settled():
                        await self._pause(LOOK / 5)
            if self._due:
                await self._deliver()
            facts = self._facts()
            await self._status.write(facts)
        finally:
            await self._subscriber.close()
        return self._conclude(facts)

    def stop(self) -> None:
        """End ``run()`` once what is being written is written."""
        self._stopping = True
        self._wake.set()

    @property
    def state(self) -> State:
        """How it stands."""
        return judge(self._facts())[0]

    async def _begin(self) -> None:
        found = await self._out.load()
        if found is not None and self._out.held is None:
            log.warning("what is in the file is no good document of this gateway", file=str(self._out.path))
        elif found is not None:
            await asyncio.to_thread(self._form.restore, found)
        await self._status.write(self._facts())

    # --- the bus -----------------------------------------------------------------------------------------------------

    def _follow(self, report: Callable[[SubscriberState], Report] | None) -> Subscriber:
        return Subscriber(
            self._connect,
            self._network,
            self._gateway,
            self._take,
            self._hear,
            scope=self._scope,
            key=self._key,
            report=report,
        )

    async def _connect(self) -> Connection:
        return await connect_to_bus(self._settings, self._network, self._state_dir)

    def _take(self, delivery: Delivery) -> None:
        self._delivery, self._observed_at = delivery, time.time()
        self._due, self._retry_at = True, 0.0
        self._wake.set()

    def _hear(self, heard: FrameDelivery) -> None:
        named = heard.frame.documents.get(self._gateway)
        self._named, self._named_at = None if named is None else Position(*named), time.time()

    def _report(self, state: SubscriberState) -> Report:
        """What Envoy runs, where it can be asked; else what the file holds."""
        position, revision, at = Position(0, 0), "", None
        in_flight: dict[str, int] = {}
        if self._applied is not None:
            if self._applied.version is not None:
                position, revision = self._applied.version.position, self._applied.version.revision
                at = self._applied.at
            if self._applied.running is not None:
                in_flight = dict(self._applied.running.in_flight)
        elif self._out.held is not None:
            position, revision, at = self._out.held.position, self._out.held.revision, self._out.changed_at
        return Report(
            self._gateway,
            self._instance,
            epoch=position.epoch,
            version=position.version,
            revision=revision,
            term=state.term,
            in_flight=in_flight,
            applied_at=at,
            at=time.time(),
        )

    # --- the file ----------------------------------------------------------------------------------------------------

    async def _keep_delivering(self) -> None:
        checked = time.monotonic()
        while not self._stopping:
            await self._pause(LOOK)
            now = time.monotonic()
            if self._due and now >= self._retry_at:
                await self._deliver()
            elif now - checked >= CHECK:
                checked = now
                await self._put_back()
            await self._status.show(self._facts())

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _deliver(self) -> None:
        delivery = self._delivery
        if delivery is None:
            return
        self._due = False
        made = await self._form.make(delivery)
        self._content = made.problems
        if made.data is None:
            return
        held = Held(delivery.position, delivery.revision)
        try:
            put = await self._out.put(made.data, held)
        except DeliveryError as error:
            self._unwritable(error)
            return
        self._file = self._declined(put, held)
        if self._applied is not None and self._file is None:
            self._applied.expect(held.position)
        if put is Put.WRITTEN:
            said = {"gateway": self._gateway, "position": str(held.position), "revision": held.revision}
            log.info("document written", **said, file=str(self._out.path))

    async def _put_back(self) -> None:
        try:
            if await self._out.keep():
                log.warning("the file was changed or gone, and is put back", file=str(self._out.path))
        except DeliveryError as error:
            self._unwritable(error)

    def _unwritable(self, error: DeliveryError) -> None:
        self._file = Problem(error.reason, error.message)
        self._due, self._retry_at = True, time.monotonic() + RETRY

    def _declined(self, put: Put, offered: Held) -> Problem | None:
        held = self._out.held
        if put not in (Put.NEWER, Put.CLASH) or held is None:
            return None
        code = Reason.FILE_NEWER if put is Put.NEWER else Reason.VERSION_CLASH
        return Problem(code, f"{self._out.path} holds {_said(held)}, the bus has {_said(offered)}")

    async def _keep_refreshing(self) -> None:
        while True:
            await asyncio.sleep(self._form.pause)
            if await self._form.refresh():
                self._due = True
                self._wake.set()

    # --- what it says ------------------------------------------------------------------------------------------------

    def _facts(self) -> Facts:
        delivery, applied = self._delivery, self._applied
        return Facts(
            bus=self._subscriber.state,
            held=self._out.held,
            written_at=self._out.changed_at,
            observed=None if delivery is None else Held(delivery.position, delivery.revision),
            observed_at=self._observed_at,
            named=self._named,
            named_at=self._named_at,
            file=self._file,
            content=self._content,
            envoy=applied.problem if applied is not None else None,
            running=applied.running if applied is not None else None,
        )

    def _settled(self) -> bool:
        if self._delivery is not None:
            return True
        return bool(self._subscriber.state.counts.reads) and refusal(self._facts()) is not None

    def _conclude(self, facts: Facts) -> str:
        path, held, refused = self._out.path, facts.held, refusal(facts)
        left_out = "; ".join(one.detail for one in facts.content)
        if facts.observed is None and refused is not None:
            raise OverlayError(f"the document of {self._gateway} is refused: {refused.detail}", reason=refused.code)
        if facts.observed is None:
            reason = judge(facts)[1] or Problem(Reason.NO_OVERLAY)
            if held is None:
                message = f"no document of {self._gateway} has come, and {path} holds none: {reason.detail}"
                raise BusError(message, reason=reason.code)
            return f"no document has come ({reason.detail}); {path} still holds {_said(held)}"
        if facts.file is not None and facts.file.code is not Reason.FILE_NEWER:
            raise DeliveryError(facts.file.detail, reason=facts.file.code)
        if held is None or held.position < facts.observed.position:
            message = f"document {_said(facts.observed)} is of no use: {left_out}"
            raise DeliveryError(message, reason=Reason.ADDRESS_UNKNOWN)
        return f"{path} holds {_said(held)}" + (f"; left out: {left_out}" if left_out else "")


def _said(held: Held) -> str:
    return f"{held.position} ({held.revision[:12]})"


def _gateway(config: Config, name: str) -> GatewayConfig:
    found = config.gateways.get(name)
    if found is not None:
        return found
    near = difflib.get_close_matches(name, config.gateways, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(config.gateways) or 'none'}"
    fault = ConfigProblem(Reason.CONFIG_BAD_REFERENCE, "gateways", f"there is no gateway {name!r}", hint=hint)
    raise ConfigError(f"the configuration has no gateway {name!r}", [fault])


# --- the process ------------------------------------------------------------------------------------------------------


def main(options: SyncOptions, *, once: float | None = None) -> str:
    """Run until SIGTERM or Ctrl-C (a second one ends it at once); a closing sentence. Raises GridError.

    With ``once``, the s to wait for a document: deliver once.
    """
    sync = Sync(load(options.config), options)
    return asyncio.run(_until_signalled(sync) if once is None else sync.once(once))


async def _until_signalled(sync: Sync) -> str:
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def end() -> None:
        for number in signals:
            loop.remove_signal_handler(number)
        sync.stop()

    for number in signals:
        loop.add_signal_handler(number, end)
    await sync.run()
    return "ended as asked"
