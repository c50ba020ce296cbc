"""What to say where a command needs an optional extra that is not installed."""

import contextlib
from collections.abc import Iterator

_EXTRAS = {"aiohttp": "gateway", "httptools": "gateway", "yarl": "gateway", "matplotlib": "plots"}


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Around late imports: a missing extra becomes a ConfigError (``extra_missing``) that names it."""
    try:
        yield
    except ModuleNotFoundError as error:
        from grid.model import ConfigError, Reason

        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        message = f"this needs {error.name}, which is not installed"
        missing = ConfigError(message, reason=Reason.EXTRA_MISSING)
        missing.hint = f"pip install 'llm-grid[{extra}]'"
        raise missing from error
