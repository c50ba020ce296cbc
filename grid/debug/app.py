"""The application: its endpoints over a view, inside the guard."""

from fastapi import APIRouter, FastAPI
from starlette.responses import HTMLResponse, Response

from grid import __version__
from grid.debug import actions, documents, events, health, problems, state
from grid.debug.access import Guard
from grid.debug.view import DaemonView

_LINKS = (
    ("/livez", "whether the daemon's loop beats"),
    ("/readyz?verbose", "whether it is ready, and what that is made of"),
    ("/metrics", "its own metrics"),
    ("/version", "versions of program, schema and protocol"),
    ("/v1/providers", "every provider: state, load, last error; /{id}/explain says why"),
    ("/v1/gateways", "who runs which revision, how far behind"),
    ("/v1/overlays", "the current documents; /{gateway} and /{gateway}/{version or revision} give one"),
    ("/v1/leader", "who publishes"),
    ("/v1/drains", "drains in force; POST makes one, DELETE /{id} takes it back"),
    ("/v1/history", "what happened"),
    ("/v1/events", "what happens, as it happens"),
    ("/v1/config", "the configuration in force, secrets hidden; POST /v1/reload loads it again"),
)

_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>grid</title>"
    "<style>body{font:15px/1.5 system-ui,sans-serif;margin:2rem}dt{font-family:monospace}</style>"
    f"<h1>grid {__version__}</h1><dl>"
    + "".join(f'<dt><a href="{path}">{path}</a></dt><dd>{what}</dd>' for path, what in _LINKS)
    + "</dl></html>"
)

_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}


def _page() -> APIRouter:
    routes = APIRouter()

    @routes.get("/")
    async def page() -> Response:
        return HTMLResponse(_PAGE, headers=_PAGE_HEADERS)

    return routes


def create_app(view: DaemonView) -> FastAPI:
    """The HTTP side of the daemon behind ``view``. Every error is a problem document; GET never changes anything."""
    app = FastAPI(title="grid", version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    problems.install(app)
    for routes in (_page(), *(family.router(view) for family in (health, state, documents, actions, events))):
        app.include_router(routes)
    app.add_middleware(Guard, view=view)
    return app
