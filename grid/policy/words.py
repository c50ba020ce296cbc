"""How numbers read in the chain of reasons."""

from functools import lru_cache


@lru_cache(maxsize=4096)
def number(value: float | None) -> str:
    """Two decimals at most, no trailing zeros; ``unknown`` for None."""
    if value is None:
        return "unknown"
    text = f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(value: float) -> str:
    """A ratio as a whole percentage."""
    return f"{value:.0%}"


def several(count: int, noun: str) -> str:
    """``1 scrape``, ``2 scrapes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
