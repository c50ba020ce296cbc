import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from grid.debug import Access
from tests.debug.fake_view import FakeView

EVERYTHING = (
    "/",
    "/metrics",
    "/version",
    "/v1/providers",
    "/v1/overlays/edge-east",
    "/v1/config",
    "/v1/events",
    "/no/such/path",
)


@pytest.fixture
def token_file(tmp_path: Path, view: FakeView) -> Path:
    path = tmp_path / "token"
    path.write_text("right\n")
    view.access = Access(loopback=True, token_file=path)
    return path


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", EVERYTHING)
async def test_without_its_token_nothing_is_shown(client: httpx.AsyncClient, token_file: Path, path: str) -> None:
    for headers in ({}, bearer("wrong"), {"Authorization": "Basic right"}, bearer(""), bearer("rightt")):
        answer = await client.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["code"] == "unauthorized"
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_nothing_changes_without_the_token(client: httpx.AsyncClient, token_file: Path, view: FakeView) -> None:
    assert (await client.post("/v1/drains", json={"target": "east"})).status_code == 401
    assert not view.drained


async def test_with_its_token_everything_is_shown(client: httpx.AsyncClient, token_file: Path) -> None:
    for path in EVERYTHING[:-1]:
        assert (await client.get(path, headers=bearer("right"))).status_code == 200
    assert (await client.get("/v1/providers", headers={"Authorization": "bearer  right"})).status_code == 200


async def test_probes_need_no_token(client: httpx.AsyncClient, token_file: Path) -> None:
    assert (await client.get("/livez")).status_code == 200
    assert (await client.get("/readyz?verbose")).status_code == 200
    assert (await client.get("/livez/..%2fv1/config")).status_code != 200


async def test_a_rotated_token_counts_at_once(client: httpx.AsyncClient, token_file: Path) -> None:
    await asyncio.to_thread(token_file.write_text, "next")
    assert (await client.get("/version", headers=bearer("right"))).status_code == 401
    assert (await client.get("/version", headers=bearer("next"))).status_code == 200


async def test_a_token_file_that_is_gone_or_empty_lets_nobody_in(client: httpx.AsyncClient, token_file: Path) -> None:
    await asyncio.to_thread(token_file.write_text, " \n")
    answer = await client.get("/version", headers=bearer(""))
    assert (answer.status_code, answer.json()["code"]) == (503, "credential_file")
    await asyncio.to_thread(token_file.unlink)
    answer = await client.get("/version", headers=bearer("right"))
    assert (answer.status_code, answer.json()["code"]) == (503, "credential_file")
    assert "right" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:7070", "localhost", "localhost:7070", "[::1]:7070", "127.8.0.1"])
async def test_names_of_this_machine_pass(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/v1/config", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["attacker.example", "127.0.0.1.attacker.example", "10.0.0.1", "[bad", ""])
async def test_a_rebound_name_does_not_pass(client: httpx.AsyncClient, host: str) -> None:
    answer = await client.get("/v1/config", headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_request")


async def test_on_other_addresses_any_name_passes(client: httpx.AsyncClient, view: FakeView, token_file: Path) -> None:
    view.access = Access(loopback=False, token_file=token_file)
    answer = await client.get("/v1/config", headers={"Host": "grid.example", **bearer("right")})
    assert answer.status_code == 200


async def test_a_foreign_page_changes_nothing(client: httpx.AsyncClient, view: FakeView) -> None:
    for origin in ("https://attacker.example", "null", "http://127.0.0.1:8080"):
        answer = await client.post("/v1/drains", json={"target": "east"}, headers={"Origin": origin})
        assert (answer.status_code, answer.json()["code"]) == (403, "foreign_request")
    assert not view.drained
    own = {"Origin": "http://127.0.0.1:7070"}
    assert (await client.post("/v1/drains", json={"target": "east"}, headers=own)).status_code == 201


async def test_a_large_body_is_not_read(client: httpx.AsyncClient, view: FakeView) -> None:
    large = b'{"target": "east", "reason": "' + b"x" * 70_000 + b'"}'
    answer = await client.post("/v1/drains", content=large, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")

    async def chunks() -> AsyncIterator[bytes]:
        yield large

    answer = await client.post("/v1/drains", content=chunks(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
