"""Following an Envoy that answers well, badly, late or not at all."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from grid.bus import Position
from grid.model import Reason
from grid.proxy.applied import Applied
from grid.proxy.eds import Version
from grid.proxy.envoy_admin import EnvoyAdmin
from tests.support.http_server import Answer, Request, serve
from tests.support.until import until


def version(number: int, gateway: str = "edge") -> Version:
    return Version("acme", gateway, Position(1, number), "a" * 64, "0" * 12)


class Admin:
    """What an Envoy's admin side says."""

    def __init__(self) -> None:
        self.up = True
        self.clusters: dict[str, str] = {}
        self.rejected = 0
        self.asked = 0

    async def __call__(self, request: Request) -> Answer:
        self.asked += 1
        if not self.up:
            return Answer(503)
        if request.target.startswith("/clusters"):
            return Answer(200, b'{"cluster_statuses": []}')
        stats: list[dict[str, object]] = [{"histograms": {}}]
        for name, text in self.clusters.items():
            stats.append({"name": f"cluster.{name}.version_text", "value": text})
            stats.append({"name": f"cluster.{name}.update_rejected", "value": self.rejected})
        return Answer(200, json.dumps({"stats": stats}).encode())


def seen(applied: Applied) -> tuple[Version | None, Reason | None]:
    """The version that it has, and what is wrong."""
    return applied.version, applied.problem.code if applied.problem is not None else None


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
async def applied(admin: Admin) -> AsyncIterator[Applied]:
    async with serve(admin) as url:
        found = Applied(EnvoyAdmin(url, "acme", "edge"), dict)
        yield found
        await found.aclose()


async def test_the_cluster_that_is_farthest_behind_counts(admin: Admin, applied: Applied) -> None:
    admin.clusters = {"a": str(version(7)), "b": str(version(6)), "c": str(version(1, "other")), "d": "v1", "e": ""}
    await applied.ask()
    assert applied.version == version(6)
    assert applied.at is not None
    assert applied.running is not None
    assert applied.running.versions == {"a": version(7), "b": version(6)}


async def test_when_it_was_first_seen_stays(admin: Admin, applied: Applied) -> None:
    admin.clusters = {"a": str(version(7))}
    await applied.ask()
    first = applied.at
    await applied.ask()
    assert applied.at == first
    admin.clusters = {}
    await applied.ask()
    assert (applied.version, applied.at) == (None, None)


async def test_an_outage_is_a_problem_at_once_and_unknown_later(
    admin: Admin, applied: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.clusters = {"a": str(version(7))}
    await applied.ask()
    assert seen(applied) == (version(7), None)
    admin.up = False
    await applied.ask()
    assert seen(applied) == (version(7), Reason.ENVOY_UNREACHABLE)
    monkeypatch.setattr("grid.proxy.applied.GRACE", 0.0)
    await applied.ask()
    assert seen(applied) == (None, Reason.ENVOY_UNREACHABLE)
    assert applied.running is None
    admin.up = True
    await applied.ask()
    assert seen(applied) == (version(7), None)


async def test_one_that_refuses_what_was_written_is_named(
    admin: Admin, applied: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.clusters, admin.rejected = {"a": str(version(7)), "b": str(version(6))}, 2
    applied.expect(Position(1, 7))
    await applied.ask()
    assert seen(applied) == (version(6), None)
    monkeypatch.setattr("grid.proxy.applied.GRACE", 0.0)
    await applied.ask()
    assert seen(applied) == (version(6), Reason.NOT_APPLIED)
    assert applied.problem is not None
    assert applied.problem.detail.startswith("cluster b at ")
    assert applied.problem.detail.endswith("runs 1.6; it refused 4 updates")
    admin.clusters = {"a": str(version(7)), "b": str(version(7))}
    await applied.ask()
    assert seen(applied) == (version(7), None)


async def test_it_is_asked_often_only_until_it_has_applied(
    admin: Admin, applied: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grid.proxy.applied.ASK_SOON", 0.01)
    admin.clusters = {"a": str(version(6))}
    task = asyncio.create_task(applied.keep_asking())
    try:
        await until(lambda: applied.version == version(6))
        quiet = admin.asked
        applied.expect(Position(1, 7))
        await until(lambda: admin.asked > quiet + 10)
        admin.clusters = {"a": str(version(7))}
        await until(lambda: applied.version == version(7))
        await asyncio.sleep(0)
        quiet = admin.asked
        with pytest.raises(AssertionError):
            await until(lambda: admin.asked > quiet + 4, within=0.3)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
