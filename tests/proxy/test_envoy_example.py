"""The example configuration for Envoy: it is valid, and does what its comments say."""

import contextlib
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from grid.bus import Position
from grid.overlay import Document
from grid.proxy import eds
from grid.proxy.delivery import Held, OutFile
from tests.conftest import ROOT
from tests.overlay.build import accepted
from tests.proxy.envoy import Client, Envoy, Upstream, base_id, program, running_with, upstreams
from tests.proxy.words import EXISTING, grouped, position, reached
from tests.support.until import until

pytestmark = pytest.mark.real_server

EXAMPLE = ROOT / "deploy" / "envoy" / "envoy.yaml"
MODEL = "llama-3.1-70b"
SERVICE = f"grid|inference_model|{MODEL}"


AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


def example(eds_file: Path, admin_port: int, port: int, authorities: Path | None = None) -> str:
    """The example on other ports, reading another file, and trusting others."""
    text = EXAMPLE.read_text()
    for old, new in (
        (AUTHORITIES, str(authorities or AUTHORITIES)),
        ("/run/grid/eds.json}", f"{eds_file}}}"),
        ("port_value: 9901", f"port_value: {admin_port}"),
        ("address: 0.0.0.0, port_value: 8080", f"address: 127.0.0.1, port_value: {port}"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def content(document: Document, version: int, sites: list[Upstream]) -> eds.Assignments:
    known = reached(**{one.name: one.port for one in sites})
    return eds.assign(accepted(document.body), position(version), document.revision, known)


def test_it_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "eds.json"
    file.write_text('{"version_info": "", "resources": []}')
    (tmp_path / "envoy.yaml").write_text(example(file, 9901, 8080))
    done = subprocess.run(
        [program(), "--mode", "validate", "-c", str(tmp_path / "envoy.yaml"), "--base-id", base_id()],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "deprecated" not in done.stderr.lower()


class World:
    def __init__(self, envoy: Envoy, file: Path, sites: list[Upstream]) -> None:
        self.envoy = envoy
        self.east, self.west = sites
        self.client = Client(envoy.listener)
        self._file = OutFile(file, lambda _: None)

    async def write(self, document: Document, version: int) -> None:
        made = content(document, version, [self.east, self.west])
        await self._file.put(made.data, Held(Position(1, version), document.revision))
        wanted = f"/1.{version}/"
        await until(lambda: wanted in self.envoy.stats("version_text")[f"cluster.{MODEL}.version_text"])

    async def chat(self, model: object = MODEL, **headers: str) -> tuple[int, dict[str, str], bytes]:
        body = json.dumps({"messages": [{"role": "user", "content": "hello " * 2000}], "model": model}).encode()
        return await self.client.ask({"content-type": "application/json", **headers}, body, "/v1/chat/completions")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    file = tmp_path / "eds.json"
    async with upstreams("east", "west") as sites:
        first = grouped(("east", 0, 100), ("west", 1, 100), model=MODEL)
        file.write_bytes(content(first, 1, sites).data)
        with running_with(lambda admin, port: example(file, admin, port)) as envoy:
            found = World(envoy, file, sites)
            yield found
            with contextlib.suppress(OSError):
                await found.client.aclose()


async def test_the_body_names_the_model_and_the_answer_its_site(world: World) -> None:
    status, headers, body = await world.chat()
    assert (status, body) == (200, b"east")
    assert (headers["x-grid-site"], headers["x-grid-backend"]) == ("east", "east-llama")
    for model in ("gpt-nothing", 3, None):
        status, headers, body = await world.chat(model)
        assert status == 404
        assert json.loads(body)["error"]["code"] == "model_not_found"


async def test_a_busy_or_dead_site_is_left_for_the_next_group_at_once(world: World) -> None:
    for trouble in (503, 429):
        world.east.status = trouble
        status, headers, _ = await world.chat()
        assert (status, headers["x-grid-site"]) == (200, "west")
    world.east.status = 200
    await world.east.stop()
    status, headers, _ = await world.chat()
    assert (status, headers["x-grid-site"]) == (200, "west")


async def test_a_session_stays_where_it_began_also_while_that_site_drains(world: World) -> None:
    _, headers, _ = await world.chat()
    cookie = headers["set-cookie"].partition(";")[0]
    assert cookie.startswith("grid-session=")
    await world.write(grouped(("west", 0, 100), ("east", 1, 100, EXISTING), model=MODEL), 2)
    _, headers, _ = await world.chat()
    assert headers["x-grid-site"] == "west"
    _, headers, _ = await world.chat(cookie=cookie)
    assert headers["x-grid-site"] == "east"
    await world.write(grouped(("west", 0, 100), model=MODEL), 3)
    _, headers, _ = await world.chat(cookie=cookie)
    assert headers["x-grid-site"] == "west"


async def test_a_provider_with_https_is_reached_by_its_name_and_checked(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    file = tmp_path / "eds.json"
    async with upstreams("east", "west") as sites:
        for one, signer in zip(sites, (authority, stranger), strict=True):
            await one.stop()
            one.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            signer.issue_cert(f"{one.name}.test").configure_cert(one.tls)
            await one.start()
        known = {
            (one.name, f"{one.name}-llama"): eds.Endpoint(f"{one.name}.test", one.port, True, ("127.0.0.1",))
            for one in sites
        }
        document = grouped(("west", 0, 100), ("east", 1, 100), model=MODEL)
        made = eds.assign(accepted(document.body), position(1), document.revision, known)
        file.write_bytes(made.data)
        with running_with(lambda admin, port: example(file, admin, port, tmp_path / "ca.pem")) as envoy:
            found = World(envoy, file, sites)
            status, headers, _ = await found.chat()
            await found.client.aclose()
        assert (status, headers["x-grid-site"]) == (200, "east")
        assert sites[1].served == 0
