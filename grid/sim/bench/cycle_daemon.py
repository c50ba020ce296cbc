"""A process with a real daemon whose steps are timed from outside.

Options: ``config`` (its text). It says ``"ready"`` once it leads and has published a document for each gateway. Asked
anything, it tells (monotonic s): ``samples`` ``[[provider, received], ...]``, ``cycles`` ``[[began, decided, rendered],
...]`` and ``publications`` ``[[began, ended, {gateway: [epoch, version, changed]}], ...]``.

The daemon itself knows nothing of it: the store, the policy's pass, the planner and the publisher are wrapped where
they are looked up. All of the daemon's work is on one thread, so what was noted last belongs to what comes next.
"""

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any, Final
from unittest.mock import patch

from grid.bus.publisher import Published, Publisher
from grid.config import parse
from grid.daemon import Daemon, planner
from grid.daemon.planner import Planned, Planner
from grid.model import Sample
from grid.policy import PolicyInput, PolicyOutcome, decide
from grid.signals.store import SampleStore
from grid.sim.bench.helpers import play, questions, say

_READY: Final = 30.0


class Trace:
    """When what happened. Times are monotonic s."""

    def __init__(self) -> None:
        self.samples: list[tuple[str, float]] = []
        self.cycles: list[tuple[float, float, float]] = []
        self.publications: list[tuple[float, float, dict[str, tuple[int, int, bool]]]] = []
        self._decided = 0.0

    def told(self) -> dict[str, Any]:
        """All of it."""
        return {"samples": self.samples, "cycles": self.cycles, "publications": self.publications}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take notes meanwhile of every daemon in this process."""
        apply, plan, publish_all = SampleStore.apply, Planner.plan, Publisher.publish_all

        def noted_apply(store: SampleStore, *given: Any, **named: Any) -> Sample | None:
            sample = apply(store, *given, **named)
            if sample is not None:
                self.samples.append((sample.provider, sample.received_at))
            return sample

        def noted_decide(given: PolicyInput) -> PolicyOutcome:
            outcome = decide(given)
            self._decided = monotonic()
            return outcome

        def noted_plan(one: Planner, *given: Any, **named: Any) -> Planned:
            began = monotonic()
            planned = plan(one, *given, **named)
            self.cycles.append((began, self._decided, monotonic()))
            return planned

        async def noted_publish(publisher: Publisher, *given: Any, **named: Any) -> list[Published]:
            began = monotonic()
            done = await publish_all(publisher, *given, **named)
            places = {one.gateway: (one.epoch, one.version, one.changed) for one in done}
            self.publications.append((began, monotonic(), places))
            return done

        with ExitStack() as stack:
            for owner, name, noted in (
                (SampleStore, "apply", noted_apply),
                (planner, "decide", noted_decide),
                (Planner, "plan", noted_plan),
                (Publisher, "publish_all", noted_publish),
            ):
                stack.enter_context(patch.object(owner, name, noted))
            yield


async def _run(options: dict[str, Any]) -> None:
    gc.freeze()  # as the process of ``grid run`` does
    config = parse(options["config"])
    trace, daemon = Trace(), Daemon(config)
    with trace.running():
        try:
            await daemon.start()
            async with asyncio.timeout(_READY):
                await _published(trace, list(config.gateways))
            say("ready")
            async for _ in questions():
                say(trace.told())
        finally:
            await daemon.stop()


async def _published(trace: Trace, gateways: Sequence[str]) -> None:
    while not any(set(gateways) <= places.keys() for _, _, places in trace.publications):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    play(_run)
