"""Request admission: says when a request may go, before the picker says where (``docs/flow.md``).

- ``core``: the state machine, without clock, loop or randomness; ``pools``, ``queues``, ``routes``, ``tickets``,
  ``learning``, ``history`` and ``drain`` are its parts;
- ``admission``: the same on an event loop, as ``async with admission.slot(...)``;
- ``middleware``: that in front of an ASGI application; ``callers`` tells band and tenant from headers;
- ``frames``: from signal frames to what the core acts on; ``view`` and ``metrics``: what people see of it.
"""

from grid.flow.admission import Admission as Admission
from grid.flow.admission import Slot as Slot
from grid.flow.callers import BandRule as BandRule
from grid.flow.callers import Caller as Caller
from grid.flow.callers import CallerRules as CallerRules
from grid.flow.core import AdmissionCore as AdmissionCore
from grid.flow.frames import pool_signals as pool_signals
from grid.flow.frames import traffic_share as traffic_share
from grid.flow.middleware import AdmissionMiddleware as AdmissionMiddleware
from grid.flow.pools import PoolSignal as PoolSignal
from grid.flow.pools import PoolState as PoolState
from grid.flow.settings import AdmissionPolicy as AdmissionPolicy
from grid.flow.settings import Band as Band
from grid.flow.tickets import State as State
from grid.flow.tickets import Ticket as Ticket
from grid.flow.view import describe as describe
