"""The page of figures is made from the rows of one run alone, and those of this source tree give its page."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from grid.cli.bench import Bench
from grid.sim.bench import machine, report
from grid.sim.bench.isolated import Ran
from grid.sim.bench.report_words import SECTIONS
from tests.cli.conftest import grid
from tests.conftest import ROOT

PAGE = ROOT / "docs/performance.md"

ROWS: dict[str, list[dict[str, Any]]] = {
    "pick": [
        {"case": "pick, saturation, 2 sites", "p50_us": 0.2194, "peer": "an empty Python call", "ratio": 10.0},
        {"case": "take over a frame", "p50_ms": 1.25, "peer": "orjson.loads", "ratio": 9.16, "better": "less"},
        {
            "case": "growth of a pick with sites x models", "exponent": 0.0514, "sizes": [64, 1024],
            "points": [0.2206, 999.6], "better": "less",
        },
    ],
    "sites": [{"case": "shared", "gateways": 4, "shares": {"site-a": 0.4, "site-b": 0.4}, "failed": 0, "ratio": 0.98}],
}  # fmt: skip


def measure(bench: str) -> Ran:
    return Ran(tuple(ROWS[bench]), seconds=1.4) if bench in ROWS else Ran(error="ImportError: nothing there")


@pytest.fixture
def data() -> dict[str, Any]:
    return report.measured(measure=measure)


def test_the_page_of_the_source_tree_is_that_of_its_rows() -> None:
    kept = report.kept(PAGE)
    assert report.render(kept) == PAGE.read_text(encoding="utf-8"), "make schemas, or grid bench report --again"
    benches = {bench.value for bench in Bench}
    assert {name for name, bench in kept["benches"].items() if "rows" in bench} == benches
    assert {section.bench for section in SECTIONS} == benches


def test_every_bench_runs_once_and_is_kept(data: dict[str, Any]) -> None:
    assert list(data["benches"]) == [section.bench for section in SECTIONS]
    assert data["benches"]["pick"] == {"seconds": 1, "rows": ROWS["pick"]}
    assert data["benches"]["parse"] == {"seconds": 0, "error": "ImportError: nothing there"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", data["date"])


def test_the_page_names_the_machine_and_shows_three_digits(data: dict[str, Any]) -> None:
    page = report.render(data)
    assert f"| cores | {data['machine']['cores']} |" in page
    assert f"from one run on {data['date']};" in " ".join(page.split())
    assert "| case | p50, us | peer | ratio |\n| --- | --- | --- | --- |\n" in page
    assert "| pick, saturation, 2 sites | 0.219 | an empty Python call | 10 |" in page
    assert "| a pick | sites x models | 0.05 | 64 to 1024 | 0.221 to 1000 |" in page
    assert "| shared | 4 | 0.98 | 0.40 / 0.40 | 0 |" in page


def test_rows_of_other_columns_get_a_table_of_their_own(data: dict[str, Any]) -> None:
    section = report.render(data).partition("## Choosing a site")[2].partition("\n## ")[0]
    assert section.count("\n| --- ") == 2
    assert "| take over a frame | 1.25 | orjson.loads | 9.16 | less |" in section


def test_what_was_not_measured_is_marked(data: dict[str, Any]) -> None:
    page = report.render(data)
    assert page.count("Not measured in this run: ImportError: nothing there") == len(SECTIONS) - len(ROWS)
    del data["benches"]["sites"]
    assert "Not measured in this run: it is newer than the run" in report.render(data)
    assert "\n\n\n" not in page


@pytest.mark.parametrize(
    ("peer", "says"), [("litellm 1.80.17, least-busy", "one choice by"), ("an empty call", "not installed")]
)
def test_whether_litellm_was_there_is_said(data: dict[str, Any], peer: str, says: str) -> None:
    data["benches"]["pick"]["rows"] = [ROWS["pick"][0] | {"peer": peer}]
    text = report.render(data)
    assert says in text
    assert ("not installed" in text) is (says == "not installed")


def test_the_shape_of_a_machine_has_no_name_and_no_path() -> None:
    shape = machine.shape()
    assert {"cores", "CPU", "system", "Python"} <= set(shape)
    assert int(shape["cores"]) >= 1
    for value in shape.values():
        assert value
        assert "/" not in value
    assert re.fullmatch(r"\w+ [\d.]+", shape["system"])


def test_what_a_machine_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_read", lambda _: "")
    monkeypatch.setattr(machine, "server_program", lambda: None)
    shape = machine.shape()
    assert "memory" not in shape
    assert "Redis" not in shape
    assert shape["CPU"]


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_measures_and_writes_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_full", measure)
    page = tmp_path / "mine.md"
    result = grid("bench", "report", "--out", page)
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == "pick"
    assert "[mine.json](mine.json)" in page.read_text()
    written = page.read_text()
    page.unlink()
    assert grid("bench", "report", "--out", page, "--again").exit_code == 0
    assert page.read_text() == written
    assert orjson.loads((tmp_path / "mine.json").read_bytes())["benches"]["pick"]["rows"] == ROWS["pick"]


@pytest.mark.parametrize("content", [None, "[]", "{"])
def test_the_command_says_where_there_are_no_rows(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "mine.json").write_text(content)
    result = grid("bench", "report", "--out", tmp_path / "mine.md", "--again")
    assert result.exit_code == 2
    assert "cannot read or write" in " ".join(result.stderr.split())
