"""From a change on a site's page to the last gateway that picks by it, and where the time goes.

A whole daemon in a process of its own over a private Redis, simulated EPPs in another, gateways in up to four more.
Sites turn full and quiet at times drawn before the first one, in a Poisson process, by a process that waits for nobody;
so a stall anywhere is counted in full. A full site takes no new sessions (pressure admission after one scrape), so
each change makes a new document for every gateway.

Of each change the parts, which add up to the ``total``: ``scrape_wait`` until the next scrape of the page arrives at
the site, ``scrape`` until the daemon has the sample, ``join`` until a cycle begins (it joins the news of 20 ms, and
keeps to a tenth of a core), ``decide``, ``render``, ``publish`` until Redis has confirmed the last document, ``apply``
until the last gateway picks from it. ``beyond_scrape_wait`` is the total without the first.

The peer is a bare redis-py publication of as many bytes to as many plain subscribers in the gateways' processes, at
times drawn alike, timed to the last. ``ratio`` is the median of publish and apply together over the peer's.
"""

import random
import tempfile
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from itertools import pairwise
from time import monotonic, sleep
from typing import Any, Final

import yaml
from redis import Redis

from grid.bus.server import embedded_socket
from grid.sim.bench.cycle_sites import SLOTS
from grid.sim.bench.fanout import UnfinishedError, applied_at
from grid.sim.bench.followers import BARE
from grid.sim.bench.growth import Better
from grid.sim.bench.helpers import Helper, marks, shared_out

NETWORK: Final = "bench"
PARTS: Final = ("scrape_wait", "scrape", "join", "decide", "render", "publish", "apply")
_PROCESSES: Final = 4
_PER_PROCESS: Final = 25
_LEAD: Final = 1.0
"""s until the first change is due."""
_QUIET_AGAIN: Final = 2.5
"""Scrape intervals that a page stays as it is at least: none may be turned over again before anybody has read it."""
_AFTER: Final = 15.0
"""s that the last change may take at most."""
_LOOK: Final = 0.25


@dataclass(frozen=True, slots=True)
class Setup:
    """``sites`` with ``models`` each: their product is the candidates of a document. ``rate``: changes a s."""

    gateways: int
    instances: int = 1
    sites: int = 20
    models: int = 4
    interval: float = 1.0
    rate: float = 3.0
    seconds: float = 8.0

    @property
    def names(self) -> list[str]:
        """The gateway of each client."""
        return [f"edge-{number}" for number in range(self.gateways) for _ in range(self.instances)]


SETUPS: Final = (Setup(1), Setup(10), Setup(100, rate=1.5, seconds=12.0), Setup(1, instances=100))


@dataclass(frozen=True, slots=True)
class Change:
    """When what became of one change, monotonic s: the bounds of its parts."""

    changed: float
    read: float
    received: float
    began: float
    decided: float
    rendered: float
    published: float
    applied: float

    @property
    def parts(self) -> dict[str, float]:
        """What each part took, s, by name."""
        return {name: after - before for name, (before, after) in zip(PARTS, pairwise(astuple(self)), strict=True)}

    @property
    def total(self) -> float:
        """What all of it took, s."""
        return self.applied - self.changed


def run(*, setups: Sequence[Setup] = SETUPS, seed: int = 11) -> list[dict[str, Any]]:
    """One row per setup: for each part, the total and what is beyond the wait for the scrape the p50 and p99 in ms."""
    rng = random.Random(seed)
    return [_measured(setup, rng) for setup in setups]


def _measured(setup: Setup, rng: random.Random) -> dict[str, Any]:
    sites = [f"site-{number}" for number in range(setup.sites)]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="grid-bench-"))
        pages = stack.enter_context(Helper("cycle_sites", sites=sites, profile="v0.10"))
        text = yaml.safe_dump(configuration(setup, pages.hear()["urls"], folder))
        daemon = stack.enter_context(Helper("cycle_daemon", config=text))
        daemon.hear()
        number = min(_PROCESSES, -(-len(setup.names) // _PER_PROCESS))
        followers = [
            stack.enter_context(
                Helper("followers", network=NETWORK, folder=folder, gateways=part, libraries=True, bare=len(part))
            )
            for part in shared_out(setup.names, number)
        ]
        for one in followers:
            one.hear()
        start = monotonic() + _LEAD
        pages.ask({"changes": drawn(setup, sites, start, rng)})
        bare = _bare(embedded_socket(NETWORK, folder), setup, start, rng)
        until = start + setup.seconds + _AFTER
        while True:
            sleep(_LOOK)
            told, answers = daemon.ask("what happened?"), [one.ask({"places": {}, "bare": None}) for one in followers]
            seen = pages.ask("what happened?")
            try:
                changes = traced(seen, told, [one for answer in answers for one in answer["applied"]])
                break
            except UnfinishedError:
                if monotonic() > until:
                    raise
        answers = [one.ask({"places": {}, "bare": len(bare) - 1}) for one in followers]
    heard = [dict(one) for answer in answers for one in answer["bare"]]
    theirs = [max(one[number] for one in heard) - due for number, due in enumerate(bare)]
    return _row(setup, len(followers), changes, marks([1e3 * took for took in theirs]))


def drawn(setup: Setup, sites: Sequence[str], start: float, rng: random.Random) -> list[tuple[float, str]]:
    """When which site's page changes (monotonic s): the site that has been as it is for longest."""
    order = rng.sample(list(sites), len(sites))
    last = dict.fromkeys(sites, start - _QUIET_AGAIN * setup.interval)
    found: list[tuple[float, str]] = []
    at = start
    while (at := at + rng.expovariate(setup.rate)) < start + setup.seconds:
        site = order[0]
        if at - last[site] >= _QUIET_AGAIN * setup.interval:
            found.append((at, site))
            last[site] = at
            order.append(order.pop(0))
    return found or [(start, order[0])]


def _bare(path: Any, setup: Setup, start: float, rng: random.Random) -> list[float]:
    """Publish the peer's messages; when each was due."""
    size = 900 + 240 * setup.sites * setup.models
    due: list[float] = []
    at = start
    with Redis(unix_socket_path=str(path)) as client:
        while (at := at + rng.expovariate(setup.rate)) < start + setup.seconds or not due:
            sleep(max(0.0, at - monotonic()))
            client.publish(BARE, (b"%d " % len(due)).ljust(size))
            due.append(at)
    return due


def traced(
    seen: Mapping[str, Any], told: Mapping[str, Any], followers: Sequence[tuple[str, Sequence[Sequence[float]]]]
) -> list[Change]:
    """Follow every change through what the processes noted.

    Raises UnfinishedError where one has not come to the last gateway, RuntimeError where it changed no document.
    """
    received: dict[str, list[float]] = {}
    for provider, at in told["samples"]:
        received.setdefault(provider, []).append(at)
    reads: dict[tuple[str, int], float] = {}
    for site, at, changes in seen["scrapes"]:
        reads.setdefault((site, changes), at)
    began = [cycle[0] for cycle in told["cycles"]]
    starts = [publication[0] for publication in told["publications"]]
    count: dict[str, int] = {}
    found = []
    for site, changed in seen["changes"]:
        count[site] = count.get(site, 0) + 1
        try:
            read = reads[site, count[site]]
            sample = _first_from(received[site], read)
            cycle, decided, rendered = told["cycles"][bisect_left(began, sample)]
            publication = told["publications"][bisect_left(starts, rendered)]
        except LookupError:
            raise UnfinishedError(f"change {count[site]} of {site} never came to a publication") from None
        if not any(changed_it for _, _, changed_it in publication[2].values()):
            raise RuntimeError(f"change {count[site]} of {site} changed no document")
        applied = max(applied_at(applied, publication[2][gateway][:2]) for gateway, applied in followers)
        # A gateway may pick from the document before the daemon has heard that it is out.
        published = min(publication[1], applied)
        found.append(Change(changed, read, sample, cycle, decided, rendered, published, applied))
    return found


def _first_from(times: Sequence[float], at: float) -> float:
    return times[bisect_left(times, at)]


def _row(setup: Setup, processes: int, changes: Sequence[Change], peer: tuple[float, float]) -> dict[str, Any]:
    what = f"{setup.gateways} gateways" if setup.gateways > 1 else "1 gateway"
    if setup.instances > 1:
        what += f" in {setup.instances} instances"
    row: dict[str, Any] = {
        "case": f"page changed to the last of {what}",
        "gateways": setup.gateways,
        "instances": setup.instances,
        "processes": processes,
        "sites": setup.sites,
        "candidates": setup.sites * setup.models,
        "scrape_interval_s": setup.interval,
        "changes": len(changes),
    }
    figures = {part: [change.parts[part] for change in changes] for part in PARTS}
    figures["total"] = [change.total for change in changes]
    figures["beyond_scrape_wait"] = [change.applied - change.read for change in changes]
    for name, values in figures.items():
        p50, p99 = marks([1e3 * value for value in values])
        row |= {f"{name}_p50_ms": round(p50, 2), f"{name}_p99_ms": round(p99, 2)}
    ours = marks([1e3 * (change.applied - change.rendered) for change in changes])[0]
    return row | {
        "peer": "bare redis-py publication of as many bytes to as many subscribers",
        "peer_p50_ms": round(peer[0], 2),
        "peer_p99_ms": round(peer[1], 2),
        "ratio": round(ours / peer[0], 2),
        "better": Better.LESS,
    }


def configuration(setup: Setup, urls: Mapping[str, str], folder: str) -> dict[str, Any]:
    """The daemon's configuration, as its file would have it."""
    pressure = {"enter_scrapes": 1, "exit_scrapes": 1, "min_time": "0s", "hold_down": "0s"}
    return {
        "network": NETWORK,
        "daemon": {
            "listen": "127.0.0.1:0",
            "scrape_interval": f"{setup.interval * 1e3:g}ms",
            "scrape_timeout": f"{setup.interval * 1e3:g}ms",
            "state_dir": folder,
        },
        "bus": {"url": "embedded"},
        "sites": {name: {"region": name} for name in [*urls, "here"]},
        "providers": {
            name: {
                "site": name,
                "cluster": f"{name}-pool",
                "models": [f"vendor/model-{number}-instruct" for number in range(setup.models)],
                "source": {"epp": url},
                "max_running": SLOTS,
                "pressure": pressure,
            }
            for name, url in urls.items()
        },
        "gateways": {name: {"site": "here", "picker": "saturation"} for name in dict.fromkeys(setup.names)},
    }
