"""Commands that ask a running daemon."""

import select
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import Running, grid, json_of

pytestmark = pytest.mark.real_server


def _ids(rows: list[dict[str, object]]) -> list[object]:
    return [row["id"] for row in rows]


def test_providers_lists_state_and_reason(daemon: Running) -> None:
    found = {row["id"]: row for row in json_of(grid("providers", "-c", daemon.config, "-o", "json"))["providers"]}
    assert sorted(found) == ["dead-llama", "east-llama", "gone-llama", "west-llama"]
    assert (found["east-llama"]["state"], found["east-llama"]["admission_state"]) == ("fresh", "new_and_existing")
    assert (found["east-llama"]["held"], found["east-llama"]["capacity"]) == (3.0, 16.0)
    assert found["dead-llama"]["reason"] == "not_ready"
    assert found["gone-llama"]["state"] == "absent"
    assert found["gone-llama"]["last_error"]["code"] == "connect_refused"
    table = grid("providers", "--url", daemon.url).stdout
    assert "connect_refused" in table
    assert "not_ready" in table


def test_explain_says_the_chain_of_reasons(daemon: Running) -> None:
    explained = json_of(grid("explain", "dead-llama", "-c", daemon.config, "-o", "json"))
    assert explained["steps"][0]["rule"] == "freshness"
    assert "not_ready" in [step["reason"] for step in explained["steps"]]
    assert {gateway["name"] for gateway in explained["gateways"]} == {"edge-east", "edge-west"}
    assert "at edge-east" in grid("explain", "dead-llama", "-c", daemon.config).stdout


def test_explaining_nothing_names_where_to_look(daemon: Running) -> None:
    result = grid("explain", "nobody", "-c", daemon.config)
    assert result.exit_code == 1
    assert "'nobody'" in result.stderr
    assert "hint: " in result.stderr
    assert result.stdout == ""


def test_explain_of_what_cannot_be_read_says_why(daemon: Running) -> None:
    text = grid("explain", "gone-llama", "-c", daemon.config).stdout
    assert "connect_refused" in text
    assert "hint: check host and port" in text


def test_a_reload_says_what_changed(daemon: Running) -> None:
    result = grid("reload", "-c", daemon.config, "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json_of(result)["generation"] >= 2


def test_explaining_a_site_names_its_providers(daemon: Running) -> None:
    result = grid("explain", "east", "-c", daemon.config)
    assert result.exit_code == 1
    assert "east-llama" in result.stderr
    assert "did you mean west-llama?" in grid("explain", "west-lama", "-c", daemon.config).stderr


def test_a_version_that_is_not_kept_is_told_with_those_that_are(daemon: Running) -> None:
    result = grid("overlay", "get", "edge-east", "--revision", "999999", "-c", daemon.config)
    assert result.exit_code == 1
    assert "no version 999999 of edge-east; kept are 1 to" in result.stderr
    assert grid("overlay", "get", "edge-east", "--revision", "", "-c", daemon.config).exit_code == 2


def test_leader_and_gateways(daemon: Running) -> None:
    assert json_of(grid("leader", "-c", daemon.config, "-o", "json"))["role"] == "leader"
    gateways = json_of(grid("gateways", "-c", daemon.config, "-o", "json"))["gateways"]
    assert [(one["name"], one["status"]) for one in gateways] == [("edge-east", "never"), ("edge-west", "never")]
    assert grid("gateways", "-c", daemon.config).exit_code == 0


def test_documents_are_listed_got_and_verified(daemon: Running, tmp_path: Path) -> None:
    listed = json_of(grid("overlay", "list", "-c", daemon.config, "-o", "json"))["overlays"]
    assert [one["gateway"] for one in listed] == ["edge-east", "edge-west"]
    got = grid("overlay", "get", "edge-east", "-c", daemon.config, "-o", "json")
    document = json_of(got)
    order = [one["cluster"] for one in document["overlay"]["candidates"]]
    assert order == ["east-llama", "west-llama", "gone-llama", "dead-llama"]
    assert [one["selection_group"] for one in document["overlay"]["candidates"]] == [0, 1, 2, 3]
    verified = grid("overlay", "verify", "-", "--gateway", "edge-east", "-o", "json", given=got.stdout.encode())
    assert json_of(verified)["verdict"] == "accept"
    file = tmp_path / "document.json"
    file.write_bytes(got.stdout.encode())
    refused = grid("overlay", "verify", file, "--gateway", "edge-west", "-o", "json")
    assert (refused.exit_code, json_of(refused)["reason"]) == (1, "scope_mismatch")
    plain = json_of(grid("overlay", "get", "edge-west", "-c", daemon.config, "-o", "json"))
    assert "selection_policy" not in plain["overlay"]
    assert "dead-llama" in grid("overlay", "get", "edge-east", "-c", daemon.config).stdout
    assert "cluster: east-llama" in grid("overlay", "get", "edge-east", "-c", daemon.config, "-o", "yaml").stdout


def test_a_pick_from_a_document(daemon: Running, tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    file.write_bytes(grid("overlay", "get", "edge-east", "-c", daemon.config, "-o", "json").stdout.encode())
    picked = json_of(grid("overlay", "pick", file, "--model", "llama", "-n", "200", "-o", "json"))["candidates"]
    assert [(one["cluster"], one["fraction"]) for one in picked][:2] == [("east-llama", 1.0), ("west-llama", 0.0)]
    unknown = grid("overlay", "pick", file, "--model", "nothing")
    assert unknown.exit_code == 1
    assert "model_not_found" in unknown.stderr


def test_a_drain_makes_a_document_and_history_and_diff_tell(daemon: Running) -> None:
    before = json_of(grid("overlay", "list", "-c", daemon.config, "-o", "json"))["overlays"][0]["version"]
    drained = grid("drain", "west", "-c", daemon.config, "--for", "10m", "--reason", "kernel update")
    assert drained.exit_code == 0, drained.stderr
    deadline = time.monotonic() + 30
    while json_of(grid("overlay", "list", "-c", daemon.config, "-o", "json"))["overlays"][0]["version"] == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    history = json_of(grid("overlay", "history", "edge-east", "-c", daemon.config, "-o", "json"))["documents"]
    assert history[0]["version"] == before + 1
    assert "kernel update" in history[0]["reason"]
    diff = grid("overlay", "diff", "edge-east", str(before), "-c", daemon.config, "-o", "json")
    assert diff.exit_code == 1
    assert any("west-llama" in line and "existing_only" in line for line in json_of(diff)["changes"])
    same = grid("overlay", "diff", "edge-east", str(before + 1), "-c", daemon.config)
    assert (same.exit_code, same.stdout) == (0, "no difference\n")
    providers = json_of(grid("providers", "-c", daemon.config, "-o", "json"))["providers"]
    assert [row["id"] for row in providers if row["drained"]] == ["dead-llama", "gone-llama", "west-llama"]
    assert grid("undrain", "west", "-c", daemon.config).exit_code == 0
    assert grid("undrain", "west", "-c", daemon.config).exit_code == 1


def test_a_bad_time_for_a_drain_is_a_usage_error(daemon: Running) -> None:
    result = grid("drain", "west", "-c", daemon.config, "--for", "10")
    assert result.exit_code == 2
    assert "--for" in result.stderr
    assert "has no unit" in result.stderr
    assert grid("drain", "west", "-c", daemon.config, "--for", "99999999h").exit_code == 2


def test_watch_tells_what_happens(daemon: Running) -> None:
    command = [sys.executable, "-m", "grid", "watch", "-c", str(daemon.config), "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        try:
            heard = False
            deadline = time.monotonic() + 60
            while not heard:
                assert time.monotonic() < deadline
                grid("drain", "east-llama", "-c", daemon.config)
                heard = bool(select.select([watching.stdout], [], [], 1.0)[0])
                grid("undrain", "east-llama", "-c", daemon.config)
            assert orjson.loads(watching.stdout.readline())["sentence"]
        finally:
            watching.terminate()


def test_check_live_finds_what_does_not_work(daemon: Running) -> None:
    result = grid("check", daemon.config, "--live", "-o", "json")
    assert result.exit_code == 1
    checks = {one["name"]: one for one in json_of(result)["checks"]}
    assert checks["source: east-llama"]["ok"]
    assert not checks["source: dead-llama"]["ok"]
    assert "no_ready_endpoints" in checks["source: dead-llama"]["detail"]
    assert "connect_refused" in checks["source: gone-llama"]["detail"]
    assert checks["bus"]["ok"]


def test_a_recording_replays_to_the_same_decisions(daemon: Running) -> None:
    replayed = grid("replay", daemon.recording, "--gateway", "edge-east", "-o", "json")
    assert replayed.exit_code == 0, replayed.stderr
    data = json_of(replayed)
    decided = {one["provider"]: (one["admission_state"], one["reason"]) for one in data["decisions"]}
    assert decided["dead-llama"] == ("none", "not_ready")
    assert decided["gone-llama"] == ("new_and_existing", "never_read")
    assert [one["provider"] for one in data["order"]][:2] == ["east-llama", "west-llama"]
    assert data["passes"]
    table = grid("replay", daemon.recording, "--gateway", "edge-east").stdout
    assert "order of edge-east" in table
    wrong = grid("replay", daemon.recording, "--gateway", "nowhere")
    assert wrong.exit_code == 2
    assert "edge-east" in wrong.stderr


def test_probe_reads_a_page_over_http(daemon: Running) -> None:
    address = daemon.config.read_text().partition('epp: "')[2].partition('"')[0]
    read = grid("probe", address, "--max-running", "8", "-o", "json")
    assert read.exit_code == 0, read.stderr
    assert json_of(read)["held"] == 3.0
    refused = grid("probe", address.replace("/east", "/dead"), "-o", "json")
    assert refused.exit_code == 1
    assert json_of(refused)["usable"] is False
