"""Bytes to JSON, as strict as the contract's own parser: depth bounded, repeated members seen."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from grid.overlay import wire

MAX_DEPTH: Final = 127
"""Containers inside each other; the contract's parser gives up at 128."""


def parse(data: bytes) -> Any:
    """The JSON value of ``data``; a repeated member counts with its last value.

    Raises ValueError with a sentence for anything that is not strict JSON in UTF-8 (a byte order mark, NaN, numbers
    that no double can hold, lone surrogates, trailing text) or is nested deeper than ``MAX_DEPTH``.
    """
    value = orjson.loads(data)
    depth, level = 0, [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} containers")
        level = [
            member
            for node in level
            for member in (node.values() if type(node) is dict else node)
            if type(member) is dict or type(member) is list
        ]
    return value


def repeated_member(data: bytes, value: Any, *, legacy: bool) -> str | None:
    """The path of a member that the contract knows and that comes twice in its object; None where there is none.

    ``value`` is what ``parse`` made of ``data``. Unknown members may repeat: the contract takes the last.
    """
    # What was written without white space and comes out of the encoder again byte by byte has lost no member.
    if orjson.dumps(value) == data:
        return None
    seen: list[_Object] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = _Object(pairs)
        if len(members) < len(pairs):
            seen.append(members)
            members.repeated = _repeated(pairs)
        return members

    tree = json.loads(data, object_pairs_hook=note)
    return _known_repeat(tree, _OVERLAY if legacy else _ENVELOPE, "") if seen else None


class _Object(dict[str, Any]):
    __slots__ = ("repeated",)
    repeated: frozenset[str]


def _repeated(pairs: list[tuple[str, Any]]) -> frozenset[str]:
    return frozenset(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)


class _Known(NamedTuple):
    """The members of an object that the contract knows, and the shapes of those that hold objects."""

    names: frozenset[str]
    inside: Mapping[str, "_Known"] = {}


def _known(shape: type, **inside: "_Known") -> _Known:
    return _Known(frozenset(shape.__annotations__), inside)


_SECRET = _known(wire.SecretReferenceShape)
_CANDIDATE = _known(wire.CandidateShape, credential=_known(wire.CredentialShape, secretRef=_SECRET, secret_ref=_SECRET))
_OVERLAY = _known(wire.OverlayShape, candidates=_CANDIDATE, selection_policy=_known(wire.SelectionPolicyShape))
_ENVELOPE = _known(
    wire.EnvelopeShape,
    revision=_known(wire.RevisionShape),
    content_digest=_known(wire.DigestShape),
    scope=_known(wire.ScopeShape),
    provenance=_known(wire.ProvenanceShape),
    overlay=_OVERLAY,
)


def _known_repeat(value: Any, known: _Known, path: str) -> str | None:
    if isinstance(value, list):
        found = (_known_repeat(member, known, f"{path}[{index}]") for index, member in enumerate(value))
        return next(filter(None, found), None)
    if not isinstance(value, _Object):
        return None
    for name in known.names & getattr(value, "repeated", frozenset()):
        return f"{path}.{name}".lstrip(".")
    inside = (_known_repeat(value.get(name), shape, f"{path}.{name}") for name, shape in known.inside.items())
    return next(filter(None, inside), None)
