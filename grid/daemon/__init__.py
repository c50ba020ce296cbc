"""The control plane's process: schedule, cycle, reload, shutdown.

How the parts hang together: ``ticker`` rings; ``observe`` scrapes what is due and asks ``cycle`` for a pass;
``planner`` decides and renders from one immutable view; ``delivery`` publishes while ``leadership`` holds the lease;
``frames`` sends the signals; ``housekeeping`` and ``keeper`` look after what others say and what must last; ``board``
holds what is known, and ``view`` shows it to ``grid.debug``. ``daemon`` wires them; ``process`` is ``grid run``.
"""

from grid.daemon.daemon import Daemon as Daemon
from grid.daemon.process import main as main
