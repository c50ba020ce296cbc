"""What every test runs under: a guard against blocking the loop, and the data beside the repository."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# Otherwise the first asynchronous test lets asyncio make a default loop that nobody closes, and its ResourceWarning
# fails whichever test the garbage collector happens to run in.
asyncio.set_event_loop(None)

# A shell that runs this in the background has it ignore interrupts, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine pauses in the middle of any example; whatever hangs is ended by the time-out of its test.
settings.register_profile("grid", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("grid")


@pytest.fixture(autouse=True)
def _no_blocking_calls(request: pytest.FixtureRequest) -> Iterator[BlockBuster | None]:
    """A blocking call of ours on a running event loop fails the test."""
    if request.node.get_closest_marker("may_block"):
        yield None
        return
    with blockbuster_ctx("grid") as guard:
        yield guard


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """Logs are set up once per process by whoever owns it; a test that does so leaves them as they were."""
    configured = structlog.get_config() if structlog.is_configured() else None
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in list(logging.root.manager.loggerDict)}
    yield
    structlog.reset_defaults()
    if configured is not None:
        structlog.configure(**configured)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.fixture(scope="session")
def shared_fixtures() -> Path:
    """Real EPP pages and contract documents that lie beside the repository, not in it."""
    named = os.environ.get("GRID_FIXTURES")
    path = Path(named) if named else ROOT.parent / "shared" / "fixtures"
    if not path.is_dir():
        pytest.skip(f"NO REAL FIXTURES: {path} is not there (GRID_FIXTURES names another place)")
    return path
