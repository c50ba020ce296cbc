"""Use: the client library of gateways. Chooses a provider for each request from memory.

- ``client``: :class:`GridClient`, which follows the bus and picks;
- ``snapshot``: a document made ready to pick from; ``pickers``: the choice inside a group;
- ``pick``: what a pick gives; ``refusals``: why there is none; ``flights``: what is under way;
- ``draws``, ``target``, ``saturation``: draws by weight, estimates of load, and the picker that compares them.
"""

from grid.gateway.client import ClientState as ClientState
from grid.gateway.client import GridClient as GridClient
from grid.gateway.client import Status as Status
from grid.gateway.flights import Route as Route
from grid.gateway.pick import Pick as Pick
from grid.gateway.snapshot import Snapshot as Snapshot
from grid.model.errors import RoutingError as RoutingError
