"""What a document costs: building and hashing it, publishing it, judging it at the gateway.

The peer is ``rfc8785.dumps`` of the same hashed content in the same run: what the canonical form alone would cost by
the library. ``ratio`` says how many times faster than that the whole step is, by the least CPU time of several turns,
so more is better. The last rows say how building grows with sites and with gateways, each of which gets a document of
its own, and judging with sites.
"""

from collections.abc import Callable
from functools import partial
from statistics import quantiles
from time import perf_counter
from typing import Any, Final

import rfc8785

from grid.model import AdmissionState, Candidate, Gateway, GatewayPlan, Kind, Network, Picker, Tier, stable_id
from grid.overlay import Document, render, verify
from grid.overlay.canonical import HASHED
from grid.sim.bench.growth import Better, grown, least

_AT: Final = "2026-01-01T00:00:00Z"
_NETWORK: Final = Network("bench", {}, {}, {})
_SITES: Final = (32, 64, 128, 256)
_GATEWAYS: Final = (4, 8, 16, 32)
_SITES_EACH: Final = 25


def run(*, sites: int = 250, models: int = 4, rounds: int = 60) -> list[dict[str, Any]]:
    """One row per step: its median and 99th percentile in ms, and the peer's median; then the rows of growth."""
    gateway = _gateway(0)
    plan = _plan(gateway, sites, models)
    build = partial(_build, gateway, plan)
    document = build()
    overlay = document.envelope["overlay"]
    hashed = {name: overlay[name] for name in HASHED if name in overlay}
    published = document.published(1, 1, leader="bench", published_at=_AT)
    steps: dict[str, Callable[[], object]] = {
        "render and digest": build,
        "publish": lambda: document.published(1, 1, leader="bench", published_at=_AT),
        "verify": lambda: verify(published),
    }
    canonical = partial(rfc8785.dumps, hashed)
    peer = _times(canonical, max(3, rounds // 6))[0]
    cpu = least({**steps, "peer": canonical})
    rows = []
    for case, step in steps.items():
        median, high = _times(step, rounds)
        rows.append(
            {
                "case": f"{case}: {sites} sites x {models} models",
                "candidates": len(plan.candidates),
                "bytes": len(published),
                "p50_ms": round(median, 3),
                "p99_ms": round(high, 3),
                "cpu_ms": round(cpu[case] * 1e3, 3),
                "peer": "rfc8785.dumps of the hashed content",
                "peer_p50_ms": round(peer, 3),
                "peer_cpu_ms": round(cpu["peer"] * 1e3, 3),
                "ratio": round(cpu["peer"] / cpu[case], 2),
                "better": Better.MORE,
            }
        )
    return rows + _growth(models)


def _growth(models: int) -> list[dict[str, Any]]:
    edge = _gateway(0)
    by_sites = {number: partial(_build, edge, _plan(edge, number, models)) for number in _SITES}
    judged = {number: partial(verify, build().body) for number, build in by_sites.items()}
    edges = [(edge, _plan(edge, _SITES_EACH, models)) for edge in map(_gateway, range(max(_GATEWAYS)))]

    def build_all(number: int) -> list[Document]:
        return [_build(gateway, plan) for gateway, plan in edges[:number]]

    return [
        grown("render and digest", "sites", least(by_sites)),
        grown("render and digest", "gateways", least({number: partial(build_all, number) for number in _GATEWAYS})),
        grown("verify", "sites", least(judged)),
    ]


def _gateway(number: int) -> Gateway:
    return Gateway(f"edge-{number}", "site-0", picker=Picker.SATURATION)


def _build(gateway: Gateway, plan: GatewayPlan) -> Document:
    return render(_NETWORK, gateway, plan, rendered_at=_AT)


def _plan(gateway: Gateway, sites: int, models: int) -> GatewayPlan:
    candidates: list[Candidate] = []
    for model in (f"vendor/model-{number}-instruct" for number in range(models)):
        for site in range(sites):
            where, cluster = f"site-{site}", f"site-{site}-pool"
            candidates.append(
                Candidate(
                    kind=Kind.INFERENCE_MODEL,
                    name=model,
                    site=where,
                    cluster=cluster,
                    provider=cluster,
                    stable_id=stable_id(Kind.INFERENCE_MODEL, model, where, cluster),
                    admission_state=AdmissionState.NEW_AND_EXISTING,
                    selection_tier=Tier.CROSS_REGION,
                    fresh=True,
                    rank=len(candidates),
                    selection_group=0,
                    traffic_weight=100,
                )
            )
    return GatewayPlan(gateway.name, gateway.site, gateway.picker, tuple(candidates))


def _times(step: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median and 99th percentile of single runs, ms."""
    step()
    taken = []
    for _ in range(rounds):
        started = perf_counter()
        step()
        taken.append((perf_counter() - started) * 1e3)
    marks = quantiles(taken, n=100, method="inclusive")
    return marks[49], marks[98]
