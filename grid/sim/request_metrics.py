"""What requests leave on an EPP's page: counters and histograms, about 40 kB per tenant from 0.9 on."""

from collections.abc import Iterable, Sequence

from grid.sim.exposition import Block, family, histogram
from grid.sim.values import Flow, FlowCounts, Flows


def _bounds(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_DURATION = _bounds(
    "0.005 0.025 0.05 0.1 0.2 0.4 0.6 0.8 1 1.25 1.5 2 3 4 5 6 8 10 15 20 30 45 60 120 180 240 300 360 480 600 900 "
    "1200 1800 2700 3600"
)
_FIRST_BYTE = _DURATION[:24]
_PER_TOKEN = _bounds("0.001 0.002 0.005 0.01 0.02 0.05 0.1 0.2 0.5 1 2 5 10")
_PROMPT = _bounds(
    "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 32778 65536 131072 262144 524288 1.048576e+06"
)  # The odd 32778 is what the real page says.
_OUTPUT = _PROMPT[:12]
_RESPONSE = _PROMPT[:15]
_REQUEST = _bounds(
    "64 128 256 512 1024 2048 4096 8192 16384 32768 65536 131072 262144 524288 1.048576e+06 2.097152e+06 4.194304e+06 "
    "8.388608e+06 1.6777216e+07 3.3554432e+07 6.7108864e+07 1.34217728e+08 2.68435456e+08 5.36870912e+08 "
    "1.073741824e+09"
)
_SHORT = _bounds("0.0001 0.0002 0.0005 0.001 0.002 0.005 0.01 0.02 0.05 0.1")
_WAIT = _bounds("0.0001 0.0005 0.001 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 30 60")
_REQUEST_WORK = _bounds("0.0005 0.001 0.002 0.005 0.01 0.015 0.025 0.04 0.06 0.1 0.25 0.5 1 2.5 5 10")
_RESPONSE_WORK = _bounds("0.0001 0.00025 0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5")

_PROMPT_TOKENS, _OUTPUT_TOKENS, _CACHED_TOKENS = 8, 40, 0
_REQUEST_BYTES, _RESPONSE_BYTES = 115, 470

_PLUGINS = (
    ("Picker", "max-score-picker"),
    ("ProcessProfilesResults", "single-profile-handler"),
    ("ProfilePicker", "single-profile-handler"),
    ("RequestParsing", "openai-parser"),
    ("ResponseParsing", "openai-parser"),
    ("Scorer", "kv-cache-utilization-scorer"),
    ("Scorer", "queue-scorer"),
)


def _labels(flow: Flow) -> dict[str, str]:
    return {
        "fairness_id": flow.tenant,
        "model_name": flow.model,
        "priority": str(flow.priority),
        "target_model_name": flow.model,
    }


def _added(counts: Iterable[FlowCounts]) -> FlowCounts:
    rows = list(counts)
    return FlowCounts(
        in_flight=sum(row.in_flight for row in rows),
        queued=sum(row.queued for row in rows),
        requests=sum(row.requests for row in rows),
        answered=sum(row.answered for row in rows),
        seconds=sum(row.seconds for row in rows),
    )


def request_blocks(prefix: str, flows: Flows) -> list[Block]:
    """The per-request families of 0.9 and newer: in flight and totals, and histograms per tenant."""
    rows = [(_labels(flow), counts) for flow, counts in flows.items()]
    total = _added(flows.values())
    answered: list[tuple[str, tuple[str, ...], float]] = [
        ("request_ntpot_seconds", _PER_TOKEN, 1.0 / _OUTPUT_TOKENS),
        ("request_duration_seconds", _DURATION, 1.0),
    ]
    sized: list[tuple[str, tuple[str, ...], int]] = [
        ("request_input_tokens", _PROMPT, _PROMPT_TOKENS),
        ("request_cached_tokens", _PROMPT, _CACHED_TOKENS),
        ("request_output_tokens", _OUTPUT, _OUTPUT_TOKENS),
        ("response_size_bytes", _RESPONSE, _RESPONSE_BYTES),
    ]
    blocks = [
        family(f"{prefix}_request_total", "counter", "Simulated: requests begun.",
               [(pairs, counts.requests) for pairs, counts in rows]),
        family(f"{prefix}_request_running", "gauge", "Simulated: requests given to engines and not yet answered.",
               [(pairs, counts.in_flight) for pairs, counts in rows]),
        histogram(f"{prefix}_request_size_bytes", "Simulated: size of requests.", _REQUEST,
                  [(pairs, counts.requests, counts.requests * _REQUEST_BYTES) for pairs, counts in rows]),
        histogram(f"{prefix}_request_ttft_seconds", "Simulated: time to the first byte.", _FIRST_BYTE,
                  [({**pairs, "streaming": "false"}, counts.answered, counts.seconds) for pairs, counts in rows]),
        histogram(f"{prefix}_request_processing_duration_seconds", "Simulated: the EPP's own time with requests.",
                  _REQUEST_WORK, [({}, total.requests, total.requests * 0.002)]),
        histogram(f"{prefix}_response_processing_duration_seconds", "Simulated: the EPP's own time with responses.",
                  _RESPONSE_WORK, [({}, total.answered, total.answered * 0.0001)]),
    ]  # fmt: skip
    for name, bounds, scale in answered:
        series = [(pairs, counts.answered, counts.seconds * scale) for pairs, counts in rows]
        blocks.append(histogram(f"{prefix}_{name}", f"Simulated: {name.replace('_', ' ')}.", bounds, series))
    for name, bounds, size in sized:
        series = [(pairs, counts.answered, float(counts.answered * size)) for pairs, counts in rows]
        blocks.append(histogram(f"{prefix}_{name}", f"Simulated: {name.replace('_', ' ')}.", bounds, series))
    return blocks


def legacy_blocks(flows: Flows) -> list[Block]:
    """The same by model only, under the names that every release writes."""
    start = "inference_objective"
    models = {flow.model: _added(counts for key, counts in flows.items() if key.model == flow.model) for flow in flows}
    rows = [({"model_name": model, "target_model_name": model}, counts) for model, counts in models.items()]
    blocks = [
        family(f"{start}_running_requests", "gauge", "Simulated: requests given to engines and not yet answered.",
               [({"model_name": model}, counts.in_flight) for model, counts in models.items()]),
        family(f"{start}_request_total", "counter", "Simulated: requests begun.",
               [(pairs, counts.requests) for pairs, counts in rows]),
        histogram(f"{start}_request_sizes", "Simulated: size of requests.", _REQUEST,
                  [(pairs, counts.requests, counts.requests * _REQUEST_BYTES) for pairs, counts in rows]),
        histogram(f"{start}_request_duration_seconds", "Simulated: duration of requests.", _DURATION,
                  [(pairs, counts.answered, counts.seconds) for pairs, counts in rows]),
        histogram(f"{start}_normalized_time_per_output_token_seconds", "Simulated: duration per token.", _PER_TOKEN,
                  [(pairs, counts.answered, counts.seconds / _OUTPUT_TOKENS) for pairs, counts in rows]),
    ]  # fmt: skip
    for name, bounds, size in (
        ("input_tokens", _PROMPT, _PROMPT_TOKENS),
        ("prompt_cached_tokens", _PROMPT, _CACHED_TOKENS),
        ("output_tokens", _OUTPUT, _OUTPUT_TOKENS),
        ("response_sizes", _RESPONSE, _RESPONSE_BYTES),
    ):
        series = [(pairs, counts.answered, float(counts.answered * size)) for pairs, counts in rows]
        blocks.append(histogram(f"{start}_{name}", f"Simulated: {name.replace('_', ' ')}.", bounds, series))
    return blocks


def plugin_blocks(prefixes: Sequence[str], flows: Flows) -> list[Block]:
    """Time that the EPP's plugins took, under every prefix the release writes."""
    total = _added(flows.values()).requests
    series = [({"extension_point": point, "plugin_name": name, "plugin_type": name}, total, total * 1.2e-6)
              for point, name in _PLUGINS]  # fmt: skip
    blocks: list[Block] = []
    for prefix in prefixes:
        blocks.append(histogram(f"{prefix}_plugin_duration_seconds", "Simulated: time in plugins.", _SHORT, series))
        name, text = f"{prefix}_scheduler_e2e_duration_seconds", "Simulated: time to pick."
        blocks.append(histogram(name, text, _SHORT, [({}, total, total * 4e-5)]))
    return blocks


def queue_blocks(
    start: str, pool: str, flows: Flows, *, full: bool, sizes: bool, totals: bool, cycles: int
) -> list[Block]:
    """The flow-control queue. ``full``: all labels; ``sizes``: bytes and enqueue times too; ``totals``: by outcome."""
    keyed: dict[tuple[tuple[str, str], ...], list[FlowCounts]] = {}
    for flow, counts in flows.items():
        pairs = {**_labels(flow), "inference_pool": pool}
        if not full:
            pairs = {key: pairs[key] for key in ("fairness_id", "priority")}
        keyed.setdefault(tuple(pairs.items()), []).append(counts)
    rows = [(dict(pairs), _added(counts)) for pairs, counts in keyed.items()]
    begun = [(pairs, counts) for pairs, counts in rows if counts.requests]
    blocks: list[Block] = []
    if rows:
        text = "Simulated: requests that wait in the EPP."
        blocks.append(family(f"{start}_queue_size", "gauge", text, [(pairs, counts.queued) for pairs, counts in rows]))
    if begun:
        waits = [
            ({**pairs, "outcome": "Dispatched"}, counts.requests, counts.requests * 0.004) for pairs, counts in begun
        ]
        text = "Simulated: how long requests waited in the EPP."
        blocks.append(histogram(f"{start}_request_queue_duration_seconds", text, _WAIT, waits))
    if sizes:
        if rows:
            held = [(pairs, counts.queued * _REQUEST_BYTES) for pairs, counts in rows]
            blocks.append(family(f"{start}_queue_bytes", "gauge", "Simulated: their size.", held))
            entered: dict[tuple[str, str], int] = {}
            for pairs, counts in rows:
                key = (pairs["fairness_id"], pairs["priority"])
                entered[key] = entered.get(key, 0) + counts.requests + counts.queued
            series = [
                ({"fairness_id": tenant, "outcome": "NotYetFinalized", "priority": priority}, count, count * 5.5e-6)
                for (tenant, priority), count in entered.items()
            ]
            text = "Simulated: time to enter the queue."
            blocks.append(histogram(f"{start}_request_enqueue_duration_seconds", text, _SHORT, series))
        text = "Simulated: time of one dispatch cycle."
        blocks.append(
            histogram(f"{start}_dispatch_cycle_duration_seconds", text, _SHORT, [({}, cycles, cycles * 1e-5)])
        )
    if totals and begun:
        by_priority: dict[str, int] = {}
        for pairs, counts in begun:
            by_priority[pairs["priority"]] = by_priority.get(pairs["priority"], 0) + counts.requests
        ended = [({"inference_pool": pool, "outcome": "Dispatched", "priority": priority}, count)
                 for priority, count in by_priority.items()]  # fmt: skip
        blocks.append(family(f"{start}_requests_total", "counter", "Simulated: requests by outcome.", ended))
    return blocks
