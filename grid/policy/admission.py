"""Who may send to a provider: readiness, pressure, the way back, and the operator's hand.

**Readiness.** An observation is one counted scrape: *zero* where the page has no ready endpoint or the readiness
probe denies it, *good* where it has one (or, on a page that does not count them, where the probe confirms it), else
nothing.
- the first zero puts a provider behind every ready one, the second in a row closes it (``none``);
- two good ones in a row lift both. One good reading between bad ones lifts nothing, so a provider that alternates
  stays behind the others and changes nothing any more;
- with pressure configured a closed provider comes back as one under pressure does: ``exit_scrapes`` good scrapes in a
  row whose saturation is at or below ``exit``, ``hold_down`` since the first of them, ``min_time`` in the state. An
  unknown saturation counts as calm here, or a provider without that number would never come back.
- a probe's denial also acts between scrapes: it puts a provider with a fresh page last, and closes one without (never
  read, or stale), until it no longer denies. Two signs that something is dead beat no sign that it lives.

**Pressure** (off where not configured). One machine per provider, moved by counted scrapes only, never by time alone:
- open, saturation >= ``enter``: count; ``existing_only`` once ``enter_scrapes`` in a row and ``min_time`` in the
  state;
- open, below ``enter``: the count starts again;
- ``existing_only``, saturation <= ``exit``: count; open once ``exit_scrapes`` in a row, ``hold_down`` since the first
  of them and ``min_time`` in the state; anything above ``exit`` starts the count and the clock again;
- unknown saturation changes nothing. A capacity that was only learned is the most that ever ran, so under low traffic
  the provider always seems full. It counts as pressure only while something queues: a mark that was never tested says
  nothing about being full.

**Drain** leaves existing sessions only, **disable** nobody. Of several rules the strictest holds.

**Guard.** Until every provider has been tried once, nothing that the previous documents offered is closed or put
further back, except by drain, disable or removal from the configuration.
"""

from dataclasses import dataclass, replace
from typing import Final

from grid.model import AdmissionState, CapacitySource, Drain, Freshness, Load, Pressure, Provider, Reason, Step
from grid.policy.memory import GRACE, Hysteresis
from grid.policy.words import number, several

ZERO_SCRAPES: Final = 2
"""Zero readings in a row that close a provider."""

GOOD_SCRAPES: Final = 2
"""Good readings in a row that lift a demotion, and a closing where no pressure is configured."""

_OPEN, _EXISTING, _NONE = AdmissionState.NEW_AND_EXISTING, AdmissionState.EXISTING_ONLY, AdmissionState.NONE


@dataclass(frozen=True, slots=True)
class Ruling:
    """What holds for a provider now: its admission, what decided it, and whether it stands behind every ready one."""

    admission: AdmissionState
    reason: Reason
    why: str
    demoted: bool
    steps: tuple[Step, ...]


def observation(ready: int | None, probe: bool | None) -> bool | None:
    """What a counted scrape and the probe beside it say: ready, not ready, or nothing (None)."""
    if ready == 0 or probe is False:
        return False
    if ready is None:
        return probe
    return True


# --- the machine ------------------------------------------------------------------------------------------------------


def advance(memory: Hysteresis, seen: bool | None, load: Load, pressure: Pressure | None, now: float) -> Hysteresis:
    """The machine after one counted scrape: ``seen`` from ``observation``, ``load`` as assessed from that scrape."""
    if seen is False:
        return _zero(memory, now)
    if seen is True:
        good = min(memory.good + 1, GOOD_SCRAPES)
        if memory.zero or memory.good != good:
            memory = replace(memory, zero=0, good=good)
        if memory.state is _NONE:
            return _come_back(memory, load, pressure, now)
        if memory.demoted and good >= GOOD_SCRAPES:
            memory = replace(memory, demoted=False)
    if pressure is None or memory.state is _NONE or load.saturation is None:
        return memory
    if memory.state is _OPEN:
        return _press(memory, load, pressure, now)
    return _release(memory, _calm(load, pressure), pressure, now)


def settle(memory: Hysteresis, pressure: Pressure | None, now: float) -> Hysteresis:
    """The machine before a pass: its clock starts at first sight; without pressure configured nothing is held back."""
    if memory.since is None:
        memory = replace(memory, since=now)
    if pressure is None and (memory.state is _EXISTING or memory.pressed or memory.calm):
        state = _OPEN if memory.state is _EXISTING else memory.state
        memory = replace(memory, state=state, since=now, pressed=0, calm=0, calm_since=None)
    return memory


def _zero(memory: Hysteresis, now: float) -> Hysteresis:
    zero = min(memory.zero + 1, ZERO_SCRAPES)
    state, since = memory.state, memory.since
    if zero >= ZERO_SCRAPES and state is not _NONE:
        state, since = _NONE, now
    return Hysteresis(state=state, since=since, zero=zero, demoted=True)


def _come_back(memory: Hysteresis, load: Load, pressure: Pressure | None, now: float) -> Hysteresis:
    if pressure is not None:
        calm = load.saturation is None or _calm(load, pressure)
        return _release(memory, calm, pressure, now)
    if memory.good < GOOD_SCRAPES:
        return memory
    return Hysteresis(since=now, good=memory.good)


def _press(memory: Hysteresis, load: Load, pressure: Pressure, now: float) -> Hysteresis:
    if not _pressed(load, pressure):
        return replace(memory, pressed=0) if memory.pressed else memory
    pressed = min(memory.pressed + 1, pressure.enter_scrapes)
    if pressed < pressure.enter_scrapes or not _passed(memory.since, pressure.min_time, now):
        return replace(memory, pressed=pressed)
    return replace(memory, state=_EXISTING, since=now, pressed=0, calm=0, calm_since=None)


def _release(memory: Hysteresis, calm: bool, pressure: Pressure, now: float) -> Hysteresis:
    if not calm:
        return replace(memory, calm=0, calm_since=None)
    count = min(memory.calm + 1, pressure.exit_scrapes)
    since = now if memory.calm_since is None else memory.calm_since
    held = _passed(since, pressure.hold_down, now) and _passed(memory.since, pressure.min_time, now)
    if count < pressure.exit_scrapes or not held:
        return replace(memory, calm=count, calm_since=since)
    return replace(memory, state=_OPEN, since=now, pressed=0, calm=0, calm_since=None, demoted=False)


def _pressed(load: Load, pressure: Pressure) -> bool:
    return load.saturation is not None and load.saturation >= pressure.enter and _tested(load)


def _calm(load: Load, pressure: Pressure) -> bool:
    return load.saturation is not None and (load.saturation <= pressure.exit or not _tested(load))


def _tested(load: Load) -> bool:
    """Whether its capacity means anything as a limit: declared, or learned and something queues at it."""
    return load.capacity_source is not CapacitySource.LEARNED or bool(load.queue)


def _passed(since: float | None, span: float, now: float) -> bool:
    return since is not None and now - since >= span - GRACE


# --- the ruling -------------------------------------------------------------------------------------------------------


def rule(
    provider: Provider,
    memory: Hysteresis,
    load: Load,
    freshness: Freshness,
    *,
    probe: bool | None,
    drain: Drain | None,
    before: AdmissionState | None,
    floor: AdmissionState | None,
    keeps_place: bool,
    now: float,
) -> Ruling:
    """What the machine, the probe, the guard and the operator make of a provider together.

    ``before``: its admission in the pass before, None at first sight. ``floor``: the state below which the guard does
    not let it fall, None without one; ``keeps_place``: the guard does not let it be put behind the others either.
    """
    admission, reason, step = _readiness(memory, load, freshness, probe=probe, pressure=provider.pressure, now=now)
    demoted = memory.demoted or probe is False
    steps = [step]
    why = step.detail
    if provider.pressure is not None and memory.state is not _NONE:
        pressure_step = _pressure_step(memory, load, provider.pressure, now)
        steps.append(pressure_step)
        if memory.state is _EXISTING and admission is _EXISTING:
            reason, why = pressure_step.reason, pressure_step.detail
    if admission is _OPEN and before not in (None, _OPEN) and memory.since == now:
        reason = Reason.RECOVERED
    if floor is not None and admission.rank > floor.rank:
        why = f"would be {admission} ({why}), but not every provider has been tried yet"
        admission, reason = floor, Reason.FIRST_ROUND
        steps.append(Step("guard", reason, why))
    if keeps_place and demoted:
        demoted, reason = False, Reason.FIRST_ROUND
        steps.append(Step("guard", reason, "keeps its place until every provider has been tried"))
    for state, rule_reason, said in _hand(provider, drain):
        steps.append(Step("eligibility", rule_reason, said))
        if state.rank > admission.rank:
            admission, reason, why = state, rule_reason, said
    steps.append(Step("admission", reason, f"{admission}: {why}" if why else f"{admission}"))
    return Ruling(admission, reason, why, demoted, tuple(steps))


def _readiness(
    memory: Hysteresis, load: Load, freshness: Freshness, *, probe: bool | None, pressure: Pressure | None, now: float
) -> tuple[AdmissionState, Reason, Step]:
    """State and reason by readiness and freshness alone, and the step that says it."""
    ready = "ready count unknown" if load.ready is None else several(load.ready, "ready endpoint")
    if load.ready_source is not None:
        ready = f"{ready} ({load.ready_source})"
    if memory.state is _NONE:
        if memory.good:
            left = _way_back(memory, pressure, now)
            return _NONE, Reason.RECOVERING, Step("readiness", Reason.RECOVERING, f"{ready}; {left}")
        said = f"not ready in {several(memory.zero, 'reading')} in a row" + ("; the probe denies it" * (probe is False))
        return _NONE, Reason.NOT_READY, Step("readiness", Reason.NOT_READY, said)
    if probe is False:
        if freshness is not Freshness.FRESH:
            said = f"the readiness probe denies it, and its page is {freshness}"
            return _NONE, Reason.NOT_READY, Step("readiness", Reason.PROBE_DENIED, said)
        said = f"the readiness probe denies it, the page shows {ready}"
        return memory.state, Reason.PROBE_DENIED, Step("readiness", Reason.PROBE_DENIED, said)
    if memory.demoted:
        if memory.good:
            said = f"{ready} again, {several(GOOD_SCRAPES - memory.good, 'more good reading')} to go"
            return memory.state, Reason.RECOVERING, Step("readiness", Reason.RECOVERING, said)
        said = "first reading without a ready endpoint: behind every ready provider"
        return memory.state, Reason.ZERO_READY, Step("readiness", Reason.ZERO_READY, said)
    if freshness is Freshness.ABSENT:
        return memory.state, Reason.NEVER_READ, Step("readiness", Reason.NEVER_READ, "offered behind every fresh one")
    if freshness is Freshness.STALE:
        said = f"{ready} when last read: offered behind every fresh one"
        return memory.state, Reason.STALE, Step("readiness", Reason.STALE, said)
    known = Reason.READY if load.ready else Reason.ADMITTED
    return memory.state, Reason.ADMITTED, Step("readiness", known, ready)


def _way_back(memory: Hysteresis, pressure: Pressure | None, now: float) -> str:
    if pressure is None:
        return f"{memory.good} of {GOOD_SCRAPES} good readings in a row"
    waited = 0.0 if memory.calm_since is None else now - memory.calm_since
    return (
        f"{memory.calm} of {pressure.exit_scrapes} good readings at or below {number(pressure.exit)}, "
        f"{number(waited)} of {number(pressure.hold_down)} s hold-down"
    )


def _pressure_step(memory: Hysteresis, load: Load, pressure: Pressure, now: float) -> Step:
    saturation = f"saturation {number(load.saturation)}"
    if memory.state is _EXISTING:
        if memory.since == now:
            said = f"{saturation} at or above {number(pressure.enter)} for {several(pressure.enter_scrapes, 'scrape')}"
            return Step("pressure", Reason.PRESSURE_ENTER, said)
        return Step("pressure", Reason.PRESSURE_HELD, f"{saturation}; {_way_back(memory, pressure, now)}")
    if memory.pressed:
        in_state = 0.0 if memory.since is None else now - memory.since
        said = (
            f"{saturation} at or above {number(pressure.enter)}: {memory.pressed} of {pressure.enter_scrapes} scrapes, "
            f"{number(in_state)} of {number(pressure.min_time)} s in the state"
        )
        return Step("pressure", Reason.PRESSURE_COUNTING, said)
    if load.saturation is not None and load.saturation >= pressure.enter:
        return Step("pressure", Reason.ADMITTED, f"{saturation} of a learned capacity at which nothing queues")
    return Step("pressure", Reason.ADMITTED, f"{saturation}, enters at {number(pressure.enter)}")


def _hand(provider: Provider, drain: Drain | None) -> list[tuple[AdmissionState, Reason, str]]:
    found = []
    if drain is not None:
        said = "drained" if drain.target == provider.id else f"drained with its site {drain.target}"
        said += f": {drain.reason}" if drain.reason else ""
        found.append((_EXISTING, Reason.DRAINED, said))
    if provider.disabled:
        found.append((_NONE, Reason.DISABLED, "switched off in the configuration"))
    return found
