import httpx
import orjson

from grid.debug import Event
from grid.model import DaemonError, Reason
from tests.debug.fake_view import FakeFeed, FakeView


async def test_events_are_server_sent(client: httpx.AsyncClient, view: FakeView) -> None:
    view.feed = FakeFeed(
        [Event(4, 1_700_000_000.0, "drain", "east is drained", {"target": "east"}), None, Event(6, 0.0, "cycle", "x")],
        lost=3,
    )
    answer = await client.get("/v1/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = answer.text.strip().split("\n\n")
    assert blocks[0].startswith(":")
    assert blocks[1].startswith("event: lost\n")
    assert "3 events were dropped" in blocks[1]
    identity, kind, data = blocks[2].split("\n")
    assert (identity, kind) == ("id: 4", "event: drain")
    assert orjson.loads(data.removeprefix("data: ")) == {
        "id": 4,
        "at": "2023-11-14T22:13:20.000Z",
        "kind": "drain",
        "sentence": "east is drained",
        "target": "east",
    }
    assert blocks[3].startswith(":"), "a quiet time keeps the connection alive"
    assert view.feed.closed.is_set()


async def test_a_client_goes_on_where_it_was(client: httpx.AsyncClient, view: FakeView) -> None:
    await client.get("/v1/events", headers={"Last-Event-ID": "17"})
    assert view.asked_after == 17
    await client.get("/v1/events", headers={"Last-Event-ID": "nonsense"})
    assert view.asked_after is None


async def test_too_many_listeners(client: httpx.AsyncClient, view: FakeView) -> None:
    view.fault = DaemonError("32 clients follow already", reason=Reason.TOO_MANY_LISTENERS)
    answer = await client.get("/v1/events")
    assert (answer.status_code, answer.json()["code"]) == (503, "too_many_listeners")
