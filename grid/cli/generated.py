"""Files made from the code: schemas, vectors, tables of reasons and metrics, and from kept rows the page of figures.

Tests hold them against drift.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from grid.model import Reason

_REASONS_HEAD = """# Reasons

Every reason code, as it appears in logs, metrics, JSON and errors. Generated from `grid/model/reasons.py`.
"""


def reasons_page() -> str:
    """``docs/reasons.md``."""
    lines = [_REASONS_HEAD]
    family = ""
    for reason in Reason:
        if reason.family != family:
            family = reason.family
            lines.append(f"\n## {family.capitalize()}\n\n| code | meaning | next step |\n| --- | --- | --- |")
        lines.append(f"| `{reason}` | {reason.meaning} | {reason.hint} |")
    return "\n".join(lines) + "\n"


def files(top: Path) -> Iterator[tuple[str, str]]:
    """Path below the source tree at ``top``, and content, of everything that is generated."""
    from grid.config import json_schema
    from grid.daemon.metrics import page as metrics_page
    from grid.gateway import vectors
    from grid.overlay import schema
    from grid.sim.bench import report

    yield "docs/reasons.md", reasons_page()
    yield "docs/metrics.md", metrics_page()
    yield "schemas/config.schema.json", json.dumps(json_schema(), indent=2, ensure_ascii=True) + "\n"
    page = Path("docs/performance.md")
    if report.beside(top / page).exists():
        yield str(page), report.render(report.kept(top / page))
    for path, text in (schema.files() | vectors.files()).items():
        yield f"schemas/{path}", text


def write(top: Path) -> list[Path]:
    """Write them all below ``top``; the paths written."""
    written = []
    for name, text in files(top):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
