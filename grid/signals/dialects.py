"""The names that EPP releases give to the signals of a pool: one table, read by every source.

The pool gauges come in three families, the newest first. Newer EPPs write two of them side by side with equal values,
so a page is read by the first family that has the pool, and families are never mixed or added. What an EPP counts
itself (requests in flight, its flow-control queue, saturation, stale endpoints, failed polls) has twins of its own,
which do not follow the pool gauges' prefixes; of these, too, the first that is on the page is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Dialect:
    """One family of pool gauges. All carry the label ``name``: the pool; ``per_endpoint`` one label more."""

    name: str
    ready: str
    queue: str
    running: str
    kv: str
    per_endpoint: str
    always_lists: bool
    """Whether every EPP that speaks it lists its endpoints one by one, so that none listed means that none is known."""

    @property
    def gauges(self) -> tuple[str, str, str, str]:
        """The gauges that an EPP rewrites every 5 s: ready endpoints and the three means."""
        return (self.ready, self.queue, self.running, self.kv)


def _current(name: str) -> Dialect:
    return Dialect(
        name=name,
        ready=f"{name}_ready_endpoints",
        queue=f"{name}_average_queue_size",
        running=f"{name}_average_running_requests",
        kv=f"{name}_average_kv_cache_utilization",
        per_endpoint=f"{name}_per_endpoint_queue_size",
        always_lists=True,
    )


LLM_D_EPP: Final = _current("llm_d_epp")
LLM_D_ROUTER_EPP: Final = _current("llm_d_router_epp")
INFERENCE_POOL: Final = Dialect(
    name="inference_pool",
    ready="inference_pool_ready_pods",
    queue="inference_pool_average_queue_size",
    running="inference_pool_average_running_requests",
    kv="inference_pool_average_kv_cache_utilization",
    per_endpoint="inference_pool_per_pod_queue_size",
    always_lists=False,
)

DIALECTS: Final = (LLM_D_EPP, LLM_D_ROUTER_EPP, INFERENCE_POOL)
"""In the order of preference."""

IN_FLIGHT: Final = (
    "llm_d_epp_request_running",
    "llm_d_router_epp_request_running",
    "inference_objective_running_requests",
)
"""Requests given to engines and not yet answered, by model, tenant and priority. They do not name the pool."""

FLOW_CONTROL_QUEUE: Final = (
    "llm_d_epp_flow_control_queue_size",
    "llm_d_router_epp_flow_control_queue_size",
    "inference_extension_flow_control_queue_size",
)
"""Requests waiting in the EPP, by flow; the pool's queue is their sum. Single series may dip below 0."""

POOL_SATURATION: Final = (
    "llm_d_epp_flow_control_pool_saturation",
    "llm_d_router_epp_flow_control_pool_saturation",
    "inference_extension_flow_control_pool_saturation",
)
"""The EPP's own saturation; newer ones add the label ``stage`` (prefill, decode, effective)."""

STALE_ENDPOINTS: Final = (
    "llm_d_epp_flow_control_stale_endpoints",
    "llm_d_router_epp_flow_control_stale_endpoints",
)
"""Endpoints that did not answer the last detector call, by ``detector``."""

POLL_ERRORS: Final = (
    "llm_d_epp_datalayer_poll_errors_total",
    "llm_d_router_epp_datalayer_poll_errors_total",
    "llm_d_inference_scheduler_datalayer_poll_errors_total",
)
"""Failed scrapes of engines by the EPP, by kind of source."""

STARTED: Final = "process_start_time_seconds"
"""Wall-clock s at which the EPP started."""

TRUSTED_DETECTOR: Final = "utilization-detector"
"""The only detector that keeps the number of stale endpoints."""


class Fold(StrEnum):
    """How the series that share the labels of interest become one number."""

    FIRST = "first"
    SUM = "sum"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is kept of one metric: the labels its series are told apart by, and how equal ones are folded."""

    labels: tuple[str, ...]
    fold: Fold


def _wanted() -> dict[str, Wanted]:
    table: dict[str, Wanted] = {}
    for dialect in DIALECTS:
        table |= dict.fromkeys(dialect.gauges, Wanted(("name",), Fold.FIRST))
        table[dialect.per_endpoint] = Wanted(("name",), Fold.COUNT)
    table |= dict.fromkeys(IN_FLIGHT, Wanted((), Fold.SUM))
    table |= dict.fromkeys(FLOW_CONTROL_QUEUE, Wanted(("inference_pool",), Fold.SUM))
    table |= dict.fromkeys(POOL_SATURATION, Wanted(("inference_pool", "stage"), Fold.FIRST))
    table |= dict.fromkeys(STALE_ENDPOINTS, Wanted(("detector",), Fold.FIRST))
    table |= dict.fromkeys(POLL_ERRORS, Wanted((), Fold.SUM))
    table[STARTED] = Wanted((), Fold.FIRST)
    return table


WANTED: Final[Mapping[str, Wanted]] = MappingProxyType(_wanted())
"""Every metric name that is looked for on a page; all others are passed over unread."""
