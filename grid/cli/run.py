"""``grid run``: the daemon. ``grid replay``: recorded scrapes through the policy, offline."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grid.cli.output import Output, OutputOption, emit, say, table

if TYPE_CHECKING:
    from grid.policy import Pass


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("run", short_help="The daemon.")(run)
    app.command("replay", short_help="Recorded scrapes through the policy, offline.")(replay)


def run(
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")],
    record: Annotated[Path | None, typer.Option(help="Write every scrape to this file, for grid replay.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and log, publish nothing.")] = False,
    log_level: Annotated[LogLevel, typer.Option(envvar="GRID_LOG_LEVEL", help="How much is logged.")] = LogLevel.INFO,
) -> None:
    """The daemon: scrapes every source, decides, publishes a document for each gateway.

    SIGHUP loads the configuration again, whole or not at all. SIGTERM or Ctrl-C ends it in order; a second one at once.

    Examples:

      grid run -c grid.yaml

      grid run -c grid.yaml --dry-run --record today.jsonl
    """
    from grid.daemon import main

    raise typer.Exit(main(config, record=record, dry_run=dry_run, log_level=log_level.value))


def replay(
    file: Annotated[Path, typer.Argument(help="A recording of grid run --record.")],
    gateway: Annotated[str | None, typer.Option(help="Also show this gateway's order at the end.")] = None,
    at: Annotated[float | None, typer.Option("--at", min=0, help="Stop this many seconds after its beginning.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Recorded scrapes through the policy, offline: every pass that changed something, and what holds at the end.

    Example:

      grid replay today.jsonl --gateway edge-east --at 600
    """
    from grid.daemon.replaying import passes
    from grid.model.errors import RecordingError
    from grid.model.reasons import Reason
    from grid.signals.recording import RecordingReader

    try:
        with file.open("rb") as lines:
            reader = RecordingReader(lines, name=str(file))
            if gateway is not None and gateway not in reader.header.network.gateways:
                known = ", ".join(sorted(reader.header.network.gateways))
                raise typer.BadParameter(f"no gateway {gateway!r}; the recording has {known}", param_hint="--gateway")
            changed: list[dict[str, Any]] = []
            last: Pass | None = None
            for one in passes(reader, until=at):
                last = one
                if one.outcome.changes:
                    changed.append(
                        {"t": round(one.at, 3), "sentence": one.outcome.sentence, "changes": list(one.outcome.changes)}
                    )
    except OSError as error:
        raise RecordingError(f"cannot read {file}: {error.strerror}", reason=Reason.NOT_FOUND) from error
    if reader.cut:
        say("the recording's last line is cut; it was left out")
    data = {"passes": changed, "decisions": _decisions(last), "order": _order(last, gateway)}
    emit(data, output, lambda: _replayed(data, gateway))


def _decisions(last: "Pass | None") -> list[dict[str, Any]]:
    if last is None:
        return []
    return [
        {
            "provider": name,
            "state": one.freshness,
            "admission_state": one.admission,
            "reason": one.reason,
            "load": one.load.load,
            "load_source": one.load.load_source,
            "steps": [{"rule": step.rule, "reason": step.reason, "detail": step.detail} for step in one.steps],
        }
        for name, one in sorted(last.outcome.decisions.items())
    ]


def _order(last: "Pass | None", gateway: str | None) -> list[dict[str, Any]]:
    if last is None or gateway is None:
        return []
    return [
        {
            "capability": one.name,
            "provider": one.provider,
            "group": one.selection_group,
            "weight": one.traffic_weight,
            "tier": one.selection_tier,
            "admission_state": one.admission_state,
        }
        for one in last.outcome.plans[gateway].candidates
    ]


def _replayed(data: dict[str, Any], gateway: str | None) -> list[Any]:
    parts: list[Any] = [
        table("passes that changed something", ("t", "what"), [(one["t"], one["sentence"]) for one in data["passes"]]),
        table(
            "at the end",
            ("provider", "state", "admission", "why", "load"),
            [(d["provider"], d["state"], d["admission_state"], d["reason"], d["load"]) for d in data["decisions"]],
        ),
    ]
    if gateway is not None:
        keys = ("capability", "provider", "group", "weight", "tier", "admission_state")
        parts.append(table(f"order of {gateway}", keys, [[one[key] for key in keys] for one in data["order"]]))
    return parts
