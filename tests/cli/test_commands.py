"""Commands that need nothing running: probe, check, verify, schema, version, help, and how errors are told."""

import gzip
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from grid.cli import generated
from grid.cli.output import plain, table
from grid.model import Reason
from tests.cli.conftest import grid, json_of
from tests.conftest import ROOT
from tests.daemon.fleet import page
from tests.support.ports import free_port

COMMANDS: list[str] = [
    "demo",
    "run",
    "replay",
    "check",
    "probe",
    "providers",
    "gateways",
    "explain",
    "leader",
    "drain",
    "undrain",
    "watch",
    "reload",
    "sync",
    "simulate",
    "gateway",
    "schema",
    "version",
    "bench",
    "overlay",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = grid(command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_help_lists_every_command_and_the_exit_codes() -> None:
    text = grid("--help").stdout
    assert all(command in text for command in COMMANDS)
    assert "130" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["prob"], "prob"),
        (["probe"], "URL|FILE|-"),
        (["probe", "x", "--max-running", "0"], "--max-running"),
        (["bench", "speed"], "speed"),
        (["overlay", "verify", "/nowhere"], "/nowhere"),
        (["providers", "--output", "xml"], "xml"),
        (["bench", "render", "--page", "x"], "--page"),
    ],
)
def test_wrong_use_exits_2_and_names_what(arguments: list[str], says: str) -> None:
    result = grid(*arguments)
    assert result.exit_code == 2
    assert says.lower() in result.stderr.lower()
    assert result.stdout == ""


def test_version_has_its_keys() -> None:
    assert json_of(grid("version", "-o", "json")) == {"version": "0.1.0", "schema": "1.0.0", "protocol": 1}
    assert "schema" in grid("version").stdout
    assert grid("version", "-o", "yaml").stdout.splitlines()[0] == "version: 0.1.0"


@pytest.mark.parametrize("what", ["config", "envelope", "signal", "vectors"])
def test_schemas_are_json(what: str) -> None:
    assert isinstance(json_of(grid("schema", what)), dict)


def test_generated_files_are_those_of_the_code() -> None:
    for name, text in generated.files(ROOT):
        assert (ROOT / name).read_text(encoding="utf-8") == text, f"{name} is not what the code says: make schemas"


def test_every_reason_is_documented() -> None:
    pageful = (ROOT / "docs/reasons.md").read_text(encoding="utf-8")
    assert all(f"| `{reason}` |" in pageful for reason in Reason)


# --- probe ----------------------------------------------------------------------------------------------------------


def test_probe_reads_a_file_stdin_and_a_packed_file(tmp_path: Path) -> None:
    plain, packed = tmp_path / "page.txt", tmp_path / "page.txt.gz"
    plain.write_bytes(page(3, 10))
    packed.write_bytes(gzip.compress(page(3, 10)))
    ways = [
        grid("probe", plain, "-o", "json", "--max-running", "8"),
        grid("probe", packed, "-o", "json", "--max-running", "8"),
        grid("probe", "-", "-o", "json", "--max-running", "8", given=page(3, 10)),
    ]
    for way in ways:
        assert way.exit_code == 0, way.stderr
        read = json_of(way)
        assert (read["dialect"], read["pool"], read["ready"]) == ("llm_d_epp", "llama", 3)
        assert (read["held"], read["held_source"], read["capacity"]) == (10.0, "live", 24.0)
        assert (read["load"], read["load_source"], read["usable"]) == (read["saturation"], "saturation", True)
        assert [problem["code"] for problem in read["problems"]] == ["live_ready_hint"]
    assert "requests it can run at once" in grid("probe", plain, "--max-running", "8").stdout


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_page"),
        (b"<html><body>Sign in</body></html>", "not_metrics"),
        (b"go_goroutines 7\n", "metric_missing"),
        (page(0, 0), "no_ready_endpoints"),
        (page(1, 1, "a") + page(1, 1, "b"), "pool_ambiguous"),
    ],
)
def test_an_unusable_page_exits_1_and_says_why(data: bytes, code: str) -> None:
    result = grid("probe", "-", "-o", "json", given=data)
    assert result.exit_code == 1
    assert code in [problem["code"] for problem in json_of(result)["problems"]]
    assert "not usable" in result.stderr
    table = grid("probe", "-", given=data)
    assert table.exit_code == 1
    assert code in table.stdout


def test_a_packed_page_that_was_cut_is_told(tmp_path: Path) -> None:
    file = tmp_path / "cut.gz"
    file.write_bytes(gzip.compress(page(2, 2))[:-20])
    result = grid("probe", file)
    assert result.exit_code == 3
    assert "truncated" in result.stderr


def test_probing_nothing_says_where_nothing_was(tmp_path: Path) -> None:
    missing = grid("probe", tmp_path / "none.txt")
    assert missing.exit_code == 2
    assert "none.txt" in missing.stderr
    refused = grid("probe", "http://127.0.0.1:9/metrics")
    assert refused.exit_code == 3
    assert "connect_refused" in refused.stderr
    assert "hint: " in refused.stderr


def test_every_real_page_probes_to_its_index(shared_fixtures: Path) -> None:
    import orjson

    index = orjson.loads((shared_fixtures / "epp" / "index.json").read_bytes())
    for name, entry in index.items():
        result = grid("probe", shared_fixtures / "epp" / name, "-o", "json")
        read = json_of(result)
        # The reader behind the index gave no live count for the largest page, whose series allow one.
        given = {
            key: value for key, value in entry["reads"].items() if (name, key) != ("v0.10-big.txt.gz", "ready_live")
        }
        assert {key: read[key] for key in given} == given, name
        assert result.exit_code == (0 if entry["reads"]["usable"] else 1), name


def test_every_contract_document_gets_its_verdict(shared_fixtures: Path) -> None:
    import orjson

    folder = shared_fixtures / "overlay-contract"
    for name, expected in orjson.loads((folder / "v1" / "manifest.json").read_bytes())["fixtures"].items():
        result = grid("overlay", "verify", folder / "v1" / name, "-o", "json")
        judged = json_of(result)
        assert (judged["verdict"], judged["reason"]) == (expected["expected"], expected.get("reason")), name
        assert result.exit_code == (1 if expected["expected"] == "reject" else 0), name
        if "revision" in expected:
            assert judged["revision"] == judged["computed"] == expected["revision"], name
    for name, verdict in orjson.loads((folder / "edges" / "manifest.json").read_bytes())["verdicts"].items():
        assert (
            json_of(grid("overlay", "verify", folder / "edges" / f"{name}.json", "-o", "json"))["verdict"] == verdict
        ), name


# --- configuration ----------------------------------------------------------------------------------------------------


def test_check_reports_every_problem_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(
        "network: acme\ndaemon: {scrape_intervall: 2s}\nbus: {lease: soon}\nsites: {}\nproviders: {}\ngateways: {}\n"
    )
    result = grid("check", file)
    assert result.exit_code == 2
    assert "line 2: daemon.scrape_intervall" in result.stderr
    assert "scrape_interval" in result.stderr
    assert "line 3: bus.lease" in result.stderr
    checks = json_of(grid("check", file, "-o", "json"))["checks"]
    assert len(checks) >= 2
    assert not any(one["ok"] for one in checks)
    assert all(set(one) == {"name", "ok", "detail", "hint"} for one in checks)


def test_check_accepts_the_documented_example() -> None:
    result = grid("check", ROOT / "docs" / "example.yaml", "-o", "json")
    assert result.exit_code == 0, result.stdout
    assert json_of(result)["checks"][0]["ok"]


def test_counts_of_one_are_told_as_one() -> None:
    file = ROOT / "docs" / "tour.yaml"
    assert json_of(grid("check", file, "-o", "json"))["checks"][0]["detail"] == (
        "network tour: 2 sites, 2 providers, 1 gateway"
    )


def test_a_daemon_that_does_not_answer_is_looked_for_where_its_address_came_from(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "grid.yaml"
    file.write_text((ROOT / "docs" / "tour.yaml").read_text().replace("7070", str(port)))
    result = grid("providers", "-c", file)
    assert result.exit_code == 3
    assert f"hint: check daemon.listen in {file} and that grid run is up" in result.stderr
    for more in ((), ("-c", file)):
        result = grid("providers", "--url", f"http://127.0.0.1:{port}", *more)
        assert result.exit_code == 3
        assert "hint: check --url (or GRID_URL) and" in result.stderr


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    for command in (["check", str(tmp_path / "no.yaml")], ["run", "-c", str(tmp_path / "no.yaml")]):
        result = grid(*command)
        assert result.exit_code == 2
        assert "no.yaml" in result.stderr


def test_no_daemon_is_exit_3_with_a_hint() -> None:
    result = grid("providers", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 3
    assert "daemon_unreachable" in result.stderr
    assert "grid run" in result.stderr
    assert result.stdout == ""


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    result = grid("providers", "--url", "http://127.0.0.1:9", "--token-file", tmp_path / "none")
    assert result.exit_code == 2
    assert "credential_file" in result.stderr
    assert str(tmp_path / "none") in result.stderr


def test_an_address_that_is_none_is_wrong_use() -> None:
    result = grid("providers", "--url", "notaurl")
    assert result.exit_code == 2
    assert "'notaurl'" in result.stderr


def test_a_key_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    (tmp_path / "document").write_text("{}")
    result = grid("overlay", "verify", tmp_path / "document", "--key-file", tmp_path / "key")
    assert result.exit_code == 2
    assert str(tmp_path / "key") in result.stderr


def test_a_refused_document_gives_no_picks(tmp_path: Path) -> None:
    (tmp_path / "document").write_text("{}")
    result = grid("overlay", "pick", tmp_path / "document", "--model", "llama")
    assert result.exit_code == 1
    assert "malformed_structure" in result.stderr


def test_one_fault_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("network: acme\ndaemon: {scrape_intervall: 2s}\nsites: {}\nproviders: {}\ngateways: {}\n")
    assert grid("check", file).stderr.count("scrape_intervall") == 1


def test_what_others_wrote_does_not_steer_the_terminal() -> None:
    assert plain("a\x1b[31m\x07b\u202e") == "a\N{REPLACEMENT CHARACTER}[31m" + "\N{REPLACEMENT CHARACTER}b" + (
        "\N{REPLACEMENT CHARACTER}"
    )


def test_rows_stand_below_each_other_where_the_terminal_is_narrow() -> None:
    listing = table("sites", ("id", "site", "what happens"), [("east-llama", "east", "a sentence " * 8)])
    wide, narrow = list(listing.parts(100)), list(listing.parts(30))
    assert not isinstance(wide[1], str)
    assert isinstance(narrow[1], str)
    assert narrow[1].strip().splitlines()[:2] == ["id             east-llama", "site           east"]


def test_a_full_disk_and_a_closed_stdout_are_no_traceback() -> None:
    command = [sys.executable, "-m", "grid", "version"]
    with Path("/dev/full").open("wb") as disk:
        full = subprocess.run(command, stdout=disk, stderr=subprocess.PIPE, check=False)
    assert full.returncode == 1
    assert full.stderr == b"error: cannot write to stdout: No space left on device\n"
    closed = subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -m grid version >&-"], stderr=subprocess.PIPE, check=False
    )
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_a_damaged_recording_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    file.write_text("this is no recording\n")
    result = grid("replay", file)
    assert result.exit_code != 0
    assert "recording" in result.stderr


# --- the program ---------------------------------------------------------------------------------------------------


def test_answers_at_once_where_nothing_is_fetched() -> None:
    """CPU time against a bare interpreter's, in turns: neither the machine's speed nor its load is the command's."""

    def took(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    turns = [(took("-c", "import json, typing, dataclasses, asyncio"), took("-m", "grid", "version")) for _ in range(5)]
    bare, ours = (min(times) for times in zip(*turns, strict=True))
    assert ours < 0.3 + 5 * bare


def test_completion_is_offered() -> None:
    assert "--install-completion" in grid("--help").stdout
