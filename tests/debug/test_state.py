import re
import time
from dataclasses import replace

import httpx
import pytest

from grid.debug import DocumentView, GatewayView, InstanceView, LastError, Which
from grid.debug.documents import _ranges
from grid.debug.render import behind, gateway, iso
from grid.model import Reason
from tests.debug.fake_view import OLDER, REVISION, FakeView


async def test_a_provider_is_listed_with_the_keys_that_programs_rely_on(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/providers")
    assert answer.headers["content-type"] == "application/json"
    first, bare = answer.json()["providers"]
    assert first["last_error"].pop("age_s") > 1e6
    assert first == {
        "id": "east-llama",
        "site": "east",
        "cluster": "east-cluster",
        "models": ["llama"],
        "tools": ["search"],
        "state": "fresh",
        "admission_state": "new_and_existing",
        "reason": "admitted",
        "demoted": False,
        "age_s": 0.41,
        "ready_endpoints": 3,
        "held": 120.0,
        "capacity": 192.0,
        "capacity_source": "declared",
        "saturation": 0.625,
        "load": 0.7,
        "load_source": "kv",
        "last_error": {
            "code": "credential_rejected",
            "detail": "500 Authentication failed",
            "hint": Reason.CREDENTIAL_REJECTED.hint,
            "at": "2023-11-14T22:13:20.500Z",
        },
        "problems": [{"code": "bad_value", "detail": "llm_d_epp_average_queue_size NaN"}],
        "drained": False,
    }
    # Nothing is known of the other: unknown is null, never 0.
    assert bare["state"] == "absent"
    unknown = ("age_s", "ready_endpoints", "held", "capacity", "saturation", "load", "last_error", "admission_state")
    assert {bare[key] for key in unknown} == {None}
    assert bare["problems"] == []


async def test_one_provider_shows_more_than_the_listing(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/providers/east-llama")).json()
    assert body["bound_s"] == 6.0
    assert body["held_source"] == "live"
    assert body["interval_s"] == 2.0
    assert body["scrapes"] == 10


async def test_an_explanation_is_the_chain_of_reasons_and_the_place_at_every_gateway(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/providers/east-llama/explain")).json()
    assert [(step["rule"], step["reason"]) for step in body["steps"]] == [
        ("readiness", "ready"),
        ("freshness", "fresh"),
    ]
    (edge,) = body["gateways"]
    assert edge["name"] == "edge-east"
    assert edge["excluded"] is None
    (place,) = edge["places"]
    assert (place["capability"], place["group"], place["weight"], place["tier"]) == ("llama", 0, 100, "same_site")
    assert edge["steps"][0]["detail"] == "group 0 of 1"


async def test_an_explanation_begins_with_a_source_that_cannot_be_read(
    client: httpx.AsyncClient, view: FakeView
) -> None:
    error = LastError(Reason.CREDENTIAL_REJECTED, "http://east: HTTP 500", time.time() - 1.0, in_a_row=3)
    view.first = replace(view.first, last_error=error)
    body = (await client.get("/v1/providers/east-llama/explain")).json()
    source = body["steps"][0]
    assert (source["rule"], source["reason"]) == ("source", "credential_rejected")
    said = r"cannot be read, 3 times in a row, \d+\.\d s ago: http://east: HTTP 500; next: (.*)"
    found = re.fullmatch(said, source["detail"])
    assert found is not None, source["detail"]
    assert found[1] == Reason.CREDENTIAL_REJECTED.hint
    assert body["last_error"]["hint"] == Reason.CREDENTIAL_REJECTED.hint
    assert 1.0 <= body["last_error"]["age_s"] < 60.0
    view.first = replace(view.first, decision=None)
    steps = (await client.get("/v1/providers/east-llama/explain")).json()["steps"]
    assert [step["rule"] for step in steps] == ["source"], "before the first decision, too"


async def test_an_explanation_says_why_a_gateway_leaves_a_provider_out(client: httpx.AsyncClient) -> None:
    (edge,) = (await client.get("/v1/providers/west-llama/explain")).json()["gateways"]
    assert edge["excluded"] == "access_denied"
    assert edge["places"] == []
    assert edge["excluded_detail"]


async def test_gateways_say_who_runs_what(client: httpx.AsyncClient) -> None:
    east, west = (await client.get("/v1/gateways")).json()["gateways"]
    assert east["status"] == "synced"
    assert east["instances"] == [
        {
            "id": "pod-1",
            "epoch": 7,
            "version": 12,
            "revision": REVISION,
            "behind": 0,
            "applied_at": "2023-11-14T22:13:20.000Z",
            "last_seen_s": 0.4,
            "in_flight": 3,
            "in_flight_by": {"east/east-cluster": 3},
        }
    ]
    assert (west["status"], west["instances"], west["fault"]) == ("never", [], "no candidates")


@pytest.mark.parametrize(
    ("epoch", "version", "revision", "expected"),
    [
        (7, 12, REVISION, 0),
        (7, 10, OLDER, 2),
        (6, 40, OLDER, 12),  # of an older epoch it lacks everything of this one
        (6, 40, REVISION, 0),  # the same revision is the same content, whatever its number
        (7, 13, OLDER, 0),  # it has heard of something newer than we have
        (8, 1, OLDER, 0),
    ],
)
def test_how_far_behind_an_instance_is(epoch: int, version: int, revision: str, expected: int) -> None:
    due = GatewayView("edge", "east", 7, 12, REVISION)
    instance = InstanceView("i", epoch, version, revision, None, 0.0)
    assert behind(instance, due) == expected


def test_one_instance_behind_makes_the_gateway_stale() -> None:
    good = InstanceView("a", 7, 12, REVISION, None, 0.0)
    late = InstanceView("b", 7, 11, OLDER, None, 0.0)
    assert gateway(GatewayView("edge", "east", 7, 12, REVISION, instances=(good, late)))["status"] == "stale"


async def test_a_document_comes_as_it_was_published_with_its_revision_as_entity_tag(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/overlays/edge-east")
    assert answer.content == b'{"schema_version":"1.0.0"}'
    assert answer.headers["etag"] == f'"{REVISION}"'


@pytest.mark.parametrize("given", [f'"{REVISION}"', f'W/"{REVISION}"', f'"x", "{REVISION}"', "*"])
async def test_an_unchanged_document_is_not_sent_again(client: httpx.AsyncClient, given: str) -> None:
    answer = await client.get("/v1/overlays/edge-east", headers={"If-None-Match": given})
    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["etag"] == f'"{REVISION}"'


async def test_a_changed_document_is_sent(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/overlays/edge-east", headers={"If-None-Match": f'"{OLDER}"'})).status_code == 200


async def test_an_older_document_is_found_by_the_start_of_its_revision(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"/v1/overlays/edge-east/{OLDER[:8]}")
    assert answer.content == b'{"older":true}'
    assert answer.headers["etag"] == f'"{OLDER}"'


async def test_an_older_document_is_found_by_its_version(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/overlays/edge-east/11")
    assert answer.content == b'{"older":true}'
    assert answer.headers["etag"] == f'"{OLDER}"'
    assert (await client.get("/v1/overlays/edge-east/0000012")).headers["etag"] == f'"{REVISION}"'
    assert (await client.get(f"/v1/overlays/edge-east/{OLDER[:8].upper()}")).content == b'{"older":true}'


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("77", "there is no version 77 of edge-east; kept: 11-12"),
        ("1234567", "there is no version 1234567 of edge-east; kept: 11-12"),
        ("beef", "there is no revision beef of edge-east; kept: 11-12"),
    ],
)
async def test_a_document_that_is_not_kept(client: httpx.AsyncClient, which: str, said: str) -> None:
    answer = await client.get(f"/v1/overlays/edge-east/{which}")
    assert (answer.status_code, answer.json()["detail"]) == (404, said)
    assert answer.json()["hint"].endswith("/v1/overlays/edge-east/history lists it")


@pytest.mark.parametrize("which", ["", "XYZ", "abc", "12345678x", "1.2", "-1", "f" * 65, "٣"])
async def test_a_name_that_can_be_no_document(client: httpx.AsyncClient, which: str) -> None:
    answer = await client.get(f"/v1/overlays/edge-east/{which}")
    assert answer.status_code == 422
    assert "a version is a number of up to 7 digits" in answer.json()["detail"]
    assert "/v1/overlays/edge-east gives the newest" in answer.json()["hint"]


def test_a_number_is_a_version_first_and_may_begin_a_revision() -> None:
    kept = [DocumentView("edge", 7, 1234, "aa" * 32, "", b""), DocumentView("edge", 7, 9, "12345678" * 8, "", b"")]
    asked = Which.of("1234")
    assert asked is not None
    assert asked.choose(kept) is kept[0]
    assert asked.choose(kept[1:]) is kept[1]
    assert asked.choose([]) is None


def test_what_is_kept_is_said_in_stretches() -> None:
    assert _ranges([]) == "none"
    assert _ranges([3, 1, 2, 7, 9, 8]) == "1-3, 7-9"
    assert _ranges(range(0, 20, 2)) == "..., 10, 12, 14, 16, 18"


async def test_the_documents_kept_of_a_gateway(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/overlays/edge-east/history")).json()
    assert [(one["version"], one["reason"]) for one in body["documents"]] == [
        (12, "west is drained"),
        (11, "first document"),
    ]
    assert len((await client.get("/v1/overlays/edge-east/history?limit=1")).json()["documents"]) == 1
    assert (await client.get("/v1/overlays/nobody/history")).status_code == 404


async def test_the_list_of_documents(client: httpx.AsyncClient) -> None:
    first, second = (await client.get("/v1/overlays")).json()["overlays"]
    assert (first["gateway"], first["epoch"], first["version"], first["revision"]) == ("edge-east", 7, 12, REVISION)
    assert second["version"] is None


async def test_who_leads(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/leader")).json() == {
        "role": "leader",
        "this": "host-1",
        "holder": "host-1",
        "epoch": 7,
        "since": "2023-11-14T22:13:20.000Z",
        "lease_s": 10.0,
        "lease_left_s": 6.5,
    }


async def test_the_configuration_is_shown_as_the_view_gives_it(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/config")).json()["network"] == "acme"


async def test_history_by_kind_and_number(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/history", params={"kind": "leader", "limit": 2})).json()
    assert [event["sentence"] for event in body["events"]] == ["event 3", "event 5"]
    assert body["cycles"][0]["changed"] is False


async def test_versions(client: httpx.AsyncClient) -> None:
    body = (await client.get("/version")).json()
    assert set(body) == {"version", "schema", "protocol"}
    assert body["schema"] == "1.0.0"


async def test_the_page_links_to_everything_that_can_be_read(client: httpx.AsyncClient) -> None:
    page = await client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    links = [part.split('"')[0] for part in page.text.split('href="')[1:]]
    assert "/v1/providers" in links
    for link in links:
        if link != "/v1/events":
            assert (await client.get(link)).status_code == 200, link


def test_times_are_utc() -> None:
    assert iso(0.0) == "1970-01-01T00:00:00.000Z"
    assert iso(None) is None


def test_the_view_is_the_protocol() -> None:
    from grid.debug import DaemonView

    view: DaemonView = FakeView()
    assert view.alive().ok
