"""``docs/performance.md``: one run of all benches, its rows kept beside the page, and the page made from them alone.

The same rows give the same page, so it can be written anew, when its words change, without measuring again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import orjson

from grid import __version__
from grid.sim.bench import machine
from grid.sim.bench.isolated import Ran, Row, ran
from grid.sim.bench.report_words import FOOT, GROWTH, HEAD, SECTIONS, Section

Data = Mapping[str, Any]
"""What is kept of a run: ``machine`` by name, ``load`` (the load average as it began), ``version``, ``date`` (UTC, to
the day), and ``benches`` with ``rows`` and ``seconds`` each, or the ``error`` that kept one from running.
"""

LONGEST: Final = 1800.0
"""s that one bench may take."""
_UNITS: Final = ("us", "ms", "s", "mb", "kb")


def measured(
    *, measure: Callable[[str], Ran] | None = None, said: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Run every bench of the page at its full size, one after the other."""
    measure = measure or _full
    data: dict[str, Any] = {
        "version": __version__,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine.shape(),
        "load": machine.load(),
        "benches": {},
    }
    for section in SECTIONS:
        said(section.bench)
        outcome = measure(section.bench)
        kept: dict[str, Any] = {"seconds": round(outcome.seconds)}
        data["benches"][section.bench] = kept | (
            {"error": outcome.error} if outcome.error else {"rows": list(outcome.rows)}
        )
    return data


def _full(bench: str) -> Ran:
    return ran(bench, {}, LONGEST)


def keep(data: Data, page: Path) -> None:
    """Write the rows beside ``page``, and the page."""
    beside(page).write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n")
    # What is written is what was read back, so that both always agree.
    page.write_text(render(kept(page), beside(page).name), encoding="utf-8")


def kept(page: Path) -> Data:
    """The rows beside ``page``. Raises OSError, or ValueError where these are none."""
    data = orjson.loads(beside(page).read_bytes())
    if not isinstance(data, dict) or not isinstance(data.get("benches"), dict):
        raise ValueError("these are no rows of `grid bench report`")  # noqa: TRY004 - a wrong file, not a wrong type
    return data


def beside(page: Path) -> Path:
    """Where the rows of a page are kept."""
    return page.with_suffix(".json")


# --- the page ---------------------------------------------------------------------------------------------------------


def render(data: Data, rows: str = "performance.json") -> str:
    """The page of that run. ``rows``: the file beside it that has them."""
    facts = {**data["machine"], "Grid": data["version"]}
    if data["load"] is not None:
        facts["load average as it began"] = data["load"]
    parts = [HEAD.format(date=data["date"], rows=rows), _table(["machine", ""], [list(fact) for fact in facts.items()])]
    benches: Mapping[str, Mapping[str, Any]] = data["benches"]
    for section in SECTIONS:
        parts += _section(section, benches.get(section.bench, {"error": "it is newer than the run"}))
    parts += _growth(row for section in SECTIONS for row in benches.get(section.bench, {}).get("rows", ()))
    return "\n\n".join(part.strip("\n") for part in [*parts, FOOT]) + "\n"


def _section(section: Section, outcome: Mapping[str, Any]) -> list[str]:
    parts = [f"## {section.title}: `grid bench {section.bench}`", section.before]
    if "rows" not in outcome:
        return [part for part in (*parts, f"Not measured in this run: {outcome['error']}", section.after) if part]
    rows = [row for row in outcome["rows"] if "exponent" not in row]
    columns = section.columns or tuple(dict.fromkeys(key for row in rows for key in row))
    # Rows of other columns are other things: a table of their own, without the columns that they lack.
    tables = [
        _table([_header(key) for key in keys], [[row[key] for key in keys] for row in alike])
        for keys, alike in groupby(rows, key=lambda row: tuple(key for key in columns if key in row))
    ]
    return [part for part in (*parts, *tables, section.note(rows), section.after) if part]


def _growth(rows: Iterable[Row]) -> list[str]:
    lines = []
    for row in rows:
        if "exponent" not in row:
            continue
        what, _, size = row["case"].removeprefix("growth of ").rpartition(" with ")
        sizes, points = row["sizes"], row["points"]
        lines.append([
            what, size, f"{row['exponent']:.2f}", f"{_cell(sizes[0])} to {_cell(sizes[-1])}",
            f"{_cell(points[0])} to {_cell(points[-1])}",
        ])  # fmt: skip
    return [GROWTH, _table(["what", "with", "exponent", "sizes", "CPU, us"], lines)]


def _table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [headers, ["---"] * len(headers), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _header(key: str) -> str:
    """``peer_p50_us`` is ``peer p50, us``."""
    words = key.split("_")
    if len(words) > 1 and words[-1] in _UNITS and words[-2] != "per":
        words[-2:] = [f"{words[-2]},", {"mb": "MB", "kb": "kB"}.get(words[-1], words[-1])]
    return " ".join(words)


def _cell(value: object) -> str:
    """A value as people read it: three digits count, unknown is a dash."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if value == int(value) or abs(value) >= 100:
            return f"{value:.0f}"
        return f"{value:.3g}"
    if isinstance(value, Mapping):
        return " / ".join(f"{part:.2f}" if isinstance(part, float) else _cell(part) for part in value.values())
    return str(value).replace("|", "\\|")
