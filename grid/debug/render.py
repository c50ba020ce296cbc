"""The JSON of everything that is shown: names of keys are fixed, times are UTC ISO-8601, durations carry ``_s``."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias

import orjson
from starlette.responses import Response

from grid.debug.view import (
    DocumentView,
    DrainView,
    Event,
    GatewayView,
    InstanceView,
    LastError,
    LeaderView,
    ProviderView,
)
from grid.model import Candidate, Freshness, GatewayPlan, Kind, Load, Step

Json: TypeAlias = dict[str, object]


def reply(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``body`` as a JSON response that nobody caches."""
    return Response(
        orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE),
        status_code=status,
        media_type="application/json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def iso(at: float | None) -> str | None:
    """Wall-clock seconds as UTC ISO-8601 with milliseconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def provider(view: ProviderView) -> Json:
    """One provider, as listed."""
    declared, decision = view.provider, view.decision
    load = decision.load if decision is not None else Load()
    error = view.last_error
    return {
        "id": declared.id,
        "site": declared.site,
        "cluster": declared.cluster,
        "models": [one.name for one in declared.capabilities if one.kind is Kind.INFERENCE_MODEL],
        "tools": [one.name for one in declared.capabilities if one.kind is Kind.MCP_TOOL],
        "state": decision.freshness if decision is not None else Freshness.ABSENT,
        "admission_state": decision.admission if decision is not None else None,
        "reason": decision.reason if decision is not None else None,
        "demoted": decision.demoted if decision is not None else False,
        "age_s": _rounded(view.age),
        "ready_endpoints": load.ready,
        "held": _rounded(load.held, 2),
        "capacity": _rounded(load.capacity, 2),
        "capacity_source": load.capacity_source,
        "saturation": _rounded(load.saturation, 4),
        "load": _rounded(load.load, 4),
        "load_source": load.load_source,
        "last_error": None if error is None else last_error(error),
        "problems": [{"code": one.code, "detail": one.detail} for one in view.problems],
        "drained": decision.drained if decision is not None else view.drain is not None,
    }


def last_error(error: LastError) -> Json:
    """The newest fault of a source, with its age and the next step."""
    return {
        "code": error.code,
        "detail": error.detail,
        "hint": error.code.hint,
        "at": iso(error.at),
        "age_s": _rounded(max(0.0, time.time() - error.at)),
    }


def provider_detail(view: ProviderView) -> Json:
    """One provider with what the listing leaves out."""
    decision, declared = view.decision, view.provider
    load = decision.load if decision is not None else Load()
    return provider(view) | {
        "bound_s": _rounded(decision.bound) if decision is not None else None,
        "held_source": load.held_source,
        "ready_source": load.ready_source,
        "pool_saturation": _rounded(load.pool_saturation, 4),
        "queue": _rounded(load.queue, 2),
        "kv": _rounded(load.kv, 4),
        "interval_s": _rounded(view.interval),
        "timeout_s": declared.timeout,
        "cost_s": _rounded(view.cost, 6),
        "page_bytes": view.page_bytes,
        "scrapes": view.scrapes,
        "failures": view.failures,
        "capacity_weight": declared.capacity_weight,
        "max_running": declared.max_running,
        "disabled": declared.disabled,
        "drain": None if view.drain is None else drain_of(view.drain.id, view.drain.reason, view.drain.until),
    }


def steps(chain: tuple[Step, ...]) -> list[Json]:
    """A chain of reasons."""
    return [
        {"rule": step.rule, "reason": step.reason, "detail": step.detail, "meaning": step.reason.meaning}
        for step in chain
    ]


def explanation(view: ProviderView, plans: Mapping[str, GatewayPlan]) -> Json:
    """Why a provider is where it is: its own chain of reasons, then its place at every gateway.

    A source that cannot be read now is the first of the reasons.
    """
    decision = view.decision
    chain = decision.steps if decision is not None else ()
    return provider_detail(view) | {
        "steps": steps((*_source(view.last_error), *chain)),
        "gateways": [_place(name, plan, view.provider.id) for name, plan in sorted(plans.items())],
    }


def _source(error: LastError | None) -> tuple[Step, ...]:
    if error is None or not error.in_a_row:
        return ()
    times = "once" if error.in_a_row == 1 else f"{error.in_a_row} times in a row"
    said = (
        f"cannot be read, {times}, {max(0.0, time.time() - error.at):.1f} s ago: {error.detail or error.code.meaning}"
    )
    return (Step("source", error.code, said + (f"; next: {error.code.hint}" if error.code.hint else "")),)


def _place(name: str, plan: GatewayPlan, provider_id: str) -> Json:
    left_out = next((one for one in plan.excluded if one.provider == provider_id), None)
    own = next((chain for owner, chain in plan.steps if owner == provider_id), ())
    return {
        "name": name,
        "local_site": plan.local_site,
        "picker": plan.picker,
        "places": [_candidate(one) for one in plan.candidates if one.provider == provider_id],
        "excluded": None if left_out is None else left_out.reason,
        "excluded_detail": None if left_out is None else (left_out.detail or left_out.reason.meaning),
        "steps": steps(own),
    }


def _candidate(one: Candidate) -> Json:
    return {
        "capability": one.name,
        "kind": one.kind,
        "stable_id": one.stable_id,
        "admission_state": one.admission_state,
        "tier": one.selection_tier,
        "fresh": one.fresh,
        "rank": one.rank,
        "group": one.selection_group,
        "weight": one.traffic_weight,
    }


def gateway(view: GatewayView) -> Json:
    """One gateway: what it should run, what its instances run, how far behind they are."""
    instances = [_instance(one, view) for one in view.instances]
    if not instances:
        status = "never"
    elif any(one["behind"] for one in instances):
        status = "stale"
    else:
        status = "synced"
    return {
        "name": view.name,
        "site": view.site,
        "epoch": view.epoch,
        "version": view.version,
        "revision": view.revision,
        "published_at": view.published_at,
        "instances": instances,
        "status": status,
        "fault": view.fault or None,
    }


def behind(instance: InstanceView, view: GatewayView) -> int:
    """Versions that an instance has yet to apply.

    The same revision is never behind. Within an epoch it is the difference of versions; what an instance of an older
    epoch lacks cannot be counted, so it counts as every version of the present one (at least 1).
    """
    if view.version is None or view.epoch is None or instance.revision == view.revision:
        return 0
    if instance.epoch == view.epoch:
        return max(0, view.version - instance.version)
    return max(1, view.version) if instance.epoch < view.epoch else 0


def _instance(one: InstanceView, view: GatewayView) -> Json:
    return {
        "id": one.id,
        "epoch": one.epoch,
        "version": one.version,
        "revision": one.revision,
        "behind": behind(one, view),
        "applied_at": iso(one.applied_at),
        "last_seen_s": _rounded(one.last_seen),
        "in_flight": sum(one.in_flight.values()),
        "in_flight_by": dict(one.in_flight),
    }


def overlay(view: GatewayView) -> Json:
    """One line of the listing of documents."""
    return {
        "gateway": view.name,
        "epoch": view.epoch,
        "version": view.version,
        "revision": view.revision,
        "published_at": view.published_at,
        "candidates": view.candidates,
    }


def past_document(view: DocumentView) -> Json:
    """One line of a gateway's history."""
    return {
        "epoch": view.epoch,
        "version": view.version,
        "revision": view.revision,
        "published_at": view.published_at,
        "reason": view.reason,
        "bytes": len(view.data),
    }


def leader(view: LeaderView) -> Json:
    """Who publishes."""
    return {
        "role": view.role,
        "this": view.this,
        "holder": view.holder,
        "epoch": view.epoch,
        "since": iso(view.since),
        "lease_s": view.lease,
        "lease_left_s": _rounded(view.lease_left),
    }


def drain(view: DrainView) -> Json:
    """One drain in force."""
    one = view.drain
    return {
        **drain_of(one.id, one.reason, one.until),
        "target": one.target,
        "kind": view.kind,
        "created_at": iso(one.created),
        "extended": view.extended,
    }


def drain_of(drain_id: str, reason: str, until: float | None) -> Json:
    """What a provider shows of the drain it is under."""
    left = None if until is None else _rounded(max(0.0, until - time.time()))
    return {"id": drain_id, "reason": reason, "until": iso(until), "left_s": left}


def event(one: Event) -> Json:
    """One thing that happened."""
    return {**one.fields, "id": one.id, "at": iso(one.at), "kind": one.kind, "sentence": one.sentence}


def document_headers(view: DocumentView) -> dict[str, str]:
    """Headers of a document: its revision is its entity tag."""
    return {"ETag": f'"{view.revision}"', "Cache-Control": "no-cache"}
