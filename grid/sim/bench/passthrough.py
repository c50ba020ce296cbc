"""What the bench of the gateway measures, in a process of its own: ``python -m grid.sim.bench.passthrough WHICH URL``.

``gateway``: the reference gateway with two providers at ``URL`` and a frame a second. ``bare``: the least program on
the same two libraries, uvicorn towards clients and aiohttp towards the provider: it streams both ways, knows nothing.
The port it listens on is the first line of its output; it ends with its input.
"""

import asyncio
import sys
import time
from typing import Any

import aiohttp
import structlog
import uvicorn
import yaml
from yarl import URL

from grid.config import parse
from grid.model import AdmissionState, Candidate, GatewayPlan, Kind, Tier, stable_id
from grid.overlay import ProviderSignal, SignalFrame, render, verify
from grid.proxy.asgi import App, Receive, Scope, Send
from grid.proxy.gateway import Gateway

MODEL = "sim-model"
_NETWORK = "bench"
_SITES = ("east", "west")
_SLOTS = 4096
_DROPPED = frozenset((b"host", b"content-length", b"connection", b"transfer-encoding"))


def bare(url: str, session: aiohttp.ClientSession) -> App:
    """The pass-through."""
    target = URL(f"{url}/v1/chat/completions")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = [(name.decode(), value.decode()) for name, value in scope["headers"] if name not in _DROPPED]
        async with session.post(target, data=body, headers=headers, allow_redirects=False) as response:
            kept = [(name, value) for name, value in response.raw_headers if name.lower() not in _DROPPED]
            await send({"type": "http.response.start", "status": response.status, "headers": kept})
            async for chunk in response.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    return app


async def _serve_bare(url: str) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False) as session:
        app: Any = bare(url, session)
        config = uvicorn.Config(
            app, http="httptools", port=0, log_config=None, access_log=False, lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(), name="bare pass-through")
        while not server.started:  # noqa: ASYNC110 - uvicorn offers nothing to wait for
            await asyncio.sleep(0.01)
        _say(server.servers[0].sockets[0].getsockname()[1])
        await asyncio.to_thread(sys.stdin.read)
        serving.cancel()


async def _serve_gateway(url: str) -> None:
    gateway = Gateway(parse(yaml.safe_dump(_configuration(url))), "edge")
    await gateway.start()
    gateway.client.apply(_document())
    beat = asyncio.create_task(_beat(gateway), name="frames")
    _say(gateway.listener.port)
    await asyncio.to_thread(sys.stdin.read)
    beat.cancel()
    await gateway.stop()


async def _beat(gateway: Gateway) -> None:
    sequence = 0
    while True:
        sequence += 1
        in_flight = gateway.client.in_flight
        providers = {}
        for site in _SITES:
            held = float(in_flight.get(f"{site}/{site}-sim", 0))
            providers[site] = ProviderSignal(
                site, f"{site}-sim", held=held, capacity=_SLOTS, load=held / _SLOTS, saturation=held / _SLOTS, ready=1,
                age_s=0.5, bound_s=5.0,
            )  # fmt: skip
        gateway.client.observe(SignalFrame(_NETWORK, 1, sequence, 1.0, time.time(), {}, providers), time.monotonic())
        await asyncio.sleep(1.0)


def _configuration(url: str) -> dict[str, Any]:
    return {
        "network": _NETWORK,
        "bus": {"url": "unix:///nonexistent/grid-bench.sock"},
        "sites": {site: {} for site in _SITES},
        "providers": {
            site: {
                "site": site,
                "cluster": f"{site}-sim",
                "url": url,
                "models": [MODEL],
                "source": {"epp": "http://127.0.0.1:9/metrics"},
            }
            for site in _SITES
        },
        "gateways": {"edge": {"site": "east", "picker": "saturation"}},
    }


def _document() -> Any:
    network = parse(yaml.safe_dump(_configuration("http://127.0.0.1:9"))).to_network()
    candidates = tuple(
        Candidate(
            Kind.INFERENCE_MODEL, MODEL, site, f"{site}-sim", site,
            stable_id(Kind.INFERENCE_MODEL, MODEL, site, f"{site}-sim"), AdmissionState.NEW_AND_EXISTING, Tier.UNKNOWN,
            fresh=True, rank=rank, selection_group=0, traffic_weight=100,
        )
        for rank, site in enumerate(_SITES)
    )  # fmt: skip
    gateway = network.gateways["edge"]
    plan = GatewayPlan("edge", "east", gateway.picker, candidates)
    verdict = verify(render(network, gateway, plan, rendered_at="2026-01-01T00:00:00Z").body)
    if verdict.envelope is None:
        raise RuntimeError(verdict.detail)
    return verdict.envelope


def _say(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    asyncio.run({"bare": _serve_bare, "gateway": _serve_gateway}[sys.argv[1]](sys.argv[2]))
