import httpx
import pytest
import structlog

from grid.model import BusError, ConfigError, ConfigProblem, Reason
from tests.debug.fake_view import FakeView


def judge(answer: httpx.Response, status: int, code: str) -> dict[str, object]:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, object] = answer.json()
    assert {"type", "title", "status", "detail", "code", "hint"} <= set(body)
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"] == f"urn:grid:reason:{code}"
    return body


async def test_a_path_that_leads_nowhere(client: httpx.AsyncClient) -> None:
    body = judge(await client.get("/v1/nothing"), 404, "not_found")
    assert "/v1/nothing" in str(body["detail"])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/providers/nobody",
        "/v1/providers/nobody/explain",
        "/v1/overlays/nobody",
        "/v1/overlays/edge-west",
        "/v1/overlays/nobody/abcd",
        "/v1/overlays/edge-east/0000",
    ],
)
async def test_a_name_that_stands_for_nothing(client: httpx.AsyncClient, path: str) -> None:
    body = judge(await client.get(path), 404, "not_found")
    assert body["hint"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/v1/providers", "GET"), ("GET", "/v1/reload", "POST"), ("PUT", "/v1/drains/x", "DELETE")],
)
async def test_a_method_that_is_not_for_the_path(
    client: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await client.request(method, path)
    judge(answer, 405, "method_not_allowed")
    assert allowed in answer.headers["allow"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"target": ""},
        {"target": 7},
        {"target": "east", "for_s": -1},
        {"target": "east", "for_s": "10"},
        {"target": "east", "for_s": 1e12},
        {"target": "east", "forever": True},
        {"target": "x" * 300},
        [],
    ],
)
async def test_a_drain_that_makes_no_sense(client: httpx.AsyncClient, view: FakeView, body: object) -> None:
    found = judge(await client.post("/v1/drains", json=body), 422, "bad_request")
    assert found["problems"]
    assert not view.drained


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "target: is missing"),
        ({"target": ""}, "target: is empty"),
        ({"target": 7}, "target: wants text, not 7"),
        ({"target": "x" * 300}, "target: is longer than 256 characters"),
        ({"target": "east", "for_s": "10"}, "for_s: wants a number, not '10'"),
        (
            {"target": "east", "for_s": 1e12},
            "for_s: must be above 0 s and at most 31622400 s (366 days), not 1000000000000.0; "
            "without it the drain has no end",
        ),
        ({"target": "east", "forever": True}, "forever: is not known here"),
        ([], "body: wants a JSON object, not []"),
        (
            {"target": "east", "reason": "a\nb"},
            "reason: has a control character (U+000A) at place 2; write it as one line of plain text",
        ),
        (
            {"target": "ea\u001b[31mst"},
            "target: has a control character (U+001B) at place 3; write it as one line of plain text",
        ),
    ],
)
async def test_what_is_wrong_is_said_in_the_words_of_who_sent_it(
    client: httpx.AsyncClient, body: object, said: str
) -> None:
    assert judge(await client.post("/v1/drains", json=body), 422, "bad_request")["detail"] == said


@pytest.mark.parametrize("char", ["\x00", "\r", "\x7f", "\x9b", "\u2028", "\u2029", "\u202e", "\u2066"])
async def test_no_text_of_an_operator_breaks_the_line_it_is_shown_in(
    client: httpx.AsyncClient, view: FakeView, char: str
) -> None:
    judge(await client.post("/v1/drains", json={"target": "east", "reason": f"a{char}b"}), 422, "bad_request")
    assert not view.drained


async def test_any_other_text_is_taken_as_it_is(client: httpx.AsyncClient, view: FakeView) -> None:
    reason = "Wartung für 機架 3 \U0001f469\u200d\U0001f527, 50\u00a0%"
    assert (await client.post("/v1/drains", json={"target": "east", "reason": reason})).status_code == 201
    assert view.drained["east"].reason == reason


async def test_a_body_that_is_no_json(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/drains", content=b"{", headers={"Content-Type": "application/json"})
    assert str(judge(answer, 422, "bad_request")["detail"]).startswith("body: is no JSON: ")


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=many"])
async def test_a_query_out_of_range(client: httpx.AsyncClient, query: str) -> None:
    judge(await client.get(f"/v1/history?{query}"), 422, "bad_request")


async def test_a_revision_that_is_none(client: httpx.AsyncClient) -> None:
    judge(await client.get("/v1/overlays/edge-east/XYZ"), 422, "bad_request")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=0", "limit: must be at least 1, not '0'"),
        ("limit=1001", "limit: must be at most 1000, not '1001'"),
        ("limit=many", "limit: wants a whole number, not 'many'"),
    ],
)
async def test_a_query_is_refused_in_plain_words(client: httpx.AsyncClient, query: str, said: str) -> None:
    assert judge(await client.get(f"/v1/history?{query}"), 422, "bad_request")["detail"] == said


async def test_an_error_of_the_family_keeps_its_status_and_code(client: httpx.AsyncClient, view: FakeView) -> None:
    view.fault = BusError("no connection to redis://bus", reason=Reason.BUS_UNREACHABLE)
    body = judge(await client.get("/v1/config"), 503, "bus_unreachable")
    assert body["hint"] == Reason.BUS_UNREACHABLE.hint


async def test_a_refused_reload_lists_every_fault(client: httpx.AsyncClient, view: FakeView) -> None:
    faults = [
        ConfigProblem(Reason.CONFIG_UNKNOWN_KEY, "providers.a.modells", "no such setting", 7, "did you mean models?"),
        ConfigProblem(Reason.CONFIG_OUT_OF_RANGE, "bus.lease", "-1 s"),
    ]
    view.fault = ConfigError("2 problems in grid.yaml", faults)
    body = judge(await client.post("/v1/reload"), 422, "config_unknown_key")
    problems = body["problems"]
    assert isinstance(problems, list)
    first, second = problems
    assert body["hint"] == "did you mean models?"
    assert first["line"] == 7
    assert first["hint"] == "did you mean models?"
    assert second["path"] == "bus.lease"


async def test_a_fault_of_ours_is_a_problem_too_and_tells_nothing(client: httpx.AsyncClient, view: FakeView) -> None:
    view.fault = RuntimeError("s3cret in a message")
    with structlog.testing.capture_logs() as logged:
        answer = await client.get("/v1/config")
    judge(answer, 500, "internal")
    assert "s3cret" not in answer.text
    assert [(line["log_level"], line["path"]) for line in logged] == [("error", "/v1/config")]


@pytest.mark.parametrize("code", [Reason.CONFIG_UNREADABLE, Reason.CONFIG_NEEDS_RESTART])
async def test_a_reload_that_is_refused_as_a_whole_says_the_next_step(
    client: httpx.AsyncClient, view: FakeView, code: Reason
) -> None:
    view.fault = ConfigError("grid.yaml: no", [ConfigProblem(code, "", "no", hint=code.hint)])
    assert judge(await client.post("/v1/reload"), 422, code.value)["hint"] == code.hint
