"""The kinds of values a setting can have: how each is read, shown again, and described in the JSON Schema.

Each function here gives one :class:`Scalar`, which goes into the annotation of a field. A faulty value raises a
sentence in the operator's words, which ``grid.config.validation`` turns into a problem with its line.
"""

import difflib
import ipaddress
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from grid.config import units
from grid.model.errors import ConfigError
from grid.model.reasons import Reason

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Json = dict[str, Any]
_Parsed = TypeVar("_Parsed", int, float)

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?" + _LABEL.pattern, re.ASCII)
_SERIES_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}", re.ASCII)
_YAML_11_BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


class Listen(NamedTuple):
    """Where a server of ours listens. Port 0: any free one."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """One kind of value. ``read`` judges what the file has, ``show`` gives it back as a file would have it."""

    read: Callable[[Any], Any]
    schema: Json = field(hash=False)
    show: Callable[[Any], Any] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        show = self.show
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=None
            if show is None
            else core_schema.plain_serializer_function_ser_schema(show, when_used="json"),
        )

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return dict(self.schema)


@dataclass(frozen=True, slots=True)
class FileScalar(Scalar):
    """A path to a file. Relative ones start at the directory of the configuration file (the validation context)."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any, info: ValidationInfo) -> Path:
            base = (info.context or {}).get("base")
            path: Path = self.read(value)
            return base / path if isinstance(base, Path) else path

        return core_schema.with_info_plain_validator_function(
            read, serialization=core_schema.plain_serializer_function_ser_schema(_show_optional, when_used="json")
        )


def fault(reason: Reason, detail: str, hint: str = "") -> PydanticCustomError:
    """The error that carries a sentence through pydantic untouched."""
    return PydanticCustomError(reason.value, "{detail}", {"reason": reason, "detail": detail, "hint": hint})


def wrong_type(detail: str, hint: str = "") -> NoReturn:
    """Refuse a value of the wrong type."""
    raise fault(Reason.CONFIG_WRONG_TYPE, detail, hint)


def out_of_range(detail: str, hint: str = "") -> NoReturn:
    """Refuse a value of the right type that is not one of those allowed."""
    raise fault(Reason.CONFIG_OUT_OF_RANGE, detail, hint)


def describe(value: object) -> str:
    """``value`` as an operator would call it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            shown = value if len(value) <= 60 else f"{value[:57]}..."
            return f"'{shown}'"
        case dict():
            return "a section"
        case list():
            return "a list"
        case float() if math.isnan(value):
            return "NaN"
        case _:
            return str(value)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like ``word``, None where none is near."""
    names = list(known)
    folded = {name.lower().replace("-", "_"): name for name in reversed(names)}
    found = difflib.get_close_matches(word.lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint towards the right word: the nearest one, or all of them where they are few."""
    names = list(known)
    near = nearest(word, names)
    if near is not None:
        return f"did you mean {near}?"
    if not names:
        return ""
    return f"known: {', '.join(names[:12])}" + (", ..." if len(names) > 12 else "")


def _string(value: object, what: str, example: str) -> str:
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            out_of_range("is not valid Unicode", f"such as {example}")
        return value
    if value is None:
        wrong_type(f"has no value; wants {what}", f"such as {example}, or remove the line")
    if isinstance(value, bool | int | float):
        wrong_type(f"wants {what}, not the bare value {describe(value)}", f"such as {example}; put a text into quotes")
    wrong_type(f"wants {what}, not {describe(value)}", f"such as {example}")


def _show_optional(value: object) -> object:
    return None if value is None else str(value)


def name() -> Scalar:
    """A name as in Kubernetes: 1 to 63 of a-z, 0-9 and -, a letter or digit first and last."""

    def read(value: object) -> str:
        text = _string(value, "a name", "east-1")
        if NAME.fullmatch(text) is None:
            better = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:63].rstrip("-")
            out_of_range(
                f"{describe(text)} is no name: 1 to 63 of a-z, 0-9 and -, a letter or digit first and last",
                f"perhaps {better}" if better else "",
            )
        return text

    return Scalar(read, {"type": "string", "pattern": f"^{NAME.pattern}$", "maxLength": 63})


def text(what: str, example: str, maximum: int = 256) -> Scalar:
    """Free text of 1 to ``maximum`` bytes that is not blank and has no control characters."""

    def read(value: object) -> str:
        found = _string(value, what, example)
        if not found.strip():
            out_of_range(f"is blank; wants {what}", f"such as {example}")
        if any(ord(character) < 0x20 or ord(character) == 0x7F for character in found):
            out_of_range(f"{describe(found)} has a control character in it", f"such as {example}")
        size = len(found.encode())
        if size > maximum:
            out_of_range(f"{describe(found)} has {size} bytes; at most {maximum} are allowed")
        return found

    return Scalar(read, {"type": "string", "minLength": 1, "maxLength": maximum, "pattern": r"\S"})


def pattern(what: str, example: str, expression: re.Pattern[str], *, lower: bool = False) -> Scalar:
    """Text of a fixed form; ``lower`` folds it, where case carries no meaning."""

    def read(value: object) -> str:
        found = _string(value, what, example)
        if expression.fullmatch(found) is None:
            out_of_range(f"{describe(found)} is no {what.removeprefix('a ')}", f"such as {example}")
        return found.lower() if lower else found

    return Scalar(read, {"type": "string", "pattern": f"^(?:{expression.pattern})$"})


def label() -> Scalar:
    """A label's value (also a region, a zone), as in Kubernetes."""
    return pattern("a label of at most 63 letters, digits, -, _ and .", "gold", _LABEL)


def label_key() -> Scalar:
    """A label's key, as in Kubernetes, with or without a prefix."""
    return pattern("a label name", "tier or example.com/tier", _LABEL_KEY)


def series_label() -> Scalar:
    """The name of a Prometheus label."""
    return pattern("a Prometheus label name", "cluster", _SERIES_LABEL)


def cluster() -> Scalar:
    """The name of a routing cluster: it also stands in response headers, so printable ASCII without spaces."""
    return pattern("a cluster name of 1 to 256 visible ASCII characters", "east-llama", re.compile("[!-~]{1,256}"))


def header() -> Scalar:
    """The name of an HTTP header, in lower case after reading."""
    return pattern("a header name", "x-session-id", _TOKEN, lower=True)


def cookie() -> Scalar:
    """The name of a cookie."""
    return pattern("a cookie name", "session", _TOKEN)


def file_path(what: str, example: str) -> FileScalar:
    """A path, given as text."""

    def read(value: object) -> Path:
        found = _string(str(value) if isinstance(value, Path) else value, what, example)
        if not found.strip() or "\0" in found:
            out_of_range(f"is blank; wants {what}", f"such as {example}")
        return Path(found)

    return FileScalar(read, {"type": "string", "minLength": 1, "examples": [example]})


def flag() -> Scalar:
    """A boolean: true or false, as in YAML 1.2."""

    def read(value: object) -> bool:
        if isinstance(value, bool):
            return value
        if value is None:
            wrong_type("has no value; wants true or false", "or remove the line")
        word = str(value).lower()
        meant = word if word in ("true", "false") else _YAML_11_BOOLEANS.get(word)
        wrong_type(
            f"wants true or false, not {describe(value)}",
            f"write {meant}, without quotes" if meant else "",
        )

    return Scalar(read, {"type": "boolean"})


def _number(value: object, what: str, example: str) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if value is None:
        wrong_type(f"has no value; wants {what}", f"such as {example}, or remove the line")
    if isinstance(value, str) and isinstance(plain := _plain_number(value), str):
        wrong_type(f"wants {what}, not the text {describe(value)}", f"write {plain}, without quotes")
    wrong_type(f"wants {what}, not {describe(value)}", f"such as {example}")


def _plain_number(value: str) -> str | None:
    return value if re.fullmatch(r"-?\d+(\.\d+)?", value, re.ASCII) else None


def integer(minimum: int, maximum: int, example: str) -> Scalar:
    """A whole number within bounds, both included."""

    def read(value: object) -> int:
        found = _number(value, "a whole number", example)
        if not isinstance(found, int):
            wrong_type(f"wants a whole number, not {describe(found)}", f"such as {example}")
        if not minimum <= found <= maximum:
            out_of_range(f"{found} is outside {minimum} to {maximum}")
        return found

    return Scalar(read, {"type": "integer", "minimum": minimum, "maximum": maximum})


def number(maximum: float, example: str, *, zero: bool = False) -> Scalar:
    """A number above 0 (or from 0 where ``zero``) up to ``maximum``."""

    def read(value: object) -> float:
        found = float(_number(value, "a number", example))
        low_enough = found <= maximum
        if not (low_enough and (found > 0 or (zero and found == 0))):
            bounds = f"0 to {maximum:g}" if zero else f"above 0, at most {maximum:g}"
            out_of_range(f"{describe(value)} is outside its range: {bounds}", f"such as {example}")
        return found

    return Scalar(read, {"type": "number", "minimum" if zero else "exclusiveMinimum": 0, "maximum": maximum})


def _with_unit(parse: Callable[[str], _Parsed], value: object, what: str, example: str) -> _Parsed:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    try:
        return parse(_string(value, what, example))
    except ConfigError as error:
        problem = error.problems[0]
        raise fault(problem.reason, problem.detail, problem.hint) from None


def duration(minimum: str, maximum: str, *, auto: bool = False) -> Scalar:
    """A time span with its unit, in seconds after reading; ``auto`` also allows that word, None after reading."""
    low, high = units.parse_duration(minimum), units.parse_duration(maximum)

    def read(value: object) -> float | None:
        if auto and value == "auto":
            return None
        what = "a duration, or auto" if auto else "a duration"
        found = _with_unit(units.parse_duration, value, what, minimum if low else "2s")
        if not low <= found <= high:
            out_of_range(f"{value} is outside {minimum} to {maximum}")
        return found

    def show(value: float | None) -> str | None:
        if value is None:
            return "auto" if auto else None
        return units.format_duration(value)

    form: Json = {"type": "string", "pattern": units.DURATION_PATTERN, "x-unit": "duration"}
    form |= {"x-minimum": minimum, "x-maximum": maximum}
    schema = {"anyOf": [{"const": "auto"}, form]} if auto else form
    return Scalar(read, schema, show)


def size(minimum: str, maximum: str) -> Scalar:
    """A number of bytes with its unit."""
    low, high = units.parse_size(minimum), units.parse_size(maximum)

    def read(value: object) -> int:
        found = _with_unit(units.parse_size, value, "a size", maximum)
        if not low <= found <= high:
            out_of_range(f"{value} is outside {minimum} to {maximum}")
        return found

    schema = {"type": "string", "pattern": units.SIZE_PATTERN, "x-unit": "bytes"}
    return Scalar(read, schema | {"x-minimum": minimum, "x-maximum": maximum}, units.format_size)


def percent(*, zero: bool = False) -> Scalar:
    """A share in percent, at most 100%, as a fraction of 1 after reading."""

    def read(value: object) -> float:
        found = _with_unit(units.parse_percent, value, "a percentage", "5%")
        if found > 1 or (found == 0 and not zero):
            out_of_range(f"{value} is outside its range: {'0%' if zero else 'above 0%'} to 100%")
        return found

    return Scalar(read, {"type": "string", "pattern": units.PERCENT_PATTERN, "x-unit": "percent"}, units.format_percent)


def choice(kinds: type[StrEnum]) -> Scalar:
    """One of the words of ``kinds``."""
    words = [member.value for member in kinds]

    def read(value: object) -> StrEnum:
        if isinstance(value, str) and value in words:
            return kinds(value)
        if value is None:
            wrong_type(f"has no value; wants one of {', '.join(words)}", "or remove the line")
        hint = did_you_mean(value, words) if isinstance(value, str) and nearest(value, words) else ""
        out_of_range(f"{describe(value)} is none of {', '.join(words)}", hint)

    return Scalar(read, {"type": "string", "enum": words}, _show_optional)


def retry_cause(statuses: tuple[int, ...]) -> Scalar:
    """``connect``, or one of the HTTP statuses after which a request may be tried elsewhere."""
    known = ("connect", *statuses)

    def read(value: object) -> str | int:
        if isinstance(value, str | int) and not isinstance(value, bool) and value in known:
            return value
        out_of_range(f"{describe(value)} is none of {', '.join(map(str, known))}")

    return Scalar(read, {"enum": list(known)})


def listen() -> Scalar:
    """``host:port``; an IPv6 address in brackets."""

    def read(value: object) -> Listen:
        found = _string(value, "an address to listen on", "127.0.0.1:7070")
        host, colon, port = found.rpartition(":")
        if not colon or not port.isdecimal() or not port.isascii() or len(port) > 5 or int(port) > 65535:
            out_of_range(f"{describe(found)} is no host:port with a port up to 65535", "such as 127.0.0.1:7070")
        if not host:
            out_of_range(f"{describe(found)} names no host", f"write 0.0.0.0{found} to listen on every address")
        bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
        if ":" in bare and bare == host:
            out_of_range(f"{describe(found)} is ambiguous", f"put the IPv6 address into brackets: [{host}]:{port}")
        if re.fullmatch(r"[0-9A-Za-z.:_%-]+", bare, re.ASCII) is None:
            out_of_range(f"{describe(found)} has no host that can be listened on", "such as 127.0.0.1:7070")
        return Listen(bare, int(port))

    return Scalar(read, {"type": "string", "x-unit": "host:port", "examples": ["127.0.0.1:7070"]}, _show_optional)


def ip_network() -> Scalar:
    """A block of addresses in CIDR form; one address is a block of its own."""

    def read(value: object) -> Network:
        found = _string(value, "a block of addresses", "10.0.0.0/8")
        try:
            return ipaddress.ip_network(found)
        except ValueError:
            pass
        try:
            meant = ipaddress.ip_network(found, strict=False)
        except ValueError:
            out_of_range(f"{describe(found)} is no block of addresses", "such as 10.0.0.0/8")
        out_of_range(f"{describe(found)} has bits set behind its prefix", f"write {meant}")

    return Scalar(read, {"type": "string", "examples": ["10.0.0.0/8"]}, _show_optional)
