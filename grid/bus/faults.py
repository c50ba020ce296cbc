"""Errors of the Redis client, mapped at the boundary to BusError with a reason, the address and the next step."""

import asyncio
import ssl

from redis import exceptions as redis_errors

from grid.model import BusError, Reason

_MOVED_AWAY = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.MovedError,
    redis_errors.AskError,
    redis_errors.ClusterDownError,
    redis_errors.MasterDownError,
    TimeoutError,
    OSError,
)

CLIENT_ERRORS = (redis_errors.RedisError, OSError, asyncio.TimeoutError)
"""All that a call to Redis may raise, ``TimeoutError`` of a whole call included."""


class RefusedError(BusError):
    """The server is there and answered: it refused this one command."""


def moved_away(error: BaseException) -> bool:
    """Whether the address must be looked up afresh: the server is gone, a replica by now, or holds other slots."""
    return isinstance(error, _MOVED_AWAY) or _is_replica(error)


def bus_error(error: BaseException, address: str, doing: str) -> BusError:
    """The BusError that says what ``error`` means; ``doing`` is what was attempted, ``address`` holds no secret.

    A RefusedError where the server answered and would answer other commands.
    """
    reason, detail = _judge(error)
    hint = _hint(error)
    if reason is Reason.BUS_TIMEOUT and address.startswith("rediss"):
        hint = "the server may be frozen or swapping, or not speak TLS at this port"
    answered = reason in (Reason.BUS_REFUSED, Reason.BUS_WRONG_TYPE) and not moved_away(error)
    kind = RefusedError if answered else BusError
    return kind(f"{doing} at {address} failed: {detail}", reason=reason, hint=hint)


def _judge(error: BaseException) -> tuple[Reason, str]:
    if isinstance(error, redis_errors.AuthenticationError):
        return Reason.BUS_AUTH, str(error)
    tls = _tls_fault(error)
    if tls is not None:
        return Reason.BUS_TLS, f"{tls.__class__.__name__}: {tls}"
    if isinstance(error, redis_errors.TimeoutError | TimeoutError):
        return Reason.BUS_TIMEOUT, str(error) or "no answer in time"
    if isinstance(error, redis_errors.ConnectionError | OSError):
        return Reason.BUS_UNREACHABLE, str(error) or error.__class__.__name__
    # Before Redis 7 the error of a command inside a script comes as text in another error.
    wrong_type = isinstance(error, redis_errors.ResponseError) and "WRONGTYPE" in str(error)
    return Reason.BUS_WRONG_TYPE if wrong_type else Reason.BUS_REFUSED, f"{error.__class__.__name__}: {error}"


def _hint(error: BaseException) -> str | None:
    if isinstance(error, redis_errors.NoPermissionError):
        return "the ACL of this user lacks a command, key or channel; docs/bus-protocol.md lists what is needed"
    if _is_replica(error):
        return "this server is a replica by now; the master is looked up again at the next try"
    if isinstance(error, redis_errors.MovedError | redis_errors.AskError | redis_errors.ClusterDownError):
        return "the slot moved or is not served; its owner is looked up again at the next try"
    if isinstance(error, redis_errors.OutOfMemoryError):
        return "the server is at its maxmemory; nothing was written"
    return None


def _is_replica(error: BaseException) -> bool:
    # Before Redis 7 the error of a command inside a script comes as text in another error.
    return isinstance(error, redis_errors.ResponseError) and (
        isinstance(error, redis_errors.ReadOnlyError) or "-READONLY" in str(error)
    )


def _tls_fault(error: BaseException | None) -> ssl.SSLError | None:
    for _ in range(8):
        if error is None:
            return None
        if isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None
