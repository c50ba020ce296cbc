import httpx

from tests.debug.fake_view import FakeView


async def test_a_drain_is_made_listed_and_taken_back(client: httpx.AsyncClient, view: FakeView) -> None:
    made = await client.post("/v1/drains", json={"target": "east-llama", "for_s": 1800, "reason": "kernel update"})
    assert made.status_code == 201
    body = made.json()
    assert (body["id"], body["target"], body["kind"], body["reason"]) == (
        "east-llama",
        "east-llama",
        "provider",
        "kernel update",
    )
    assert body["until"] == "2096-10-02T07:06:40.000Z"
    assert body["left_s"] > 0
    assert [one["id"] for one in (await client.get("/v1/drains")).json()["drains"]] == ["east-llama"]
    assert (await client.delete("/v1/drains/east-llama")).status_code == 204
    assert (await client.get("/v1/drains")).json() == {"drains": []}
    assert (await client.delete("/v1/drains/east-llama")).status_code == 404


async def test_a_drain_without_an_end(client: httpx.AsyncClient) -> None:
    body = (await client.post("/v1/drains", json={"target": "east"})).json()
    assert (body["kind"], body["until"], body["left_s"]) == ("site", None, None)


async def test_a_shorter_drain_made_nothing_new(client: httpx.AsyncClient, view: FakeView) -> None:
    view.extended = False
    answer = await client.post("/v1/drains", json={"target": "east"})
    assert answer.status_code == 200
    assert answer.json()["extended"] is False


async def test_a_drain_of_nobody(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/drains", json={"target": "north"})).status_code == 404


async def test_a_reload_says_what_changed(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/reload")).json() == {"generation": 2, "changes": ["provider west-llama added"]}


async def test_reading_changes_nothing(client: httpx.AsyncClient, view: FakeView) -> None:
    for path in ("/", "/v1/drains", "/v1/reload", "/v1/drains/east", "/v1/config"):
        await client.get(path)
    assert not view.drained
