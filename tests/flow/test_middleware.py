"""Admission in front of ASGI applications: the example on a real server, disconnects, bodies, errors."""

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import ip_network
from types import ModuleType
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grid.flow import Admission, AdmissionMiddleware, AdmissionPolicy, Band, BandRule, CallerRules, Slot
from grid.model import AdmissionError, Reason
from tests.conftest import ROOT
from tests.flow.build import MODEL, signal
from tests.flow.serving import client, served
from tests.support.until import until

EVERYBODY = [ip_network("127.0.0.0/8")]


@pytest.fixture
async def example(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModuleType]:
    """The example of the documentation, with two slots and a short queue."""
    monkeypatch.setenv("SLOTS", "2")
    monkeypatch.setenv("MAX_QUEUED", "3")
    spec = importlib.util.spec_from_file_location("admission_app", ROOT / "docs" / "examples" / "admission_app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "admission_app", module)
    spec.loader.exec_module(module)
    yield module
    assert module.admission.waiting == 0
    assert module.admission.describe()["slots"] == 0


async def test_the_example_serves_admits_and_tells(example: ModuleType) -> None:
    admission: Admission = example.admission
    async with served(example.app) as origin, client(origin) as http:

        async def ask(tokens: int, priority: str = "batch") -> Any:
            headers = {"x-priority": priority, "x-tenant-id": "acme"}
            return await http.post("/v1/completions", json={"max_tokens": tokens}, headers=headers)

        first = await ask(3)
        assert first.text == "token 0\ntoken 1\ntoken 2\n"
        assert (first.headers["x-grid-band"], first.headers["x-grid-queue-wait-ms"]) == ("batch", "0")

        slots = [admission.slot(example.MODEL) for _ in range(2)]
        assert [slot.open() for slot in slots] == [True, True]
        waiting = [asyncio.create_task(ask(1)) for _ in range(3)]
        await until(lambda: admission.waiting == 3)
        refused = await ask(1)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "queue_full"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        urgent = await ask(1, "interactive")
        assert (urgent.status_code, urgent.headers["x-grid-band"], urgent.headers["x-grid-queue-wait-ms"]) == (
            200,
            "interactive",
            "0",
        ), "a band with room beyond the slots does not wait"

        shown = (await http.get("/admission")).json()
        assert [row["waiting"] for row in shown["bands"]] == [0, 3]
        assert shown["pools"][0]["state"] == "absent"
        assert "acme" not in json.dumps(shown)
        for slot in slots:
            slot.close()
        for task in waiting:
            assert (await task).status_code == 200
        assert int((await waiting[0]).headers["x-grid-queue-wait-ms"]) > 0
        page = (await http.get("/metrics")).text
        assert 'grid_flow_requests_total{band="batch",model="llama-3.1-70b",outcome="queue_full"' in page


def plain(app: ASGIApp) -> ASGIApp:
    return app


def under_base_http(app: ASGIApp) -> ASGIApp:
    """The common middleware class that stands between a server and the application."""

    async def through(request: Request, call_next: Callable[[Request], Awaitable[Any]]) -> Any:
        return await call_next(request)

    return BaseHTTPMiddleware(app, dispatch=through)


@pytest.mark.parametrize("wrapped", [plain, under_base_http])
async def test_a_client_that_leaves_while_queued_is_out(
    example: ModuleType, wrapped: Callable[[ASGIApp], ASGIApp]
) -> None:
    admission: Admission = example.admission
    async with served(wrapped(example.app)) as origin, client(origin) as http:
        slots = [admission.slot(example.MODEL) for _ in range(2)]
        assert [slot.open() for slot in slots] == [True, True]
        for _ in range(3):
            body = b'{"max_tokens": 1}'
            _, writer = await asyncio.open_connection("127.0.0.1", int(origin.rsplit(":", 1)[1]))
            head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            writer.write(head + body)
            await until(lambda: admission.waiting == 1)
            writer.close()
            await writer.wait_closed()
            await until(lambda: admission.waiting == 0)
        slots[0].close()
        answer = await http.post("/v1/completions", json={"max_tokens": 1})
        assert (answer.status_code, answer.text) == (200, "token 0\n")
        slots[1].close()


async def test_a_client_that_leaves_while_served_gives_its_slot_back(example: ModuleType) -> None:
    admission: Admission = example.admission
    async with served(example.app) as origin:
        _, writer = await asyncio.open_connection("127.0.0.1", int(origin.rsplit(":", 1)[1]))
        body = b'{"max_tokens": 100000}'
        writer.write(f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        await until(lambda: admission.describe()["slots"] == 1)
        writer.close()
        await writer.wait_closed()
        await until(lambda: admission.describe()["slots"] == 0)


# --- message by message ---------------------------------------------------------------------------------------------


def scope(path: str = "/", headers: dict[str, str] | None = None, kind: str = "http") -> Scope:
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return {"type": kind, "path": path, "headers": raw, "client": ("127.0.0.1", 4000)}


class Wire:
    """Both directions of one connection, by hand."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[Message | Exception] = asyncio.Queue()
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        message = await self.inbox.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def comes(self, body: bytes, *, more: bool = False) -> None:
        self.inbox.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def goes(self) -> None:
        self.inbox.put_nowait({"type": "http.disconnect"})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the whole body, and waits for the client to go where asked to."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
    if scope["path"] == "/linger":
        assert (await receive())["type"] == "http.disconnect"


@pytest.fixture
async def admission() -> AsyncIterator[Admission]:
    made = Admission(AdmissionPolicy(bands=(Band("gold", 0.0), Band("bronze", 0.0)), max_wait=60.0), tenant_key=b"test")
    made.reroute({MODEL: ("east",)})
    made.update([signal(slots=1)])
    yield made
    made.close()
    assert made.waiting == 0
    assert made.describe()["slots"] == 0


@pytest.fixture
async def holder(admission: Admission) -> AsyncIterator[Slot]:
    slot = admission.slot(MODEL)
    slot.open()
    yield slot
    slot.close()


def middleware(admission: Admission, app: ASGIApp = echo, **more: Any) -> AdmissionMiddleware:
    return AdmissionMiddleware(app, admission=admission, model=more.pop("model", MODEL), **more)


async def test_a_body_read_ahead_reaches_the_application_whole(admission: Admission, holder: Slot) -> None:
    wire = Wire()
    call = asyncio.create_task(middleware(admission)(scope("/linger"), wire.receive, wire.send))
    wire.comes(b"one ", more=True)
    wire.comes(b"two ", more=True)
    await until(lambda: admission.waiting == 1 and wire.inbox.empty())
    holder.close()
    wire.comes(b"three")
    await until(lambda: len(wire.sent) == 2)
    assert wire.sent[1]["body"] == b"one two three"
    assert not call.done(), "the application still waits, and holds its slot"
    assert admission.describe()["slots"] == 1
    wire.goes()
    await call


async def test_what_is_read_ahead_is_bounded(admission: Admission, holder: Slot) -> None:
    wire = Wire()
    call = asyncio.create_task(middleware(admission, read_ahead=6)(scope(), wire.receive, wire.send))
    for part in (b"1234", b"5678", b"9"):
        wire.comes(part, more=part != b"9")
    await until(lambda: wire.inbox.qsize() == 1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert wire.inbox.qsize() == 1
    holder.close()
    await call
    assert wire.sent[1]["body"] == b"123456789"


async def test_who_disconnects_while_queued_leaves_no_answer_behind(admission: Admission, holder: Slot) -> None:
    wire = Wire()
    call = asyncio.create_task(middleware(admission)(scope(), wire.receive, wire.send))
    await until(lambda: admission.waiting == 1)
    wire.goes()
    await call
    assert (wire.sent, admission.waiting) == ([], 0)


async def test_an_error_of_the_server_while_queued_is_passed_on(admission: Admission, holder: Slot) -> None:
    wire = Wire()
    wire.inbox.put_nowait(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await middleware(admission)(scope(), wire.receive, wire.send)
    assert admission.waiting == 0


async def test_an_error_that_nobody_awaits_is_nobodys(admission: Admission, holder: Slot) -> None:
    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        wire.inbox.put_nowait(OSError("gone"))
        await asyncio.sleep(0.01)

    wire = Wire()
    call = asyncio.create_task(middleware(admission, deaf)(scope(), wire.receive, wire.send))
    await until(lambda: admission.waiting == 1)
    holder.close()
    await call


async def test_a_cancelled_call_leaves_the_queue(admission: Admission, holder: Slot) -> None:
    wire = Wire()
    call = asyncio.create_task(middleware(admission)(scope(), wire.receive, wire.send))
    await until(lambda: admission.waiting == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert admission.waiting == 0


@pytest.mark.looptime
async def test_waiting_too_long_is_answered_with_504(admission: Admission, holder: Slot) -> None:
    wire = Wire()
    await middleware(admission)(scope(), wire.receive, wire.send)
    start, body = wire.sent
    assert start["status"] == 504
    headers = dict(start["headers"])
    assert int(headers[b"retry-after"]) >= 1
    assert headers[b"content-length"] == str(len(body["body"])).encode()
    error = json.loads(body["body"])["error"]
    assert (error["type"], error["code"]) == ("server_error", "queue_timeout")


async def test_only_admission_is_answered_for(admission: Admission) -> None:
    async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
        raise AdmissionError("of its own", reason=Reason.QUEUE_FULL, status=503)

    wire = Wire()
    with pytest.raises(AdmissionError):
        await middleware(admission, refuses)(scope(), wire.receive, wire.send)
    assert wire.sent == []


async def test_an_error_without_a_time_says_none(admission: Admission, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Slot) -> bool:
        raise AdmissionError("no", reason=Reason.ADMISSION_REFUSED, status=503)

    monkeypatch.setattr(Slot, "open", refuse)
    wire = Wire()
    await middleware(admission)(scope(), wire.receive, wire.send)
    assert b"retry-after" not in dict(wire.sent[0]["headers"])


async def test_what_needs_no_slot_passes(admission: Admission, holder: Slot) -> None:
    wire = Wire()
    wire.comes(b"x")
    await middleware(admission, model=lambda _: None)(scope(), wire.receive, wire.send)
    assert wire.sent[1]["body"] == b"x"
    seen: list[str] = []

    async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    await middleware(admission, lifespan)(scope(kind="lifespan"), wire.receive, wire.send)
    assert seen == ["lifespan"]


async def test_band_tenant_and_cost_come_from_the_request(admission: Admission) -> None:
    slots: list[Slot] = []

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        slots.append(scope["grid.slot"])

    callers = CallerRules(
        [BandRule("X-Priority", "gold", "gold")], lowest="bronze", tenant_header="X-Tenant", trusted=EVERYBODY
    )
    made = middleware(admission, look, callers=callers, cost=lambda scope: len(scope["path"]))
    wire = Wire()
    await made(scope("/four", {"x-priority": "gold", "x-tenant": "acme"}), wire.receive, wire.send)
    await made({**scope("/", {"x-priority": "gold"}), "client": None}, wire.receive, wire.send)
    first, second = slots
    assert (first.band, first.cost, len(first.tenant)) == ("gold", 5, 16)
    assert (second.band, second.tenant) == ("bronze", ""), "nobody vouches for its headers"


async def test_it_stands_in_a_fastapi_application(admission: Admission) -> None:
    app = FastAPI()
    app.add_middleware(AdmissionMiddleware, admission=admission, model=MODEL)

    @app.get("/")
    async def hello() -> PlainTextResponse:
        return PlainTextResponse("hello")

    async with served(app) as origin, client(origin) as http:
        answer = await http.get("/")
    assert (answer.text, answer.headers["x-grid-band"]) == ("hello", "bronze")
