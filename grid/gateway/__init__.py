"""Use: the client library of gateways. Chooses a provider for each request from memory.

- ``client``: :class:`GridClient`, which follows the bus; ``sync``: the same for threads;
- ``router``: everything it decides with, without I/O; ``decision``, ``explain``: what a pick gives, and why;
- ``frames``, ``target``, ``fleet``: what the daemon tells, and the estimate of a provider's load made of it;
- ``snapshot``, ``places``: a document made ready to pick from; ``pickers``, ``saturation``: the choice inside a group;
- ``draws``: draws by weight;
- ``affinity``, ``health``, ``shedding``, ``retry``, ``refusals``: sessions, failures, overload, and how to say no.
"""

from grid.gateway.affinity import Bound as Bound
from grid.gateway.client import ClientState as ClientState
from grid.gateway.client import GridClient as GridClient
from grid.gateway.client import Status as Status
from grid.gateway.decision import Consideration as Consideration
from grid.gateway.decision import Decision as Decision
from grid.gateway.decision import Why as Why
from grid.gateway.router import Affinity as Affinity
from grid.gateway.router import Route as Route
from grid.gateway.router import Router as Router
from grid.gateway.router import Settings as Settings
from grid.gateway.snapshot import Snapshot as Snapshot
from grid.gateway.sync import SyncGridClient as SyncGridClient
from grid.gateway.target import Target as Target
from grid.model.errors import RoutingError as RoutingError
