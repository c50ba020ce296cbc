"""Pages written by hand for tests, after what EPP releases write."""

from collections.abc import Iterable

NEW = "llm_d_epp"


def page(*lines: str) -> bytes:
    """The lines as a page, each ended."""
    return "".join(f"{line}\n" for line in lines).encode()


def current(
    pool: str = "llama",
    *,
    prefix: str = NEW,
    ready: object = 3,
    queue: object = 2,
    running: object = 6.5,
    kv: object = 0.43,
    endpoints: int = 3,
) -> list[str]:
    """The pool gauges of an EPP since llm-d 0.9. None leaves a gauge out."""
    gauges = {
        "average_kv_cache_utilization": kv,
        "average_queue_size": queue,
        "average_running_requests": running,
        "ready_endpoints": ready,
    }
    lines = [f'{prefix}_{name}{{name="{pool}"}} {value}' for name, value in gauges.items() if value is not None]
    return lines + [
        f'{prefix}_per_endpoint_queue_size{{model_server_endpoint="vllm-{number}-rank-0",name="{pool}"}} {number}'
        for number in range(endpoints)
    ]


def legacy(
    pool: str = "llama",
    *,
    ready: object = 3,
    queue: object = 2,
    running: object = None,
    kv: object = 0.43,
    pods: int = 3,
) -> list[str]:
    """The pool gauges of an EPP from the time of GIE; without a running mean as up to GIE 1.4."""
    gauges = {
        "average_kv_cache_utilization": kv,
        "average_queue_size": queue,
        "average_running_requests": running,
        "ready_pods": ready,
    }
    lines = [f'inference_pool_{name}{{name="{pool}"}} {value}' for name, value in gauges.items() if value is not None]
    return lines + [
        f'inference_pool_per_pod_queue_size{{model_server_pod="vllm-{number}",name="{pool}"}} {number}'
        for number in range(pods)
    ]


def flow_control(
    saturation: object = 0.5, stale: object = 0, *, pool: str = "llama", detector: str = "utilization-detector"
) -> list[str]:
    """Saturation and stale endpoints of an EPP with flow control."""
    return [
        f'llm_d_epp_flow_control_pool_saturation{{inference_pool="{pool}"}} {saturation}',
        f'llm_d_epp_flow_control_stale_endpoints{{detector="{detector}"}} {stale}',
    ]


def queue(sizes: Iterable[object], *, pool: str = "llama", prefix: str = "llm_d_epp") -> list[str]:
    """The flow-control queue, one series per tenant."""
    labels = f'inference_pool="{pool}",model_name="m",priority="0",target_model_name="m"'
    return [
        f'{prefix}_flow_control_queue_size{{fairness_id="tenant-{number}",{labels}}} {size}'
        for number, size in enumerate(sizes)
    ]


def in_flight(counts: Iterable[object], *, name: str = "llm_d_epp_request_running") -> list[str]:
    """The requests in flight, one series per tenant."""
    return [
        f'{name}{{fairness_id="tenant-{number}",model_name="m",priority="0",target_model_name="m"}} {count}'
        for number, count in enumerate(counts)
    ]


GO_LINES = [
    "# HELP go_gc_duration_seconds A summary of the wall-time pause duration in garbage collection cycles.",
    "# TYPE go_gc_duration_seconds summary",
    'go_gc_duration_seconds{quantile="0"} 2.7e-05',
    'go_gc_duration_seconds{quantile="0.25"} 4.1e-05',
    "go_gc_duration_seconds_sum 0.001",
    "go_gc_duration_seconds_count 12",
    "# TYPE go_goroutines gauge",
    "go_goroutines 88",
]
