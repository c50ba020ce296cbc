"""What a document costs: building and hashing it, publishing it, judging it at the gateway.

The peer is ``rfc8785.dumps`` of the same hashed content in the same run: what the canonical form alone would cost by
the library. ``ratio`` says how many times faster than that the whole step is.
"""

from collections.abc import Callable
from statistics import quantiles
from time import perf_counter
from typing import Any

import rfc8785

from grid.model import AdmissionState, Candidate, Gateway, GatewayPlan, Kind, Network, Picker, Tier, stable_id
from grid.overlay import Document, render, verify
from grid.overlay.canonical import HASHED

_AT = "2026-01-01T00:00:00Z"


def run(*, sites: int = 250, models: int = 4, rounds: int = 60) -> list[dict[str, Any]]:
    """One row per step: what it was done to, its median and 99th percentile in ms, and the peer's median."""
    network = Network("bench", {}, {}, {})
    gateway = Gateway("edge", "site-0", picker=Picker.SATURATION)
    plan = _plan(gateway, sites, models)

    def build() -> Document:
        return render(network, gateway, plan, rendered_at=_AT)

    document = build()
    overlay = document.envelope["overlay"]
    hashed = {name: overlay[name] for name in HASHED if name in overlay}
    published = document.published(1, 1, leader="bench", published_at=_AT)
    steps: dict[str, Callable[[], object]] = {
        "render and digest": build,
        "publish": lambda: document.published(1, 1, leader="bench", published_at=_AT),
        "verify": lambda: verify(published),
    }
    peer = _times(lambda: rfc8785.dumps(hashed), max(3, rounds // 6))[0]
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
                "peer": "rfc8785.dumps of the hashed content",
                "peer_p50_ms": round(peer, 3),
                "ratio": round(peer / median, 2),
            }
        )
    return rows


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
