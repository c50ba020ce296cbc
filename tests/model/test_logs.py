import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from grid import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    yield
    structlog.reset_defaults()
    root.setLevel(before[0])
    root.handlers[:] = before[1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_is_one_json_object() -> None:
    out = io.StringIO()
    logs.configure("info", out)
    structlog.get_logger("grid.daemon").info("published", gateway="edge", version=12)
    structlog.get_logger("grid.daemon").debug("not shown")
    (line,) = lines(out)
    assert line["event"] == "published"
    assert (line["level"], line["logger"], line["gateway"], line["version"]) == ("info", "grid.daemon", "edge", 12)
    assert str(line["timestamp"]).endswith("Z")


def test_a_terminal_gets_words() -> None:
    out = Terminal()
    logs.configure("debug", out)
    structlog.get_logger("grid.daemon").debug("published", gateway="edge")
    assert "published" in out.getvalue()
    with pytest.raises(json.JSONDecodeError):
        lines(out)


def test_a_traceback_stays_on_its_line() -> None:
    out = io.StringIO()
    logs.configure("info", out)
    try:
        int("broken")
    except ValueError:
        structlog.get_logger("x").exception("failed")
    (line,) = lines(out)
    assert "ValueError: invalid literal" in str(line["exception"])


def test_libraries_speak_up_only_to_warn() -> None:
    out = io.StringIO()
    logs.configure("debug", out)
    logging.getLogger("httpx").info("HTTP Request: GET http://10.0.0.1/metrics")
    logging.getLogger("apscheduler.scheduler").info("tick")
    logging.getLogger("uvicorn.error").warning("trouble")
    assert [line["event"] for line in lines(out)] == ["trouble"]


def test_secrets_are_hidden() -> None:
    out = io.StringIO()
    logs.configure("info", out)
    log = structlog.get_logger("x")
    log.info("a", token="s3cret", password="s3cret", Authorization="Bearer s3cret", client_secret="s3cret")
    log.info("redis://grid:s3cret@redis:6379 is away", url="rediss://:s3cret@redis/0", header="Bearer s3cret")
    logging.getLogger("redis").warning("cannot reach redis://u:s3cret@h")
    log.info("b", token_file="/etc/grid/token", password_file="/etc/grid/pw", url="http://10.0.0.1:9090/metrics")
    assert "s3cret" not in out.getvalue()
    assert lines(out)[-1]["token_file"] == "/etc/grid/token"
    assert lines(out)[-1]["url"] == "http://10.0.0.1:9090/metrics"
