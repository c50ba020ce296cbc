"""Canonical JSON (RFC 8785) and the revision of a document.

The revision is the SHA-256 of the canonical form of exactly ``candidates``, ``local_site``, ``network`` and, where the
overlay has one, ``selection_policy``: what changes routing, nothing else (overlay contract, section 1.4).
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
import rfc8785

from grid.model import OverlayError, Reason

HASHED: Final = ("candidates", "local_site", "network", "selection_policy")
"""The members of an overlay that its revision covers, in canonical order."""

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_SAFE = 2**53 - 1

# What orjson writes otherwise than RFC 8785 wants it: floats, and null in the place of NaN. Text inside a string may
# look the same; that costs the long way round and no more. One literal in front of each pattern: re seeks that fast.
_FLOATS = tuple(re.compile(before + rb"-?[0-9]+[.eE]") for before in (rb":", rb",", rb"\["))
# UTF-8 and UTF-16 order keys differently only where characters beyond the BMP meet U+E000 to U+FFFF.
_BEYOND_BMP = re.compile(rb"[\xf0-\xf4]")
_ABOVE_SURROGATES = re.compile(rb"[\xee\xef]")


def canonical_bytes(value: Any) -> bytes:
    """The RFC 8785 form of a JSON value, as UTF-8.

    Every number is an IEEE 754 double, so integers beyond 2^53 lose their last digits, as in ECMAScript. Raises
    OverlayError (``malformed_structure``) for what JSON cannot carry: NaN, infinities, lone surrogates, other types.
    """
    if not isinstance(value, dict | list):
        return _long_way(value)
    try:
        written = orjson.dumps(value, option=_OPTIONS)
    except TypeError:  # an integer beyond 2^53, or no JSON at all: the long way tells which
        return _long_way(value)
    return _long_way(value) if _suspect(written) else written


def revision_of(overlay: Mapping[str, Any]) -> str:
    """The revision of an overlay: 64 lowercase hex digits. Members it lacks are left out, never taken as null."""
    return digest_of(canonical_bytes({name: overlay[name] for name in HASHED if name in overlay}))


def digest_of(canonical: bytes) -> str:
    """SHA-256 in lowercase hex."""
    return hashlib.sha256(canonical).hexdigest()


def _suspect(written: bytes) -> bool:
    if b"null" in written or any(floats.search(written) for floats in _FLOATS):
        return True
    return not written.isascii() and bool(_BEYOND_BMP.search(written) and _ABOVE_SURROGATES.search(written))


def _long_way(value: Any) -> bytes:
    try:
        return rfc8785.dumps(_as_doubles(value))
    except (ValueError, OverflowError, RecursionError) as error:
        raise OverlayError(f"no canonical JSON: {error}", reason=Reason.MALFORMED_STRUCTURE) from error


def _as_doubles(value: Any) -> Any:
    """The same value with every integer beyond 2^53 as the double that ECMAScript would make of it."""
    if isinstance(value, dict):
        return {key: _as_doubles(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_as_doubles(member) for member in value]
    if isinstance(value, int) and not -_SAFE <= value <= _SAFE:
        return float(value)
    return value
