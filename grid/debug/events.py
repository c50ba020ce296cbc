"""What happens, as it happens: server-sent events.

Each client has a bounded queue of its own, so that one that reads slowly costs others nothing; what it missed is told
as a ``lost`` event with the number. ``Last-Event-ID`` continues where a broken connection ended, as far as the history
reaches.
"""

from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import APIRouter, Header
from starlette.responses import StreamingResponse

from grid.debug import render
from grid.debug.view import DaemonView, EventFeed

_KEEP_ALIVE = b": still here\n\n"


async def _stream(feed: EventFeed) -> AsyncIterator[bytes]:
    try:
        # The first bytes leave at once, so that a client knows that it is listening.
        yield _KEEP_ALIVE
        async for event in feed:
            lost = feed.take_lost()
            if lost:
                yield b'event: lost\ndata: {"kind":"lost","sentence":"%d events were dropped"}\n\n' % lost
            if event is None:
                yield _KEEP_ALIVE
                continue
            data = orjson.dumps(render.event(event))
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), data)
    finally:
        feed.close()


def router(view: DaemonView) -> APIRouter:
    """The endpoints of this family."""
    routes = APIRouter(prefix="/v1")

    @routes.get("/events")
    async def events(last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
        after = int(last_event_id) if last_event_id is not None and last_event_id.isdecimal() else None
        return StreamingResponse(
            _stream(view.events(after)),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    return routes
