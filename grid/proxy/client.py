"""The client library, as the gateway needs it: it tells of documents and frames once they are in force."""

from collections.abc import Callable

from grid.gateway import GridClient
from grid.overlay import Envelope, SignalFrame


class GatewayClient(GridClient):
    """``on_frame`` hears the frame and the monotonic s at which it was sent or later."""

    on_document: Callable[[], None] | None = None
    on_frame: Callable[[SignalFrame, float], None] | None = None

    def apply(self, envelope: Envelope) -> None:
        """See :class:`grid.gateway.Router`."""
        super().apply(envelope)
        if self.on_document is not None:
            self.on_document()

    def observe(self, frame: SignalFrame, received_at: float) -> None:
        """See :class:`grid.gateway.Router`."""
        super().observe(frame, received_at)
        if self.on_frame is not None:
            self.on_frame(frame, received_at)
