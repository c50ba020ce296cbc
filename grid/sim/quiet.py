"""Logs of parts that run inside of a command whose own output they would tear apart."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import structlog


@contextlib.contextmanager
def quiet_logs() -> Iterator[None]:
    """Drop what is logged meanwhile."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), processors=[_drop])
    silence = logging.NullHandler()
    logging.getLogger().addHandler(silence)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(silence)
        structlog.configure(**before)


def _drop(_logger: Any, _method: str, _event: Any) -> Any:
    raise structlog.DropEvent
