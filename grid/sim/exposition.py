"""The text format of metric pages (0.0.4) as Go's client library writes it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache

Block = tuple[str, str]
"""A family's name and its lines; a page is its blocks sorted by name."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"


def number(value: float) -> str:
    """A value in the shortest form that reads back equal, with an exponent from 1e+06 up and below 1e-04, as in Go."""
    if isinstance(value, int) and -1_000_000 < value < 1_000_000:
        return str(value)
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "0"
    shortest = Decimal(repr(value)).normalize()
    sign, digits, _ = shortest.as_tuple()
    exponent = shortest.adjusted()
    if -4 <= exponent < 6:
        return f"{shortest:f}"
    mantissa = str(digits[0]) + ("." + "".join(map(str, digits[1:])) if len(digits) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def escape(text: str) -> str:
    """A label value between its quotes: backslash, double quote and line feed escaped."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels(pairs: Mapping[str, str]) -> str:
    """``a="1",b="2"`` in alphabetical order, without braces."""
    return ",".join(f'{key}="{escape(pairs[key])}"' for key in sorted(pairs))


def head(name: str, kind: str, text: str) -> str:
    """The HELP and TYPE lines of a family."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def family(name: str, kind: str, text: str, series: Iterable[tuple[Mapping[str, str], float]]) -> Block:
    """A counter or gauge with its series, in the order of their labels."""
    rows = sorted((labels(pairs), value) for pairs, value in series)
    lines = [f"{name}{{{pairs}}} {number(value)}\n" if pairs else f"{name} {number(value)}\n" for pairs, value in rows]
    return name, head(name, kind, text) + "".join(lines)


@lru_cache(maxsize=4096)
def _shares(bounds: tuple[str, ...], typical: float) -> tuple[float, ...]:
    """Which part of all observations lies at or below each bound, when they gather around ``typical``."""
    return tuple(1.0 / (1.0 + (typical / float(bound)) ** 3) if typical > 0 else 1.0 for bound in bounds)


@lru_cache(maxsize=512)
def _suffixes(bounds: tuple[str, ...], *, labelled: bool) -> tuple[str, ...]:
    comma = "," if labelled else ""
    return tuple(f'{comma}le="{bound}"}} ' for bound in (*bounds, "+Inf"))


def _rounded(value: float) -> float:
    """Two significant digits: enough for a plausible shape, few enough to be cached."""
    return float(f"{value:.1e}")


def histogram(
    name: str, text: str, bounds: tuple[str, ...], series: Sequence[tuple[Mapping[str, str], int, float]]
) -> Block:
    """A histogram; each series is its labels, the number of observations and their sum.

    Nothing keeps single observations here: buckets are drawn around the mean, rising, and end at the count.
    """
    parts = [head(name, "histogram", text)]
    for pairs, count, total in sorted((labels(pairs), count, total) for pairs, count, total in series):
        shares = _shares(bounds, _rounded(total / count) if count else 0.0)
        start = f"{name}_bucket{{{pairs}"
        suffixes = _suffixes(bounds, labelled=bool(pairs))
        for suffix, share in zip(suffixes, shares, strict=False):
            parts.append(f"{start}{suffix}{int(count * share)}\n")
        braced = f"{{{pairs}}}" if pairs else ""
        parts.append(
            f"{start}{suffixes[-1]}{count}\n{name}_sum{braced} {number(total)}\n{name}_count{braced} {count}\n"
        )
    return name, "".join(parts)


def page(blocks: Iterable[Block]) -> bytes:
    """All families, sorted by name."""
    return "".join(text for _, text in sorted(blocks)).encode()
