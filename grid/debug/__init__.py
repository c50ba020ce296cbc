"""See: the daemon's HTTP side: health, metrics, overlays, explanations.

- ``view``: what the HTTP side may ask of a daemon (a protocol) and the values it gets;
- ``app``: the FastAPI application over such a view;
- ``access``: who may ask: token, host, origin;
- ``problems``: every error as an RFC 9457 problem document;
- ``health``, ``state``, ``documents``, ``events``, ``actions``: the endpoints; ``render``: their JSON;
- ``connections``: how long a request may take to arrive;
- ``server``: the application on a socket, inside the daemon's own event loop.
"""

from grid.debug.app import create_app as create_app
from grid.debug.server import DebugServer as DebugServer
from grid.debug.view import Access as Access
from grid.debug.view import Check as Check
from grid.debug.view import DaemonView as DaemonView
from grid.debug.view import DocumentView as DocumentView
from grid.debug.view import DrainView as DrainView
from grid.debug.view import Event as Event
from grid.debug.view import EventFeed as EventFeed
from grid.debug.view import GatewayView as GatewayView
from grid.debug.view import InstanceView as InstanceView
from grid.debug.view import LastError as LastError
from grid.debug.view import LeaderView as LeaderView
from grid.debug.view import ProviderView as ProviderView
from grid.debug.view import ReloadResult as ReloadResult
from grid.debug.view import Which as Which
