"""``grid demo``: a whole network on one machine, from EPP pages to requests, with something happening to it.

Sites are simulated; everything else is the real thing: the daemon with its embedded bus and its HTTP side, reference
gateways, requests over HTTP. All of it on loopback, in one process and one redis-server.
"""

import asyncio
import contextlib
import random
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.live import Live

from grid.bus.server import embedded_socket
from grid.config import parse
from grid.daemon import Daemon
from grid.debug import Event
from grid.model import GridError, Reason
from grid.proxy.gateway import Gateway
from grid.sim import demo_stage, demo_view
from grid.sim.demo_view import GatewayCell, Scene, SiteRow
from grid.sim.load import SteadyLoad
from grid.sim.quiet import quiet_logs
from grid.sim.scenario import DEFAULT, SCENARIOS, Phase, Scenario, play
from grid.sim.site import SimulatedSite

_LOOK = 0.5
_LINE_EVERY = 2.0
_READY_WITHIN = 20.0
_STARTUP_POLL = 0.02
_EVENTS_KEPT = 50
_MOVES_LOOK = 0.25
_MOVES = {
    "spilled": "near sites are full, so new requests go farther",
    "retry": "a site fails requests, and they are tried elsewhere",
    "rescue": "requests that wait at a dead site are sent elsewhere",
}
_TOLD_KINDS = frozenset({"published", "provider", "leader", "bus", "drain"})

OnEvent = Callable[[str], None]


class DemoUsageError(GridError):
    """An argument of the demo is no good."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be shown, for how many s, and to whom."""

    scenario: Scenario
    duration: float
    console: Console | None
    on_event: OnEvent | None


def run_demo(
    duration: float = 40.0,
    *,
    sites: int = 3,
    scenario: str = DEFAULT,
    console: Console | None = None,
    on_event: OnEvent | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Run a demo of ``duration`` s and give its summary; ends by itself, and cleanly on Ctrl-C (KeyboardInterrupt).

    ``console``: where the live table goes on a terminal, lines and events otherwise, and the summary's tables at the
    end; None: nothing is shown. ``on_event`` hears every event as a sentence. The summary has the keys of ``grid demo
    --output json``. Raises GridError where the arguments are no good or a part cannot start.
    """
    chosen = _scenario(scenario, sites, duration)
    # The daemon's log would tear the live table apart; what matters of it comes as events.
    with quiet_logs(), tempfile.TemporaryDirectory(prefix="grid-demo-") as folder:
        summary = asyncio.run(
            _demonstrate(Path(folder), sites, random.Random(seed), _Plan(chosen, duration, console, on_event))
        )
    if console is not None:
        for part in demo_view.summary_tables(summary):
            console.print(part)
    return summary


def _scenario(name: str, sites: int, duration: float) -> Scenario:
    if name not in SCENARIOS:
        raise DemoUsageError(f"no scenario {name!r}", reason=Reason.USAGE, hint=f"there are {', '.join(SCENARIOS)}")
    if not 2 <= sites <= demo_stage.MOST_SITES:
        raise DemoUsageError(f"{sites} sites", reason=Reason.USAGE, hint=f"take 2 to {demo_stage.MOST_SITES}")
    if not 1.0 <= duration <= 86_400.0:
        raise DemoUsageError(f"a duration of {duration:g} s", reason=Reason.USAGE, hint="take 1 to 86400")
    return SCENARIOS[name]


async def _demonstrate(folder: Path, sites: int, rng: random.Random, plan: _Plan) -> dict[str, Any]:
    async with _started(folder, sites, rng, plan) as demo:
        return await demo.run()


@asynccontextmanager
async def _started(folder: Path, count: int, rng: random.Random, plan: _Plan) -> AsyncIterator["_Demo"]:
    """Everything begun in its order, and ended in the reverse of it."""
    sites = demo_stage.make_sites(count, rng)
    async with AsyncExitStack() as stack:
        for site in sites.values():
            stack.push_async_callback(site.stop)
        await asyncio.to_thread(demo_stage.write_token, folder)
        await demo_stage.start_sites(sites)
        config = parse(demo_stage.as_text(demo_stage.configuration(sites, folder)))
        daemon = Daemon(config)
        stack.push_async_callback(daemon.stop)
        await daemon.start()
        socket = embedded_socket(config.network, config.daemon.state_dir)
        gateways = {}
        for name in config.gateways:
            gateways[name] = gateway = Gateway(config, name, rng=random.Random(rng.getrandbits(64)))
            stack.push_async_callback(gateway.stop)
            await gateway.start()
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        asking = httpx.AsyncClient(base_url=daemon.url, trust_env=False, verify=bare, timeout=5.0)
        desk = _Desk(await stack.enter_async_context(asking), socket)
        yield _Demo(sites, daemon, desk, gateways, rng=rng, plan=plan)


class _Desk:
    """The operator's place: the daemon's HTTP side, and a hand on the bus."""

    def __init__(self, http: httpx.AsyncClient, socket: Path) -> None:
        self._http = http
        self._socket = socket

    async def get(self, path: str) -> Any:
        """A JSON answer; None where there is none (yet)."""
        try:
            answer = await self._http.get(path)
        except httpx.TransportError:
            return None
        return answer.json() if answer.status_code == httpx.codes.OK else None

    async def restart_bus(self) -> None:
        """The daemon that embeds the server starts it again, empty."""
        # Not through a client library: it would take the end for a lost connection and send the command again.
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_unix_connection(str(self._socket))
            writer.write(b"SHUTDOWN NOSAVE\r\n")
            await reader.read()
            writer.close()
            await writer.wait_closed()

    async def drain(self, provider: str) -> None:
        """As ``grid drain`` does it."""
        answer = await self._http.post("/v1/drains", json={"target": provider, "reason": "demo"})
        answer.raise_for_status()

    async def undrain(self, provider: str) -> None:
        """As ``grid undrain`` does it."""
        answer = await self._http.delete(f"/v1/drains/{provider}")
        answer.raise_for_status()


class _Demo:
    """A demo that has been started: it runs the load and the scenario, and watches."""

    def __init__(
        self,
        sites: Mapping[str, SimulatedSite],
        daemon: Daemon,
        desk: _Desk,
        gateways: Mapping[str, Gateway],
        *,
        rng: random.Random,
        plan: _Plan,
    ) -> None:
        self._sites = sites
        self._daemon = daemon
        self._desk = desk
        self._scenario, self._duration = plan.scenario, plan.duration
        self._console, self._on_event = plan.console, plan.on_event
        self._phase = Phase("starting", "everything begins")
        self._sentence = self._phase.sentence
        self._begun = time.monotonic()
        self._events: list[str] = []
        self._published: list[Mapping[str, object]] = []
        self._told: set[tuple[str, str]] = set()
        rate = demo_stage.GATEWAY_LOAD * next(iter(sites.values())).shape.rate
        self._gateways = gateways
        self._loads = {
            name: SteadyLoad(
                name, gateway.url, model=demo_stage.MODEL, rate=rate, rng=random.Random(rng.getrandbits(64))
            )
            for name, gateway in gateways.items()
        }
        self._moved: dict[tuple[str, str], float] = {}
        self._shown: dict[str, dict[str, float]] = {name: {} for name in gateways}

    async def run(self) -> dict[str, Any]:
        """Wait until gateways can pick, play the scenario under load, sum up."""
        await self._ready()
        self._tell(f"the daemon can be looked at while it runs: {self._daemon.url}/")
        past = self._daemon.events.history()
        for event in past:
            self._hear(event)
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(self._follow_events(past[-1].id if past else 0), name="demo events"),
                group.create_task(self._watch(), name="demo watch"),
                group.create_task(self._follow_moves(), name="demo moves"),
            ]
            end = asyncio.Event()
            loads = [group.create_task(load.run(end), name=f"load of {name}") for name, load in self._loads.items()]
            self._begun = time.monotonic()
            await play(self._scenario, demo_stage.World(self._sites, self._desk), self._duration, self._enter)
            end.set()
            await asyncio.wait(loads)
            for task in beside:
                task.cancel()
            return await self._summary()

    # --- what happens -----------------------------------------------------------------------------------------------

    async def _ready(self) -> None:
        """Every gateway can pick and every site has been read."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _READY_WITHIN
        while True:
            missing = [name for name, gateway in self._gateways.items() if not _can_pick(gateway)]
            providers = [] if missing else await self._providers()
            if providers and all(one["state"] == "fresh" for one in providers):
                return
            if loop.time() > deadline:
                if missing:
                    raise GridError(
                        f"no document reached {', '.join(missing)} within {_READY_WITHIN:g} s", reason=Reason.NO_OVERLAY
                    )
                return
            await asyncio.sleep(_STARTUP_POLL)

    def _enter(self, phase: Phase, sentence: str) -> None:
        self._phase, self._sentence = phase, sentence
        self._told.clear()
        for load in self._loads.values():
            load.phase = phase.name
        self._tell(f"[{phase.name}] {sentence}")

    async def _follow_moves(self) -> None:
        """Say, once per phase, when gateways begin to send requests elsewhere."""
        while True:
            for name, gateway in self._gateways.items():
                for reason, sentence in _MOVES.items():
                    number = _decisions(gateway, reason)
                    if number > self._moved.get((name, reason), 0.0) and (name, reason) not in self._told:
                        self._told.add((name, reason))
                        self._tell(f"{name}: {sentence}")
                    self._moved[name, reason] = number
            await asyncio.sleep(_MOVES_LOOK)

    def _tell(self, sentence: str) -> None:
        stamped = f"{time.monotonic() - self._begun:5.1f}s {sentence}"
        self._events = [*self._events, stamped][-_EVENTS_KEPT:]
        if self._on_event is not None:
            self._on_event(stamped)
        if self._console is not None and not self._console.is_terminal:
            self._console.print(stamped, markup=False, highlight=False, soft_wrap=True)

    def _hear(self, event: Event) -> None:
        if event.kind == "published":
            self._published.append(event.fields)
        if event.kind in _TOLD_KINDS:
            self._tell(event.sentence)

    async def _follow_events(self, after: int) -> None:
        async for event in self._daemon.events.feed(after):
            if event is not None:
                self._hear(event)

    # --- what is seen -----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        console = self._console
        if console is None:
            return
        if console.is_terminal:
            with Live(console=console, auto_refresh=False, transient=True) as screen:
                while True:
                    screen.update(demo_view.live(await self._look()), refresh=True)
                    await asyncio.sleep(_LOOK)
        while True:
            console.print(demo_view.line(await self._look()), markup=False, highlight=False, soft_wrap=True)
            await asyncio.sleep(_LINE_EVERY)

    async def _providers(self) -> list[dict[str, Any]]:
        found = await self._desk.get("/v1/providers")
        return [] if found is None else list(found["providers"])

    async def _look(self) -> Scene:
        providers = await self._providers()
        documents = {name: await self._desk.get(f"/v1/overlays/{name}") for name in self._gateways}
        groups = {name: _groups(document) for name, document in documents.items()}
        for name, load in self._loads.items():
            self._shown[name] = load.take_recent() or self._shown[name]
        rows = tuple(
            SiteRow(
                site=one["site"],
                dialect=self._sites[one["site"]].shape.profile,
                ready=one["ready_endpoints"],
                held=one["held"],
                capacity=one["capacity"],
                saturation=one["saturation"],
                freshness=one["state"],
                state=one["admission_state"] or "",
                reason=one["reason"] or "",
                cells={
                    name: GatewayCell(groups[name].get(one["site"]), self._shown[name].get(one["site"], 0.0))
                    for name in self._gateways
                },
            )
            for one in providers
        )
        states = {name: gateway.client.state for name, gateway in self._gateways.items()}
        places = {name: f"v{state.version} {(state.revision or '-')[:8]}" for name, state in states.items()}
        elapsed = max(0.0, time.monotonic() - self._begun)
        return Scene(elapsed, self._duration, self._phase.name, self._sentence, rows, places, tuple(self._events))

    async def _summary(self) -> dict[str, Any]:
        providers = {}
        for name in self._sites:
            found = await self._desk.get(f"/v1/providers/{name}") or {}
            providers[name] = found
        tallies = [load.tally for load in self._loads.values()]
        return {
            "scenario": self._scenario.name,
            "duration_s": self._duration,
            "sites": list(self._sites),
            "published": len(self._published),
            "revisions": len({str(one["revision"]) for one in self._published}),
            "scrapes": sum(one.get("scrapes", 0) for one in providers.values()),
            "requests": sum(tally.requests for tally in tallies),
            "providers": providers,
            "gateways": {name: self._totals(name) for name in self._gateways},
            "phases": {
                phase.name: {name: _rounded(load.tally.shares(phase.name)) for name, load in self._loads.items()}
                for phase in self._scenario.phases
            },
            "errors": sum(tally.errors for tally in tallies),
        }

    def _totals(self, name: str) -> dict[str, Any]:
        gateway, tally = self._gateways[name], self._loads[name].tally
        state = gateway.client.state
        return {
            "version": state.version,
            "epoch": state.epoch,
            "revision": state.revision,
            "requests": tally.requests,
            "retried": int(_decisions(gateway, "retry")),
            "rescued": int(_decisions(gateway, "rescue")),
            "shares": _rounded(tally.shares()),
            "shed": tally.shed,
            "errors": tally.errors,
            "slowest_s": round(tally.slowest, 3),
        }


def _rounded(shares: Mapping[str, float]) -> dict[str, float]:
    return {site: round(share, 4) for site, share in shares.items()}


def _can_pick(gateway: Gateway) -> bool:
    try:
        gateway.client.pick(demo_stage.MODEL)
    except GridError:
        return False
    return True


def _decisions(gateway: Gateway, reason: str) -> float:
    """How many decisions a gateway has made for ``reason``, whatever the site."""
    return sum(
        sample.value
        for metric in gateway.metrics.decisions.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels["reason"] == reason
    )


def _groups(document: Mapping[str, Any] | None) -> dict[str, int]:
    """The selection group of each site that a document admits to."""
    candidates = [] if document is None else document["overlay"]["candidates"]
    return {
        one["site"]: one.get("selection_group", one.get("rank", 0))
        for one in candidates
        if one["admission_state"] != "none"
    }
