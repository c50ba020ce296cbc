"""``grid sync``: verified documents into a file, for gateways and Envoys that watch one."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from grid.cli.output import say
from grid.cli.run import LogLevel
from grid.model.errors import ConfigError


class Format(StrEnum):
    """What is written."""

    ENVELOPE = "envelope"
    ENVOY_EDS = "envoy-eds"


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("sync", short_help="Keep a file at a gateway's newest document.")(sync)


def sync(
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")],
    name: Annotated[str, typer.Option(help="The gateway whose document is wanted.")],
    out: Annotated[Path, typer.Option(help="The file to write; replaced whole by an atomic rename.")],
    form: Annotated[
        Format, typer.Option("--format", help="The published envelope, or endpoints for Envoy's file-based EDS.")
    ] = Format.ENVELOPE,
    once: Annotated[bool, typer.Option("--once", help="Deliver what there is now, then end.")] = False,
    timeout: Annotated[str, typer.Option(help="How long --once waits for a document.")] = "10s",
    status: Annotated[
        Path | None, typer.Option(help="Status for probes, written at least every 5 s. [default: OUT.status.json]")
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="Ed25519 public key that must have signed documents.")] = None,
    cluster_prefix: Annotated[
        str, typer.Option(help="First part of the cluster names (envoy-eds): PREFIX|inference_model|MODEL.")
    ] = "grid",
    envoy_admin: Annotated[
        str | None,
        typer.Option(help="Envoy's admin side, asked what it runs. [default: the gateway's data_plane.envoy_admin]"),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(envvar="GRID_LOG_LEVEL", help="How much is logged.")] = LogLevel.INFO,
) -> None:
    """Keep a file at a gateway's newest document: verified, never older than before, never half written.

    Ends on SIGTERM or Ctrl-C. With --once it exits 0 when the file holds the document (or still holds a good one while
    the bus gives none), 1 when the document is refused or cannot be written, 3 when there is no document at all.

    Examples:

      grid sync -c grid.yaml --name edge-east --out /run/grid/routing-overlay.json

      grid sync -c grid.yaml --name edge-east --out /run/grid/eds.json --format envoy-eds
    """
    from grid import logs
    from grid.proxy.forms import FormName
    from grid.proxy.sync import SyncOptions, main

    options = SyncOptions(
        config=config,
        gateway=name,
        out=out,
        form=FormName(form.value),
        status=status,
        key=None if key_file is None else _read(key_file),
        envoy_admin=envoy_admin if envoy_admin is None else _url(envoy_admin),
        prefix=_prefix(cluster_prefix),
    )
    wait = _seconds(timeout)
    logs.configure("warning" if once and log_level is LogLevel.INFO else log_level.value)
    say(main(options, once=wait if once else None))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint="--key-file") from error


def _url(url: str) -> str:
    if re.fullmatch(r"https?://[^/\s?#@]+/?", url) is None:
        raise typer.BadParameter(f"{url!r} is no http://host:port", param_hint="--envoy-admin")
    return url


def _prefix(prefix: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9._-]{1,63}", prefix) is None:
        hint = "1 to 63 letters, digits, dots, dashes and underscores"
        raise typer.BadParameter(f"{prefix!r} is not {hint}", param_hint="--cluster-prefix")
    return prefix


def _seconds(text: str) -> float:
    from grid.config import parse_duration

    try:
        return parse_duration(text)
    except ConfigError as error:
        raise typer.BadParameter(error.message, param_hint="--timeout") from error
