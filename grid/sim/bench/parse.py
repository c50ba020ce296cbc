"""What reading a page costs.

``p50_us`` is from the page's bytes to the values of all wanted series, ``read_us`` to the pool's signals with every
problem named. Two peers in the same run. ``prometheus_client`` parses the same bytes into all their families; what it
finds of our signals must be equal. For gzipped pages it is ``gzip.decompress``: what merely unpacking them costs, in
memory that our reading does not take; our figure then includes unpacking. All are medians of CPU time; ``ratio`` is
the peer's over ``p50_us``, so more is better. The last row says how the scan grows with the size of plain pages.
"""

import gzip
import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from grid.model import Reading
from grid.signals.dialects import DIALECTS, FLOW_CONTROL_QUEUE, IN_FLIGHT, POOL_SATURATION
from grid.signals.encoding import is_gzip
from grid.signals.scan import PageScan, read_page
from grid.sim.bench.growth import Better, grown, least
from grid.sim.epp import SimulatedEpp
from grid.sim.pool import PoolShape, SimulatedPool
from grid.sim.values import Flow

TENANTS: Final = (0, 7, 1000)
_GROWTH: Final = (2, 6, 18, 54)
"""Tenants on the pages whose sizes the growth is fitted to."""

_LARGE: Final = 2_000_000
"""Bytes from which on a page is not given to the parser any more, which would take seconds."""


def run(page: Path | None = None, *, tenants: tuple[int, ...] = TENANTS, rounds: int = 30) -> list[dict[str, Any]]:
    """One row per page and peer, and one of growth. ``page``: a file, plain or gzipped, in place of simulated pages.

    Of such a file there are no other sizes, and no growth. Raises OSError where it cannot be read, ValueError where the
    peer reads other values from it than we do.
    """
    pages = {page.name: page.read_bytes()} if page else {_case(number): simulated(number) for number in tenants}
    rows = [row for case, data in pages.items() for row in _rows(case, data, rounds)]
    return rows if page else [*rows, _growth()]


def _growth() -> dict[str, Any]:
    pages = [simulated(number) for number in _GROWTH]
    return grown("scanning a page", "bytes", least({len(data): partial(_scanned, data) for data in pages}))


def simulated(tenants: int) -> bytes:
    """The page of a simulated EPP of release 0.10 with flow control, after one request of each of ``tenants``."""
    pool = SimulatedPool(PoolShape(endpoints=3, slots=8, flow_control=True), rng=random.Random(3))
    epp = SimulatedEpp("v0.10", "llama", pool, started_wall=1_795_983_082.0)
    for number in range(tenants):
        epp.submit(Flow(f"tenant-{number}"), 0.01, now=6.0 + number * 0.004)
    return epp.page(20.0)


def _case(tenants: int) -> str:
    return f"{tenants} tenants" if tenants else "idle"


def _rows(case: str, data: bytes, rounds: int) -> list[dict[str, Any]]:
    packed = data if is_gzip(data) else b""
    plain = gzip.decompress(data) if packed else data
    rows = []
    if len(plain) < _LARGE:
        _require_equal(plain, read_page(plain).reading)
        figures = _by_turns(partial(_scanned, plain), partial(read_page, plain), partial(_parsed, plain), rounds, 20)
        rows.append({"case": case, "bytes": len(plain), "peer": "prometheus_client", **figures})
    if packed or len(plain) >= _LARGE:
        packed = packed or gzip.compress(plain)
        rounds = rounds if len(plain) < _LARGE else max(rounds // 4, 3)
        whole = partial(read_page, packed)
        figures = _by_turns(whole, whole, partial(gzip.decompress, packed), rounds, 1)
        rows.append({"case": f"{case}, gzipped", "bytes": len(plain), "peer": "gzip.decompress alone", **figures})
    return rows


_Work = Callable[[], object]


def _by_turns(scan: _Work, read: _Work, peer: _Work, rounds: int, several: int) -> dict[str, Any]:
    """CPU times, turn about, so that whatever else the machine does falls on all.

    Of ours ``several`` make one turn: a single one is shorter than what disturbs a clock.
    """
    took: tuple[list[float], list[float], list[float]] = ([], [], [])
    for _ in range(rounds):
        took[0].append(_cpu_time(scan, several))
        took[1].append(_cpu_time(peer, 1))
        took[2].append(_cpu_time(read, several))
    p50, peer_p50, read_p50 = (median(times) * 1e6 for times in took)
    return {
        "p50_us": round(p50, 1),
        "read_us": round(read_p50, 1),
        "peer_us": round(peer_p50, 1),
        "ratio": round(peer_p50 / p50, 2),
        "better": Better.MORE,
    }


def _cpu_time(work: Callable[[], object], times: int) -> float:
    started = thread_time()
    for _ in range(times):
        work()
    return (thread_time() - started) / times


def _scanned(plain: bytes) -> PageScan:
    scan = PageScan()
    scan.feed(plain)
    return scan


def _parsed(plain: bytes) -> list[Any]:
    return list(text_string_to_metric_families(plain.decode()))


def _require_equal(plain: bytes, reading: Reading) -> None:
    """Hold a reading against the peer's samples, as far as they are one number or a sum."""
    samples: dict[str, list[Any]] = defaultdict(list)
    for family in _parsed(plain):
        for sample in family.samples:
            samples[sample.name].append(sample)
    dialect = next((dialect for dialect in DIALECTS if dialect.name == reading.dialect), None)
    expected: dict[str, object] = {}
    if dialect is not None:
        gauges = {
            "ready_endpoints": dialect.ready,
            "average_queue_size": dialect.queue,
            "average_running_requests": dialect.running,
            "kv_cache_utilization": dialect.kv,
        }
        expected = {
            signal: next((s.value for s in samples[name] if s.labels.get("name") == reading.pool), None)
            for signal, name in gauges.items()
        }
    for signal, twins in (("in_flight", IN_FLIGHT), ("flow_control_queue", FLOW_CONTROL_QUEUE)):
        name = next((name for name in twins if name in samples), "")
        expected[signal] = max(sum(sample.value for sample in samples[name]), 0) if name else None
    name = next((name for name in POOL_SATURATION if name in samples), "")
    expected["pool_saturation"] = next(
        (s.value for s in samples[name] if s.labels.get("stage", "effective") == "effective"), None
    )
    for signal, value in expected.items():
        found = getattr(reading, signal)
        # Frozen means are on the page, and rightly not in the reading.
        if found is not None and found != value:
            raise ValueError(f"{signal}: we read {found}, prometheus_client {value}")
