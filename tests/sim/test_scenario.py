import asyncio

import pytest

from grid.sim.scenario import DEFAULT, SCENARIOS, Phase, play


class RecordingStage:
    """Notes what is done to it, and when."""

    victim = "east"

    def __init__(self) -> None:
        self.done: list[tuple[str, float]] = []
        self._start = asyncio.get_running_loop().time()

    def note(self, what: str) -> None:
        self.done.append((what, asyncio.get_running_loop().time() - self._start))

    async def fill(self) -> None:
        self.note("fill")

    async def empty(self) -> None:
        self.note("empty")

    async def kill(self) -> None:
        self.note("kill")

    async def revive(self) -> None:
        self.note("revive")

    async def spoil_token(self) -> None:
        self.note("spoil_token")

    async def renew_token(self) -> None:
        self.note("renew_token")

    async def slow_page(self) -> None:
        self.note("slow_page")

    async def quick_page(self) -> None:
        self.note("quick_page")

    async def restart_bus(self) -> None:
        await asyncio.sleep(2.0)
        self.note("restart_bus")

    async def drain(self) -> None:
        self.note("drain")

    async def undrain(self) -> None:
        self.note("undrain")


@pytest.mark.asyncio
@pytest.mark.looptime
@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("steady", []),
        ("fill-kill-return", [("fill", 8), ("empty", 16), ("kill", 16), ("revive", 24)]),
        ("wrong-token", [("spoil_token", 10), ("renew_token", 30)]),
        ("slow-epp", [("slow_page", 10), ("quick_page", 30)]),
        ("redis-restart", [("restart_bus", 40 / 3 + 2)]),
        ("drain", [("drain", 40 / 3), ("undrain", 80 / 3)]),
    ],
)
async def test_a_scenario_keeps_its_times(name: str, done: list[tuple[str, float]]) -> None:
    stage, heard = RecordingStage(), []
    begun = asyncio.get_running_loop().time()

    def hear(phase: Phase, sentence: str) -> None:
        heard.append((phase.name, sentence))

    await play(SCENARIOS[name], stage, 40.0, hear)
    assert asyncio.get_running_loop().time() - begun == pytest.approx(40.0), "a slow act may not make it longer"
    assert [what for what, _ in stage.done] == [what for what, _ in done]
    assert [at for _, at in stage.done] == [pytest.approx(at) for _, at in done]
    assert [phase for phase, _ in heard] == [phase.name for phase in SCENARIOS[name].phases]
    assert not any("{" in sentence for _, sentence in heard)


def test_every_scenario_has_one_line_and_distinct_phases() -> None:
    assert DEFAULT in SCENARIOS
    for name, scenario in SCENARIOS.items():
        assert scenario.name == name
        assert scenario.summary.endswith((".", "?"))
        assert "\n" not in scenario.summary
        names = [phase.name for phase in scenario.phases]
        assert len(names) == len(set(names))
