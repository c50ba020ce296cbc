"""Grid: the load-aware control plane for LLM inference that spans several sites.

Data flows one way, and each step is a package that knows only the packages before it:

``signals`` observes, ``policy`` decides, ``overlay`` renders, ``bus`` delivers, ``gateway`` and ``flow`` use.
``daemon`` wires them on a schedule, ``debug`` shows them, ``cli`` talks to them, ``sim`` drives them.
"""

__version__ = "0.1.0"

SCHEMA_VERSION = "1.0.0"
"""Version of the overlay envelope, see ``docs/overlay.md``."""

PROTOCOL_VERSION = 1
"""Version of the bus protocol, see ``docs/bus-protocol.md``."""
