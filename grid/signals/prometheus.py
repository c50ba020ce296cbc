"""The signals of one pool from a Prometheus server, for sites whose EPP nothing else can reach.

The server is asked in a thread, since its client library blocks; one thread per provider at most, of its own: a hung
server may take neither the threads of others nor, at the end, the process with it.
"""

import asyncio
import math
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from grid.model import Reason, ScrapeError
from grid.signals import promql
from grid.signals.dialects import DIALECTS
from grid.signals.scan import read_page
from grid.signals.scrape import Scrape
from grid.signals.threads import in_daemon_thread

if TYPE_CHECKING:
    from grid.signals.prometheus_client import PrometheusClient

INTERVAL_CHECK: Final = 300.0
"""Seconds after which the interval of the server's own scrapes is looked up again."""

INTERVAL_RETRY: Final = 30.0
"""The same where the server has refused to tell."""


@dataclass(frozen=True, slots=True)
class PrometheusTarget:
    """Which series of which server. ``match``: label values that narrow the EPP's series down to one target.

    ``pool``: the EPP's name for the pool; also tells targets apart where each has another pool. The files are those of
    the server: a bearer token, its CA, our client certificate and key.
    """

    url: str
    match: Mapping[str, str] = field(default_factory=dict)
    pool: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


class PrometheusScraper:
    """Reads one pool's signals from a Prometheus. ``timeout``: s for the whole exchange.

    Raises ValueError where ``match`` names what is no label.
    """

    def __init__(self, provider_id: str, target: PrometheusTarget, *, timeout: float = 2.0) -> None:
        self._provider = provider_id
        self._target = target
        self._timeout = timeout
        self._query = promql.signals_query(target.match)
        self._client: PrometheusClient | None = None
        self._running: Future[Scrape] | None = None
        self._closed = False
        self._interval = 0.0
        self._interval_due = -math.inf

    async def scrape(self) -> Scrape:
        """Ask once. Raises ScrapeError with a reason.

        ``received_at`` counts from the moment of asking, less the age that the server states: never younger than it is.
        """
        if self._running is not None and not self._running.done():
            raise ScrapeError(f"{self._shown}: the query before this one still hangs", reason=Reason.TIMEOUT)
        deadline = time.monotonic() + self._timeout
        self._running = in_daemon_thread(lambda: self._read(deadline), name=f"prometheus-{self._provider}")
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.wrap_future(self._running)
        except TimeoutError:
            raise ScrapeError(f"{self._shown}: no answer within {self._timeout:g} s", reason=Reason.TIMEOUT) from None

    async def aclose(self) -> None:
        """Close the connection, at the end of a query that still runs. Safe to call twice."""
        self._closed = True
        if self._running is None or self._running.done():
            self._close()

    @property
    def _shown(self) -> str:
        return self._client.shown if self._client else f"the Prometheus of {self._provider}"

    # --- in the thread of a query -----------------------------------------------------------------------------------

    def _read(self, deadline: float) -> Scrape:
        try:
            return self._ask(deadline)
        finally:
            if self._closed:
                self._close()

    def _ask(self, deadline: float) -> Scrape:
        client = self._client = self._client or self._connect()
        asked_at = time.monotonic()
        reply = client.query(self._query, deadline=deadline)
        try:
            answer = promql.parse_vector(reply.result)
            labels = promql.choose_target(answer, self._target.pool)
            scan = read_page(promql.page_of(answer, labels), pool=self._target.pool)
            sampled_at = promql.sampled_at(answer, labels, scan.reading.dialect)
        except ScrapeError as error:
            where = promql.selector(self._target.match)
            raise ScrapeError(f"{client.shown}: {error.message} for {where}", reason=error.reason) from error
        except ValueError as error:
            raise ScrapeError(f"{client.shown}: no vector: {error}"[:300], reason=Reason.PROMETHEUS_ERROR) from error
        if scan.unusable is not None:
            problem = scan.unusable
            detail = problem.detail or problem.code.meaning
            raise ScrapeError(f"{client.shown}: {detail}", reason=problem.code)
        age = max(answer.evaluated_at - sampled_at, 0.0) if sampled_at is not None else 0.0
        self._look_up_interval(client, scan.reading.dialect, labels, deadline)
        return Scrape(
            reading=scan.reading,
            problems=scan.problems,
            received_at=asked_at - age,
            cost_s=reply.cost_s,
            page_bytes=reply.size,
            sampled_at=sampled_at,
            observed_every=self._interval,
        )

    def _look_up_interval(
        self, client: "PrometheusClient", dialect: str | None, labels: promql.Labels, deadline: float
    ) -> None:
        """Learn how often the server scrapes the EPP, now and then; without an answer what was known stays."""
        family = next((family for family in DIALECTS if family.name == dialect), None)
        now = time.monotonic()
        if family is None or now < self._interval_due:
            return
        try:
            # Half of what is left of the time: the signals are there already and must not be lost over this.
            reply = client.query(promql.history_query(family.ready, labels), deadline=(now + deadline) / 2)
            self._interval = promql.parse_interval(reply.result, labels) or self._interval
        except (ScrapeError, ValueError):
            self._interval_due = now + INTERVAL_RETRY
        else:
            self._interval_due = now + INTERVAL_CHECK if self._interval else now

    def _connect(self) -> "PrometheusClient":
        from grid.signals.prometheus_client import PrometheusClient  # noqa: PLC0415 (a tenth of a second, in this thread)

        target = self._target
        return PrometheusClient(
            target.url,
            token_file=target.token_file,
            ca_file=target.ca_file,
            cert_file=target.cert_file,
            key_file=target.key_file,
        )

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
