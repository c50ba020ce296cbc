"""``grid probe``: read one metrics page as the daemon would, and say what it means."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grid.cli.output import Listing, Output, OutputOption, emit, say, table

if TYPE_CHECKING:
    from grid.model import Load, Problem, Reading


def register(app: typer.Typer) -> None:
    """Add the commands of this family."""
    app.command("probe", short_help="Read one metrics page as the daemon would.")(probe)


def probe(
    source: Annotated[
        str, typer.Argument(metavar="URL|FILE|-", help="An EPP's /metrics, a saved page (.gz too), or -.")
    ],
    pool: Annotated[str | None, typer.Option(help="Which pool, where the page has several.")] = None,
    max_running: Annotated[int | None, typer.Option(min=1, help="Requests one endpoint runs at once.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the bearer token.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="CA bundle for https.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=600, help="Seconds for the whole exchange.")] = 10.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read one page as the daemon would: what it says, what it is worth, what is wrong with it.

    Exits 1 when the page is not usable: nothing is ready, or its load is unknown.

    Examples:

      grid probe http://10.0.0.11:9090/metrics --token-file /etc/grid/east.token --max-running 64

      curl -s localhost:9090/metrics | grid probe - -o json
    """
    reading, problems, size = _read(source, pool, token_file, ca_file, timeout)
    load = _assess(reading, max_running)
    report = _report(reading, load, problems)
    emit(report, output, lambda: _tables(source, size, report))
    if not report["usable"]:
        if output is not Output.TABLE:
            say("not usable: " + ("no ready endpoint" if not reading.ready else "its load is unknown"))
        raise typer.Exit(1)


def _read(
    source: str, pool: str | None, token_file: Path | None, ca_file: Path | None, timeout: float
) -> "tuple[Reading, tuple[Problem, ...], int]":
    if source.startswith(("http://", "https://")):
        import asyncio

        from grid.signals.epp import EppScraper, EppTarget

        async def fetch() -> "tuple[Reading, tuple[Problem, ...], int]":
            scraper = EppScraper(
                "probe", EppTarget(url=source, pool=pool, token_file=token_file, ca_file=ca_file), timeout=timeout
            )
            try:
                scrape = await scraper.scrape()
            finally:
                await scraper.aclose()
            return scrape.reading, scrape.problems, scrape.page_bytes

        return asyncio.run(fetch())
    from grid.signals.scan import read_page

    data = sys.stdin.buffer.read() if source == "-" else _file(Path(source))
    result = read_page(data, pool=pool)
    return result.reading, result.problems, len(data)


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        hint = "; a URL begins with http:// or https://" if ":" in str(path) else ""
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}{hint}") from error


def _assess(reading: "Reading", max_running: int | None) -> "Load":
    from grid.model import Provider, Sample
    from grid.policy.load import assess
    from grid.policy.memory import ProviderMemory

    provider = Provider(id="probe", site="probe", cluster="probe", capabilities=(), max_running=max_running)
    sample = Sample(provider="probe", sequence=1, received_at=0.0, reading=reading, interval=provider.interval)
    load, _, _ = assess(provider, sample, ProviderMemory(), 0.0)
    return load


def _report(reading: "Reading", load: "Load", problems: "tuple[Problem, ...]") -> dict[str, object]:
    return {
        "dialect": reading.dialect,
        "pool": reading.pool,
        "ready": reading.ready,
        "ready_source": reading.ready_source,
        "ready_endpoints": reading.ready_endpoints,
        "ready_live": reading.ready_live,
        "average_queue_size": reading.average_queue_size,
        "average_running_requests": reading.average_running_requests,
        "kv_cache_utilization": reading.kv_cache_utilization,
        "in_flight": reading.in_flight,
        "flow_control_queue": reading.flow_control_queue,
        "pool_saturation": reading.pool_saturation,
        "held": load.held,
        "held_source": load.held_source,
        "capacity": load.capacity,
        "capacity_source": load.capacity_source,
        "saturation": load.saturation,
        "load": load.load,
        "load_source": load.load_source,
        "usable": bool(reading.ready) and load.load is not None,
        "problems": [{"code": problem.code, "detail": problem.detail} for problem in problems],
    }


_MEANING = {
    "dialect": "family of metric names",
    "ready": "endpoints that can take work (the count in use)",
    "ready_endpoints": "the EPP's own count, up to 7 s old",
    "ready_live": "listed endpoints minus stale ones, under 1 s old",
    "average_queue_size": "requests queued, mean per endpoint",
    "average_running_requests": "requests running, mean per endpoint",
    "kv_cache_utilization": "KV cache in use, mean, 0 to 1",
    "in_flight": "requests given to engines and not yet answered",
    "flow_control_queue": "requests queued in the EPP",
    "pool_saturation": "the EPP's own saturation; 1.0 also when empty",
    "held": "running + queued, engines and EPP together",
    "capacity": "requests it can run at once",
    "saturation": "held / capacity",
    "load": "the number providers are compared by",
}


def _tables(source: str, size: int, report: dict[str, object]) -> list[Listing | str]:
    shown: list[Listing | str] = [
        table(
            f"{source} ({size:,} bytes)",
            ("signal", "value", "meaning"),
            [(key, value, _MEANING.get(key, "")) for key, value in report.items() if key != "problems"],
        )
    ]
    problems = report["problems"]
    if isinstance(problems, list) and problems:
        shown.append(
            table(
                "problems",
                ("code", "detail", "next step"),
                [(problem["code"], problem["detail"], problem["code"].hint) for problem in problems],
            )
        )
    return shown
