"""A simulated EPP: a pool, its 5 s refresh, and the page that shows both."""

from grid.sim.epp_page import PROFILES, REFRESH, EppPage
from grid.sim.pool import SimulatedPool, Ticket
from grid.sim.values import Flow

MAX_TENANTS = 1000
"""Distinct callers an EPP from 0.10 on keeps apart; all later ones are counted together."""


class SimulatedEpp:
    """Keeps the page of a pool in step with it. Times as in :class:`grid.sim.pool.SimulatedPool`.

    ``started_wall`` is the wall-clock s of the moment ``started``. The pool must be driven through here, so that every
    refresh sees the pool as it was at that moment, however late it is asked for.
    """

    def __init__(
        self, profile: str, name: str, pool: SimulatedPool, *, started: float = 0.0, started_wall: float = 0.0
    ) -> None:
        self.pool = pool
        self.profile = PROFILES[profile]
        self.name = name
        self._wall = started_wall - started
        self._started = started
        self._page = self._blank(started)
        self._next_refresh = started + REFRESH
        self._tenants: set[str] = set()

    def _blank(self, now: float) -> EppPage:
        flow_control = self.pool.shape.flow_control
        return EppPage(self.profile, self.name, flow_control=flow_control, started_at=self._wall + now)

    def next_event(self) -> float:
        """When something will happen by itself; the next refresh at the latest."""
        at = self.pool.next_event()
        return self._next_refresh if at is None else min(at, self._next_refresh)

    def advance(self, now: float) -> None:
        """Let time pass until ``now``, refresh by refresh."""
        while self._next_refresh <= now:
            self.pool.advance(self._next_refresh)
            self._page.tick(self.pool.engines())
            self._next_refresh += REFRESH
        self.pool.advance(now)

    def submit(self, flow: Flow, service: float, now: float) -> Ticket:
        """A request comes in; ``service``: s it will need."""
        self.advance(now)
        if self.profile.stale_series and flow.tenant not in self._tenants:
            if len(self._tenants) >= MAX_TENANTS:
                flow = Flow("other", flow.model, flow.priority)
            else:
                self._tenants.add(flow.tenant)
        return self.pool.submit(flow, service, now)

    def cancel(self, ticket: Ticket, now: float) -> None:
        """The client of a request has gone."""
        self.advance(now)
        self.pool.cancel(ticket, now)

    def restart(self, now: float) -> None:
        """A new process: everything held is lost, counters begin anew, and the means are absent for 5 s."""
        self.advance(now)
        self.pool.drop_all(now)
        self._started = now
        self._page = self._blank(now)
        self._next_refresh = now + REFRESH
        self._tenants.clear()

    def delete_pool(self, now: float) -> None:
        """The pool object goes away: what the page says of the pool freezes."""
        self.advance(now)
        self._page.deleted = True

    def page(self, now: float) -> bytes:
        """What ``/metrics`` answers now."""
        self.advance(now)
        return self._page.render(
            self.pool.engines(), self.pool.flows(), age=now - self._started, poll_errors=self.pool.poll_errors()
        )
