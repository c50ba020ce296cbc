"""``grid gateway``: the reference gateway."""

from pathlib import Path
from typing import Annotated

import typer

from grid.cli import extras
from grid.cli.run import LogLevel


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("gateway", short_help="The reference gateway.")(gateway)


def gateway(
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")],
    name: Annotated[str, typer.Option(help="Which of the configuration's gateways this is.")],
    listen: Annotated[str, typer.Option(help="host:port for requests; port 0 takes any free one.")] = "127.0.0.1:8080",
    key_file: Annotated[Path | None, typer.Option(help="Ed25519 public key that must have signed documents.")] = None,
    grace: Annotated[str, typer.Option(help="How long requests under way may take to end after SIGTERM.")] = "30s",
    log_level: Annotated[LogLevel, typer.Option(envvar="GRID_LOG_LEVEL", help="How much is logged.")] = LogLevel.INFO,
) -> None:
    """The reference gateway: OpenAI-style requests in, each to the site that has room for it.

    Serves /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses, /v1/models, /livez and /readyz. SIGTERM
    or Ctrl-C: /readyz says no, requests under way end, then it exits 0. A second signal ends it at once.

    Examples:

      grid gateway -c grid.yaml --name edge-east

      grid gateway -c grid.yaml --name edge-east --listen 0.0.0.0:8080
    """
    with extras.told():
        from grid.proxy.gateway import main
    from grid import logs

    address, patience = _address(listen), _seconds(grace)
    logs.configure(log_level.value)
    raise typer.Exit(main(config, name, listen=address, key=_key(key_file), grace=patience))


def _address(text: str) -> tuple[str, int]:
    from grid.config.scalars import listen

    try:
        found: tuple[str, int] = listen().read(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--listen") from error
    return found


def _seconds(text: str) -> float:
    from grid.config import parse_duration
    from grid.model import ConfigError

    try:
        return parse_duration(text)
    except ConfigError as error:
        raise typer.BadParameter(error.message, param_hint="--grace") from error


def _key(file: Path | None) -> bytes | None:
    try:
        return None if file is None else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint="--key-file") from error
