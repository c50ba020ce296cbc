"""``grid overlay``: documents as published, judged, compared, and what a gateway would pick from one."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grid.cli.client import ConfigOption, Daemon, TokenOption, UrlOption, find, segment
from grid.cli.output import Output, OutputOption, emit, since, table
from grid.model.errors import ConfigError, OverlayError
from grid.model.names import Picker
from grid.model.reasons import Reason

if TYPE_CHECKING:
    from grid.overlay import Envelope, Verdict

overlay = typer.Typer(
    help="Documents as published: list, get, history, diff; verify and pick work on any file.",
    short_help="Documents: list, get, history, diff, verify, pick.",
)


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.add_typer(overlay, name="overlay", no_args_is_help=True)


_REVISION = 8
"""Digits from which a number is taken for the start of a revision, and no longer for a version."""

GatewayArgument = Annotated[str, typer.Argument(metavar="GATEWAY", help="The gateway's name.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE|-", help="An envelope, or - for stdin.")]


@overlay.command("list")
def list_documents(
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """The current document of every gateway."""
    data = find(url, token_file, config).get("/v1/overlays")
    columns = ("gateway", "epoch", "version", "revision", "published", "candidates")
    rows = [
        (
            row["gateway"],
            row["epoch"],
            row["version"],
            (row["revision"] or "")[:12],
            since(row["published_at"]),
            row["candidates"],
        )
        for row in data["overlays"]
    ]
    emit(data, output, lambda: [table(None, columns, rows)])


@overlay.command("get")
def get(
    gateway: GatewayArgument,
    revision: Annotated[
        str | None, typer.Option(help="An older one: its revision (a start is enough) or version.")
    ] = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """One document: as a table for people, or with -o json its exact bytes as published.

    Example:

      grid overlay get edge-east -o json > edge-east.json
    """
    data = _fetch(find(url, token_file, config), gateway, revision)
    if output is Output.JSON:
        sys.stdout.write(data.decode("utf-8") + "\n")
        return
    if output is Output.YAML:
        emit(json.loads(data), output, list)
        return
    verdict = _verdict(data)
    if verdict.envelope is None:
        raise _refused(gateway, verdict)
    envelope = verdict.envelope
    emit(None, output, lambda: _document_tables(envelope))


@overlay.command("history")
def history(
    gateway: GatewayArgument,
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """The documents kept of one gateway, newest first, each with why it was published."""
    data = find(url, token_file, config).get(f"/v1/overlays/{segment(gateway)}/history")
    columns = ("epoch", "version", "revision", "published", "why")
    rows = [
        (row["epoch"], row["version"], row["revision"][:12], since(row["published_at"]), row["reason"])
        for row in data["documents"]
    ]
    emit(data, output, lambda: [table(None, columns, rows)])


@overlay.command("diff")
def diff(
    gateway: GatewayArgument,
    a: Annotated[str, typer.Argument(metavar="A", help="Revision (a start is enough) or version.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Revision or version; default: the current one.")] = "",
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What changed from A to B, in sentences. Exits 1 when they differ."""
    from grid.overlay import describe

    daemon = find(url, token_file, config)
    old, new = (_accepted(_fetch(daemon, gateway, which or None), gateway) for which in (a, b))
    sentences = describe(old, new)
    data = {"gateway": gateway, "from": old.revision, "to": new.revision, "changes": sentences}
    emit(data, output, lambda: sentences or ["no difference"])
    if sentences:
        raise typer.Exit(1)


@overlay.command("verify")
def verify_document(
    file: FileArgument,
    network: Annotated[str | None, typer.Option(help="The network it must be for.")] = None,
    gateway: Annotated[str | None, typer.Option(help="The gateway it must be for.")] = None,
    namespace: Annotated[str | None, typer.Option(help="The namespace it must be for.")] = None,
    local_site: Annotated[str | None, typer.Option(help="The site it must be for.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="Ed25519 public key that must have signed it.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Judge any envelope as a gateway would. Exits 1 when it is rejected.

    Example:

      grid overlay get edge-east -o json | grid overlay verify - --gateway edge-east
    """
    from grid.overlay import Scope

    expected = Scope(network, gateway, namespace, local_site)
    scope = None if expected == Scope() else expected
    verdict = _verdict(_bytes(file), scope=scope, key=None if key_file is None else _public_key(key_file))
    data = {
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "detail": verdict.detail or None,
        "revision": verdict.revision,
        "computed": verdict.computed,
    }
    emit(data, output, lambda: [table(None, ("key", "value"), list(data.items()))])
    if not verdict.accepted:
        raise typer.Exit(1)


@overlay.command("pick")
def pick(
    file: FileArgument,
    model: Annotated[str, typer.Option(help="The model asked for.")],
    n: Annotated[int, typer.Option("-n", min=1, max=1_000_000, help="How many draws.")] = 10_000,
    signals: Annotated[Path | None, typer.Option(help="A signal frame (JSON), for the picker saturation.")] = None,
    picker: Annotated[Picker | None, typer.Option(help="Choose by this picker instead of the document's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the draws repeatable.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What a gateway would choose from a document, in N draws. Nothing is in flight, so loads are those of the frame.

    Example:

      grid overlay pick edge-east.json --model llama-3.1-70b -n 1000
    """
    from collections import Counter
    from random import Random

    from grid.gateway import Router
    from grid.overlay import SignalFrame

    envelope = _accepted(_bytes(file), file)
    if picker is not None:
        envelope = replace(envelope, picker=picker)
    router = Router(bits=Random(seed).getrandbits, clock=lambda: 0.0)
    router.apply(envelope)
    if signals is not None:
        router.observe(SignalFrame.decode(_bytes(str(signals))), 0.0)
    counts: Counter[tuple[str, str]] = Counter()
    for _ in range(n):
        decision = router.pick(model)
        counts[decision.site, decision.cluster] += 1
    mine = [one for one in envelope.candidates if one.name == model]
    listed = [
        {
            "site": one.site,
            "cluster": one.cluster,
            "group": one.selection_group,
            "fraction": counts[one.site, one.cluster] / n,
        }
        for one in mine
    ]
    rows = [(one["site"], one["cluster"], one["group"], one["fraction"]) for one in listed]
    emit({"candidates": listed}, output, lambda: [table(None, ("site", "cluster", "group", "fraction"), rows)])


def _fetch(daemon: Daemon, gateway: str, which: str | None) -> bytes:
    path = f"/v1/overlays/{segment(gateway)}"
    if which is None:
        return daemon.raw(path)
    if which.isdigit() and len(which) < _REVISION:
        return daemon.raw(f"{path}/{segment(_revision_of(daemon.get(path + '/history', limit='1000'), int(which)))}")
    if not re.fullmatch(r"[0-9a-f]{4,64}", which):
        raise typer.BadParameter(f"{which!r} is neither a version nor a revision (4 to 64 of 0-9a-f)")
    return daemon.raw(f"{path}/{segment(which)}")


def _revision_of(history: dict[str, Any], version: int) -> str:
    kept = [row["version"] for row in history["documents"]]
    for row in history["documents"]:
        if row["version"] == version:
            return str(row["revision"])
    known = f"kept are {min(kept)} to {max(kept)}" if kept else "none is kept"
    raise OverlayError(
        f"no version {version} of {history['gateway']}; {known}",
        reason=Reason.NOT_FOUND,
        hint=f"grid overlay history {history['gateway']}",
    )


def _bytes(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror}") from error


def _public_key(path: Path) -> bytes:
    from grid.overlay.signing import public_key

    try:
        return public_key(_bytes(str(path)))
    except ConfigError as error:
        raise typer.BadParameter(f"{path}: {error.message}", param_hint="--key-file") from error


def _verdict(data: bytes, **expected: Any) -> "Verdict":
    from grid.overlay import verify

    return verify(data, **expected)


def _refused(name: str, verdict: "Verdict") -> OverlayError:
    return OverlayError(
        f"the document of {name} is refused: {verdict.detail}", reason=verdict.reason or Reason.MALFORMED_STRUCTURE
    )


def _accepted(data: bytes, gateway: str) -> "Envelope":
    verdict = _verdict(data)
    if verdict.envelope is None:
        raise _refused(gateway, verdict)
    return verdict.envelope


def _document_tables(envelope: "Envelope") -> list[Any]:
    publication = envelope.publication
    title = f"{envelope.scope.gateway or '-'} at {envelope.local_site}, picker {envelope.picker or 'none'}"
    if publication is not None:
        title += f", version {publication.version} of epoch {publication.epoch}"
    title += f", revision {(envelope.revision or 'none')[:12]}"
    parts: list[Any] = [
        table(
            title,
            ("capability", "group", "weight", "site", "cluster", "admission", "tier", "fresh", "stable id"),
            [
                (
                    one.name,
                    one.selection_group,
                    one.traffic_weight,
                    one.site,
                    one.cluster,
                    one.admission_state,
                    one.selection_tier,
                    one.fresh,
                    one.stable_id,
                )
                for one in envelope.candidates
            ],
        )
    ]
    if envelope.excluded:
        rows = [(left.provider, left.site, left.reason, left.detail) for left in envelope.excluded]
        parts.append(table("left out", ("provider", "site", "reason", "detail"), rows))
    return parts
