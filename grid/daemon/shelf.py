"""The published documents of all gateways, as last seen on the bus: for whoever asks, and for the policy's guards."""

from collections.abc import Iterable, Mapping

from grid.bus.store import Store, Stored
from grid.overlay import Envelope, verify


class Shelf:
    """Newest known document per gateway. Reading it waits for nothing."""

    def __init__(self) -> None:
        self._held: dict[str, Stored] = {}
        self._envelopes: dict[str, Envelope | None] = {}

    def __contains__(self, gateway: object) -> bool:
        return gateway in self._held

    def get(self, gateway: str) -> Stored | None:
        """The document, None where none is known."""
        return self._held.get(gateway)

    def envelope(self, gateway: str) -> Envelope | None:
        """What the document says; None where there is none or it does not verify. Parsed once."""
        held = self._held.get(gateway)
        if held is None:
            return None
        if gateway not in self._envelopes:
            self._envelopes[gateway] = verify(held.document).envelope
        return self._envelopes[gateway]

    def put(self, stored: Stored) -> None:
        """Note a document."""
        known = self._held.get(stored.gateway)
        if known is None or known.document != stored.document:
            self._envelopes.pop(stored.gateway, None)
        self._held[stored.gateway] = stored

    def keep(self, gateways: Iterable[str]) -> None:
        """Forget everybody else."""
        kept = set(gateways)
        for name in self._held.keys() - kept:
            del self._held[name]
            self._envelopes.pop(name, None)

    async def refresh(self, store: Store, gateways: Iterable[str]) -> bool:
        """Read what is newer on the bus; whether it holds any document at all. Raises BusError.

        One round trip finds which differ; only those are read. What the bus has lost stays known here.
        """
        names = sorted(gateways)
        if not names:
            return False
        places = await store.connection.many(
            [("HMGET", store.keys.overlay(name), "epoch", "version", "revision") for name in names]
        )
        found = False
        for name, (epoch, version, revision) in zip(names, places, strict=True):
            if epoch is None or version is None or revision is None:
                continue
            found = True
            known = self._held.get(name)
            if known is None or (b"%d" % known.epoch, b"%d" % known.version, known.revision.encode()) != (
                epoch,
                version,
                revision,
            ):
                stored = await store.read(name)
                if stored is not None:
                    self.put(stored)
        return found

    def documents(self) -> Mapping[str, Stored]:
        """All that is known, by gateway."""
        return self._held
