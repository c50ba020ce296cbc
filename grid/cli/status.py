"""What a running daemon knows: providers, gateways, the leader, reasons; and the operator's hand on it."""

import json
from typing import Annotated, Any

import typer

from grid.cli.client import ConfigOption, TokenOption, UrlOption, find, segment
from grid.cli.output import Output, OutputOption, ago, emit, plain, since, table
from grid.model.errors import DaemonError
from grid.model.reasons import Reason


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("providers", short_help="Every provider: state, load, last error.")(providers)
    app.command("gateways", short_help="Who runs which revision, and how far behind.")(gateways)
    app.command("explain", short_help="Why a provider is where it is.")(explain)
    app.command("leader", short_help="Who publishes.")(leader)
    app.command("drain", short_help="Send no new work to a provider or a site.")(drain)
    app.command("undrain", short_help="Take a drain back.")(undrain)
    app.command("reload", short_help="Load the daemon's configuration again.")(reload)
    app.command("watch", short_help="Events as they happen.")(watch)


def providers(
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Every provider: its state, who may use it, how busy it is, its last error.

    Example:

      grid providers -o json | jq '.providers[] | select(.state != "fresh")'
    """
    data = find(url, token_file, config).get("/v1/providers")
    emit(data, output, lambda: [_provider_table(data["providers"])])


def _provider_table(rows: list[dict[str, Any]]) -> Any:
    return table(
        None,
        ("provider", "site", "state", "admission", "why", "read", "ready", "held", "capacity", "load", "last error"),
        [
            (
                row["id"],
                row["site"],
                row["state"],
                row["admission_state"],
                row["reason"],
                ago(row["age_s"]),
                row["ready_endpoints"],
                row["held"],
                row["capacity"],
                _with_source(row["load"], row["load_source"]),
                _last_error(row["last_error"]),
            )
            for row in rows
        ],
    )


def _with_source(value: float | None, source: str | None) -> str | None:
    return None if value is None else f"{value:.2f} ({source})"


def _last_error(error: dict[str, Any] | None) -> str | None:
    return None if error is None else f"{error['code']} {since(error.get('at'))}"


def gateways(
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Who runs which revision, and how far behind. Exits 1 when a gateway is stale."""
    data = find(url, token_file, config).get("/v1/gateways")
    rows = [
        (
            gateway["name"],
            gateway["status"],
            instance.get("id"),
            instance.get("version"),
            instance.get("behind"),
            (instance.get("revision") or "")[:12],
            ago(instance.get("last_seen_s")),
            instance.get("in_flight"),
        )
        for gateway in data["gateways"]
        for instance in (gateway["instances"] or [{}])
    ]
    columns = ("gateway", "status", "instance", "version", "behind", "revision", "seen", "in flight")
    emit(data, output, lambda: [table(None, columns, rows)])
    if any(gateway["status"] == "stale" for gateway in data["gateways"]):
        raise typer.Exit(1)


def explain(
    provider: Annotated[str, typer.Argument(help="The provider's id.")],
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Why a provider is where it is: the chain of rules with the numbers they saw, and its place at every gateway."""
    daemon = find(url, token_file, config)
    try:
        data = daemon.get(f"/v1/providers/{segment(provider)}/explain")
    except DaemonError as error:
        if error.reason is Reason.NOT_FOUND:
            error.hint = _meant(provider, daemon.get("/v1/providers")["providers"])
        raise
    emit(data, output, lambda: _explained(data))


def _meant(name: str, rows: list[dict[str, Any]]) -> str:
    from difflib import get_close_matches

    at_site = [row["id"] for row in rows if row["site"] == name]
    if at_site:
        return f"{name} is a site; its providers: {', '.join(at_site)}"
    near = get_close_matches(name, [row["id"] for row in rows], n=1)
    return f"did you mean {near[0]}?" if near else "grid providers lists them"


def _explained(data: dict[str, Any]) -> list[Any]:
    parts: list[Any] = [
        f"{data['id']} at {data['site']}: {data['admission_state']} ({data['reason']}), {data['state']}",
        table(None, ("rule", "found", "with"), [(s["rule"], s["reason"], s["detail"]) for s in data["steps"]]),
    ]
    error = data.get("last_error")
    if error is not None:
        parts += [f"last error {since(error['at'])}: {error['detail']} [{error['code']}]"]
        parts += [f"hint: {error['hint']}"] if error.get("hint") else []
    for problem in data.get("problems", []):
        parts.append(f"problem on its page: {problem['code']}: {problem['detail']}")
    for gateway in data["gateways"]:
        places = [
            (
                place.get("capability"),
                place.get("rank"),
                place.get("group"),
                place.get("weight"),
                place.get("tier"),
                place.get("admission_state"),
            )
            for place in gateway.get("places", [])
        ]
        if places:
            parts.append(
                table(f"at {gateway['name']}", ("capability", "rank", "group", "weight", "tier", "admission"), places)
            )
        else:
            parts.append(f"at {gateway['name']}: left out: {gateway.get('excluded', 'no capability')}")
        steps = [(s["rule"], s["reason"], s["detail"]) for s in gateway.get("steps", [])]
        if steps:
            parts.append(table(None, ("rule", "found", "with"), steps))
    return parts


def leader(
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Who publishes: holder, epoch, lease left. Exits 1 when nobody leads."""
    data = find(url, token_file, config).get("/v1/leader")
    emit(data, output, lambda: [table(None, ("key", "value"), list(data.items()))])
    if not data.get("holder"):
        raise typer.Exit(1)


def drain(
    target: Annotated[str, typer.Argument(metavar="PROVIDER|SITE", help="A provider's id, or a site for all of its.")],
    for_: Annotated[str | None, typer.Option("--for", help="How long, like 30m; omitted: until undrained.")] = None,
    reason: Annotated[str, typer.Option(help="Shown wherever the drain is.")] = "",
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send no new work to a provider or a site; sessions bound to it stay.

    Example:

      grid drain east --for 30m --reason "kernel update"
    """
    body: dict[str, object] = {"target": target, "reason": reason}
    if for_ is not None:
        from grid.config import parse_duration
        from grid.model.errors import ConfigError

        try:
            body["for_s"] = parse_duration(for_)
        except ConfigError as error:
            raise typer.BadParameter("; ".join(map(str, error.problems)), param_hint="--for") from error
    data = find(url, token_file, config).post("/v1/drains", body)
    emit(data, output, lambda: [f"{data['target']} is draining until {data.get('until') or 'undrained'}"])


def undrain(
    target: Annotated[str, typer.Argument(metavar="PROVIDER|SITE", help="As it was drained.")],
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a drain back. Exits 1 when there is none."""
    find(url, token_file, config).delete(f"/v1/drains/{segment(target)}")
    emit({"target": target, "drained": False}, output, lambda: [f"{target} is no longer drained"])


def reload(
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Load the daemon's configuration again, whole or not at all. Exits 2 and says why when it is refused."""
    data = find(url, token_file, config).post("/v1/reload", {})
    emit(data, output, lambda: [f"generation {data['generation']}", *data["changes"]])


def watch(
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Events as they happen: one sentence a line, or with -o json one object a line.

    Ends with Ctrl-C; exits 3 when the daemon ends.
    """
    for line in find(url, token_file, config).events():
        if output is Output.JSON:
            print(line, flush=True)
            continue
        event = json.loads(line)
        sentence = plain(str(event.get("sentence", line)))
        print(f"{event.get('at', '')}  {event.get('kind', 'event'):<12} {sentence}", flush=True)
    raise DaemonError("the daemon has ended", reason=Reason.DAEMON_UNREACHABLE)
