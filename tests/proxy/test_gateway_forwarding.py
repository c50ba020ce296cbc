"""Requests there and answers back: headers, streams, sizes, credentials, pages."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import trustme

from grid.model import AdmissionState, ConfigError, DaemonError, Reason
from grid.proxy import upstreams
from grid.proxy.gateway import Gateway
from tests.overlay.build import candidate, envelope
from tests.proxy.rig import MODEL, Provider, Rig, Seen, answer, configuration, eventually, load, rig
from tests.support.until import PATIENCE, until


def revision(made: Rig) -> str | None:
    snapshot = made.gateway.client.snapshot
    assert snapshot is not None
    return snapshot.revision


async def test_a_request_goes_to_a_provider_and_the_answer_comes_back() -> None:
    async with rig("east") as made:
        body = orjson.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Ünï"}], "x": [1, 2.50]})
        status, headers, data = await made.ask(body, headers={"content-type": "application/json"})
        assert (status, data) == (200, b'{"from":"east"}')
        assert (headers["x-grid-site"], headers["x-grid-backend"]) == ("east", "east-llama")
        assert headers["x-grid-revision"] == revision(made)
        seen = made.providers["east"].seen[0]
        assert (seen.method, seen.target, seen.body) == ("POST", "/v1/chat/completions", body)
        assert made.in_flight == made.gateway.in_progress == 0
        assert made.counted("east", "routed") == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"])
async def test_all_the_paths_and_their_queries(path: str) -> None:
    async with rig("east") as made:
        status, _, _ = await made.ask({}, f"{path}?api-version=2026-01-01&x=%20a")
        assert status == 200
        assert made.providers["east"].seen[0].target == f"{path}?api-version=2026-01-01&x=%20a"


async def test_a_base_url_with_a_path_is_kept() -> None:
    def deeper(settings: dict[str, Any]) -> None:
        settings["providers"]["east"]["url"] += "/openai/"

    async with rig("east", change=deeper) as made:
        assert (await made.ask())[0] == 200
        assert made.providers["east"].seen[0].target == "/openai/v1/chat/completions"


async def test_which_headers_go_further() -> None:
    sent = {
        "x-mine": "kept", "authorization": "Bearer client", "user-agent": "curl/8", "accept-encoding": "br",
        "x-request-id": "r-1", "x-text": "Füße", "x-gateway-inference-objective": "gold",
        "connection": "x-private, keep-alive", "x-private": "of this connection", "keep-alive": "timeout=5",
        "te": "trailers", "upgrade": "h2c", "proxy-authorization": "Basic x", "proxy-connection": "close",
        "trailer": "x-sum", "x-grid-site": "west", "X-Grid-Anything": "1", "x-ai-routing-candidate": "aaaaaaaa",
        "x-ai-routing-revision": "r", "x-gateway-destination-endpoint": "10.0.0.1:80",
        "x-gateway-destination-endpoint-subset": "10.0.0.1:80", "x-praxis-hop": "1",
    }  # fmt: skip
    async with rig("east") as made:
        assert (await made.ask(headers=sent))[0] == 200
        got = {name.lower(): value for name, value in made.providers["east"].seen[0].headers}
        kept = {"x-mine", "authorization", "user-agent", "accept-encoding", "x-request-id", "x-text"}
        kept |= {"x-gateway-inference-objective", "accept", "content-type"}
        assert {name: got[name] for name in kept if name in sent} == {name: sent[name] for name in kept if name in sent}
        assert set(got) == kept | {"host", "content-length"}
        assert got["host"] == made.providers["east"].url.removeprefix("http://")


async def test_which_headers_come_back() -> None:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(
            writer, 201, b"\x00\xff raw",
            [("Content-Type", "application/x"), ("X-Two", "1"), ("X-Two", "2"), ("set-cookie", "a=1; Path=/"),
             ("connection", "x-hop, keep-alive"), ("x-hop", "1"), ("keep-alive", "timeout=5"), ("server", "vllm"),
             ("x-grid-site", "somewhere"), ("x-grid-cost", "1"), ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
             ("content-encoding", "made-up")],
        )  # fmt: skip

    async with rig("east", scripts={"east": script}) as made:
        status, headers, data = await made.ask()
        assert (status, data) == (201, b"\x00\xff raw")
        assert headers.getall("x-two") == ["1", "2"]
        assert headers.getall("x-grid-site") == ["east"]
        assert headers.getall("date") == ["Thu, 01 Jan 2026 00:00:00 GMT"]
        assert (headers["server"], headers["set-cookie"], headers["content-encoding"]) == (
            "vllm",
            "a=1; Path=/",
            "made-up",
        )
        assert not {"x-hop", "keep-alive", "x-grid-cost"} & set(headers)


async def test_compressed_answers_pass_as_they_are() -> None:
    packed = gzip.compress(b"answer" * 1000)

    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(writer, 200, packed, [("content-encoding", "gzip")])

    async with rig("east", scripts={"east": script}) as made:
        assert (await made.ask())[2] == packed


@pytest.mark.parametrize("status", [204, 304, 302, 400, 404, 422, 500])
async def test_any_status_is_the_clients_to_read(status: int) -> None:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        empty = status in (204, 304)
        head = f"HTTP/1.1 {status} X\r\nlocation: http://elsewhere/\r\n" + (
            "\r\n" if empty else "content-length: 3\r\n\r\nabc"
        )
        writer.write(head.encode())
        await writer.drain()

    async with rig("east", scripts={"east": script}) as made:
        got, headers, data = await made.ask(allow_redirects=False)
        assert (got, data) == (status, b"" if status in (204, 304) else b"abc")
        assert headers["x-grid-site"] == "east"
        assert (await made.ask(allow_redirects=False))[0] == status, "and the connection is of use after that"
        assert made.in_flight == 0


async def test_events_come_through_one_by_one_and_byte_for_byte() -> None:
    events = [b'data: {"n":1}\n\n', b": keep\n\n", b"data: \xe2\x82", b"\xac\r\n\r\n", b"data: [DONE]\n\n"]
    turn = asyncio.Queue[bytes]()

    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        while event := await turn.get():
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        writer.write(b"0\r\n\r\n")

    async with rig("east", scripts={"east": script}) as made, made.post({"stream": True}) as got:
        assert got.headers["content-type"] == "text/event-stream", "headers come before the first event"
        assert got.headers["x-grid-site"] == "east"
        for event in events:
            turn.put_nowait(event)
            assert await got.content.readexactly(len(event)) == event
            assert made.in_flight == 1
        turn.put_nowait(b"")
        assert await got.content.read() == b""
        await until(lambda: made.in_flight == 0)


async def test_an_answer_that_ends_with_its_connection() -> None:
    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall there is")
        await writer.drain()
        writer.close()

    async with rig("east", scripts={"east": script}) as made:
        assert (await made.ask())[2] == b"all there is"


async def test_a_large_answer_waits_for_a_slow_reader() -> None:
    size, written = 64 << 20, 0

    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while written < size:
            writer.write(b"x" * 65536)
            written += 65536
            await writer.drain()

    async with rig("east", scripts={"east": script}) as made, made.post() as got:
        await got.content.readexactly(1000)
        steady, last = 0, -1
        while steady < 10:  # until nothing moves any more
            await asyncio.sleep(0.02)
            steady, last = (steady + 1, last) if written == last else (0, written)
        assert written < size // 2, "the provider is held back, not the answer kept"
        total = 1000
        async for chunk in got.content.iter_any():
            total += len(chunk)
        assert total == size


async def test_a_body_is_sent_on_while_it_comes() -> None:
    arrived = asyncio.Queue[bytes]()

    async def script(_: Provider, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = int(seen.header("content-length") or 0)
        while left:
            chunk = await reader.read(left)
            left -= len(chunk)
            arrived.put_nowait(chunk)
        await answer(writer)

    head, tail = b'{"model":"llama","messages":["', b'"]}'
    more = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield head
        await more.wait()
        yield tail

    async with rig("east", scripts={"east": script}) as made:
        made.providers["east"].read_body = False
        asked = asyncio.ensure_future(
            made.client.post(
                f"{made.url}/v1/chat/completions", data=body(), headers={"content-length": str(len(head + tail))}
            )
        )
        assert await arrived.get() == head
        assert made.in_flight == 1
        more.set()
        assert (await asked).status == 200
        assert arrived.get_nowait() == tail


@pytest.mark.parametrize("model_first", [True, False])
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_of_10_mb(model_first: bool, chunked: bool) -> None:
    messages = [{"role": "user", "content": "word " * 200}] * 11_000
    parts = {"model": MODEL, "messages": messages} if model_first else {"messages": messages, "model": MODEL}
    body = orjson.dumps(parts)
    assert len(body) > 10 << 20

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 100_000):
            yield body[at : at + 100_000]

    async with rig("east", max_body="16MiB") as made:
        data: Any = pieces()
        headers = {} if chunked else {"content-length": str(len(body))}
        async with made.client.post(f"{made.url}/v1/chat/completions", data=data, headers=headers) as got:
            assert got.status == 200
        assert made.providers["east"].seen[0].body == body


async def test_connections_to_a_provider_are_used_again() -> None:
    async with rig("east") as made:
        for _ in range(5):
            assert (await made.ask())[0] == 200
        assert made.providers["east"].connections == 1


# --- credentials ------------------------------------------------------------------------------------------------------


async def test_the_providers_token_replaces_the_clients_and_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstreams, "REFRESH", 0.02)
    token = tmp_path / "token"
    await asyncio.to_thread(token.write_text, "first\n")

    def with_token(settings: dict[str, Any]) -> None:
        settings["providers"]["east"]["upstream"] = {"token_file": str(token)}

    async with rig("east", change=with_token) as made:
        seen = made.providers["east"].seen
        for _ in range(2):
            assert (await made.ask(headers={"authorization": "Bearer client"}))[0] == 200
        assert [value for one in seen for name, value in one.headers if name.lower() == "authorization"] == [
            "Bearer first"
        ] * 2

        async def uses(wanted: str) -> bool:
            await made.ask()
            return seen[-1].header("authorization") == wanted

        rotated = tmp_path / "new"
        await asyncio.to_thread(rotated.write_text, "second")
        await asyncio.to_thread(rotated.replace, token)
        await eventually(lambda: uses("Bearer second"))
        await asyncio.to_thread(token.unlink)
        await asyncio.sleep(0.1)
        assert await uses("Bearer second"), "what was read before stays in use"


async def test_a_provider_without_a_readable_token_gets_nothing(tmp_path: Path) -> None:
    def with_token(settings: dict[str, Any]) -> None:
        settings["providers"]["east"]["upstream"] = {"token_file": str(tmp_path / "missing")}

    async with rig("east", "west", change=with_token) as made:
        for _ in range(6):
            status, headers, _ = await made.ask(headers={"authorization": "Bearer client"})
            assert (status, headers["x-grid-site"]) == (200, "west")
        assert made.providers["east"].seen == []
        assert made.providers["west"].seen[0].header("authorization") == "Bearer client"


async def test_a_refused_credential_of_ours_is_no_fault_of_the_client(tmp_path: Path) -> None:
    token = tmp_path / "token"
    await asyncio.to_thread(token.write_text, "wrong")

    async def script(_: Provider, __: Seen, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(writer, 401, b'{"error":"who are you"}')

    def with_token(settings: dict[str, Any]) -> None:
        settings["providers"]["east"]["upstream"] = {"token_file": str(token)}

    async with rig("east", scripts={"east": script}, change=with_token) as made:
        status, _, data = await made.ask()
        assert (status, orjson.loads(data)["error"]["code"]) == (502, "upstream_credential")
    async with rig("east", scripts={"east": script}) as made:
        assert (await made.ask())[0] == 401, "and without one of ours it is the client's"


async def test_tls_with_an_authority_and_a_client_certificate_of_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstreams, "REFRESH", 0.02)
    authority, stranger = trustme.CA(), trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    ca, client = tmp_path / "ca.pem", tmp_path / "client.pem"

    def write(by: trustme.CA) -> None:
        authority.cert_pem.write_to_path(str(ca))
        by.issue_cert("gateway").private_key_and_cert_chain_pem.write_to_path(str(client))

    await asyncio.to_thread(write, authority)
    secure = Provider("east", ssl=server)
    await secure.start()

    def with_tls(settings: dict[str, Any]) -> None:
        settings["providers"]["east"]["url"] = secure.url
        settings["providers"]["east"]["upstream"] = {
            "ca_file": str(ca), "cert_file": str(client), "key_file": str(client),
        }  # fmt: skip

    try:
        async with rig("east", change=with_tls) as made:
            assert (await made.ask())[0] == 200
            await asyncio.to_thread(write, stranger)  # renewed, by somebody whom the server does not know
            async with asyncio.timeout(PATIENCE):
                while (await made.ask())[0] == 200:
                    for writer in tuple(secure.open):
                        writer.close()
                    await asyncio.sleep(0.01)
    finally:
        await secure.stop()


# --- the gateway's own pages ------------------------------------------------------------------------------------------


async def test_the_models_of_the_document() -> None:
    async with rig("east") as made:
        made.gateway.client.apply(
            envelope(
                candidate("east-llama", rank=0),
                candidate("east-llama", "qwen/2.5", rank=0),
                candidate("east-llama", "gone", rank=0, admission_state=AdmissionState.NONE),
            )
        )
        async with made.client.get(f"{made.url}/v1/models") as got:
            found = orjson.loads(await got.read())
        assert (found["object"], [model["id"] for model in found["data"]]) == ("list", ["llama", "qwen/2.5"])
        assert {model["object"] for model in found["data"]} == {"model"}
        async with made.client.get(f"{made.url}/v1/models/qwen/2.5") as got:
            assert orjson.loads(await got.read())["id"] == "qwen/2.5"
        for name in ("gone", "gpt"):
            async with made.client.get(f"{made.url}/v1/models/{name}") as got:
                assert (got.status, orjson.loads(await got.read())["error"]["code"]) == (404, "model_not_found")


async def test_before_the_first_document() -> None:
    async with rig("east", document=False) as made:
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions")):
            async with made.client.request(method, f"{made.url}{path}", json={"model": MODEL}) as got:
                error = orjson.loads(await got.read())["error"]
                assert (got.status, error["type"], error["code"]) == (503, "server_error", "no_overlay")
                assert 3 <= int(got.headers["retry-after"]) <= 7
        async with made.client.get(f"{made.url}/readyz") as got:
            assert got.status == 503
        async with made.client.get(f"{made.url}/livez") as got:
            assert got.status == 200
        assert made.counted("", "not_ready") == 1


async def test_readiness_says_what_it_holds() -> None:
    async with rig("east") as made:
        async with made.client.get(f"{made.url}/readyz") as got:
            assert (got.status, await got.read()) == (200, b"ok\n")
        async with made.client.get(f"{made.url}/readyz?verbose") as got:
            shown = orjson.loads(await got.read())
        assert (shown["ready"], shown["document"], shown["draining"], shown["bus_connected"]) == (
            True,
            True,
            False,
            False,
        )
        assert shown["revision"] == revision(made)
        made.gateway.app.draining = True
        async with made.client.get(f"{made.url}/readyz") as got:
            assert got.status == 503
        status, headers, data = await made.ask()
        assert (status, orjson.loads(data)["error"]["code"]) == (503, "shutting_down")
        assert (headers["retry-after"], headers["connection"]) == ("1", "close")
        assert made.providers["east"].seen == []


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("PUT", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/images/generations", 404, "not_found"),
        ("GET", "/metrics", 404, "not_found"),
        ("POST", "/v1/chat/completions/", 404, "not_found"),
    ],
)
async def test_what_is_not_there(method: str, path: str, status: int, code: str) -> None:
    async with rig("east") as made, made.client.request(method, f"{made.url}{path}", json={"model": MODEL}) as got:
        error = orjson.loads(await got.read())["error"]
        assert (got.status, error["type"], error["code"], error["param"]) == (
            status,
            "invalid_request_error",
            code,
            None,
        )
        assert error["message"]


async def test_an_unknown_model_and_one_that_nobody_may_take() -> None:
    async with rig("east") as made:
        status, headers, data = await made.ask({"model": "gpt"})
        assert (status, orjson.loads(data)["error"]["code"]) == (404, "model_not_found")
        assert orjson.loads(data)["error"]["type"] == "invalid_request_error"
        assert "retry-after" not in headers
        assert made.counted("", "model_not_found") == 1
        cases = (
            (AdmissionState.NONE, (503, "server_error", "no_healthy_site")),
            (AdmissionState.EXISTING_ONLY, (429, "rate_limit_exceeded", "capacity_exhausted")),
        )
        for state, wanted in cases:
            made.gateway.client.apply(envelope(candidate("east-llama", admission_state=state)))
            status, headers, data = await made.ask()
            error = orjson.loads(data)["error"]
            assert (status, error["type"], error["code"]) == wanted
            assert 3 <= int(headers["retry-after"]) <= 7
        assert (made.counted("", "no_route"), made.counted("", "shed")) == (1, 1)


async def test_a_model_whose_every_site_is_past_full_is_shed() -> None:
    async with rig("east", "west") as made:
        made.frame(**{name: {"held": 12.0, "saturation": 1.5, "load": 1.5} for name in made.providers})
        waits = set()
        for _ in range(30):
            status, headers, data = await made.ask()
            assert (status, orjson.loads(data)["error"]["code"]) == (429, "capacity_exhausted")
            waits.add(headers["retry-after"])
        assert len(waits) >= 3, "spread"
        assert made.counted("", "shed") == 30
        assert made.in_flight == 0


async def test_the_address_may_be_taken() -> None:
    async with rig("east") as made:
        taken = ("127.0.0.1", made.gateway.listener.port)
        second = Gateway(load(configuration({"east": "http://127.0.0.1:9"})), "edge", listen=taken)
        with pytest.raises(DaemonError, match="cannot listen") as caught:
            await second.start()
        assert caught.value.reason is Reason.LISTEN_FAILED


async def test_there_may_be_no_such_gateway() -> None:
    with pytest.raises(ConfigError, match="no gateway 'egde'") as caught:
        Gateway(load(configuration({"east": "http://127.0.0.1:9"})), "egde")
    assert "edge" in str(caught.value.problems[0])
