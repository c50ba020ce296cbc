"""What a signal frame says of the providers, taken over by the targets."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from grid.gateway.fleet import OwnCounts
from grid.gateway.target import Target
from grid.model import CapacitySource, HeldSource
from grid.overlay import ProviderSignal, SignalFrame

OnEstimateError = Callable[[Target, float], None]
Peers = Callable[[Target], tuple[Target, ...]]

MEANS_LAG: Final = 3.5
"""s by which engines' means are older than the page on average: rewritten every 5 s, from readings up to 2 s old."""

REPORTS_AGE: Final = 1.5
"""s by which what gateways say of themselves is older than the frame on average: each tells it every 3 s."""

_SLACK: Final = 5.0
"""Requests by which reports may be above a page without doubt on it: they are of other moments."""

_SAME_SAMPLE: Final = 0.1
"""s within which two frames tell of one sample: ages jitter on their way."""

RAMP: Final = 60.0
"""s in which a site that has joined, or is back, stops to be compared as if it were as busy as its peers."""

_FIRST: Final = 0.98
"""The part of its peers' load that it is given at first: below it, so that it wins against one that is like them."""

_DOUBT: Final = 4.0
_MOST_HELD_BACK: Final = 0.5
"""See :func:`_hold_back`."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A frame as one gateway sees it.

    ``received_at``: monotonic s at which it was sent or later; ``now``: monotonic s. ``scale`` and ``reliable`` are
    those of :func:`grid.gateway.fleet.scale_of`, ``proven`` that of ``proven_of``. ``peers`` gives the targets that
    share a capability with one: the same tuple for targets of the same capabilities; ``takers`` are those that take new
    work. ``turnover``: see :meth:`grid.gateway.target.Target.rebase`.
    """

    frame: SignalFrame
    received_at: float
    now: float
    scale: float
    proven: float
    reliable: bool
    peers: Peers
    takers: Collection[Target]
    turnover: float | None = None


class FrameReader:
    """Puts frames on targets. ``on_estimate_error`` hears, for each new sample, how far off the estimate was."""

    __slots__ = ("_on_estimate_error", "_own")

    def __init__(self, own: OwnCounts, on_estimate_error: OnEstimateError | None) -> None:
        self._own = own
        self._on_estimate_error = on_estimate_error

    def read(self, sight: Sight, targets: Sequence[Target]) -> None:
        """Rebase all ``targets``; those that the frame does not know, or knows too old a sample of, are forgotten."""
        signals = {(signal.site, signal.cluster): signal for signal in sight.frame.providers.values()}
        reported = Counter[str]()
        for gateway in sight.frame.gateways.values():
            reported.update(gateway.in_flight)
        usual: dict[int, float | None] = {}
        settled = {target for target in targets if target.known and not target.dead}
        for target in targets:
            signal = signals.get((target.site, target.cluster))
            target.dead = signal is not None and signal.ready == 0
            target.firm = signal is None or signal.capacity_source != CapacitySource.LEARNED or bool(signal.queue)
            capacity = _amount(signal.capacity) if signal is not None else None
            if not capacity:
                peers = sight.peers(target)
                if id(peers) not in usual:
                    usual[id(peers)] = _usual(peers, signals)
                capacity = usual[id(peers)]
            if signal is None or not self._take(target, signal, sight, capacity, reported[target.key]):
                # The only gateway knows by its own count what all gateways have there.
                alone = sight.frame.instances == 1
                target.forget(1.0 if alone else sight.scale, capacity, trusted=alone)
        if len(settled) < len(targets) or any(sight.now < target.joined + RAMP for target in targets):
            _ramp(sight, targets, settled)
        _hold_back(sight, targets)

    def _take(self, target: Target, signal: ProviderSignal, sight: Sight, size: float | None, reported: float) -> bool:
        """Take over the load that ``signal`` tells, if it does; ``size`` is the capacity to count with.

        ``reported``: what all gateways say they have in flight there. A provider holds that at least, so a page that
        tells less than half of it is not believed: its estimate starts from the reports.
        """
        age, bound = _amount(signal.age_s) or 0.0, _amount(signal.bound_s)
        sampled_at = sight.received_at - age
        expires = math.inf if bound is None else sampled_at + bound
        held, saturation, load = _amount(signal.held), _amount(signal.saturation), _amount(signal.load)
        if saturation is None and held is not None and (capacity := _amount(signal.capacity)):
            saturation = held / capacity
        told = saturation if load is None else load
        if told is None or sight.now > expires:
            return False
        if held is None:
            held = told * (size or 1.0)
        lag = MEANS_LAG if signal.held_source == HeldSource.ENGINE else 0.0
        counted_at, page = sampled_at - lag, held
        if reported - page > max(_SLACK, page):
            counted_at, held = sight.received_at - REPORTS_AGE, reported
        if sight.frame.instances == 1 and held == page and not lag:
            own = self._own.nearest(target, counted_at, held)
        else:
            own = self._own.at(target, counted_at, sight.now)
        if self._on_estimate_error is not None and _newer(target, sampled_at):
            self._on_estimate_error(target, abs(target.load_at(own) - held / (size or 1.0)))
        kv, ceiling = _amount(signal.kv), _amount(signal.kv_ceiling)
        target.rebase(
            capacity=size,
            held=held,
            own_at_sample=own,
            scale=sight.scale,
            proven=sight.proven,
            # Reports outlive a gateway that has crashed, and answers whose client reads slowly: they refuse nobody.
            told=page,
            kv_pressure=kv / ceiling if kv is not None and ceiling else 0.0,
            trusted=sight.reliable,
            saturation=saturation,
            queue=_amount(signal.queue),
            expires=expires,
            sampled_at=sampled_at,
            turnover=sight.turnover,
        )
        return True


def _hold_back(sight: Sight, targets: Sequence[Target]) -> None:
    """Have those of known load count as full sooner where others can take work whose load is not known.

    By 4 x (sqrt(scale) - 1) requests, some times what the gateways differ by chance, times the part that the others
    are of the capability: filled up to the brim of what an estimate only supposes, requests would wait while another
    site is idle; and a single newcomer that has not been read is not to be flooded for it. Half of ``spill`` is left in
    any case.
    """
    others = {one for one in targets if not one.known and not one.set_back and one in sight.takers}
    parts: dict[int, float] = {}
    for target in targets if others else ():
        if not target.known or not target.trusted:
            continue
        peers = sight.peers(target)
        if id(peers) not in parts:
            parts[id(peers)] = len(others.intersection(peers)) / len(peers)
        requests = _DOUBT * (math.sqrt(sight.scale) - 1) * parts[id(peers)]
        target.hold_back(min(_MOST_HELD_BACK, requests / target.capacity))


def _ramp(sight: Sight, targets: Sequence[Target], settled: Collection[Target]) -> None:
    """Have those that joined count as busy as their peers, less and less; ``settled``: who was in use before.

    Not where half of a capability or more is new: there is nobody then to spare it for.
    """
    means: dict[int, float | None] = {}
    for target in targets:
        if not target.known or target.dead:
            continue
        if target not in settled:
            target.joined = sight.now
        left = 1 - (sight.now - target.joined) / RAMP
        if left <= 0:
            continue
        peers = sight.peers(target)
        if id(peers) not in means:
            means[id(peers)] = _mean(peers, settled, sight.now)
        mean = means[id(peers)]
        if mean is None:
            target.joined = -math.inf
        else:
            target.ramp(_FIRST * left * mean)


def _mean(peers: Sequence[Target], settled: Collection[Target], now: float) -> float | None:
    """Mean load of those that have been there for long; None where they are fewer than the others."""
    old = [peer for peer in peers if peer in settled and peer.known and now >= peer.joined + RAMP]
    if 2 * len(old) < len(peers):
        return None
    return sum([peer.sampled * peer.capacity for peer in old]) / sum([peer.capacity for peer in old])


def _newer(target: Target, sampled_at: float) -> bool:
    return target.sampled_at is not None and sampled_at > target.sampled_at + _SAME_SAMPLE


def _usual(peers: Sequence[Target], signals: Mapping[tuple[str, str], ProviderSignal]) -> float | None:
    """What a provider of unknown capacity counts with: the mean of the known ones of its capability, None without."""
    found = [signals.get((peer.site, peer.cluster)) for peer in peers]
    known = [capacity for signal in found if signal is not None and (capacity := _amount(signal.capacity))]
    return sum(known) / len(known) if known else None


def _amount(value: float | None) -> float | None:
    """The number, None where it is none: a frame made by hand may hold what the wire does not let through."""
    return value if value is not None and 0.0 <= value < math.inf else None
