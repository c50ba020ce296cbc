"""The gateway as an ASGI application: OpenAI-style requests in, a provider's answers out."""

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import parse_qs

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from grid.flow.callers import Block
from grid.gateway import GridClient, refusals
from grid.model import AdmissionState, Kind, Reason, RoutingError
from grid.proxy import answers
from grid.proxy.answers import refusal
from grid.proxy.asgi import Receive, Scope, Send
from grid.proxy.exchange import Exchange
from grid.proxy.shared import Shared

FORWARDED: Final = frozenset(f"/v1/{name}" for name in ("chat/completions", "completions", "embeddings", "responses"))

_Page = Callable[[Scope, Send], Awaitable[None]]


class GatewayApp:
    """Plain ASGI, so nothing stands between a request and its answer.

    ``trusted``: blocks of addresses whose clients may see ``/v1/admission`` and ``/v1/explain``; those on this machine
    always may. ``operators`` is a second application with all pages and no requests, for a listener of its own.
    """

    def __init__(self, shared: Shared, trusted: tuple[Block, ...] = ()) -> None:
        self.shared = shared
        self.draining = False
        self._trusted = trusted
        self._pages: dict[str, _Page] = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/v1/models": self._models,
            "/v1/admission": self._guarded(self._admission),
            "/v1/explain": self._guarded(self._explain),
        }
        self._operator_pages: dict[str, _Page] = {
            **self._pages,
            "/v1/admission": self._admission,
            "/v1/explain": self._explain,
            "/metrics": self._metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, as ASGI has it."""
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        path = scope["path"]
        if path not in FORWARDED:
            await self._page(self._pages, scope, send)
        elif scope["method"] != "POST":
            await answers.send_error(send, _wrong_method(scope["method"], path), [(b"allow", b"POST")])
        elif self.draining:
            self.shared.metrics.refused(Reason.SHUTTING_DOWN)
            error = refusal(Reason.SHUTTING_DOWN, 503, "this gateway is ending", retry_after=1)
            await answers.send_error(send, error, [(b"connection", b"close")])
        else:
            await Exchange(self.shared, path, scope, receive, send).run()

    async def operators(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """The pages alone, metrics among them."""
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        await self._page(self._operator_pages, scope, send)

    async def _page(self, pages: dict[str, _Page], scope: Scope, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        page = pages.get(path)
        if page is None and path.startswith("/v1/models/"):
            page = self._model
        if page is None:
            await answers.send_error(send, refusal(Reason.NOT_FOUND, 404, f"nothing is at {path[:100]}"))
        elif method not in ("GET", "HEAD"):
            await answers.send_error(send, _wrong_method(method, path), [(b"allow", b"GET, HEAD")])
        else:
            try:
                await page(scope, send)
            except RoutingError as error:
                await answers.send_error(send, error)

    # --- pages --------------------------------------------------------------------------------------------------------

    async def _livez(self, _: Scope, send: Send) -> None:
        await answers.send_bytes(send, 200, b"ok\n", b"text/plain")

    async def _readyz(self, scope: Scope, send: Send) -> None:
        router = self.shared.router
        ready = router.snapshot is not None and not self.draining
        shown: dict[str, Any] = {
            "ready": ready,
            "draining": self.draining,
            "document": router.snapshot is not None,
            "revision": None if router.snapshot is None else router.snapshot.revision,
        }
        if isinstance(router, GridClient):
            state = router.state
            shown |= {
                "status": state.status,
                "epoch": state.epoch,
                "version": state.version,
                "stale_since": state.stale_since,
                "bus_connected": state.connected,
            }
        if b"verbose" in scope["query_string"]:
            await answers.send_json(send, 200 if ready else 503, shown)
        else:
            await answers.send_bytes(send, 200 if ready else 503, b"ok\n" if ready else b"not ready\n", b"text/plain")

    async def _models(self, _: Scope, send: Send) -> None:
        models = [_model(name) for name in self._offered()]
        await answers.send_json(send, 200, {"object": "list", "data": models})

    async def _model(self, scope: Scope, send: Send) -> None:
        name = scope["path"].removeprefix("/v1/models/")
        if name not in self._offered():
            raise refusals.unknown(Kind.INFERENCE_MODEL, name)
        await answers.send_json(send, 200, _model(name))

    def _offered(self) -> list[str]:
        snapshot = self.shared.router.snapshot
        if snapshot is None:
            seconds = self.shared.retry_after()
            raise refusals.no_document(self.shared.router.gateway, Kind.INFERENCE_MODEL, "any", seconds)
        return [
            name
            for (kind, name), served in snapshot.served.items()
            if kind is Kind.INFERENCE_MODEL
            and any(place.candidate.admission_state is not AdmissionState.NONE for place in served.places)
        ]

    async def _metrics(self, _: Scope, send: Send) -> None:
        page = generate_latest(self.shared.metrics.registry)
        await answers.send_bytes(send, 200, page, CONTENT_TYPE_LATEST.encode())

    async def _admission(self, _: Scope, send: Send) -> None:
        entrance = self.shared.entrance
        if entrance is None:
            raise refusal(Reason.NOT_FOUND, 404, "no admission policy is configured for this gateway")
        await answers.send_json(send, 200, entrance.describe())

    async def _explain(self, scope: Scope, send: Send) -> None:
        """What would become of a request for ``?model=`` now. Picks one, so it takes a turn of round robin."""
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("model", [""])[0]
        entrance = self.shared.entrance
        shown: dict[str, Any] = {
            "model": asked,
            "admission": None if entrance is None else entrance.explain(asked),
            "decision": None,
            "considered": [],
            "refused": None,
        }
        try:
            decision = self.shared.router.pick(asked)
        except RoutingError as error:
            shown["refused"] = {"status": error.status, "code": error.reason, "message": error.message}
        else:
            shown["decision"] = {
                name: getattr(decision, name)
                for name in (
                    "site", "cluster", "stable_id", "group", "tier", "rank", "case", "estimate", "picker", "revision",
                    "epoch", "version", "demoted", "spilled",
                )
            }  # fmt: skip
            shown["considered"] = [
                {name: getattr(line, name) for name in line.__slots__} for line in decision.explain()
            ]
        await answers.send_json(send, 200, shown)

    def _guarded(self, page: _Page) -> _Page:
        async def guarded(scope: Scope, send: Send) -> None:
            client = scope.get("client")
            if not _may_look(client[0] if client else None, self._trusted):
                raise refusal(Reason.NOT_FOUND, 404, f"nothing is at {scope['path'][:100]}")
            await page(scope, send)

        return guarded


def _may_look(client: str | None, trusted: tuple[Block, ...]) -> bool:
    try:
        address = ip_address(client or "")
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or any(address in block for block in trusted)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "grid"}


def _wrong_method(method: str, path: str) -> RoutingError:
    return refusal(Reason.METHOD_NOT_ALLOWED, 405, f"{path} does not take {method}")
