"""Values with units: durations (``1h30m``), sizes (``64MiB``), shares (``5%``), read and written exactly.

Bare numbers are refused: 30 has meant milliseconds, seconds and minutes in one configuration too many.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import NoReturn

from grid.model.errors import ConfigError, ConfigProblem
from grid.model.reasons import Reason

_MAX_TEXT = 40

_DURATION_UNITS: Mapping[str, Fraction] = {
    "d": Fraction(86400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
}
_SIZE_UNITS: Mapping[str, int] = {
    "TiB": 1 << 40,
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
}
_NUMBER = r"\d+(?:\.\d+)?"
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|[dhms])", re.ASCII)
_SIZE = re.compile(rf"({_NUMBER}) ?([A-Za-z]+)", re.ASCII)
_PERCENT = re.compile(rf"({_NUMBER}) ?%", re.ASCII)
_BARE = re.compile(rf"[-+]?{_NUMBER}", re.ASCII)

DURATION_PATTERN = rf"^({_NUMBER}(ms|[dhms]))+$"
SIZE_PATTERN = rf"^{_NUMBER} ?({'|'.join(_SIZE_UNITS)})$"
PERCENT_PATTERN = rf"^{_NUMBER} ?%$"


def _refuse(detail: str, hint: str, reason: Reason = Reason.CONFIG_WRONG_TYPE) -> NoReturn:
    raise ConfigError(detail, [ConfigProblem(reason, "", detail, hint=hint)])


def _shown(text: str) -> str:
    return f"'{text}'" if len(text) <= _MAX_TEXT else f"'{text[:_MAX_TEXT]}...'"


def parse_duration(text: str) -> float:
    """Seconds in ``text``: one or more of ``<number><unit>``, units d, h, m, s, ms, largest first, each at most once.

    Raises ConfigError for anything else, a bare number included.
    """
    if _BARE.fullmatch(text) and not text.startswith("-"):
        _refuse(f"{text} has no unit", f"write {text.lstrip('+')}s (units: ms, s, m, h, d)")
    parts = _DURATION_PART.findall(text)
    if not parts or len(text) > _MAX_TEXT or "".join(number + unit for number, unit in parts) != text:
        _refuse(f"{_shown(text)} is no duration", "write a number and a unit, such as 500ms, 2s or 1h30m")
    order = [list(_DURATION_UNITS).index(unit) for _, unit in parts]
    if order != sorted(set(order)):
        _refuse(f"{_shown(text)} has its units in disorder", "largest unit first, each at most once, such as 1h30m")
    return float(sum(Fraction(number) * _DURATION_UNITS[unit] for number, unit in parts))


def format_duration(seconds: float) -> str:
    """``seconds`` (0 or more, finite) as :func:`parse_duration` reads it back to the same float."""
    rest = Fraction(Decimal(repr(seconds)))
    parts = []
    for unit in ("d", "h", "m"):
        count = rest // _DURATION_UNITS[unit]
        if count:
            parts.append(f"{count}{unit}")
            rest -= count * _DURATION_UNITS[unit]
    if rest and not parts and rest < 1:
        return f"{_decimal(rest * 1000)}ms"
    if rest or not parts:
        parts.append(f"{_decimal(rest)}s")
    return "".join(parts)


def parse_size(text: str) -> int:
    """Bytes in ``text``: a number with one of B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (of 1024).

    Raises ConfigError for anything else, a bare number included.
    """
    if _BARE.fullmatch(text) and not text.startswith("-"):
        _refuse(f"{text} has no unit", f"write {text.lstrip('+')}B, or a larger unit such as 64MiB")
    match = _SIZE.fullmatch(text)
    if match is None or len(text) > _MAX_TEXT:
        _refuse(f"{_shown(text)} is no size", "write a number and a unit, such as 512KiB or 64MiB")
    number, unit = match.groups()
    if unit not in _SIZE_UNITS:
        near = next((known for known in _SIZE_UNITS if known.lower() in (unit.lower(), f"{unit.lower()}b")), None)
        hint = f"write {number}{near}" if near else f"units: {', '.join(reversed(list(_SIZE_UNITS)))}"
        _refuse(f"{_shown(text)} has no known unit", hint)
    size = Fraction(number) * _SIZE_UNITS[unit]
    if size.denominator != 1:
        _refuse(f"{_shown(text)} is no whole number of bytes", "use a smaller unit")
    return int(size)


def format_size(size: int) -> str:
    """``size`` in bytes (0 or more) in the largest unit of 1024 that divides it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return f"{size}B"


def parse_percent(text: str) -> float:
    """The fraction of 1 in ``text`` such as ``5%`` (0.05). Raises ConfigError for anything else."""
    if _BARE.fullmatch(text) and not text.startswith("-"):
        _refuse(f"{text} has no percent sign", f"write {text.lstrip('+')}% if that is what is meant")
    match = _PERCENT.fullmatch(text)
    if match is None or len(text) > _MAX_TEXT:
        _refuse(f"{_shown(text)} is no percentage", "write a number and a percent sign, such as 5%")
    return float(Fraction(match.group(1)) / 100)


def format_percent(share: float) -> str:
    """``share`` (0 or more, a fraction of 1) as :func:`parse_percent` reads it back to the same float."""
    return f"{_decimal(Fraction(Decimal(repr(share))) * 100)}%"


def _decimal(value: Fraction) -> str:
    """``value``, which has a finite decimal form, in plain digits without trailing zeros."""
    scale = 0
    while (value * 10**scale).denominator != 1:
        scale += 1
    digits = str(int(value * 10**scale)).rjust(scale + 1, "0")
    return digits if scale == 0 else f"{digits[:-scale]}.{digits[-scale:]}"
