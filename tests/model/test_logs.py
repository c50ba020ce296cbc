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


@pytest.mark.parametrize(
    "said",
    [
        "401: the EPP wants a bearer token and got none it recognises",
        "an EPP wants a bearer token: put it into token_file",
        "no bearer token was sent",
        "the debug side wants a bearer token",
        "bearer authentication failed",
        "Bearer tokens are read from files.",
    ],
)
def test_words_about_tokens_stay_whole(said: str) -> None:
    assert logs.hide_secrets(None, "", {"event": said})["event"] == said


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("sent Authorization: Bearer abc", "sent Authorization: Bearer [hidden]"),
        ("{'authorization': 'Bearer abc', 'x': 1}", "{'authorization': 'Bearer [hidden]', 'x': 1}"),
        ("(b'authorization', b'Bearer abc')", "(b'authorization', b'Bearer [hidden]')"),
        ("authorization=bearer abc", "authorization=bearer [hidden]"),
        ("got Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln back", "got Bearer [hidden] back"),
        ("got bearer s3cret", "got bearer [hidden]"),
        ("got bearer averyverylongword", "got bearer [hidden]"),
    ],
)
def test_tokens_are_hidden(said: str, shown: str) -> None:
    assert logs.hide_secrets(None, "", {"event": said})["event"] == shown


def test_a_number_is_no_secret_whatever_it_is_called() -> None:
    event = {"tokens": 128, "token": "x", "api_token_file": "/run/token"}
    assert logs.hide_secrets(None, "", event) == {"tokens": 128, "token": "[hidden]", "api_token_file": "/run/token"}
