"""A whole fleet in virtual time: sites behind EPPs, the control plane that scrapes them, gateways that follow it."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grid.gateway.frames import OnEstimateError
from grid.model import Capability, Gateway, Kind, Network, Order, Picker, Provider
from grid.model import Site as Place
from grid.sim.virtual.bus import Follower
from grid.sim.virtual.clock import Clock
from grid.sim.virtual.gateways import MODEL, NETWORK, Habits, SimGateway
from grid.sim.virtual.gauges import Epp, Page
from grid.sim.virtual.plane import Plane
from grid.sim.virtual.site import Site

EDGE = "edge"
"""Name of the gateway whose instances a fleet has."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A site as it is set up. ``slots`` per endpoint; ``declared``: whether the configuration says so (else learned).

    ``region``: where it lies; gateways lie in the region ``home``.
    """

    slots: int
    endpoints: int = 1
    kv_tokens: int | None = None
    declared: bool = True
    page: Page = field(default_factory=Page)
    region: str = "home"


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a world is made of. ``interval``: s between scrapes; ``gateways``: processes; ``habits`` of each.

    With ``near`` the sites of the region ``home`` are filled before others; without, all are one group.
    """

    sites: tuple[Shape, ...]
    gateways: int = 1
    interval: float = 2.0
    timeout: float = 1.0
    habits: Habits = field(default_factory=Habits)
    picker: Picker = Picker.SATURATION
    near: bool = False

    def network(self, absent: Sequence[int] = ()) -> Network:
        """What the configuration would say, without the sites of these numbers."""
        kept = {f"site-{number}": shape for number, shape in enumerate(self.sites) if number not in absent}
        return Network(
            name=NETWORK,
            sites={
                "gateways": Place("gateways", region="home"),
                **{name: Place(name, region=shape.region) for name, shape in kept.items()},
            },
            providers={
                name: Provider(
                    id=name,
                    site=name,
                    cluster=f"{name}-cluster",
                    capabilities=(Capability(Kind.INFERENCE_MODEL, MODEL),),
                    max_running=shape.slots if shape.declared else None,
                    interval=self.interval,
                    timeout=self.timeout,
                )
                for name, shape in kept.items()
            },
            gateways={
                EDGE: Gateway(
                    EDGE,
                    "gateways",
                    order=Order.GEOGRAPHY_FIRST if self.near else Order.SCORE_FIRST,
                    picker=self.picker,
                )
            },
            uid=NETWORK,
        )


class World:
    """A fleet that lives. ``absent``: numbers of the sites that are not configured yet.

    Everything random in it comes from ``seed``.
    """

    def __init__(
        self, fleet: Fleet, *, seed: int = 1, absent: Sequence[int] = (), on_error: OnEstimateError | None = None
    ) -> None:
        self.fleet = fleet
        self.seed = seed
        self.clock = clock = Clock()
        self.sites = [
            Site(
                f"site-{number}",
                shape.slots,
                clock,
                endpoints=shape.endpoints,
                kv_tokens=shape.kv_tokens,
                flow_control=shape.page.live and shape.page.profile.flow_control,
            )
            for number, shape in enumerate(fleet.sites)
        ]
        by_name: Mapping[str, Site] = {site.name: site for site in self.sites}
        self.epps = [
            Epp(site, clock, self.rng(f"epp {site.name}"), page=shape.page)
            for site, shape in zip(self.sites, fleet.sites, strict=True)
        ]
        network = fleet.network(absent)
        self.plane = Plane(clock, network, {epp.site.name: epp for epp in self.epps}, rng=self.rng("bus"))
        declared = {
            f"{provider.site}/{provider.cluster}": None if provider.max_running is None else float(provider.max_running)
            for provider in fleet.network().providers.values()
        }
        self.gateways = [
            SimGateway(
                clock,
                by_name,
                name=EDGE,
                instance=number,
                rng=self.rng(f"gateway {number}"),
                declared=declared,
                offset=number / fleet.gateways,
                habits=fleet.habits,
                on_error=on_error,
            )
            for number in range(fleet.gateways)
        ]
        for gateway in self.gateways:
            gateway.on_report = self.plane.heard
            self.plane.follow(
                Follower(EDGE, gateway.document, gateway.frame, gateway.report, delay=gateway.habits.delay)
            )

    def rng(self, purpose: str) -> random.Random:
        """Numbers of their own for one purpose, so that one part of a run does not disturb another."""
        return random.Random(f"{self.seed} {purpose}")

    def join(self, number: int) -> None:
        """A site that was absent is configured."""
        known = {int(name.removeprefix("site-")) for name in self.plane.network.providers}
        absent = [one for one in range(len(self.sites)) if one not in known | {number}]
        self.plane.configure(self.fleet.network(absent), {epp.site.name: epp for epp in self.epps})

    def page(self, number: int, change: Callable[[Page], Page] | None = None, **fields: bool | float) -> None:
        """Let the page of site ``number`` behave differently from now on."""
        epp = self.epps[number]
        epp.page = change(epp.page) if change is not None else replace(epp.page, **fields)  # type: ignore[arg-type]
