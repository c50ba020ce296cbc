"""Structured logs: for people on a terminal, JSON a line otherwise; secrets never.

Configured once, by whoever owns the process. What libraries log goes the same way, from WARNING up: httpx would log
every scrape at INFO, APScheduler every tick.
"""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

LEVELS = ("debug", "info", "warning", "error")

_QUIET = ("httpx", "httpcore", "apscheduler", "uvicorn", "asyncio", "redis", "urllib3", "prometheus_api_client")
_SECRET_KEYS = re.compile(r"token(?!_file)|password(?!_file)|secret|authorization|credential$", re.IGNORECASE)
_URL_SECRET = re.compile(r"(?P<head>[a-z][a-z0-9+.-]*://[^/\s:@]*):[^/\s@]+@", re.IGNORECASE)
_BEARER = re.compile(
    # In a header, whatever follows; elsewhere only what is no English word: "wants a bearer token" must stay whole.
    r"(?P<head>authorization['\"]?\s*[:=,]\s*b?['\"]?bearer\s+|bearer\s+(?=[^\s'\"]*[\d_=/+~]|[^\s'\"]{16}))[^\s'\"]+",
    re.IGNORECASE,
)


def hide_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Blank what is named like a secret, and passwords and tokens inside of texts."""
    for key, value in event.items():
        if _SECRET_KEYS.search(key) and not isinstance(value, int | float | None):
            event[key] = "[hidden]"
        elif isinstance(value, str):
            event[key] = _BEARER.sub(r"\g<head>[hidden]", _URL_SECRET.sub(r"\g<head>:[hidden]@", value))
    return event


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Set up logging for the process: ``level`` is one of :data:`LEVELS`, ``stream`` stderr where None."""
    out = sys.stderr if stream is None else stream
    threshold = getattr(logging, level.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    terminal = out.isatty()
    last: list[Any]
    if terminal:
        last = [hide_secrets, structlog.dev.ConsoleRenderer()]
    else:
        last = [structlog.processors.format_exc_info, hide_secrets, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.stdlib.add_logger_name,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))
