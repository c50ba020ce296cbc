import httpx
from prometheus_client.parser import text_string_to_metric_families

from grid.debug import Check
from tests.debug.fake_view import FakeView


async def test_alive_while_the_loop_beats(client: httpx.AsyncClient, view: FakeView) -> None:
    answer = await client.get("/livez")
    assert (answer.status_code, answer.text) == (200, "ok\n")
    view.alive_check = Check("loop", False, "no tick for 9.3 s")
    answer = await client.get("/livez")
    assert answer.status_code == 503
    assert "no tick for 9.3 s" in answer.text


async def test_ready_when_every_required_check_passes(client: httpx.AsyncClient, view: FakeView) -> None:
    assert (await client.get("/readyz")).status_code == 200
    view.ready_checks[1] = Check("bus", False, "no connection")
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.text == "[-]bus failed: no connection\n"


async def test_verbose_explains_every_check(client: httpx.AsyncClient, view: FakeView) -> None:
    view.ready_checks.append(Check("config", False, "line 3: no such setting; the old one stays", required=False))
    answer = await client.get("/readyz?verbose")
    assert answer.status_code == 200, "a reload that failed leaves the daemon ready"
    assert answer.text.splitlines() == [
        "[+]round ok",
        "[+]bus ok: redis://bus",
        "[+]lease ok: leader",
        "[!]config warning: line 3: no such setting; the old one stays",
        "readyz check passed",
    ]


async def test_a_check_can_be_left_out(client: httpx.AsyncClient, view: FakeView) -> None:
    view.ready_checks[1] = Check("bus", False)
    view.ready_checks[2] = Check("lease", False)
    assert (await client.get("/readyz?exclude=bus")).status_code == 503
    assert (await client.get("/readyz?exclude=bus&exclude=lease")).status_code == 200


async def test_metrics_are_prometheus_text(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert [family.name for family in text_string_to_metric_families(answer.text)] == ["grid_leader"]


async def test_head_is_get_without_its_body(client: httpx.AsyncClient) -> None:
    for path in ("/livez", "/metrics", "/v1/overlays/edge-east"):
        assert (await client.head(path)).status_code == 200
