"""A FastAPI application that admits requests by band and tenant in front of one model server.

Run it with ``uvicorn admission_app:app``. Requests with ``x-priority: interactive`` go before all others; within a band
tenants (``x-tenant-id``) take turns. ``GET /admission`` shows who waits, ``GET /metrics`` is for Prometheus.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client import CollectorRegistry, generate_latest

from grid.flow import Admission, AdmissionMiddleware, AdmissionPolicy, Band, BandRule, CallerRules, PoolSignal

MODEL = "llama-3.1-70b"
SLOTS = int(os.environ.get("SLOTS", "8"))
"""Requests that the model server runs at once."""

registry = CollectorRegistry()
admission = Admission(
    AdmissionPolicy(
        bands=(Band("interactive", ceiling=1.0), Band("batch", ceiling=0.0)),
        max_queued=int(os.environ.get("MAX_QUEUED", "1000")),
        max_wait=30.0,
    ),
    registry=registry,
)
callers = CallerRules(
    [BandRule("x-priority", "interactive", "interactive")],
    lowest="batch",
    tenant_header="x-tenant-id",
    trusted=[ip_network("127.0.0.0/8")],
)


def model_of(scope: Any) -> str | None:
    """Which model a request is for; None: it needs no slot."""
    return MODEL if scope["path"].startswith("/v1/") else None


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    # Nobody tells how full the server is, so its own requests are counted, up to the declared capacity. With Grid
    # beside it, signals and routes come from the bus: admission.update(pool_signals(frame, ...)).
    admission.reroute({MODEL: ("local",)})
    admission.update([PoolSignal("local", max_running=SLOTS)])
    yield
    admission.close()


app = FastAPI(lifespan=lifespan)
app.add_middleware(AdmissionMiddleware, admission=admission, model=model_of, callers=callers)


@app.post("/v1/completions")
async def complete(request: Request) -> StreamingResponse:
    """Stands for a call to the model server: as many tokens as asked for, one every 10 ms."""
    asked = await request.json()

    async def tokens() -> AsyncIterator[str]:
        for number in range(int(asked.get("max_tokens", 16))):
            yield f"token {number}\n"
            await asyncio.sleep(0.01)

    return StreamingResponse(tokens(), media_type="text/plain")


@app.get("/admission")
async def state() -> dict[str, Any]:
    """Who waits for what."""
    return admission.describe()


@app.get("/metrics")
async def metrics() -> Response:
    """For Prometheus."""
    return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")
