"""The process of ``grid run``: logs, event loop, exit code."""

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from pathlib import Path

from prometheus_client import disable_created_metrics

from grid import logs
from grid.daemon.daemon import Daemon

_THREADS_END = 0.5


def main(config: Path, *, record: Path | None = None, dry_run: bool = False, log_level: str = "info") -> int:
    """Run a daemon until it is told to end; its exit code. ``log_level``: one of ``grid.logs.LEVELS``.

    Raises GridError where it cannot start. Does not return where a worker thread hangs (in a name look-up, say): the
    interpreter would wait for it, so the process ends here with the exit code it would have had.
    """
    logs.configure(log_level)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    # What is there by now stays. Looked at again and again it would cost the loop pauses of 50 ms.
    gc.freeze()
    loop = asyncio.new_event_loop()
    try:
        daemon = Daemon(config, record=record, dry_run=dry_run)
        code = loop.run_until_complete(daemon.run())
        daemon.threads.shutdown(wait=False, cancel_futures=True)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    if _threads_hang():
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    return code


def _threads_hang() -> bool:
    deadline = time.monotonic() + _THREADS_END
    while any(thread.name.startswith("grid-worker") for thread in threading.enumerate()):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.01)
    return False
