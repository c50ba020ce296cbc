"""The one error family. Each branch knows its exit code and, where it can reach a client, its HTTP status."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from grid.model.reasons import Reason


class GridError(Exception):
    """Anything Grid says no with: what failed, the value, the likely cause and the next step.

    ``message`` says what failed with the value seen; ``reason`` is the bounded code; ``hint`` the next step
    (the reason's own hint where none is given). ``status`` is the HTTP status where the error reaches a client.
    """

    exit_code: ClassVar[int] = 1
    status: int = 500

    def __init__(self, message: str, *, reason: Reason = Reason.INTERNAL, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.hint = reason.hint if hint is None else hint

    def __str__(self) -> str:
        return f"{self.message} [{self.reason}]" + (f": {self.hint}" if self.hint else "")


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One fault of a configuration: where (dotted path, 1-based line), what, and the nearest right thing."""

    reason: Reason
    path: str
    detail: str
    line: int | None = None
    hint: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.path or 'file'}: {self.detail}" + (f" ({self.hint})" if self.hint else "")


class ConfigError(GridError):
    """The configuration cannot be used; ``problems`` lists every fault at once."""

    exit_code = 2
    status = 422

    def __init__(self, message: str, problems: Sequence[ConfigProblem] = (), *, reason: Reason | None = None) -> None:
        self.problems = tuple(problems)
        found = reason or (self.problems[0].reason if self.problems else Reason.CONFIG_SYNTAX)
        # Each problem has the way out of its own; the general one of a reason could be about something else.
        super().__init__(message, reason=found, hint="" if self.problems else None)


class ScrapeError(GridError):
    """A source gave no usable page."""

    exit_code = 3
    status = 502


class RecordingError(GridError):
    """A recording of scrapes cannot be written, or is not one."""

    exit_code = 2
    status = 422


class OverlayError(GridError):
    """A document was refused or cannot be rendered."""

    exit_code = 1
    status = 422


class BusError(GridError):
    """Redis cannot be used now."""

    exit_code = 3
    status = 503


class LeaseError(BusError):
    """Not the leader, or no longer."""

    exit_code = 4
    status = 409


class RoutingError(GridError):
    """A request cannot be placed. ``retry_after``: seconds a client should wait, None where waiting is no help."""

    exit_code = 1

    def __init__(
        self, message: str, *, reason: Reason, status: int, retry_after: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, reason=reason, hint=hint)
        self.status = status
        self.retry_after = retry_after


class AdmissionError(RoutingError):
    """Admission control refused a request or let it wait too long."""


class DeliveryError(GridError):
    """A document cannot be put where the data plane reads it."""


class DaemonError(GridError):
    """The daemon's HTTP side cannot be reached or says no."""

    exit_code = 3
    status = 503
