"""Deliver: both ends of the Redis protocol. ``docs/bus-protocol.md`` is enough to write a client from.

- ``address``, ``connect``, ``faults``: the way to Redis, whatever its form; ``server``: the embedded one;
- ``lease``: who publishes; ``publisher``: the writing side; ``store``: what anybody may read;
- ``order``, ``holding``: which document is the newer one, decided without I/O;
- ``subscriber``: the reading side; ``reports``: what gateways say of themselves.
"""

from grid.bus.address import BusAddress as BusAddress
from grid.bus.connect import BusSettings as BusSettings
from grid.bus.connect import Connection as Connection
from grid.bus.connect import connect as connect
from grid.bus.holding import Delivery as Delivery
from grid.bus.holding import Source as Source
from grid.bus.lease import Leader as Leader
from grid.bus.lease import LeaderLease as LeaderLease
from grid.bus.order import Position as Position
from grid.bus.publisher import Published as Published
from grid.bus.publisher import Publisher as Publisher
from grid.bus.reports import Report as Report
from grid.bus.reports import gateway_signals as gateway_signals
from grid.bus.server import EmbeddedServer as EmbeddedServer
from grid.bus.server import embedded_socket as embedded_socket
from grid.bus.store import Remembered as Remembered
from grid.bus.store import Store as Store
from grid.bus.store import Stored as Stored
from grid.bus.subscriber import FrameDelivery as FrameDelivery
from grid.bus.subscriber import Subscriber as Subscriber
from grid.bus.subscriber import SubscriberState as SubscriberState
