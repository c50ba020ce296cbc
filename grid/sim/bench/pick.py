"""What a pick costs, from 2 to 250 sites: picker ``saturation`` on estimates, as the gateway runs it.

``p50_us``: a pick; ``route_p50_us``: with ``route()`` around it, counted and taken back; ``full_p50_us``: when no site
has room (the last resort); ``shed_p50_us``: when it is refused, the error included. All are medians over means of
batches, since a clock call costs as much as a pick, in CPU time: nothing here waits.

The peer is LiteLLM's router choosing among the same deployments in the same run (extra ``bench``); without it the peer
is an empty Python call, and the ratio tells how many of those a pick costs (less is better). For LiteLLM the ratio
tells how many picks of ours one of its choices costs (more is better). What a frame and a document cost is held against
``orjson.loads`` of their bytes, by the least CPU time of some turns (less is better). The last rows say how all grow.
"""

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from time import monotonic, thread_time
from typing import Any, Final

import orjson

from grid.gateway import Router, RoutingError
from grid.model import AdmissionState, Candidate, Gateway, GatewayPlan, Kind, Network, Picker, Tier, stable_id
from grid.overlay import Document, Envelope, ProviderSignal, SignalFrame, render, verify
from grid.sim.bench.growth import Better, grown, least

SITES: Final = (2, 4, 16, 64, 250)
_MODELS: Final = 4
_GROWTH: Final = ((16, 4), (64, 4), (128, 4), (256, 4))
"""Sites and models whose products the growth is fitted to."""
_PICKS: Final = 100
_EMPTY_CALL: Final = "an empty Python call"
_BESIDE: Final = {"route_p50_us": "with route()", "full_p50_us": "everything full", "shed_p50_us": "refused"}
_STRATEGIES: Final = ("simple-shuffle", "least-busy")
_NETWORK: Final = "bench"


def run(
    *, sites: Sequence[int] = SITES, batches: int = 60, size: int = 2000, litellm: bool = True
) -> list[dict[str, Any]]:
    """One row per number of sites; at the largest the other ways to choose, and a frame and a document; then growth.

    ``litellm`` False: the peer is an empty call whether the extra is there or not.
    """
    empty = _batches(_empty, batches, size)
    rows = []
    for number in sites:
        row: dict[str, Any] = {"case": f"pick, saturation, {number} sites", "sites": number}
        row |= {name: round(us, 3) for name, us in _picks(number, batches, size).items()}
        row["empty_call_us"] = round(empty, 4)
        peer, took = _peer(number) if litellm else (None, None)
        if took is None:
            peer = f"{_EMPTY_CALL} ({peer})" if peer else _EMPTY_CALL
            row |= {"peer": peer, "ratio": round(row["p50_us"] / empty, 1), "better": Better.LESS}
        else:
            row |= {"peer": peer, "peer_p50_us": round(took, 1), "ratio": round(took / row["p50_us"], 1)}
            row |= {"better": Better.MORE}
        rows.append(row)
    beside = [_beside(rows[-1], key, what, empty) for key, what in _BESIDE.items()]
    return rows + beside + _changes(max(sites), max(3, batches // 6)) + _growth(sites)


def _beside(row: dict[str, Any], key: str, what: str, empty: float) -> dict[str, Any]:
    return {
        "case": f"{what}, {row['sites']} sites",
        "p50_us": row[key],
        "peer": _EMPTY_CALL,
        "ratio": round(row[key] / empty, 1),
        "better": Better.LESS,
    }


def _picks(number: int, batches: int, size: int) -> dict[str, float]:
    router = Router(bits=random.Random(number).getrandbits)
    router.apply(_document(number, 1))
    pick, route, model = router.pick, router.route, _model(0)

    def routed(times: int) -> None:
        for _ in range(times):
            with route(model):
                pass

    def refused(times: int) -> None:
        for _ in range(times):
            try:  # noqa: SIM105 - suppress() costs half a microsecond, which is not what is measured
                pick(model)
            except RoutingError:
                pass

    def choose(times: int) -> None:
        for _ in range(times):
            pick(model)

    found = {}
    router.observe(_frame(number, 1), monotonic())
    found["p50_us"] = _batches(choose, batches, size)
    found["route_p50_us"] = _batches(routed, batches, size)
    router.observe(_frame(number, 2, full=1.0), monotonic())
    found["full_p50_us"] = _batches(choose, batches, size)
    router.observe(_frame(number, 3, full=1.5), monotonic())
    found["shed_p50_us"] = _batches(refused, batches, size // 4)
    return found


def _changes(number: int, rounds: int) -> list[dict[str, Any]]:
    router = Router()
    document, frame = _document(number, _MODELS), _frame(number, 1)
    packed = {"frame": frame.encode(), "document": _rendered(number, _MODELS).body}
    router.apply(document)
    works: dict[str, Callable[[], None]] = {
        "frame": lambda: router.observe(frame, monotonic()),
        "document": lambda: router.apply(document),
    }
    rows = []
    for what, work in works.items():
        p50 = median(_once(work) for _ in range(rounds))
        cpu = least({"ours": work, "peer": partial(orjson.loads, packed[what])})
        rows.append(
            {
                "case": f"take over a {what}, {number} sites x {_MODELS} models",
                "p50_ms": round(1e3 * p50, 2),
                "cpu_ms": round(1e3 * cpu["ours"], 3),
                "peer": "orjson.loads of its bytes",
                "peer_cpu_ms": round(1e3 * cpu["peer"], 3),
                "ratio": round(cpu["ours"] / cpu["peer"], 2),
                "better": Better.LESS,
            }
        )
    return rows


def _growth(sites: Sequence[int]) -> list[dict[str, Any]]:
    routers = {number: _router(number, 1) for number in sites}
    picks = {number: _picking(router) for number, router in routers.items()}
    rows = [grown("a pick", "sites", least(picks, each=_PICKS))]
    routers = {number * models: _router(number, models) for number, models in _GROWTH}
    documents = {number * models: _document(number, models) for number, models in _GROWTH}
    frames = {number * models: _frame(number, 1) for number, models in _GROWTH}
    works: dict[str, dict[int, Callable[[], object]]] = {
        "taking over a frame": {
            size: partial(router.observe, frames[size], monotonic()) for size, router in routers.items()
        },
        "taking over a document": {size: partial(router.apply, documents[size]) for size, router in routers.items()},
    }
    picks = {size: _picking(router) for size, router in routers.items()}
    rows.append(grown("a pick", "sites x models", least(picks, each=_PICKS)))
    return rows + [grown(what, "sites x models", least(work)) for what, work in works.items()]


def _router(sites: int, models: int) -> Router:
    """One that knows all sites, at the loads of the first frame."""
    router = Router(bits=random.Random(sites).getrandbits)
    router.apply(_document(sites, models))
    router.observe(_frame(sites, 1), monotonic())
    return router


def _picking(router: Router) -> Callable[[], None]:
    """A number of picks: beside one, the loop around it would be seen."""
    pick, model = router.pick, _model(0)

    def choose() -> None:
        for _ in range(_PICKS):
            pick(model)

    return choose


def _batches(work: Callable[[int], None], batches: int, size: int) -> float:
    """Median over ``batches`` means of ``size`` times, us; the loop around them is in it."""
    return 1e6 * median(_once(lambda: work(size)) / size for _ in range(batches))


def _once(work: Callable[[], None]) -> float:
    began = thread_time()
    work()
    return thread_time() - began


def _nothing() -> None:
    return None


def _empty(times: int) -> None:
    for _ in range(times):
        _nothing()


def _model(number: int) -> str:
    return f"bench-model-{number}"


def _capacity(site: int) -> int:
    return 100 + site % 50


def _document(sites: int, models: int) -> Envelope:
    envelope = verify(_rendered(sites, models).body).envelope
    assert envelope is not None  # noqa: S101 - what was just rendered verifies
    return envelope


def _rendered(sites: int, models: int) -> Document:
    kind = Kind.INFERENCE_MODEL
    candidates = tuple(
        Candidate(
            kind=kind,
            name=_model(model),
            site=f"site-{n}",
            cluster=f"cluster-{n}",
            provider=f"p{n}",
            stable_id=stable_id(kind, _model(model), f"site-{n}", f"cluster-{n}"),
            admission_state=AdmissionState.NEW_AND_EXISTING,
            selection_tier=Tier.SAME_REGION,
            fresh=True,
            rank=n,
            selection_group=0,
            traffic_weight=_capacity(n),
        )
        for model in range(models)
        for n in range(sites)
    )
    plan = GatewayPlan("edge", "site-0", Picker.SATURATION, candidates)
    gateway = Gateway("edge", "site-0", picker=Picker.SATURATION)
    return render(Network(_NETWORK, {}, {}, {}, uid=_NETWORK), gateway, plan, rendered_at="2026-01-01T00:00:00Z")


def _frame(sites: int, sequence: int, *, full: float | None = None) -> SignalFrame:
    rng = random.Random(sequence)
    signals = {}
    for n in range(sites):
        capacity = _capacity(n)
        saturation = rng.uniform(0.1, 0.8) if full is None else full
        signals[f"p{n}"] = ProviderSignal(
            f"site-{n}",
            f"cluster-{n}",
            held=saturation * capacity,
            capacity=capacity,
            load=saturation,
            saturation=saturation,
            queue=0.0,
            kv=0.1,
            ready=4,
            age_s=0.2,
            bound_s=600.0,
            kv_ceiling=0.9,
        )
    return SignalFrame(_NETWORK, 1, sequence, 1.0, 0.0, {}, signals, {})


def _peer(number: int) -> tuple[str, float | None]:
    """LiteLLM's name, version and strategy, and the median of its faster strategy in us; why not where it is not."""
    # Without this it asks the network for a list of prices as it is imported.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        import litellm  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        return "the extra bench is not installed", None
    try:
        found = version("litellm")
    except PackageNotFoundError:
        found = "of unknown version"
    took = {name: asyncio.run(_litellm(litellm.Router, number, name)) for name in _STRATEGIES}
    fastest = min(took, key=lambda name: took[name])
    return f"litellm {found}, {fastest}", took[fastest]


async def _litellm(router: Any, number: int, strategy: str) -> float:
    deployments = [
        {
            "model_name": _model(0),
            "litellm_params": {
                "model": "openai/bench",
                "api_base": f"http://127.0.0.1:{10_000 + n}",
                "api_key": "none",
                "weight": _capacity(n),
            },
        }
        for n in range(number)
    ]
    made = router(model_list=deployments, routing_strategy=strategy)
    messages = [{"role": "user", "content": "hello"}]
    took = []
    for _ in range(40):
        began = thread_time()
        await made.async_get_available_deployment(model=_model(0), request_kwargs={}, messages=messages)
        took.append(thread_time() - began)
    return 1e6 * median(took)
