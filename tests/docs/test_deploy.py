"""What lies in deploy/: each file parses, its command line is one of ours, its configuration passes the check."""

import configparser
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from grid.config import parse
from tests.cli.conftest import grid, json_of
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
PATHS = {"/livez", "/readyz", "/metrics"}


def _documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]


def _known_command(words: list[str]) -> None:
    help_text = grid(words[0], "--help")
    assert help_text.exit_code == 0, words
    for word in words[1:]:
        if word.startswith("-"):
            assert word in help_text.stdout, words


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.y*ml")), ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_yaml_file_parses(path: Path) -> None:
    assert _documents(path)


@pytest.mark.parametrize(
    "path", [DEPLOY / "compose/grid.yaml", DEPLOY / "systemd/grid.yaml"], ids=lambda path: path.parent.name
)
def test_configurations_pass_the_check(path: Path) -> None:
    result = grid("check", path, "-o", "json")
    assert result.exit_code == 0, result.stdout
    assert json_of(result)["checks"][0]["ok"]


def test_the_configuration_in_kubernetes_passes_the_check(tmp_path: Path) -> None:
    config = next(one for one in _documents(DEPLOY / "kubernetes/config.yaml") if one["kind"] == "ConfigMap")
    file = tmp_path / "grid.yaml"
    file.write_text(config["data"]["grid.yaml"])
    assert grid("check", file).exit_code == 0


def test_the_deployment_probes_real_endpoints_and_runs_a_real_command() -> None:
    deployment = next(one for one in _documents(DEPLOY / "kubernetes/deployment.yaml") if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    _known_command(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listen = parse(_documents(DEPLOY / "kubernetes/config.yaml")[0]["data"]["grid.yaml"]).daemon.listen
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container[kind]["httpGet"]
        assert probe["path"] in PATHS
        assert ports[probe["port"]] == listen.port
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["config"] == str(Path(container["args"][-1]).parent)
    assert {volume["name"] for volume in pod["volumes"]} == set(mounts)


def test_selectors_meet_labels() -> None:
    service = _documents(DEPLOY / "kubernetes/service.yaml")[0]
    deployment = _documents(DEPLOY / "kubernetes/deployment.yaml")[0]
    monitor = _documents(DEPLOY / "kubernetes/podmonitor.yaml")[0]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["spec"]["podMetricsEndpoints"][0]["path"] in PATHS


def test_the_unit_runs_what_there_is() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd/grid.service")
    for key in ("ExecStartPre", "ExecStart"):
        words = shlex.split(unit["Service"][key])
        assert Path(words[0]).name == "grid"
        _known_command(words[1:])
    assert unit["Service"]["User"] != "root"


def test_the_container_runs_without_rights() -> None:
    lines = (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
    user = next(line for line in lines if line.startswith("USER "))
    assert "10001" in user
    command = next(line for line in lines if line.startswith("CMD "))
    _known_command(yaml.safe_load(command.removeprefix("CMD ")))


def test_compose_names_services_that_the_configuration_uses() -> None:
    compose = _documents(DEPLOY / "compose/compose.yaml")[0]
    services = compose["services"]
    assert {"daemon", "redis", "prometheus", "gateway"} <= set(services)
    for name in ("daemon", "gateway"):
        _known_command(services[name]["command"])
    config = parse((DEPLOY / "compose/grid.yaml").read_text(encoding="utf-8"))
    assert config.bus.url == "redis://redis:6379"
    scrape = _documents(DEPLOY / "compose/prometheus.yml")[0]["scrape_configs"][0]
    host, _, port = scrape["static_configs"][0]["targets"][0].partition(":")
    assert host in services
    assert int(port) == config.daemon.listen.port
    for service in services.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / "compose" / source).exists(), source
