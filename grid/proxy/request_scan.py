"""Reads a request body as it comes in for the few members at its top level that routing needs: no full parse.

Strings and flat values are passed over by a regular expression, so a body of 10 MB costs about a tenth of a second in
all, a chunk at a time. What is checked: UTF-8, that the body is one JSON object, the order of its members, that strings
and brackets end. What lies deeper is the provider's to judge.

A second ``model`` is refused: parsers differ in which one they take, and the provider must not see another model than
the gateway routed by. The check of a chunk comes before anybody forwards it, so no body is complete at a provider that
was not found good here.
"""

import codecs
import re
from enum import IntEnum
from typing import Final

import orjson

MAX_NAME_BYTES: Final = 256

STATEFUL: Final = ("store", "background", "previous_response_id", "conversation", "conversation_id")
"""Members that bind a request to what one provider keeps: it is not sent to another. The first two when true, the
others when they have a value."""

_FLAGS: Final = ("store", "background")
_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_WANTED: Final = frozenset(("model", *STATEFUL, *_LIMITS))
_WANTED_BYTES: Final = frozenset(name.encode() for name in _WANTED)
_MAX_CAPTURE: Final = 4096
"""Bytes kept of one key or wanted value: more than 256 characters take, however they are escaped."""

_MAX_MEMBERS: Final = 1024
_MOST_TOKENS: Final = 10_000_000

_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_IN_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_FLAT: Final = rb'[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Lists and objects that hold no others are passed over whole: most of what is nested, such as a conversation.
_IN_NESTED: Final = re.compile(rb"(?:%b|[\[{](?:%b)*+[\]}])*+" % (_FLAT, _FLAT), re.DOTALL)
# One member whole, with its name, what kind of value it has, and what follows; nothing in it may be escaped or deep.
_MEMBER: Final = re.compile(
    rb'[ \t\r\n]*+"([^"\\]*+)"[ \t\r\n]*+:[ \t\r\n]*+'
    rb'(?:("[^"\\]*+(?:\\.[^"\\]*+)*+")|([\[{](?:%b|[\[{](?:%b)*+[\]}])*+[\]}])|([^",}\[\]{ \t\r\n][^,}\] \t\r\n]*+))'
    rb"[ \t\r\n]*+([,}])" % (_FLAT, _FLAT),
    re.DOTALL,
)
_SCALAR: Final = re.compile(rb"[^,}\] \t\r\n]*+")
_DELIMITERS: Final = b",}] \t\r\n"
_QUOTE: Final = ord('"')


class BadBodyError(Exception):
    """The body cannot be routed by; the message is for its sender."""


class _At(IntEnum):
    """Where the scan stands; the places of ``_STEPS``."""

    START = 0
    FIRST_KEY = 1
    KEY = 2
    IN_KEY = 3
    COLON = 4
    VALUE = 5
    IN_STRING = 6
    IN_NESTED = 7
    IN_NESTED_STRING = 8
    IN_SCALAR = 9
    AFTER = 10
    END = 11


class RequestScan:
    """Feed it chunks; it raises BadBodyError as soon as the body is no good.

    ``model`` is None until it was found; ``max_tokens`` is the largest limit found; ``stateful``: a member of
    :data:`STATEFUL` says so; ``complete``: the body has ended.
    """

    __slots__ = (
        "_at",
        "_capture",
        "_decoder",
        "_depth",
        "_escaped",
        "_key",
        "_members",
        "complete",
        "max_tokens",
        "model",
        "size",
        "stateful",
    )

    def __init__(self) -> None:
        self.model: str | None = None
        self.max_tokens: int | None = None
        self.stateful = False
        self.complete = False
        self.size = 0
        self._at = _At.START
        self._key = ""
        self._capture: bytearray | None = None
        self._depth = 0
        self._members = 0
        self._escaped = False
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def feed(self, chunk: bytes) -> None:
        """The next part of the body."""
        self.size += len(chunk)
        self._check_text(chunk, final=False)
        at = 0
        end = len(chunk)
        while at < end:
            at = _STEPS[self._at](self, chunk, at)

    def finish(self) -> None:
        """The body has ended. Raises BadBodyError where it is not whole or names no model."""
        self._check_text(b"", final=True)
        if self._at is _At.START:
            raise BadBodyError("the body is empty; a JSON object with a model is expected")
        if self._at is not _At.END:
            raise BadBodyError("the body is no complete JSON object")
        if self.model is None:
            raise BadBodyError("the body names no model")
        self.complete = True

    # --- steps: each takes what it can of the chunk from ``at`` and says where it stopped -----------------------------

    def _check_text(self, chunk: bytes, *, final: bool) -> None:
        if chunk.isascii() and not final and self._decoder.getstate()[0] == b"":
            return
        try:
            self._decoder.decode(chunk, final)
        except UnicodeDecodeError:
            raise BadBodyError("the body is not valid UTF-8") from None

    def _start(self, chunk: bytes, at: int) -> int:
        at = _past_space(chunk, at)
        if at < len(chunk):
            if chunk[at] != ord("{"):
                raise BadBodyError("the body is no JSON object")
            self._at = _At.FIRST_KEY
            at += 1
        return at

    def _before_key(self, chunk: bytes, at: int) -> int:
        while (member := _MEMBER.match(chunk, at)) is not None:
            self._whole(member)
            at = member.end()
            if self._at is _At.END:
                return at
        at = _past_space(chunk, at)
        if at == len(chunk):
            return at
        if chunk[at] == _QUOTE:
            self._at, self._capture, self._escaped = _At.IN_KEY, bytearray(), False
            self._count_member()
        elif chunk[at] == ord("}") and self._at is _At.FIRST_KEY:
            self._at = _At.END
        else:
            raise BadBodyError("the body is no JSON: the name of a member was expected")
        return at + 1

    def _in_key(self, chunk: bytes, at: int) -> int:
        at, ended = self._string(chunk, at)
        if ended:
            self._key = self._text("a member's name") if self._capture is not None else ""
            self._at = _At.COLON
        return at

    def _colon(self, chunk: bytes, at: int) -> int:
        at = _past_space(chunk, at)
        if at < len(chunk):
            if chunk[at] != ord(":"):
                raise BadBodyError("the body is no JSON: a colon was expected")
            self._at = _At.VALUE
            at += 1
        return at

    def _value(self, chunk: bytes, at: int) -> int:
        at = _past_space(chunk, at)
        if at == len(chunk):
            return at
        first = chunk[at]
        wanted = self._key in _WANTED
        if self._key == "model" and (self.model is not None or first != _QUOTE):
            raise BadBodyError("model is there twice" if self.model is not None else "model is no text")
        self._capture = bytearray() if wanted else None
        self._escaped = False
        if first == _QUOTE:
            self._at = _At.IN_STRING
            return at + 1
        if first in b"{[":
            self._at, self._depth, self._capture = _At.IN_NESTED, 1, None
            return at + 1
        if first in _DELIMITERS:
            raise BadBodyError("the body is no JSON: a value was expected")
        self._at = _At.IN_SCALAR
        return at

    def _in_string(self, chunk: bytes, at: int) -> int:
        at, ended = self._string(chunk, at)
        if ended:
            if self._key == "model":
                self.model = self._name()
            elif self._key in _WANTED:
                self._note(None)
            self._at = _At.AFTER
        return at

    def _in_nested(self, chunk: bytes, at: int) -> int:
        end, depth = len(chunk), self._depth
        while True:
            at = _IN_NESTED.match(chunk, at).end()  # type: ignore[union-attr]  # it matches nothing as well
            if at == end:
                break
            found = chunk[at]
            at += 1
            if found == _QUOTE:
                self._at, self._escaped = _At.IN_NESTED_STRING, False
                break
            if found in b"{[":
                depth += 1
                continue
            depth -= 1
            if depth == 0:
                self._note(None)
                self._at = _At.AFTER
                break
        self._depth = depth
        return at

    def _in_nested_string(self, chunk: bytes, at: int) -> int:
        at, ended = self._string(chunk, at)
        if ended:
            self._at = _At.IN_NESTED
        return at

    def _in_scalar(self, chunk: bytes, at: int) -> int:
        stop = _SCALAR.match(chunk, at).end()  # type: ignore[union-attr]  # it matches nothing as well
        self._keep(chunk, at, stop)
        if stop < len(chunk):
            if self._key in _WANTED:
                self._note(b"" if self._capture is None else bytes(self._capture))
            self._at = _At.AFTER
        return stop

    def _after(self, chunk: bytes, at: int) -> int:
        at = _past_space(chunk, at)
        if at < len(chunk):
            if chunk[at] == ord(","):
                self._at = _At.KEY
            elif chunk[at] == ord("}"):
                self._at = _At.END
            else:
                raise BadBodyError("the body is no JSON: a comma or the end was expected")
            at += 1
        return at

    def _end(self, chunk: bytes, at: int) -> int:
        at = _past_space(chunk, at)
        if at < len(chunk):
            raise BadBodyError("something follows the JSON object in the body")
        return at

    def _whole(self, member: re.Match[bytes]) -> None:
        """A member that lies in the chunk from its name to what follows: the same as all the steps of it."""
        self._count_member()
        name, text, _, scalar, following = member.groups()
        key = self._key = name.decode() if name in _WANTED_BYTES else ""
        if key == "model":
            if self.model is not None or text is None:
                raise BadBodyError("model is there twice" if self.model is not None else "model is no text")
            if len(text) > _MAX_CAPTURE:
                raise BadBodyError(f"model has more than {MAX_NAME_BYTES} bytes")
            self._capture = bytearray(text[1:-1])
            self.model = self._name()
        elif key:
            self._note(scalar)
        self._at = _At.KEY if following == b"," else _At.END

    def _count_member(self) -> None:
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise BadBodyError(f"the body has more than {_MAX_MEMBERS} members")

    # --- parts of steps -----------------------------------------------------------------------------------------------

    def _string(self, chunk: bytes, at: int) -> tuple[int, bool]:
        """Go on in a string: where it stops, and whether its closing quote was there."""
        start = at
        if self._escaped:
            self._escaped = False
            at += 1
        at = _IN_STRING.match(chunk, at).end()  # type: ignore[union-attr]  # it matches nothing as well
        if at == len(chunk):
            self._keep(chunk, start, at)
            return at, False
        if chunk[at] == ord("\\"):  # the last byte of the chunk: what it escapes comes with the next one
            self._escaped = True
            self._keep(chunk, start, at + 1)
            return at + 1, False
        self._keep(chunk, start, at)
        return at + 1, True

    def _keep(self, chunk: bytes, start: int, stop: int) -> None:
        if self._capture is None:
            return
        if len(self._capture) + stop - start <= _MAX_CAPTURE:
            self._capture += chunk[start:stop]
        elif self._at is _At.IN_STRING and self._key == "model":
            raise BadBodyError(f"model has more than {MAX_NAME_BYTES} bytes")
        else:
            self._capture = None

    def _text(self, what: str) -> str:
        try:
            text = orjson.loads(b'"%b"' % bytes(self._capture or b""))
        except orjson.JSONDecodeError:
            raise BadBodyError(f"{what} is no JSON text") from None
        return str(text)

    def _name(self) -> str:
        name = self._text("model")
        if not name.strip():
            raise BadBodyError("model is blank")
        size = len(name.encode())
        if size > MAX_NAME_BYTES:
            raise BadBodyError(f"model has {size} bytes, more than {MAX_NAME_BYTES}")
        return name

    def _note(self, scalar: bytes | None) -> None:
        """A wanted member has ended; ``scalar`` is its text, None for a string, a list or an object."""
        if self._key in _FLAGS:
            self.stateful = self.stateful or scalar == b"true"
        elif self._key in STATEFUL:
            self.stateful = self.stateful or scalar != b"null"
        elif self._key in _LIMITS and scalar is not None and scalar.isdigit():
            self.max_tokens = max(self.max_tokens or 0, min(int(scalar[:9]), _MOST_TOKENS))


def _past_space(chunk: bytes, at: int) -> int:
    return _SPACE.match(chunk, at).end()  # type: ignore[union-attr]  # it matches nothing as well


_STEPS: Final = (
    RequestScan._start,
    RequestScan._before_key,
    RequestScan._before_key,
    RequestScan._in_key,
    RequestScan._colon,
    RequestScan._value,
    RequestScan._in_string,
    RequestScan._in_nested,
    RequestScan._in_nested_string,
    RequestScan._in_scalar,
    RequestScan._after,
    RequestScan._end,
)
