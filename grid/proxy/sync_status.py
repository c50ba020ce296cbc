"""How a delivery stands, in a word and a reason, and the file that tells it to probes."""

import asyncio
import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import orjson
import structlog

from grid.bus import Position, SubscriberState
from grid.bus.files import write_atomic
from grid.model import DeliveryError, Problem, Reason
from grid.proxy.delivery import MODE, Held
from grid.proxy.envoy_admin import Running

log = structlog.get_logger(__name__)

BEAT: Final = 5.0
"""s between writings of an unchanged status: its age tells a probe that the process works."""


class State(StrEnum):
    """Whether a data plane can start on the file.

    ``cold``: it holds no good document yet. ``ready``: it holds the newest one. ``ready_degraded``: it holds a good one
    and something is wrong, so that it may not be the newest, or not be in use.
    """

    COLD = "cold"
    READY = "ready"
    READY_DEGRADED = "ready_degraded"


_OF_DOCUMENTS: Final = (Reason.PUBLICATION_MISMATCH, Reason.VERSION_CLASH, Reason.UNSUPPORTED_PROTOCOL)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known at one moment. Times are wall clock s.

    ``held`` is what the file holds, ``observed`` the newest document that the bus gave, ``named`` where the leader's
    newest frame says that this gateway's document stands. ``file``, ``content`` and ``envoy``: what is wrong with
    writing, with what is written, and with who reads it.
    """

    bus: SubscriberState
    held: Held | None = None
    written_at: float | None = None
    observed: Held | None = None
    observed_at: float | None = None
    named: Position | None = None
    named_at: float = 0.0
    file: Problem | None = None
    content: tuple[Problem, ...] = field(default=())
    envoy: Problem | None = None
    running: Running | None = None


def judge(facts: Facts) -> tuple[State, Problem | None]:
    """The state, and the gravest of the reasons for it; None where all is well."""
    candidates = (refusal(facts), facts.file, _silence(facts.bus), _absence(facts), *facts.content, facts.envoy)
    reason = next((one for one in candidates if one is not None), None)
    if facts.held is None:
        return State.COLD, reason or Problem(Reason.NO_OVERLAY, "no document has come yet")
    return (State.READY, None) if reason is None else (State.READY_DEGRADED, reason)


def refusal(facts: Facts) -> Problem | None:
    """Why the document that the bus has now was refused; None where it was not."""
    bus, problem = facts.bus, facts.bus.problem
    if problem is None or not (problem.code.family == "overlay" or problem.code in _OF_DOCUMENTS):
        return None
    if bus.applied_at is not None and (bus.problem_at or 0.0) <= bus.applied_at:
        return None
    # The leader has named what we hold since, so what was refused was something else.
    confirmed = facts.named == bus.position and facts.named_at > (bus.problem_at or 0.0)
    if problem.code is not Reason.VERSION_CLASH and confirmed:
        return None
    return problem


def _silence(bus: SubscriberState) -> Problem | None:
    """What is wrong with the way to the bus, or with who should speak there."""
    problem = bus.problem
    if problem is not None and (problem.code.family != "bus" or problem.code in _OF_DOCUMENTS):
        problem = None
    if not bus.connected:
        return problem or Problem(Reason.BUS_UNREACHABLE, "not connected yet")
    return problem if bus.stale_since is not None else None


def _absence(facts: Facts) -> Problem | None:
    if facts.observed is None and facts.bus.connected and facts.bus.counts.reads:
        return Problem(Reason.NO_OVERLAY, "the bus has no document for this gateway")
    return None


def to_json(facts: Facts, *, now: float, **about: str) -> dict[str, Any]:
    """The status file. ``about``: network, gateway and what else is the same all the time."""
    state, reason = judge(facts)
    running = facts.running
    oldest = running.oldest if running is not None else None
    return {
        "state": state,
        "degraded_reason": reason.code if reason else None,
        "degraded_detail": reason.detail if reason else None,
        "degraded_hint": reason.code.hint if reason else None,
        **about,
        **_document("observed", facts.observed, facts.observed_at),
        **_document("written", facts.held, facts.written_at),
        "bus_connected": facts.bus.connected,
        "bus": facts.bus.where or None,
        "bus_stale_since": _iso(facts.bus.stale_since),
        "problems": [{"code": one.code, "detail": one.detail} for one in facts.content],
        "envoy": None
        if running is None
        else {
            "epoch": oldest.position.epoch if oldest else None,
            "version": oldest.position.version if oldest else None,
            "revision": oldest.revision if oldest else None,
            "clusters": {name: str(one.position) for name, one in sorted(running.versions.items())},
            "rejected": running.rejected,
            "in_flight": dict(running.in_flight),
        },
        "pid": os.getpid(),
        "updated_at": _iso(now),
    }


def _document(word: str, held: Held | None, at: float | None) -> dict[str, Any]:
    return {
        f"{word}_overlay_revision": held.revision if held else None,
        f"{word}_epoch": held.position.epoch if held else None,
        f"{word}_version": held.position.version if held else None,
        f"last_{word}_at": _iso(at),
    }


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


class StatusFile:
    """The status at ``path``. ``about``: what is the same all the time (network, gateway, ...)."""

    def __init__(self, path: Path, **about: str) -> None:
        self._path = path
        self._about = about
        self._shown: object = None
        self._shown_at = 0.0
        self._fails = False

    async def show(self, facts: Facts) -> None:
        """Write it where it has changed, else now and then. A fault is logged once."""
        state, reason = judge(facts)
        shown = (state, reason, facts.held, facts.observed, facts.content, facts.running and facts.running.versions)
        if shown == self._shown and time.monotonic() - self._shown_at < BEAT:
            return
        if shown != self._shown and reason is not None:
            log.warning("delivery is not as it should be", state=state, reason=reason.code, detail=reason.detail)
        self._shown, self._shown_at = shown, time.monotonic()
        try:
            await self.write(facts)
            self._fails = False
        except DeliveryError as error:
            if not self._fails:
                log.error("the status cannot be written", error=str(error))  # noqa: TRY400 - it says all there is
            self._fails = True

    async def write(self, facts: Facts) -> None:
        """Write it now. Raises DeliveryError (file_unwritable)."""
        said = to_json(facts, now=time.time(), **self._about)
        data = orjson.dumps(said, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        try:
            await asyncio.to_thread(write_atomic, self._path, data, mode=MODE)
        except OSError as error:
            message = f"status file {self._path}: {error.strerror or error}"
            raise DeliveryError(message, reason=Reason.FILE_UNWRITABLE) from error
