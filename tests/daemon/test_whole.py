"""Whole daemons: reload, recording, dry run, hanging name look-ups, events, metrics, refusals at the start."""

import asyncio
import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from grid.config import parse
from grid.daemon import Daemon
from grid.model import BusError, ConfigError, DaemonError, Reason, RecordingError
from grid.signals.recording import RecordingReader
from grid.sim.pages import Failure
from tests.daemon.fleet import INTERVAL, LATE, Fleet, Watcher, answer, page, running, serving
from tests.support.redis_server import RedisServer
from tests.support.until import PATIENCE, until

pytestmark = pytest.mark.real_server


async def test_a_good_reload_swaps_and_leaves_alone_who_stays(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west", "north") as pages, Watcher(redis.url) as watcher:
        fleet = Fleet(pages, redis.url, tmp_path)
        path = await fleet.write()
        async with running(Daemon(path)) as client:
            await until(lambda: set(watcher.states()) == {"east-llama", "west-llama"})
            before = (await client.get("/v1/providers/east-llama")).json()["scrapes"]
            fleet.names = ("east", "north")
            await fleet.write()
            done = (await client.post("/v1/reload")).json()
            assert done["generation"] == 2
            assert set(done["changes"]) == {
                "site north added",
                "site west removed",
                "provider north-llama added",
                "provider west-llama removed",
            }
            await until(
                lambda: watcher.states() == {"east-llama": "new_and_existing", "north-llama": "new_and_existing"}
            )
            assert watcher.documents[-1][1].provenance.source_generation == 2  # type: ignore[union-attr]
            east = (await client.get("/v1/providers/east-llama")).json()
            assert east["scrapes"] >= before
            assert (await client.get("/v1/providers/west-llama")).status_code == 404
            text = (await client.get("/metrics")).text
            assert "west-llama" not in text
            assert 'grid_scrapes_total{outcome="ok",provider="north-llama"}' in text
            assert "grid_config_last_reload_successful 1.0" in text
            assert "grid_config_generation 2.0" in text
            assert (await client.get("/v1/config")).json()["providers"].keys() == {"east-llama", "north-llama"}
            # The pages of those who left are not read any more.
            count = pages.requests["west"]
            await until(lambda: pages.requests["north"] >= 4)
            assert pages.requests["west"] == count


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (("max_running: 8", "max_running: -8"), "config_out_of_range", "max_running"),
        (("max_running: 8", "max_runing: 8"), "config_unknown_key", "max_runing"),
        (("network: acme", "network: other"), "config_needs_restart", "network"),
        (("lease: 2s", "lease: 3s"), "config_needs_restart", "bus.lease"),
    ],
)
async def test_a_bad_reload_changes_nothing_and_says_so(
    redis: RedisServer, tmp_path: Path, change: tuple[str, str], code: str, said: str
) -> None:
    async with serving("east", "west") as pages, Watcher(redis.url) as watcher:
        fleet = Fleet(pages, redis.url, tmp_path)
        path = await fleet.write()
        async with running(Daemon(path)) as client:
            await until(lambda: watcher.documents)
            await fleet.write(fleet.text().replace(*change))
            refused = await client.post("/v1/reload")
            assert (refused.status_code, refused.json()["code"]) == (422, code)
            assert any(said in problem["path"] for problem in refused.json()["problems"])
            ready = await client.get("/readyz?verbose")
            assert ready.status_code == 200
            assert "[!]config warning: the last reload was refused, generation 1 stays" in ready.text
            assert said in ready.text
            text = (await client.get("/metrics")).text
            assert "grid_config_last_reload_successful 0.0" in text
            assert "grid_config_generation 1.0" in text
            # It goes on as before, and a good file mends it.
            await pages.put("west", page(0))
            await until(lambda: watcher.states()["west-llama"] == "none")
            await fleet.write()
            assert (await client.post("/v1/reload")).json() == {"generation": 2, "changes": []}
            assert "[+]config ok" in (await client.get("/readyz?verbose")).text


async def test_a_changed_file_is_noticed_and_not_loaded_by_itself(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages:
        fleet = Fleet(pages, redis.url, tmp_path)
        path = await fleet.write()
        async with running(Daemon(path)) as client:
            assert (await client.get("/v1/config")).json()["differs_since"] is None
            await fleet.write(fleet.text().replace("max_running: 8", "max_running: 9"))
            await answer(client, "/v1/config", lambda got: got.json()["differs_since"] is not None)
            ready = await client.get("/readyz?verbose")
            assert ready.status_code == 200
            assert "[!]config file warning: differs from what runs since " in ready.text
            assert "grid_config_file_differs 1.0" in (await client.get("/metrics")).text
            assert (await client.get("/v1/providers/east-llama")).json()["max_running"] == 8
            await client.post("/v1/reload")
            assert (await client.get("/v1/config")).json()["differs_since"] is None
            assert "config file" not in (await client.get("/readyz?verbose")).text
            assert "grid_config_file_differs 0.0" in (await client.get("/metrics")).text


@pytest.mark.parametrize("section", ["providers", "gateways"])
async def test_a_reload_does_not_take_everything_away(redis: RedisServer, tmp_path: Path, section: str) -> None:
    async with serving("east", "west") as pages:
        fleet = Fleet(pages, redis.url, tmp_path)
        path = await fleet.write()
        async with running(Daemon(path)) as client:
            text = fleet.text()
            start = text.index(f"{section}:")
            end = text.index("gateways:") if section == "providers" else len(text)
            await fleet.write(text[:start] + text[end:])
            refused = await client.post("/v1/reload")
            assert (refused.status_code, refused.json()["code"]) == (422, "config_empty")
            assert refused.json()["hint"]
            count = 2 if section == "providers" else 1
            assert f"{section}: the file has none any more, and {count} of them run" in refused.json()["detail"]
            assert len((await client.get(f"/v1/{section}")).json()[section]) == count


async def test_a_gateway_that_comes_back_has_a_document_before(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages:
        fleet = Fleet(pages, redis.url, tmp_path)
        text = fleet.text()
        path = await fleet.write(text + "  other: {site: west}\n")
        async with running(Daemon(path)) as client:
            await answer(client, "/v1/overlays/other", lambda got: got.status_code == 200)
            await fleet.write(text)
            await client.post("/v1/reload")
            assert (await client.get("/v1/overlays/other")).status_code == 404
        async with running(Daemon(path)) as client:
            await answer(client, "/v1/overlays/edge", lambda got: got.status_code == 200)
            await answer(client, "/readyz", lambda got: got.status_code == 200)
            await fleet.write(text + "  other: {site: west, picker: random}\n")
            await client.post("/v1/reload")
            kept = await answer(
                client,
                "/v1/overlays/other/history",
                lambda got: got.status_code == 200 and len(got.json()["documents"]) > 1,
            )
            newest, first = kept.json()["documents"]
            assert first["reason"].startswith("first document")
            assert "first document" not in newest["reason"]
            assert (first["version"], newest["version"]) == (1, 2)


async def test_a_file_that_is_gone_or_half_written_is_no_configuration(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages:
        fleet = Fleet(pages, redis.url, tmp_path)
        path = await fleet.write()
        async with running(Daemon(path)) as client:
            await fleet.write(fleet.text()[: len(fleet.text()) // 2])
            assert (await client.post("/v1/reload")).status_code == 422
            await asyncio.to_thread(path.unlink)
            gone = await client.post("/v1/reload")
            assert (gone.status_code, gone.json()["code"]) == (422, "config_unreadable")
            assert len((await client.get("/v1/providers")).json()["providers"]) == 2


async def test_a_changed_source_starts_anew_and_a_changed_limit_keeps_the_sample(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with serving("east", "west", "other") as pages:
        fleet = Fleet(pages, redis.url, tmp_path)
        path = await fleet.write()
        async with running(Daemon(path)) as client:
            await answer(client, "/v1/providers/west-llama", lambda got: got.json()["scrapes"] >= 2)
            await fleet.write(fleet.text().replace("max_running: 8", "max_running: 16"))
            await client.post("/v1/reload")
            kept = await answer(client, "/v1/providers/west-llama", lambda got: got.json()["capacity"] == 32)
            assert kept.json()["state"] == "fresh"
            assert kept.json()["scrapes"] >= 2
            pages.failures["other"] = Failure.HANG
            await fleet.write(fleet.text().replace(pages.url("west"), pages.url("other")))
            await client.post("/v1/reload")
            fresh = (await client.get("/v1/providers/west-llama")).json()
            assert (fresh["scrapes"], fresh["age_s"]) == (0, None)
            del pages.failures["other"]
            await answer(client, "/v1/providers/west-llama", lambda got: got.json()["scrapes"] >= 1)


async def test_a_daemon_without_a_file_has_nothing_to_reload(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages, running(Fleet(pages, redis.url, tmp_path).daemon()) as client:
        refused = await client.post("/v1/reload")
        assert refused.status_code == 409
        assert refused.json()["hint"]


async def test_name_look_ups_that_hang_delay_nobody(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, over = socket.getaddrinfo, threading.Event()

    def hanging(host: Any, *more: Any, **named: Any) -> Any:
        if isinstance(host, str | bytes) and "black-hole" in (host if isinstance(host, str) else host.decode()):
            over.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return real(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    async with serving("east") as pages, Watcher(redis.url) as watcher:
        text = Fleet(pages, redis.url, tmp_path, ("east",)).text()
        holes = "".join(
            f"  hole{number}: {{site: east, cluster: h{number}, models: [llama], "
            f"source: {{epp: 'http://black-hole-{number}.test:9090/metrics'}}}}\n"
            for number in range(30)
        )
        try:
            async with running(Daemon(parse(text.replace("gateways:", f"{holes}gateways:")))) as client:
                await until(lambda: watcher.documents)
                before, began = pages.requests["east"], time.monotonic()
                await until(lambda: pages.requests["east"] >= before + 4)
                assert time.monotonic() - began <= 4 * INTERVAL + LATE
                asked = time.monotonic()
                assert (await client.get("/livez")).status_code == 200
                assert time.monotonic() - asked < LATE
                hole = (await client.get("/v1/providers/hole7")).json()
                assert hole["last_error"]["code"] in {"timeout", "dns_failed"}
        finally:
            over.set()


async def test_a_recording_holds_what_the_sources_said(redis: RedisServer, tmp_path: Path) -> None:
    file = tmp_path / "today.jsonl"
    async with serving("east", "west") as pages:
        daemon = Fleet(pages, redis.url, tmp_path).daemon(record=file)
        async with running(daemon) as client:
            await answer(client, "/readyz", lambda got: got.status_code == 200)
            await client.post("/v1/drains", json={"target": "west"})
            await pages.refuse()
            await answer(client, "/v1/providers/east-llama", lambda got: got.json()["last_error"] is not None)

    def lines() -> tuple[str, list[str]]:
        with file.open("rb") as stream:
            reader = RecordingReader(stream)
            return reader.header.network.name, [line.kind for line in reader]

    network, kinds = await asyncio.to_thread(lines)
    assert network == "acme"
    assert {"scrape", "error", "drains"} <= set(kinds)


async def test_a_dry_run_decides_and_writes_nothing(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages:
        fleet = Fleet(pages, redis.url, tmp_path, state=True)
        async with running(fleet.daemon(dry_run=True)) as client:
            await answer(client, "/readyz", lambda got: got.status_code == 200)
            said = await answer(client, "/v1/history", lambda got: "would publish edge" in got.text)
            assert said.status_code == 200
            assert (await client.get("/v1/leader")).json()["role"] == "dry_run"
            assert (await client.get("/v1/overlays/edge")).status_code == 404

    def keys() -> list[bytes]:
        with redis.client() as plain:
            return list(plain.scan_iter())

    assert await asyncio.to_thread(keys) == []
    assert not (tmp_path / "state").exists()


async def test_a_dry_run_beside_a_leader_compares_with_what_is_live(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages:
        fleet = Fleet(pages, redis.url, tmp_path)
        async with running(fleet.daemon()) as leader:
            await answer(leader, "/v1/overlays/edge", lambda got: got.status_code == 200)
            async with running(fleet.daemon(dry_run=True)) as client:
                await answer(client, "/v1/overlays/edge", lambda got: got.status_code == 200)
                await answer(
                    client,
                    "/v1/history",
                    lambda got: any(
                        one["sentence"].endswith("nothing changed; dry run") for one in got.json()["cycles"]
                    ),
                )


async def test_events_are_followed_as_they_happen(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages, running(Fleet(pages, redis.url, tmp_path).daemon()) as client:
        await answer(client, "/v1/overlays/edge", lambda got: got.status_code == 200)
        kinds: list[str] = []
        async with asyncio.timeout(PATIENCE), client.stream("GET", "/v1/events") as stream:
            lines = stream.aiter_lines()
            assert (await anext(lines)).startswith(":")
            await client.post("/v1/drains", json={"target": "west", "reason": "disk"})
            async for line in lines:
                if line.startswith("data:"):
                    event = orjson.loads(line.removeprefix("data:"))
                    kinds.append(event["kind"])
                    if event["kind"] == "published":
                        assert event["gateway"] == "edge"
                        assert "existing_only" in event["sentence"]
                    if {"drain", "published", "cycle"} <= set(kinds):
                        break


async def test_an_end_in_order_is_the_last_event(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages:
        daemon = Fleet(pages, redis.url, tmp_path).daemon()
        async with running(daemon) as client:
            await answer(client, "/v1/overlays/edge", lambda got: got.status_code == 200)
            async with asyncio.timeout(PATIENCE), client.stream("GET", "/v1/events") as stream:
                lines = stream.aiter_lines()
                await anext(lines)
                stopping = asyncio.create_task(daemon.stop())
                data = [line async for line in lines if line.startswith("data:")]
                await stopping
            assert orjson.loads(data[-1].removeprefix("data:"))["kind"] == "stopping"


async def test_history_and_older_documents_are_served(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages, running(Fleet(pages, redis.url, tmp_path).daemon()) as client:
        first = await answer(client, "/v1/overlays/edge", lambda got: got.status_code == 200)
        await client.post("/v1/drains", json={"target": "west"})
        second = await answer(client, "/v1/overlays/edge", lambda got: got.headers["etag"] != first.headers["etag"])
        kept = (await client.get("/v1/overlays/edge/history")).json()["documents"]
        assert [f'"{one["revision"]}"' for one in kept] == [second.headers["etag"], first.headers["etag"]]
        assert kept[1]["reason"].startswith("first document: 2 candidates")
        for which in (kept[1]["revision"][:10], kept[1]["version"]):
            old = await client.get(f"/v1/overlays/edge/{which}")
            assert old.content == first.content
        lost = (await client.get("/v1/overlays/edge/77")).json()
        assert lost["detail"] == f"there is no version 77 of edge; kept: {kept[1]['version']}-{kept[0]['version']}"
        same = await client.get("/v1/overlays/edge", headers={"If-None-Match": second.headers["etag"]})
        assert same.status_code == 304
        listed = (await client.get("/v1/overlays")).json()["overlays"]
        assert [(one["gateway"], one["revision"]) for one in listed] == [("edge", kept[0]["revision"])]


async def test_one_gateway_that_nobody_admits_does_not_stop_the_other(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages, Watcher(redis.url) as watcher:
        closed = "access: {sites: [east]}"
        fleet = Fleet(
            pages,
            redis.url,
            tmp_path,
            provider_lines={"east": closed, "west": closed},
            more="  lonely: {site: west, picker: random}\n",
        )
        async with running(fleet.daemon()) as client:
            await until(
                lambda: watcher.states() == {"east-llama": "new_and_existing", "west-llama": "new_and_existing"}
            )
            ready = await client.get("/readyz?verbose")
            assert ready.status_code == 200
            assert "[!]document lonely warning" in ready.text
            gateways = {one["name"]: one for one in (await client.get("/v1/gateways")).json()["gateways"]}
            assert gateways["edge"]["fault"] is None
            assert "no candidate" in gateways["lonely"]["fault"]


async def test_what_gateways_report_is_shown(redis: RedisServer, tmp_path: Path) -> None:
    from grid.bus.connect import BusSettings, connect
    from grid.bus.reports import Report, write_report

    async with serving("east", "west") as pages, running(Fleet(pages, redis.url, tmp_path).daemon()) as client:
        got = await answer(client, "/v1/overlays/edge", lambda got: got.status_code == 200)
        at = got.json()["publication"]
        revision = got.json()["revision"]["value"]
        async with contextlib.AsyncExitStack() as stack:
            bus = await connect(BusSettings.from_url(redis.url), "acme")
            stack.push_async_callback(bus.aclose)
            now = time.time()
            late = Report("edge", "late", at["epoch"], at["version"] - 1, "0" * 64, at=now, applied_at=now)
            good = Report(
                "edge",
                "good",
                at["epoch"],
                at["version"],
                revision,
                in_flight={"east/east-llama": 4},
                at=now,
                applied_at=now,
            )
            await write_report(bus, good)
            shown = await answer(
                client, "/v1/gateways", lambda found: found.json()["gateways"][0]["status"] == "synced"
            )
            (instance,) = shown.json()["gateways"][0]["instances"]
            assert (instance["id"], instance["behind"], instance["in_flight"]) == ("good", 0, 4)
            await write_report(bus, late)
            shown = await answer(client, "/v1/gateways", lambda found: found.json()["gateways"][0]["status"] == "stale")
            assert {one["id"]: one["behind"] for one in shown.json()["gateways"][0]["instances"]} == {
                "good": 0,
                "late": 1,
            }
            assert 'grid_gateway_behind_versions{gateway="edge"} 1.0' in (await client.get("/metrics")).text


async def test_the_embedded_bus_is_started_and_stopped_with_the_daemon(tmp_path: Path) -> None:
    from grid.bus.server import embedded_socket

    async with serving("east", "west") as pages:
        fleet = Fleet(pages, "embedded", tmp_path, state=True)
        place = embedded_socket("acme", tmp_path / "state")
        async with running(fleet.daemon()) as client:
            await answer(client, "/v1/overlays/edge", lambda got: got.status_code == 200)
            assert place.exists()
        assert not place.exists()


async def test_what_cannot_start_says_why(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages:
        fleet = Fleet(pages, redis.url, tmp_path)
        with pytest.raises(ConfigError):
            async with running(Daemon(tmp_path / "missing.yaml")):
                pass
        with pytest.raises(RecordingError) as unwritable:
            async with running(fleet.daemon(record=tmp_path / "no" / "such" / "folder.jsonl")):
                pass
        assert "goes on" not in unwritable.value.hint, "it does not start at all"
        async with running(fleet.daemon()) as client:
            taken = fleet.text().replace("127.0.0.1:0", f"127.0.0.1:{client.base_url.port}")
            with pytest.raises(DaemonError) as caught:
                async with running(Daemon(parse(taken))):
                    pass
            assert caught.value.reason is Reason.LISTEN_FAILED
        key = tmp_path / "key.pem"
        await asyncio.to_thread(key.write_text, "no key")
        unsigned = fleet.text().replace("lease: 2s", f"lease: 2s, sign_key_file: {key}")
        with pytest.raises(ConfigError):
            async with running(Daemon(parse(unsigned))):
                pass


async def test_without_a_redis_program_the_embedded_bus_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grid.bus.server.server_program", lambda: None)
    async with serving("east", "west") as pages:
        with pytest.raises(BusError) as caught:
            async with running(Fleet(pages, "embedded", tmp_path, state=True).daemon()):
                pass
        assert caught.value.reason is Reason.BUS_NO_SERVER


async def test_a_bus_that_is_not_there_yet_is_waited_for(redis: RedisServer, tmp_path: Path) -> None:
    await asyncio.to_thread(redis.kill)
    async with serving("east", "west") as pages, running(Fleet(pages, redis.url, tmp_path).daemon()) as client:
        ready = await answer(client, "/readyz?verbose", lambda got: "[+]round ok" in got.text)
        assert ready.status_code == 503
        await asyncio.to_thread(redis.start)
        await answer(client, "/readyz", lambda got: got.status_code == 200)
        await answer(client, "/v1/overlays/edge", lambda got: got.status_code == 200)


async def test_it_answers_quickly_while_it_works(redis: RedisServer, tmp_path: Path) -> None:
    async with serving("east", "west") as pages, running(Fleet(pages, redis.url, tmp_path).daemon()) as client:
        await answer(client, "/readyz", lambda got: got.status_code == 200)
        for path in ("/livez", "/readyz?verbose", "/metrics", "/v1/providers", "/v1/history", "/v1/leader"):
            got: httpx.Response = await client.get(path)
            assert got.status_code == 200
            assert got.elapsed.total_seconds() < LATE
