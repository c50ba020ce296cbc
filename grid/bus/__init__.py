"""Deliver: both ends of the Redis protocol. ``docs/bus-protocol.md`` is enough to write a client from."""
