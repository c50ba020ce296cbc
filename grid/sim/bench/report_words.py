"""The words of ``docs/performance.md``: what each table says, what its peer is, what to make of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final


def _nothing(_: Sequence[dict[str, Any]]) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Section:
    """What stands around the table of a bench. ``columns``: keys of its rows, all where none are named.

    ``note``: what to say depends on the rows.
    """

    bench: str
    title: str
    before: str
    columns: tuple[str, ...] = ()
    after: str = ""
    note: Callable[[Sequence[dict[str, Any]]], str] = _nothing


HEAD: Final = """\
# Performance

What Grid costs, and what it adds to what would be there without it. Written by `grid bench report` from one run
on {date}; all rows of it, with every key, are in [{rows}]({rows}). Run it on a machine of
yours, or one bench alone.

**Ratios** compare two figures of one run: ours and the peer's that the table names. They, and the **exponents**
of growth, mean the same on a faster machine; `better` says whether more or less is better. **Everything with a
unit** (us, ms, s, MB, cores) is absolute: it is of this machine on that day, and good to a third, as other work
went on beside. p50 and p99 are medians and 99th percentiles. Waits, and ratios of waits, suffer from other work far
more than costs do: with a load average above the number of cores they are upper bounds.

Times under load count from when a request, a scrape, a publication or a change was due, by a schedule that was
drawn before and waits for nobody (an open loop): what waits behind something slow counts its waiting. Where a
loop is closed, on purpose, the table says so.

`grid bench compare` (`make bench`) holds ratios and exponents against those kept in
`tests/bench/baseline.json`, and fails where one is 1.3 times worse or an exponent higher by 0.15.
"""


def _chosen_beside(rows: Sequence[dict[str, Any]]) -> str:
    return _WITH_LITELLM if any(row["peer"].startswith("litellm") for row in rows) else _WITHOUT_LITELLM


_WITH_LITELLM: Final = """\
`peer p50` is one choice by LiteLLM's router, by the faster of two of its strategies, among the same
deployments; the ratio says how many picks of ours it costs.
"""

_WITHOUT_LITELLM: Final = """\
LiteLLM's router was not installed in this run: with the extra `bench` the same run times it choosing among the
same deployments. Here the ratio says how many empty Python calls a pick costs.
"""

SECTIONS: Final = (
    Section(
        "pick",
        "Choosing a site",
        """\
What stands in the path of every request: a pick; with `route()` around it, which counts the request and takes
it back; where no site has room; and where the request is refused, the error included.
""",
        (
            "case",
            "p50_us",
            "route_p50_us",
            "full_p50_us",
            "shed_p50_us",
            "empty_call_us",
            "p50_ms",
            "cpu_ms",
            "peer",
            "peer_p50_us",
            "peer_cpu_ms",
            "ratio",
            "better",
        ),
        after="""\
A frame and a document are taken over off the request path, built aside and put in place as one reference. Their
peer only reads the same bytes as JSON, which is before that: it says what work on so many numbers costs at
least.
""",
        note=_chosen_beside,
    ),
    Section(
        "admission",
        "Admission control",
        """\
A grant at the door, and turns of a long queue: a request ends, the next is granted, another one enqueues. The
peers are what the standard library has: a semaphore without bands, tenants and leases, and a heap that keeps an
order without fairness, time-outs and cancelling.
""",
        (
            "case",
            "p50_us",
            "p99_us",
            "peer",
            "peer_p50_us",
            "ratio",
            "better",
        ),
    ),
    Section(
        "gateway",
        "The reference gateway",
        """\
What it adds to a request above asking the provider directly. The peer is the least program on the same two
libraries, which streams both ways and knows nothing, in the same run. One stream after the other is a closed
loop: the cost of a request alone.
""",
        (
            "case",
            "load",
            "direct_p50_ms",
            "p50_ms",
            "p99_ms",
            "added_p50_us",
            "cpu_us",
            "peer_added_p50_us",
            "peer_cpu_us",
            "ratio",
            "better",
        ),
    ),
    Section(
        "parse",
        "Reading pages",
        """\
From the bytes of a page to the values of all wanted series (p50), and to the pool's signals with every problem
named (read). The peer parses the same bytes into all their families; beside a packed page, it merely unpacks
it.
""",
        (
            "case",
            "bytes",
            "p50_us",
            "read_us",
            "peer",
            "peer_us",
            "ratio",
            "better",
        ),
        after="""\
The scan looks for the wanted names by a byte search while the page streams in: constant memory (under 8 MB
extra for a 40 MB page, asserted in the tests), and turns of 256 KiB on the event loop.
""",
    ),
    Section(
        "scrape",
        "Scraping",
        """\
Pages come gzipped from another process, over connections that stay open. The peer is httpx that fetches the
same page and throws it away; what is missing to 1 is what the daemon adds: credentials, deadline, unpacking,
the scan. Of many providers, p50 and p99 count from the beat, which comes on its 10 ms tick, to the end of the
scrape.
""",
        (
            "case",
            "load",
            "scrapes",
            "errors",
            "skipped",
            "cpu_ms",
            "p50_ms",
            "p99_ms",
            "cores",
            "rss_mb",
            "peer_cpu_ms",
            "ratio",
            "better",
        ),
    ),
    Section(
        "policy",
        "Deciding",
        """\
A pass of the policy does again only what changed since the one before. The calibration builds a frozen value
per provider and puts it into a dict, the least that a judgement which nobody may change can cost.
""",
        (
            "case",
            "p50_ms",
            "peer",
            "peer_p50_ms",
            "ratio",
            "better",
        ),
    ),
    Section(
        "render",
        "Rendering and judging documents",
        """\
Building a document and its digest, putting a version into it, and verifying it at the gateway. The peer is the
library's canonical form of the hashed content alone. The ratio is that of CPU times, which other work on the
machine does not disturb.
""",
        (
            "case",
            "bytes",
            "p50_ms",
            "p99_ms",
            "cpu_ms",
            "peer",
            "peer_cpu_ms",
            "ratio",
            "better",
        ),
    ),
    Section(
        "propagate",
        "Delivery",
        """\
From publishing until the last one has it. First subscribers in one process, which verify the document and hold it,
in turns with a bare fan-out of the same bytes by redis-py. Then, at a fixed rate, many in four processes:
subscribers of one document, or of a document each, and whole gateway libraries, which also make it ready to pick
from. `delivery` is of every single one, p50 and p99 of the last.
""",
        (
            "case",
            "size",
            "rate_per_s",
            "delivery_p50_ms",
            "delivery_p99_ms",
            "p50_ms",
            "p99_ms",
            "peer",
            "peer_p50_ms",
            "peer_p99_ms",
            "ratio",
            "better",
            "verify_ms",
        ),
        after="""\
Gateways that share a process judge the same bytes once; one in a process of its own pays `verify` by itself.
""",
    ),
    Section(
        "cycle",
        "From a page to the last gateway",
        """\
A whole daemon, simulated EPPs and gateways, in processes of their own. A site's page changes, and the table
says when the last gateway picks by it (total), how much of that is beyond the wait for the next scrape, and
where the time goes, medians in ms. The peer is a bare redis-py publication of as many bytes to as many
subscribers; the ratio is publishing and applying together over it.
""",
        (
            "case",
            "changes",
            "total_p50_ms",
            "total_p99_ms",
            "beyond_scrape_wait_p50_ms",
            "beyond_scrape_wait_p99_ms",
            "scrape_wait_p50_ms",
            "scrape_p50_ms",
            "join_p50_ms",
            "decide_p50_ms",
            "render_p50_ms",
            "publish_p50_ms",
            "apply_p50_ms",
            "peer_p50_ms",
            "ratio",
            "better",
        ),
        after="A loss seen on a page is a demotion within one scrape interval and `none` within two.",
    ),
    Section(
        "memory",
        "Memory",
        """\
What a process holds (rss, peak), and what each provider, document, subscriber or waiting request adds to one (grown).
Each part is measured in a process of its own, and its peer in another one. Of daemons the ratio is that of whole
processes, as imports and interpreter are most of it; where only `grown` is compared, of that. A page is read as a
scrape reads it, streamed; its peer unpacks it as a whole, and `extra` is what it takes meanwhile.
""",
        (
            "case",
            "rss_mb",
            "peak_mb",
            "extra_mb",
            "grown_kb",
            "peer",
            "peer_rss_mb",
            "peer_peak_mb",
            "peer_extra_mb",
            "peer_grown_kb",
            "ratio",
            "better",
        ),
    ),
    Section(
        "sites",
        "Sharing sites",
        """\
Reference gateways, a daemon, an embedded bus and simulated sites of 16, 16 and 8 slots on loopback. Clients are
a closed loop, as in the published set-up, and the peer is all of them, or all slots, busy all the time.
`met full` is the part of the requests that came to a site whose every slot was taken. In the last case a site
has just died with 20 of 36 clients at work.
""",
        (
            "case",
            "gateways",
            "clients",
            "done_per_s",
            "wanted_per_s",
            "ratio",
            "better",
            "shares",
            "ideal",
            "met_full",
            "failed",
            "p50_ms",
            "p99_ms",
            "slowest_ms",
        ),
    ),
    Section(
        "simulate",
        "The simulator",
        """\
How many requests a second of one core the fleet in virtual time gets through, each chosen for by the router as it runs
in production. The peer is the least that a simulation by events can be: one event out of a heap and one in, for each
request.
""",
        (
            "case",
            "requests",
            "requests_per_s",
            "us",
            "peer_us",
            "ratio",
            "better",
        ),
    ),
)

GROWTH: Final = """\
## Growth with size

The exponent k of cost = c x size^k, by least squares on logarithms over a few sizes, from the least CPU time of
several turns: 0 does not depend on the size, 1 is in proportion to it. A fixed part of the cost pulls it down.
"""

FOOT: Final = """\
## What choosing well is worth

`grid simulate stale` runs the gateways' own code against sites whose numbers are seconds old,
`grid simulate partition` the published table of three sites of 128, 128 and 64 slots, `grid simulate admission`
interactive requests beside 500 batch ones. [balancing](balancing.md), [gateway](gateway.md) and [flow](flow.md) say
what they show.
"""
