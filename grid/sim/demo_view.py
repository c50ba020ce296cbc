"""What people see of a demo: the live table, lines where there is no terminal, and the tables of the summary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_EVENTS_SHOWN = 8
_STATE_STYLE = {"new_and_existing": "green", "existing_only": "yellow", "none": "red"}


@dataclass(frozen=True, slots=True)
class GatewayCell:
    """How one gateway sees one site: the group it is in (None: not in its document), and its share of late."""

    group: int | None = None
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class SiteRow:
    """One site, as the daemon sees it. None is unknown."""

    site: str
    dialect: str
    ready: int | None = None
    held: float | None = None
    capacity: float | None = None
    saturation: float | None = None
    freshness: str = "absent"
    state: str = ""
    reason: str = ""
    cells: Mapping[str, GatewayCell] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that is shown at one moment. ``elapsed`` and ``duration`` in s."""

    elapsed: float
    duration: float
    phase: str
    sentence: str
    rows: tuple[SiteRow, ...]
    gateways: Mapping[str, str]
    events: tuple[str, ...] = ()


def live(scene: Scene) -> Group:
    """The whole screen."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("site", "EPP", "ready", "held", "capacity", "saturation", "state"):
        numeric = title in ("ready", "held", "capacity", "saturation")
        table.add_column(title, justify="right" if numeric else "left")
    for name in scene.gateways:
        table.add_column(name, justify="right")
    for row in scene.rows:
        state = Text(row.state or "-", style=_STATE_STYLE.get(row.state, "dim"))
        if row.freshness != "fresh":
            state.append(f" {row.freshness}", style="magenta")
        table.add_row(
            row.site, row.dialect, _number(row.ready), _number(row.held), _number(row.capacity),
            _saturation(row.saturation), state, *(_cell(row.cells.get(name)) for name in scene.gateways),
        )  # fmt: skip
    bar = ProgressBar(total=scene.duration, completed=min(scene.elapsed, scene.duration), width=40)
    head = Text.assemble((f"{scene.phase}: ", "bold"), scene.sentence)
    documents = Text("  ".join(f"{name} {document}" for name, document in scene.gateways.items()), style="dim")
    events = [Text(event, style="dim", no_wrap=True, overflow="ellipsis") for event in scene.events[-_EVENTS_SHOWN:]]
    clock = Text(f"{scene.elapsed:.0f} of {scene.duration:.0f} s")
    return Group(head, bar, clock, table, documents, *events)


def line(scene: Scene) -> str:
    """The same in one line, for logs and pipes."""
    sites = "  ".join(
        f"{row.site} {_number(row.held)}/{_number(row.capacity)} {row.state or '-'}" for row in scene.rows
    )
    shares = "  ".join(
        f"{name} -> {_shares({row.site: row.cells[name].share for row in scene.rows if name in row.cells})}"
        for name in scene.gateways
    )
    return f"{scene.elapsed:5.1f}s {scene.phase:<9} {sites} | {shares}"


def summary_tables(summary: Mapping[str, Any]) -> Sequence[Table | str]:
    """What is left on the screen at the end: totals per gateway, how traffic moved by phase, and one sentence."""
    totals = Table(title="Gateways", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for title in ("gateway", "version", "revision", "requests", "retried", "rescued", "shed", "errors", "slowest"):
        totals.add_column(title, justify="left" if title in ("gateway", "revision") else "right")
    gateways: Mapping[str, Mapping[str, Any]] = summary["gateways"]
    for name, gateway in gateways.items():
        totals.add_row(
            name, str(gateway["version"]), (gateway["revision"] or "-")[:12],
            *(str(gateway[key]) for key in ("requests", "retried", "rescued", "shed", "errors")),
            f"{gateway['slowest_s']:.2f} s",
        )  # fmt: skip
    moved = Table(title="Where traffic went", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    sites = list(summary["sites"])
    moved.add_column("phase")
    moved.add_column("gateway")
    for site in sites:
        moved.add_column(site, justify="right")
    for phase, by_gateway in summary["phases"].items():
        for position, (name, shares) in enumerate(by_gateway.items()):
            moved.add_row(phase if position == 0 else "", name, *(f"{shares.get(site, 0):.0%}" for site in sites))
    said = (
        f"{summary['published']} documents published ({summary['revisions']} different ones) from {summary['scrapes']} "
        f"scrapes; {summary['requests']} requests, {summary['errors']} of them failed."
    )
    return [totals, moved, said]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _saturation(value: float | None) -> Text:
    if value is None:
        return Text("-", style="dim")
    return Text(f"{value:.2f}", style="red" if value >= 1 else "yellow" if value >= 0.85 else "green")


def _cell(cell: GatewayCell | None) -> Text:
    if cell is None:
        return Text("-", style="dim")
    group = "" if cell.group is None else f" g{cell.group}"
    return Text(f"{cell.share:.0%}{group}", style="bold" if cell.share >= 0.5 else "dim" if not cell.share else "")


def _shares(shares: Mapping[str, float]) -> str:
    parts = [f"{site} {share:.0%}" for site, share in shares.items() if share]
    return ", ".join(parts) or "nothing yet"
