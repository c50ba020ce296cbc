"""Runs every simulation, and keeps what a page about them needs."""

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import TypeAdapter

from grid.sim.virtual import admission, churn, partition, stale
from grid.sim.virtual.pictures import Picture, Show
from grid.sim.virtual.progress import Progress
from grid.sim.virtual.scenarios import SCENARIOS

Row = dict[str, Any]
Watch = Callable[[str], Progress | None]
"""Gives what hears of the runs of the simulation of this name."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run. ``seconds`` of virtual time of each partition run; of each stale run, with so many ``seeds``.

    ``churn``: a size of :func:`grid.sim.virtual.churn.run`, for these ``scenarios``.
    """

    clients: tuple[int, ...] = (64, 128, 256)
    gateways: tuple[int, ...] = (1, 4)
    seconds: float = 45.0
    columns: tuple[str, ...] = tuple(stale.COLUMNS)
    stale_seconds: float = 400.0
    seeds: int = 3
    churn: str = "full"
    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    interactive: admission.Scenario = field(default_factory=admission.Scenario)


SIZES: Final = {"weekly": Size(), "small": Size(stale_seconds=80.0, seeds=1, churn="small")}


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run: ``rows`` and ``pictures`` by name, of a ``size``, for ``cpu_s`` s of one core."""

    size: str
    cpu_s: float
    rows: Mapping[str, tuple[Row, ...]]
    pictures: Mapping[str, Picture]

    def text(self) -> str:
        """As JSON, a line for each row and each picture, so that a difference can be read."""
        data = _AS_JSON.dump_python(self, mode="json")
        lines = [f'"size": {json.dumps(self.size)}', f'"cpu_s": {self.cpu_s}']
        rows = [f'"{name}": [\n{_joined([json.dumps(row) for row in some])}\n]' for name, some in data["rows"].items()]
        lines.append(f'"rows": {{\n{_joined(rows)}\n}}')
        pictures = [f'"{name}": {json.dumps(picture)}' for name, picture in sorted(data["pictures"].items())]
        lines.append(f'"pictures": {{\n{_joined(pictures)}\n}}')
        return f"{{\n{_joined(lines)}\n}}\n"


_AS_JSON: Final = TypeAdapter(Report)


def _joined(lines: list[str]) -> str:
    return ",\n".join(lines)


def read(text: str) -> Report:
    """What :meth:`Report.text` wrote. Raises ValueError for anything else."""
    return _AS_JSON.validate_json(text)


def simulate(size: Size, name: str, *, keep: Collection[str], watch: Watch = lambda _: None) -> Report:
    """Run everything; of all pictures those named in ``keep`` stay."""
    pictures: dict[str, Picture] = {}

    def show(picture: str, data: Picture) -> None:
        if picture in keep:
            pictures[picture] = data

    begin = time.process_time()
    rows = {what: tuple(run(size, watch, show)) for what, run in PARTS.items()}
    return Report(name, round(time.process_time() - begin, 1), rows, pictures)


def _partition(size: Size, watch: Watch, show: Show) -> list[Row]:
    rows = []
    for gateways in size.gateways:
        name = f"partition, {gateways} gateway{'s' if gateways > 1 else ''}"
        found = partition.run(
            size.clients,
            duration=size.seconds,
            gateways=gateways,
            progress=watch(name),
            show=lambda name, picture, gateways=gateways: show(f"{name}-{gateways}-gateways", picture),  # type: ignore[misc]
        )
        # What is possible: nobody ever waits.
        rows += [row | {"ideal": round(row["clients"] * size.seconds / partition.SERVICE_S)} for row in found]
    return rows


def _stale(size: Size, watch: Watch, show: Show) -> list[Row]:
    return stale.run(size.columns, seconds=size.stale_seconds, seeds=size.seeds, progress=watch("stale"), show=show)


def _churn(size: Size, watch: Watch, show: Show) -> list[Row]:
    return churn.run(size.scenarios, size=size.churn, progress=watch("churn"), show=show)


def _admission(size: Size, watch: Watch, show: Show) -> list[Row]:
    return [admission.run(size.interactive, progress=watch("admission"), show=show)]


PARTS: Final[Mapping[str, Callable[[Size, Watch, Show], list[Row]]]] = {
    "partition": _partition,
    "stale": _stale,
    "churn": _churn,
    "admission": _admission,
}
