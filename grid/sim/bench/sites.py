"""How well reference gateways share sites of unequal size, and what the loss of one costs; all of it on loopback.

Cases, each with one gateway and with four:

- **shared**: the published set-up divided by eight: 16, 16 and 8 slots, 200 ms a request, 32 clients in a closed loop;
- **steady** and **lost**: 36 clients with requests of 1 s; then all engines of the second site die under 20 of them,
  and what waits there has to be sent elsewhere.

What is measured begins some s after the clients do: which part of the traffic each gateway is, they learn from each
other's reports, and those come every 3 s. ``met_full`` is the part of the requests that came to a site whose every slot
was taken; ``wanted`` what the clients, or the slots that are left, could have had done; ``ratio``, as ``done_ratio``,
the part of it that was, so more is better. A closed loop is meant here, as in the published set-up: how many clients
wait for an answer is what is given, and their times say what those clients saw, not what a steady stream would have.
"""

import asyncio
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from grid.sim.bench.growth import Better
from grid.sim.quiet import quiet_logs
from grid.sim.sites import Field, Outcomes, Setup, running

WARM_UP: Final = 5.0
_CLIENTS, _STEADY, _LEFT = 32, 36, 20
_LOST: Final = "site-b"


def run(*, seconds: float = 30.0, gateways: Sequence[int] = (1, 4), seed: int | None = None) -> list[dict[str, Any]]:
    """The rows of all cases, measured for ``seconds`` each."""
    rng = random.Random(seed)
    rows = []
    for number in gateways:
        rows.append(shared(Setup(gateways=number), _CLIENTS, seconds, rng))
        rows += lost(Setup(gateways=number, service=1.0), seconds, rng)
    return rows


def shared(
    setup: Setup, clients: int, seconds: float, rng: random.Random, *, warm_up: float = WARM_UP
) -> dict[str, Any]:
    """A row: how ``clients`` were shared among the sites."""

    async def work(field: Field) -> dict[str, Any]:
        return await _measured(field, "shared", clients, seconds, warm_up)

    return _in_field(setup, rng, work)[0]


def lost(setup: Setup, seconds: float, rng: random.Random, *, warm_up: float = WARM_UP) -> list[dict[str, Any]]:
    """Rows before and after the loss of a site; the second from its last moment on."""

    async def before(field: Field) -> dict[str, Any]:
        return await _measured(field, "steady", _STEADY, seconds, warm_up)

    async def after(field: Field) -> dict[str, Any]:
        kill = asyncio.get_running_loop().call_later(warm_up, field.sites[_LOST].kill)
        try:
            return await _measured(field, "lost", _LEFT, seconds, warm_up, without=(_LOST,))
        finally:
            kill.cancel()

    return _in_field(setup, rng, before, after)


def _in_field(setup: Setup, rng: random.Random, *works: Any) -> list[dict[str, Any]]:
    async def all_of_it(folder: Path) -> list[dict[str, Any]]:
        async with running(setup, folder, rng) as field:
            return [await work(field) for work in works]

    with quiet_logs(), tempfile.TemporaryDirectory(prefix="grid-sites-") as folder:
        return asyncio.run(all_of_it(Path(folder)))


async def _measured(
    field: Field, case: str, clients: int, seconds: float, warm_up: float, *, without: Sequence[str] = ()
) -> dict[str, Any]:
    setup, found = field.setup, Outcomes()
    load = asyncio.create_task(field.load(clients, warm_up + seconds, found), name="clients")
    await asyncio.sleep(warm_up)
    full_before = field.met_full
    found.forget()
    await load
    done = sum(found.served.values())
    slots = {name: number for name, number in zip(setup.names, setup.slots, strict=True) if name not in without}
    wanted = min(clients, sum(slots.values())) / setup.service * seconds
    return {
        "case": case,
        "load": f"closed loop, {clients} clients",
        "gateways": setup.gateways,
        "clients": clients,
        "done_per_s": round(done / seconds, 1),
        "wanted_per_s": round(wanted / seconds, 1),
        "done_ratio": round(done / wanted, 4),
        "shares": {site: round(share, 3) for site, share in found.shares().items()},
        "ideal": {name: round(number / sum(slots.values()), 3) for name, number in slots.items()},
        "met_full": round((field.met_full - full_before) / max(1, done), 4),
        "failed": sum(found.failed.values()),
        "p50_ms": round(found.quantile(0.5) * 1e3),
        "p99_ms": round(found.quantile(0.99) * 1e3),
        "slowest_ms": round(found.quantile(1.0) * 1e3),
        "peer": "all clients or slots busy all the time",
        "ratio": round(done / wanted, 4),
        "better": Better.MORE,
    }
