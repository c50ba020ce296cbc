"""What may happen during a demo: named scenarios of phases, and the clock that plays them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol


class Stage(Protocol):
    """What a scenario can do to the running demo. ``victim`` is the site (and its provider) it is done to."""

    @property
    def victim(self) -> str: ...

    async def fill(self) -> None:
        """The victim's own clients take all its slots and more."""
        ...

    async def empty(self) -> None:
        """They go home."""
        ...

    async def kill(self) -> None:
        """All of the victim's engines die."""
        ...

    async def revive(self) -> None:
        """They are back."""
        ...

    async def spoil_token(self) -> None:
        """The victim's EPP no longer takes the daemon's token."""
        ...

    async def renew_token(self) -> None:
        """It does again."""
        ...

    async def slow_page(self) -> None:
        """The victim's EPP answers scrapes later than the daemon waits."""
        ...

    async def quick_page(self) -> None:
        """It answers at once again."""
        ...

    async def restart_bus(self) -> None:
        """Redis ends and starts again, empty."""
        ...

    async def drain(self) -> None:
        """An operator drains the victim."""
        ...

    async def undrain(self) -> None:
        """The operator takes that back."""
        ...


Act = Callable[[Stage], Awaitable[None]]


async def _nothing(_: Stage) -> None:
    return None


async def _kill(stage: Stage) -> None:
    # Its own clients have nothing to go to either; they are not what is shown.
    await stage.empty()
    await stage.kill()


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run: what is done at its start and, in words, what that means. ``{site}`` stands for the victim."""

    name: str
    sentence: str
    act: Act = _nothing
    parts: int = 1
    """Its length relative to the other phases."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named course of events. ``summary`` is one line for a list."""

    name: str
    summary: str
    phases: tuple[Phase, ...]


_BEFORE = Phase("before", "steady load, nothing special")

SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        scenario.name: scenario
        for scenario in (
            Scenario("steady", "Nothing happens: where does steady load go?", (Phase("steady", "steady load"),)),
            Scenario(
                "fill-kill-return",
                "One site is filled by clients of its own, then loses all engines, then comes back.",
                (
                    _BEFORE,
                    Phase(
                        "filled",
                        "{site} is filled by clients of its own, past every gateway",
                        lambda stage: stage.fill(),
                    ),
                    Phase("killed", "all engines of {site} die; its EPP lives and says so", _kill),
                    Phase("back", "the engines of {site} are back, empty", lambda stage: stage.revive(), parts=2),
                ),
            ),
            Scenario(
                "wrong-token",
                "One EPP stops taking the daemon's token; its site stays on offer, behind those that can be read.",
                (
                    _BEFORE,
                    Phase(
                        "refused",
                        "the EPP of {site} refuses the daemon's token",
                        lambda stage: stage.spoil_token(),
                        parts=2,
                    ),
                    Phase("restored", "the token is good again", lambda stage: stage.renew_token()),
                ),
            ),
            Scenario(
                "slow-epp",
                "One EPP answers scrapes too late; its numbers grow old and it falls behind the fresh ones.",
                (
                    _BEFORE,
                    Phase(
                        "slow",
                        "the EPP of {site} answers later than the daemon waits",
                        lambda stage: stage.slow_page(),
                        parts=2,
                    ),
                    Phase("restored", "it answers at once again", lambda stage: stage.quick_page()),
                ),
            ),
            Scenario(
                "redis-restart",
                "Redis ends and starts again, empty: gateways keep routing and find their place again.",
                (
                    _BEFORE,
                    Phase(
                        "restarted",
                        "Redis was killed and started again, empty",
                        lambda stage: stage.restart_bus(),
                        parts=2,
                    ),
                ),
            ),
            Scenario(
                "drain",
                "An operator drains one site and takes that back.",
                (
                    _BEFORE,
                    Phase("drained", "an operator drains {site}", lambda stage: stage.drain()),
                    Phase("back", "the operator takes the drain back", lambda stage: stage.undrain()),
                ),
            ),
        )
    }
)
"""The scenarios by name."""

DEFAULT = "fill-kill-return"


async def play(scenario: Scenario, stage: Stage, duration: float, on_phase: Callable[[Phase, str], None]) -> None:
    """Run the phases of a scenario over ``duration`` s; ``on_phase`` hears each one with its sentence as it begins."""
    loop = asyncio.get_running_loop()
    whole = sum(phase.parts for phase in scenario.phases)
    end = loop.time()
    for phase in scenario.phases:
        on_phase(phase, phase.sentence.format(site=stage.victim))
        await phase.act(stage)
        end += duration * phase.parts / whole
        await asyncio.sleep(max(0.0, end - loop.time()))
