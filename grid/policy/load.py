"""How busy a provider is: held, capacity, saturation, load; and what its pages teach over time.

**Held.** Live where the EPP counts what is in flight: in flight + its flow-control queue, exact to the request.
Otherwise from the engines' means: (mean running + mean queue) x ready endpoints + flow-control queue.

**Bypass.** Traffic that reaches the engines past the EPP shows in the engines' means and not in the EPP's count. The
two are of different times: a mean is up to 7 s old (``MEANS_AGE``), a count is live, and under a constant 120 clients
real pages put the engines' side at 123 to 133. So the engines' part E = (mean running + mean queue) x ready, without
the flow-control queue, is held against M, the largest in-flight count of the last 7 s and one scrape interval (so
that the window also covers the moment at which the mean was made). They disagree where

    E > M + 0.01 x ready + max(1, 0.1 x held live)

0.01 x ready is what rounding to two decimals can add to the sum of two means; one request or a tenth of all that is
held is how far in flight may swing between two scrapes while the EPP's queue feeds the engines, and an error below
that changes no decision. A verdict needs two refreshes in a row, in either direction; a refresh is a page whose means
changed, or one 5 s after the last refresh. While traffic bypasses, the engines' side is used.

**Capacity.** Declared ``max_running`` x ready endpoints, else the learned mark x ready endpoints, else unknown. The
mark is the most requests that ran per endpoint. It grows at once. It falls by a tenth of the gap per refresh, and
only while engines queue although fewer run than the mark says: then the mark is too high. Low traffic, or traffic
held back, teaches nothing. An endpoint that runs anything can run one, so the mark is never below 1. What runs is the
engines' mean; where a page has no such mean, in flight / ready stands in, but only with a mean queue of 0, since in
flight includes what engines queue.

**Load.** Saturation (held / capacity); else the EPP's own pool saturation, unless it is the 1.0 that an EPP without a
living endpoint reports; else the worse of queue / (queue_capacity x ready) and KV / kv_ceiling; else unknown. KV
pressure is a floor under all of them.
"""

import math
from dataclasses import replace
from operator import attrgetter
from typing import Final

from grid.model import (
    CapacitySource,
    HeldSource,
    Load,
    LoadSource,
    Provider,
    Reading,
    Reason,
    Sample,
    Step,
)
from grid.policy import freshness
from grid.policy.memory import GRACE, Observed, ProviderMemory
from grid.policy.words import number

MEANS_PERIOD: Final = 5.0
"""s between two refreshes of the means at an EPP of default settings."""

VOTES: Final = 2
"""Refreshes in a row that turn the verdict on bypassing traffic."""

DECAY: Final = 0.1
"""Share of the gap by which the learned mark falls per refresh with evidence against it."""

SMOOTHING: Final = 10.0
"""s after which a change of the free requests counts to 63 %."""

LEVEL: Final = 0.1
"""Width of a load level: orders look at levels, so that small movements change nothing."""

LEVEL_MARGIN: Final = 0.05
"""How far a load must leave its level before it gets another one."""

_BIGGEST: Final = 1e15
_LEVEL_CAP: Final = 1000.0
_WINDOW_ENTRIES: Final = 32
_ROUNDING: Final = 0.01
_SWING: Final = 0.1

_NUMBERS: Final = (
    "ready",
    "ready_endpoints",
    "ready_live",
    "average_queue_size",
    "average_running_requests",
    "kv_cache_utilization",
    "in_flight",
    "flow_control_queue",
    "pool_saturation",
)
_values = attrgetter(*_NUMBERS)


def assess(
    provider: Provider, sample: Sample | None, memory: ProviderMemory, now: float
) -> tuple[Load, ProviderMemory, tuple[Step, ...]]:
    """Load of one provider at ``now`` (monotonic s), the memory after its newest sample, and the chain of reasons.

    A sample that was counted before teaches nothing twice. Of a stale one only ready count and capacity remain, as
    the last that is known; what it held then says nothing about now.
    """
    if sample is None:
        return Load(), memory, (Step("load", Reason.LOAD_UNKNOWN, "never read"),)
    page = tuple(Step("page", problem.code, problem.detail) for problem in sample.problems)
    reading = clean(sample.reading)
    news = memory.counts(sample)
    observed = _learn(memory.observed, reading, sample) if news else memory.observed
    load, steps = _measure(provider, reading, observed)
    if news:
        memory = _remember(memory, sample, observed, load)
    if freshness.is_fresh(provider, sample, now):
        return load, memory, (*page, *steps)
    known = Load(
        ready=load.ready,
        ready_source=load.ready_source,
        capacity=load.capacity,
        capacity_source=load.capacity_source,
    )
    return known, memory, (*page, Step("load", Reason.LOAD_UNKNOWN, "the sample is stale"))


def clean(reading: Reading) -> Reading:
    """The same reading without numbers that are none: NaN, infinities, negatives and the absurd become unknown."""
    bad = {
        name: None
        for name, value in zip(_NUMBERS, _values(reading), strict=True)
        if value is not None and not 0 <= value <= _BIGGEST
    }
    return replace(reading, **bad) if bad else reading


def _remember(memory: ProviderMemory, sample: Sample, observed: Observed, load: Load) -> ProviderMemory:
    free, free_at = memory.free, memory.free_at
    if load.held is not None and load.capacity is not None:
        now_free = max(0.0, load.capacity - load.held)
        if free is None or free_at is None:
            free = now_free
        else:
            free += (now_free - free) * -math.expm1(-max(0.0, sample.received_at - free_at) / SMOOTHING)
        free_at = sample.received_at
    return ProviderMemory(
        sequence=sample.sequence,
        counted_at=sample.received_at,
        observed=observed,
        hysteresis=memory.hysteresis,
        level=memory.level if load.load is None else _level(memory.level, load.load),
        free=free,
        free_at=free_at,
        admission=memory.admission,
        changed_at=memory.changed_at,
        freshness=memory.freshness,
        demoted=memory.demoted,
        trusted=memory.trusted,
        untrusted_in=memory.untrusted_in,
    )


def _level(level: int | None, load: float) -> int:
    load = min(load, _LEVEL_CAP)
    if level is not None and level * LEVEL - LEVEL_MARGIN <= load <= (level + 1) * LEVEL + LEVEL_MARGIN:
        return level
    return math.floor(load / LEVEL)


# --- learning ---------------------------------------------------------------------------------------------------------


def _learn(observed: Observed, reading: Reading, sample: Sample) -> Observed:
    at = sample.received_at
    running, queue = reading.average_running_requests, reading.average_queue_size
    means, means_at, refreshed = observed.means, observed.means_at, False
    if running is not None or queue is not None:
        latest = (running, queue, reading.ready_endpoints)
        refreshed = means_at is None or latest != means or at - means_at >= MEANS_PERIOD - GRACE
        if refreshed:
            means, means_at = latest, at
    window = _slide(observed.in_flight, reading.in_flight, at, freshness.MEANS_AGE + sample.interval)
    bypass, votes = observed.bypass, observed.votes
    disagree = _disagree(reading, window) if refreshed else None
    if disagree is not None:
        votes = 0 if disagree is bypass else votes + 1
        if votes >= VOTES:
            bypass, votes = not bypass, 0
    return Observed(_mark(observed.learned, reading, refreshed), bypass, votes, means, means_at, window)


def _slide(
    window: tuple[tuple[float, float], ...], in_flight: float | None, at: float, span: float
) -> tuple[tuple[float, float], ...]:
    """The counts that can still be the largest of the window: falling from the oldest to the newest."""
    kept = [entry for entry in window if entry[0] >= at - span - GRACE]
    if in_flight is not None:
        while kept and kept[-1][1] <= in_flight:
            kept.pop()
        kept.append((at, in_flight))
    if len(kept) > _WINDOW_ENTRIES:
        # Too many scrapes for the window: the largest stays a little longer, which can only hide a bypass.
        kept[:2] = [(kept[1][0], kept[0][1])]
    return tuple(kept)


def _disagree(reading: Reading, window: tuple[tuple[float, float], ...]) -> bool | None:
    """Whether engines hold more than the EPP's count explains; None where the page cannot tell."""
    engine, live = reading.held_engine, reading.held_live
    if engine is None or live is None or not window:
        return None
    part = engine - (reading.flow_control_queue or 0.0)
    margin = _ROUNDING * (reading.ready_endpoints or 0) + max(1.0, _SWING * live)
    return part > window[0][1] + margin


def _mark(learned: float | None, reading: Reading, refreshed: bool) -> float | None:
    running, queue = reading.average_running_requests, reading.average_queue_size
    if running is None and queue == 0 and reading.in_flight is not None and reading.ready:
        running = reading.in_flight / reading.ready
    if running is None:
        return learned
    if running > 0 and (learned is None or running > learned):
        return max(1.0, running)
    if learned is not None and refreshed and queue and running < learned:
        return max(1.0, learned + (running - learned) * DECAY)
    return learned


# --- measuring --------------------------------------------------------------------------------------------------------


def _measure(provider: Provider, reading: Reading, observed: Observed) -> tuple[Load, tuple[Step, ...]]:
    held, held_source, held_step = _held(reading, observed)
    capacity, capacity_source, capacity_step = _capacity(provider, reading, observed)
    saturation = _ratio(held, capacity)
    queue, queue_ratio = _queue(provider, reading)
    kv = reading.kv_cache_utilization
    pool = _pool_saturation(reading)
    value, source, load_step = _load(
        saturation, pool, queue_ratio, _ratio(kv, provider.kv_ceiling), _why_not(reading, held, capacity)
    )
    load = Load(
        ready=reading.ready,
        ready_source=reading.ready_source,
        held=held,
        held_source=held_source,
        capacity=capacity,
        capacity_source=capacity_source,
        saturation=saturation,
        pool_saturation=pool,
        load=value,
        load_source=source,
        queue=queue,
        kv=kv,
    )
    return load, (held_step, capacity_step, load_step)


def _held(reading: Reading, observed: Observed) -> tuple[float | None, HeldSource | None, Step]:
    live, engine = reading.held_live, reading.held_engine
    waiting = number(reading.flow_control_queue or 0.0)
    if engine is not None and (live is None or observed.bypass):
        means = f"({number(reading.average_running_requests)} running + {number(reading.average_queue_size)} queued)"
        sums = f"{means} x {reading.ready_endpoints} ready + {waiting} in the EPP's queue"
        if live is None:
            return engine, HeldSource.ENGINE, Step("held", Reason.LOAD_KNOWN, f"{number(engine)} = {sums}")
        against = f"; the EPP counts only {number(live)}"
        return engine, HeldSource.ENGINE, Step("held", Reason.BYPASS, f"{number(engine)} = {sums}{against}")
    if live is None:
        return None, None, Step("held", Reason.LOAD_UNKNOWN, _not_held(reading))
    detail = f"{number(live)} = {number(reading.in_flight)} in flight + {waiting} in the EPP's queue"
    return live, HeldSource.LIVE, Step("held", Reason.LOAD_KNOWN, detail)


def _not_held(reading: Reading) -> str:
    """What is missing where neither the EPP's count nor the engines' means say what is held."""
    said = "unknown: no usable count in flight, and "
    if not reading.ready_endpoints:
        known = "unknown" if reading.ready_endpoints is None else "0"
        return f"{said}the means count for nothing while the EPP's ready count is {known}"
    means = (("running requests", reading.average_running_requests), ("queue size", reading.average_queue_size))
    return f"{said}no usable mean of {' or '.join(name for name, value in means if value is None)}"


def _capacity(
    provider: Provider, reading: Reading, observed: Observed
) -> tuple[float | None, CapacitySource | None, Step]:
    ready = reading.ready
    if ready is None:
        return None, None, Step("capacity", Reason.LOAD_UNKNOWN, "the page does not say how many endpoints are ready")
    if provider.max_running is not None:
        each, source, said = float(provider.max_running), CapacitySource.DECLARED, "declared"
    elif observed.learned is not None:
        each, source, said = observed.learned, CapacitySource.LEARNED, "learned"
    else:
        return None, None, Step("capacity", Reason.LOAD_UNKNOWN, "not declared, and nothing has run yet to learn from")
    capacity = each * ready
    detail = f"{number(capacity)} = {number(each)} per endpoint ({said}) x {ready} ready"
    return capacity, source, Step("capacity", Reason.LOAD_KNOWN, detail)


def _queue(provider: Provider, reading: Reading) -> tuple[float | None, float | None]:
    """Requests queued in engines and EPP together, and that against the healthy limit.

    Where no page tells how many endpoints there are, the total is unknown, but a mean can still be judged.
    """
    waiting, mean = reading.flow_control_queue, reading.average_queue_size
    if mean is None:
        total = waiting
    elif reading.ready_endpoints is None:
        return None, _ratio(mean, provider.queue_capacity)
    else:
        total = mean * reading.ready_endpoints + (waiting or 0.0)
    return total, _ratio(total, provider.queue_capacity * (reading.ready or 0))


def _ratio(part: float | None, whole: float | None) -> float | None:
    """``part / whole``; None where either is unknown, the whole is nothing, or the result is no number."""
    if part is None or not whole:
        return None
    ratio = part / whole
    return ratio if math.isfinite(ratio) else None


def _pool_saturation(reading: Reading) -> float | None:
    """The EPP's own saturation, without the 1.0 that stands for "no endpoint alive"."""
    if reading.pool_saturation == 1.0 and 0 in (reading.ready, reading.ready_live):
        return None
    return reading.pool_saturation


def _why_not(reading: Reading, held: float | None, capacity: float | None) -> tuple[str, str]:
    """Why saturation is no yardstick, and why the EPP's own is none either, for where they are not."""
    lacking = [name for name, value in (("held", held), ("capacity", capacity)) if value is None]
    own = f"{' and '.join(lacking)} unknown" if lacking else f"capacity is {number(capacity)}"
    pool = "no pool saturation" if reading.pool_saturation is None else "its pool saturation is that of an empty pool"
    return own, pool


def _load(
    saturation: float | None, pool: float | None, queue: float | None, kv: float | None, why_not: tuple[str, str]
) -> tuple[float | None, LoadSource | None, Step]:
    base: float | None
    no_saturation, no_pool = why_not
    if saturation is not None:
        base, source, said = saturation, LoadSource.SATURATION, "held / capacity"
    elif pool is not None:
        base, source, said = pool, LoadSource.POOL_SATURATION, f"the EPP's own pool saturation, since {no_saturation}"
    elif queue is not None:
        base, source, said = queue, LoadSource.QUEUE, f"queue / queue capacity, since {no_saturation}, {no_pool}"
    else:
        base, source, said = None, LoadSource.KV, f"{no_saturation}, {no_pool}, no queue to judge"
    if kv is not None and (base is None or kv > base):
        above = f", since {said}" if base is None else f", above {number(base)} of {said}"
        return kv, LoadSource.KV, Step("load", Reason.LOAD_KNOWN, f"{number(kv)} of KV / KV ceiling{above}")
    if base is None:
        return None, None, Step("load", Reason.LOAD_UNKNOWN, f"no signal on the page gives one: {said}, no KV use")
    return base, source, Step("load", Reason.LOAD_KNOWN, f"{number(base)} = {said}")
