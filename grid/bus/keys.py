"""Names of keys and channels, as in ``docs/bus-protocol.md``.

All of one network share a hash tag, so a Redis Cluster keeps them in one slot.
"""

INLINE_LIMIT = 32 * 1024
"""Bytes up to which an announcement carries the document itself."""
INLINE_AT_ONCE = 64 * 1024
"""Bytes of documents published together up to which they are carried: all of them pass by every gateway."""
HEARTBEATS = 3
"""Intervals without a frame after which a link counts as dead; a stored frame expires after as many."""


class Keys:
    """The keys and channels of one network; its name stands in braces and alone decides the Cluster slot."""

    __slots__ = ("drains", "gateways", "leader", "memory", "network", "overlays", "prefix", "signal", "signals")

    def __init__(self, network: str) -> None:
        self.network = network
        self.prefix = f"grid:{{{network}}}:"
        self.overlays = f"{self.prefix}overlays"
        self.signal = f"{self.prefix}signal"
        self.signals = f"{self.prefix}signals"
        self.leader = f"{self.prefix}leader"
        self.memory = f"{self.prefix}memory"
        self.drains = f"{self.prefix}drains"
        self.gateways = f"{self.prefix}gateways"

    def overlay(self, gateway: str) -> str:
        """Hash with the gateway's document in force."""
        return f"{self.prefix}overlay:{gateway}"

    def history(self, gateway: str) -> str:
        """Stream of the gateway's last documents."""
        return f"{self.prefix}history:{gateway}"

    def report(self, gateway: str, instance: str) -> str:
        """Hash, short-lived, with what one instance of a gateway says of itself."""
        return f"{self.prefix}gateway:{gateway}:{instance}"
