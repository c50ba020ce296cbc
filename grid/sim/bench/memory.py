"""What parts of Grid hold in memory, each measured in a process of its own beside a peer in another one.

``rss_mb`` and ``peak_mb`` are of a whole process, ``ratio`` ours over the peer's. ``grown_kb`` is what each of several
adds to it, and then ``ratio`` is of that: imports and interpreter cost the same in both and would hide the difference.

A daemon is measured after every sample has been replaced once, over providers that share one page of a simulated idle
EPP; its peer has imported the same and holds as many bare httpx clients with an open connection (none for the idle
one). A page is read over loopback as a scrape reads it, unpacked and scanned; its peer unpacks it as a whole.
"""

import gzip
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from grid.sim.bench.fanout import NETWORK, document
from grid.sim.bench.growth import Better
from grid.sim.bench.helpers import Helper
from grid.sim.bench.parse import simulated

_INTERVAL: Final = 2.0
_WITHIN: Final = 120.0


def run(
    *,
    providers: Sequence[int] = (10, 100, 1000),
    interval: float = _INTERVAL,
    sites: int = 250,
    models: int = 4,
    snapshots: int = 10,
    subscribers: int = 50,
    candidates: int = 80,
    queued: int = 10_000,
    tenants: int = 1000,
    page_tenants: int = 1000,
) -> list[dict[str, Any]]:
    """One row per part.

    ``providers``: of the daemons, scraped every ``interval`` s, ``snapshots`` of ``sites`` x ``models``,
    ``subscribers`` to a document of ``candidates``, ``queued`` requests of ``tenants``, a page after requests of
    ``page_tenants``.
    """
    with tempfile.TemporaryDirectory(prefix="grid-bench-") as name:
        folder = Path(name)
        small, large = folder / "small", folder / "large"
        small.write_bytes(simulated(0))
        large.write_bytes(gzip.compress(simulated(page_tenants), 1))
        with Helper("memory_part", part="pages", files={"small": str(small), "large": str(large)}) as server:
            urls = server.hear()
            rows = _daemons(folder, urls["small"], providers, interval)
            rows.append(_page(large, urls))
        rows.append(_snapshots(folder, sites, models, snapshots))
        rows.append(_subscribers(folder, subscribers, candidates))
        rows.append(_admission(queued, tenants))
        return rows


@dataclass(frozen=True, slots=True)
class _Part:
    """What a process is to do: a part of a module, with its options."""

    module: str
    part: str
    options: Mapping[str, Any] = field(default_factory=dict)


def _held(*parts: _Part) -> list[dict[str, Any]]:
    """What a process for each part says, MB. They run side by side: nothing here depends on how long it takes."""
    with ExitStack() as stack:
        started = [stack.enter_context(Helper(one.module, part=one.part, **one.options)) for one in parts]
        return [one.hear(_WITHIN) for one in started]


def _daemons(folder: Path, url: str, providers: Sequence[int], interval: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    base = bare_base = 0.0
    for number in (0, *providers):
        state = folder / f"daemon-{number}"
        config = yaml.safe_dump(_configuration(url, number, interval, state))
        told = _held(
            _Part("memory_daemon", "daemon", {"config": config, "providers": number, "interval": interval}),
            _Part("memory_daemon", "clients", {"url": url, "clients": number}),
        )
        ours, theirs = (one["after_mb"] for one in told)
        row: dict[str, Any] = {
            "case": f"daemon over {number} providers" if number else "daemon, idle",
            "providers": number,
            "rss_mb": round(ours, 1),
        }
        if number:
            row["grown_kb"] = round((ours - base) / number * 1e3, 1)
            row["peer_grown_kb"] = round((theirs - bare_base) / number * 1e3, 1)
        else:
            base, bare_base = ours, theirs
        rows.append(
            row
            | {
                "peer": "the same imports and as many httpx clients" if number else "python with the same imports",
                "peer_rss_mb": round(theirs, 1),
                "ratio": round(ours / theirs, 3),
                "better": Better.LESS,
            }
        )
    return rows


def _configuration(url: str, providers: int, interval: float, state: Path) -> dict[str, Any]:
    names = [f"provider-{number}" for number in range(providers)]
    return {
        "network": NETWORK,
        "daemon": {
            "listen": "127.0.0.1:0",
            "scrape_interval": f"{interval * 1e3:g}ms",
            "scrape_timeout": f"{interval * 1e3:g}ms",
            "state_dir": str(state),
        },
        "bus": {"url": "embedded"},
        "sites": {"here": {"region": "here"}},
        "providers": {
            name: {"site": "here", "cluster": name, "models": ["llama-3.1-70b"], "source": {"epp": url}}
            for name in names
        },
        "gateways": {"edge": {"site": "here", "picker": "saturation"}},
    }


def _page(file: Path, urls: dict[str, str]) -> dict[str, Any]:
    ours, theirs = _held(
        _Part("memory_daemon", "scraped", urls), _Part("memory_daemon", "unpacked", {"file": str(file)})
    )
    return {
        "case": "reading a large page",
        "bytes": theirs["bytes"],
        "peak_mb": round(ours["after_mb"], 1),
        "extra_mb": round(_grown(ours), 2),
        "peer": "gzip.decompress of it as a whole",
        "peer_peak_mb": round(theirs["after_mb"], 1),
        "peer_extra_mb": round(_grown(theirs), 2),
        "ratio": round(ours["after_mb"] / theirs["after_mb"], 3),
        "better": Better.LESS,
    }


def _snapshots(folder: Path, sites: int, models: int, copies: int) -> dict[str, Any]:
    file = folder / "document"
    made = document("edge", sites, 0, models=models).published(
        1, 1, leader="bench", published_at="2026-01-01T00:00:00Z"
    )
    file.write_bytes(made)
    options = {"file": str(file), "copies": copies}
    ours, theirs = _held(*(_Part("memory_part", part, options) for part in ("snapshots", "values")))
    case = {"case": f"gateway library: {sites} sites x {models} models", "candidates": sites * models, "copies": copies}
    return _each(case, ours, theirs, copies, "the same document as JSON values")


def _subscribers(folder: Path, copies: int, candidates: int) -> dict[str, Any]:
    with ExitStack() as stack:
        bus = stack.enter_context(
            Helper("memory_part", part="bus", folder=str(folder), candidates=candidates, copies=copies)
        )
        path = bus.hear()
        ours, theirs = _held(
            _Part("memory_part", "subscribers", {"folder": str(folder), "copies": copies}),
            _Part("memory_part", "plain_subscribers", {"path": path, "copies": copies}),
        )
    case = {"case": "subscriber with its document", "candidates": candidates, "copies": copies}
    return _each(case, ours, theirs, copies, "redis-py subscriber with the same as JSON values")


def _admission(queued: int, tenants: int) -> dict[str, Any]:
    options = {"copies": queued, "tenants": tenants}
    ours, theirs = _held(*(_Part("memory_part", part, options) for part in ("admission", "semaphore")))
    for told in (ours, theirs):
        if told["waiting"] != queued:
            raise RuntimeError(f"{told['waiting']} requests wait where {queued} should")
    case = {
        "case": f"request waiting for admission: {queued} of {tenants} tenants",
        "queued": queued,
        "tenants": tenants,
    }
    return _each(case, ours, theirs, queued, "request waiting at an asyncio.Semaphore")


def _each(case: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any], copies: int, peer: str) -> dict[str, Any]:
    grown, peer_grown = (_grown(told) / copies * 1e3 for told in (ours, theirs))
    return case | {
        "rss_mb": round(ours["after_mb"], 1),
        "grown_kb": round(grown, 2),
        "peer": peer,
        "peer_rss_mb": round(theirs["after_mb"], 1),
        "peer_grown_kb": round(peer_grown, 2),
        "ratio": round(grown / peer_grown, 2) if peer_grown > 0 else None,
        "better": Better.LESS,
    }


def _grown(told: dict[str, Any]) -> float:
    grown: float = told["after_mb"] - told["before_mb"]
    return grown
