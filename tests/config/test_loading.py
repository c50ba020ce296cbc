"""From file, environment and overrides to one configuration; references and contradictions."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import grid.config
from grid.config import Config, Listen, load, parse, warnings
from grid.config.document import MAX_BYTES
from grid.model import (
    Access,
    Capability,
    ConfigError,
    ConfigProblem,
    Contract,
    Kind,
    Picker,
    Placement,
    Pressure,
    Reason,
)

EXAMPLE = Path(__file__).parents[2] / "docs" / "example.yaml"

SMALL = """\
network: acme
sites:
  east: {region: eu}
  west: {region: us}
providers:
  east-llama:
    site: east
    cluster: east-llama
    models: [llama]
    source: {epp: http://10.0.0.11:9090/metrics}
gateways:
  edge: {site: east}
"""


def problems(text: str, **options: object) -> tuple[ConfigProblem, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text, **options)  # type: ignore[arg-type]
    return caught.value.problems


def gateway(settings: str) -> str:
    return SMALL.replace("edge: {site: east}", f"edge: {{site: east, {settings}}}")


def test_values_have_their_units_after_loading() -> None:
    config = load(EXAMPLE, environ={})
    daemon, provider, edge = config.daemon, config.providers["east-llama"], config.gateways["edge-east"]
    assert daemon.listen == Listen("127.0.0.1", 7070)
    assert (daemon.scrape_interval, daemon.scrape_timeout, daemon.scrape_budget) == (2.0, 2.0, 0.05)
    assert daemon.freshness is None
    assert daemon.token_file == Path("/etc/grid/debug.token")
    assert (config.bus.lease, config.bus.history) == (10.0, 200)
    source = config.sources["east-llama"]
    assert isinstance(source, grid.config.EppSource)
    assert (source.pool, source.max_page) == ("llama", 64 << 20)
    other = config.sources["west-llama"]
    assert isinstance(other, grid.config.PrometheusSource)
    assert other.match == {"cluster": "west"}
    assert provider.pressure is not None
    assert (provider.pressure.enter, provider.pressure.hold_down) == (0.85, 30.0)
    assert edge.retry.on == ("connect", 503, 429)
    assert (edge.retry.budget, edge.max_body) == (0.2, 32 << 20)
    assert [str(block) for block in edge.trusted_proxies] == ["10.0.0.0/8"]
    assert edge.affinity is not None
    assert (edge.affinity.header, edge.affinity.ttl) == ("x-session-id", 3600.0)
    assert [band.ceiling for band in config.admission["interactive"].bands] == [1.5, 1.0, 0.7]


def test_the_defaults_are_those_that_the_example_shows() -> None:
    shown = yaml.safe_load(EXAMPLE.read_text())
    config = parse(SMALL)
    assert config.daemon.listen == Listen("127.0.0.1", 7070)
    assert config.bus.url == "embedded"
    assert (config.bus.tls, config.bus.password_file, config.daemon.state_dir) == (None, None, None)
    provider, edge = config.redacted()["providers"]["east-llama"], config.redacted()["gateways"]["edge"]
    for key in ("queue_capacity", "kv_ceiling", "capacity_weight", "disabled"):
        assert provider[key] == shown["providers"]["east-llama"][key]
    for key in ("namespace", "contract", "order", "placement", "spill", "overflow", "rescue", "max_body"):
        assert edge[key] == shown["gateways"]["edge-east"][key]
    assert "picker" not in edge
    assert edge["retry"] == {"budget": "20%", "min_per_s": 3.0, "on": ["connect", 503, 429]}


def test_empty_sections_have_their_defaults() -> None:
    config = parse("network: acme\ndaemon:\nbus:\nsites:\nproviders:\ngateways:\nadmission:\n")
    assert config == parse("network: acme\n")


def test_a_configuration_cannot_be_changed() -> None:
    config = parse(SMALL)
    with pytest.raises(ValueError, match="frozen"):
        config.network = "other"  # type: ignore[misc]


def test_the_network_is_sorted_and_carries_the_daemons_schedule() -> None:
    config = parse(
        SMALL.replace("sites:", "daemon: {scrape_interval: 5s, scrape_timeout: 1s, freshness: 20s}\nsites:")
        + "  aside: {site: west, picker: weightedRandom, contract: praxis-grouped, placement: headroom, spill: 0.9}\n"
    )
    network = config.to_network(generation=3)
    provider = network.providers["east-llama"]
    assert (provider.interval, provider.timeout, provider.freshness) == (5.0, 1.0, 20.0)
    assert provider.capabilities == (Capability(Kind.INFERENCE_MODEL, "llama"),)
    assert (provider.max_running, provider.access, provider.pressure) == (None, None, None)
    assert list(network.gateways) == ["aside", "edge"]
    aside = network.gateways["aside"]
    assert (aside.contract, aside.picker, aside.placement) == (
        Contract.PRAXIS_GROUPED,
        Picker.WEIGHTED_RANDOM,
        Placement.HEADROOM,
    )
    assert aside.spill == 0.9
    assert network.generation == 3


def test_the_network_has_what_the_example_declares() -> None:
    network = load(EXAMPLE, environ={}).to_network()
    provider = network.providers["east-llama"]
    assert provider.capabilities == (
        Capability(Kind.INFERENCE_MODEL, "llama-3.1-70b"),
        Capability(Kind.MCP_TOOL, "search"),
    )
    assert provider.access == Access(frozenset({"east", "west"}), {"tier": "gold"})
    assert provider.pressure == Pressure()
    assert network.sites["east"].labels == {"tier": "gold"}


def test_the_uid_belongs_to_the_name_alone() -> None:
    one, two = parse(SMALL).to_network(), parse(gateway("order: scoreFirst")).to_network(generation=9)
    other = parse(SMALL.replace("acme", "umbrella")).to_network()
    assert one.uid == two.uid == "44d7b71d-7ba1-523c-94e5-4a3c24dd1a06"
    assert other.uid != one.uid
    assert one.generation == 1


def test_what_is_shown_can_be_loaded_again() -> None:
    config = load(EXAMPLE, environ={})
    assert parse(yaml.safe_dump(config.redacted())) == config


def test_values_in_the_query_of_a_url_are_hidden() -> None:
    config = parse(SMALL.replace(":9090/metrics", ":9090/metrics?token=hunter2&pool=x"))
    assert "hunter2" not in str(config.redacted())
    assert config.redacted()["providers"]["east-llama"]["source"]["epp"].endswith("?token=***&pool=***")


# --- the file -------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "grid.yaml")
    assert caught.value.reason is Reason.CONFIG_UNREADABLE
    assert caught.value.exit_code == 2
    assert "grid.yaml" in str(caught.value)
    assert "No such file" in str(caught.value)


def test_a_file_that_is_no_yaml_gives_that_alone() -> None:
    [problem] = problems("network: [acme\n", environ={"GRID_BUS__ULR": "x"})
    assert problem.reason is Reason.CONFIG_SYNTAX


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert caught.value.reason is Reason.CONFIG_UNREADABLE


def test_a_file_in_another_encoding_is_told_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_bytes(b"network: acme\n# caf\xe9\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    [problem] = caught.value.problems
    assert (problem.line, problem.hint) == (2, "save the file as UTF-8")


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("network: acme # " + "é" * MAX_BYTES)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.reason is Reason.TOO_LARGE
    assert str(caught.value).endswith("(is it the right file?) [too_large]")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_bytes(b"\xef\xbb\xbfnetwork: acme\n")
    assert load(path, environ={}).network == "acme"


def test_relative_files_start_at_the_files_directory(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(SMALL + "bus: {password_file: secrets/redis}\ndaemon: {state_dir: /var/lib/grid}\n")
    config = load(path, environ={})
    assert config.bus.password_file == tmp_path / "secrets" / "redis"
    assert config.daemon.state_dir == Path("/var/lib/grid")
    assert parse(path.read_text()).bus.password_file == Path("secrets/redis")


def test_an_error_names_the_file_and_counts_its_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("network: Acme\nbus: {lease: 5}\n", name="grid.yaml")
    assert caught.value.message.startswith("grid.yaml: line 1: network: 'Acme' is no name")
    assert caught.value.message.endswith("(and 1 more)")
    assert len(caught.value.problems) == 2


def test_problems_come_in_the_order_of_the_file() -> None:
    found = problems(
        SMALL.replace("east}", "eats}").replace("network: acme", "network: Acme"), overrides={"bus.url": "x"}
    )
    assert [problem.path for problem in found] == ["network", "gateways.edge.site", "bus.url"]


# --- layers ---------------------------------------------------------------------------------------------------------


def test_the_environment_wins_over_the_file_and_overrides_over_both() -> None:
    text = SMALL + "bus: {url: redis://file, lease: 20s, history: 7}\n"
    environ = {"GRID_BUS__URL": "redis://environment", "GRID_BUS__LEASE": "30s"}
    config = parse(text, environ=environ, overrides={"bus.url": "redis://flag"})
    assert (config.bus.url, config.bus.lease, config.bus.history) == ("redis://flag", 30.0, 7)


def test_environment_values_are_read_as_yaml() -> None:
    environ = {
        "GRID_NETWORK": "other",
        "GRID_PROVIDERS__EAST_LLAMA__MAX_RUNNING": "64",
        "GRID_PROVIDERS__EAST_LLAMA__DISABLED": "true",
        "GRID_PROVIDERS__EAST_LLAMA__MODELS": "[llama, 'other model']",
        "GRID_PROVIDERS__EAST_LLAMA__PRESSURE": "{enter: 0.9}",
        "GRID_PROVIDERS__EAST_LLAMA__SOURCE__POOL": " llama ",
        "GRID_DAEMON__STATE_DIR": "",
    }
    config = parse(SMALL, environ=environ)
    provider = config.providers["east-llama"]
    assert config.network == "other"
    assert (provider.max_running, provider.disabled, provider.models) == (64, True, ("llama", "other model"))
    assert provider.pressure is not None
    assert provider.pressure.enter == 0.9
    assert provider.source.pool == "llama"


def test_variables_that_are_no_settings_are_left_alone() -> None:
    environ = {"GRID_FIXTURES": "/x", "GRID_PORT": "tcp://10.0.0.1:80", "GRID_DAEMON": "x", "HOME": "/", "GRID_": "x"}
    assert parse(SMALL, environ=environ) == parse(SMALL)


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("GRID_BUS__ULR", "did you mean GRID_BUS__URL?"),
        ("GRID_BSU__URL", "did you mean GRID_BUS__URL?"),
        ("GRID_PROVIDERS__EAST_LAMA__URL", "did you mean GRID_PROVIDERS__EAST_LLAMA__URL?"),
        ("GRID_PROVIDERS__EAST_LLAMA__SOURCE__MATCH", "known: CA_FILE, CERT_FILE, KEY_FILE, EPP, POOL"),
        ("GRID_SITES__SOUTH__REGION", "known: EAST, WEST"),
        ("GRID_ADMISSION__X__MAX_WAIT", ""),
        ("GRID_BUS__URL__HOST", ""),
    ],
)
def test_variables_that_look_like_settings_and_are_none_are_told(variable: str, hint: str) -> None:
    [problem] = problems(SMALL, environ={variable: "7"})
    assert (problem.reason, problem.path, problem.line) == (Reason.CONFIG_UNKNOWN_KEY, variable, None)
    assert problem.hint.startswith(hint)


def test_a_faulty_value_names_the_variable_it_came_from() -> None:
    [problem] = problems(SMALL, environ={"GRID_BUS__LEASE": "30"})
    assert problem.path == "bus.lease"
    assert problem.line is None
    assert problem.detail == "30 has no unit (set by GRID_BUS__LEASE)"
    [problem] = problems(SMALL, overrides={"bus.lease": "30"})
    assert "set by the override of bus.lease" in problem.detail


def test_an_environment_list_that_is_no_yaml_is_told() -> None:
    found = problems(SMALL, environ={"GRID_PROVIDERS__EAST_LLAMA__MODELS": "[a, b"})
    assert (found[0].reason, found[0].path) == (Reason.CONFIG_SYNTAX, "GRID_PROVIDERS__EAST_LLAMA__MODELS")


def test_overrides_may_be_sections_and_skip_what_was_not_given(tmp_path: Path) -> None:
    config = parse(
        SMALL, overrides={"daemon": {"listen": "127.0.0.1:0", "state_dir": tmp_path, "token_file": None}, "bus": None}
    )
    assert config.daemon.listen == Listen("127.0.0.1", 0)
    assert config.daemon.state_dir == tmp_path
    assert config.daemon.token_file is None


def test_what_cannot_hold_an_override_is_told() -> None:
    found = problems(SMALL, overrides={"network.name": "x"})
    assert [(problem.path, problem.reason) for problem in found] == [("network.name", Reason.CONFIG_CONFLICT)]


def test_text_that_is_no_unicode_is_refused() -> None:
    [problem] = problems(SMALL, overrides={"bus.username": "caf\udce9"})
    assert "is not valid Unicode" in problem.detail


# --- what the sections say about each other -------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0:7070", "10.0.0.1:7070", "'[::]:7070'", "grid.example:7070"])
def test_an_address_that_others_can_reach_needs_a_token(address: str) -> None:
    [problem] = problems(f"network: a\ndaemon: {{listen: {address}}}\n")
    assert (problem.path, problem.reason) == ("daemon.listen", Reason.CONFIG_CONFLICT)
    parse(f"network: a\ndaemon: {{listen: {address}, token_file: /t}}\n")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.1.2.3:7070", "'[::1]:7070'", "localhost:7070"])
def test_loopback_needs_none(address: str) -> None:
    listen = parse(f"network: a\ndaemon: {{listen: {address}}}\n").daemon.listen
    assert listen.loopback
    assert str(listen) == address.strip("'")


@pytest.mark.parametrize(
    ("contract", "picker", "placement", "faulty"),
    [
        ("grid", None, "static", None),
        ("grid", "deterministic", "static", None),
        ("grid", "saturation", "static", None),
        ("grid", "saturation", "capacity", None),
        ("grid", "weightedRandom", "headroom", None),
        ("grid", None, "capacity", "placement"),
        ("grid", "deterministic", "headroom", "placement"),
        ("praxis-grouped", "roundRobin", "static", None),
        ("praxis-grouped", "weightedRandom", "capacity", None),
        ("praxis-grouped", "random", "capacity", "placement"),
        ("praxis-grouped", "saturation", "static", "picker"),
        ("praxis-grouped", "saturation", "headroom", "picker"),
        ("praxis-ordered", None, "static", None),
        ("praxis-ordered", "deterministic", "static", None),
        ("praxis-ordered", "roundRobin", "static", "picker"),
        ("praxis-ordered", "random", "static", "picker"),
        ("praxis-ordered", "weightedRandom", "capacity", "picker"),
        ("praxis-ordered", "saturation", "static", "picker"),
        ("praxis-ordered", None, "headroom", "placement"),
    ],
)
def test_what_a_form_of_the_document_lacks_is_refused(
    contract: str, picker: str | None, placement: str, faulty: str | None
) -> None:
    text = gateway(f"contract: {contract}, placement: {placement}" + (f", picker: {picker}" if picker else ""))
    if faulty is None:
        parse(text)
        return
    [problem] = problems(text)
    assert (problem.path, problem.reason) == (f"gateways.edge.{faulty}", Reason.CONFIG_CONFLICT)


@pytest.mark.parametrize(
    ("bus", "path"),
    [
        ("{url: redis://h, tls: {ca_file: x}}", "bus.tls"),
        ("{url: redis://me@h, username: you}", "bus.username"),
        ("{url: rediss://h, tls: {cert_file: x}}", "bus.tls.cert_file"),
        ("{url: rediss://h, tls: {key_file: x}}", "bus.tls.key_file"),
    ],
)
def test_the_bus_contradicts_itself_nowhere(bus: str, path: str) -> None:
    [problem] = problems(f"network: a\nbus: {bus}\n")
    assert (problem.path, problem.reason) == (path, Reason.CONFIG_CONFLICT)


@pytest.mark.parametrize(
    "url",
    [
        "embedded",
        "redis://127.0.0.1",
        "redis://127.0.0.1:6379/3",
        "redis://me@redis.example:6379",
        "redis://[::1]:6379/0",
        "rediss://redis.example",
        "unix:///run/grid/redis.sock",
        "redis+sentinel://h1,h2:26380/mymaster",
        "redis+sentinel://h1/mymaster/2",
        "rediss+sentinel://h1,h2/mymaster",
        "redis+cluster://h1:7000,h2:7001",
        "redis+cluster://h1/0",
        "rediss+cluster://h1",
    ],
)
def test_every_form_of_the_bus_is_accepted(url: str) -> None:
    assert (
        parse(
            f"network: a\nbus: {{url: '{url}', tls: {{}}}}\n".replace(", tls: {}" * url.startswith("redis://"), "")
        ).bus.url
        == url
    )


@pytest.mark.parametrize(
    "url",
    ["redis://me:hunter2@h", "rediss://:hunter2@h/0", "redis+sentinel://u:hunter2@a,b/m", "unix://u:hunter2@/run/x"],
)
def test_a_password_in_the_bus_is_refused_and_never_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"network: a\nbus: {{url: '{url}'}}\n")
    [problem] = caught.value.problems
    assert "bus.password_file" in problem.hint
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://me:hunter2@[bad/", "redis://me:hunter2@h:x", "ftp//me:hunter2@h", "redis://me:hunter2@[h"]
)
def test_a_password_in_a_broken_url_is_never_shown(url: str) -> None:
    text = SMALL.replace("http://10.0.0.11:9090/metrics", f"'{url}'") + f"bus: {{url: '{url}'}}\n"
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert len(caught.value.problems) == 2
    assert "hunter2" not in "".join(map(str, caught.value.problems))


@pytest.mark.parametrize(
    ("extra", "path", "hint"),
    [
        ("site: eastt", "site", "did you mean east?"),
        ("site: north", "site", "known: east, west"),
        ("cluster: east-llama", "cluster", "list all its models there"),
        ("models: []", "", "such as models: [llama-3.1-70b]"),
        ("upstream: {}", "upstream", "set url too"),
        ("access: {sites: [east, wets]}", "access.sites[1]", "did you mean west?"),
        ("pressure: {enter: 0.5}", "pressure.exit", "leave a gap"),
        ("source: {epp: http://h, cert_file: c}", "source.cert_file", "set key_file too"),
        ("source: {epp: http://h, key_file: c}", "source.key_file", "set cert_file too"),
        ("models: ['', m]", "models[0]", "such as llama"),
        ("models: {}", "models", ""),
        ("url: http://h/#top", "url", "remove it"),
        ("url: 'http://h/a b'", "url", "such as http://10.0.0.10:8000"),
        ("models: [m, 5]", "models[1]", "put a text into quotes"),
        ('models: ["a\\tb"]', "models[0]", "such as llama"),
        ("sources: {epp: http://h}", "sources", "did you mean source?"),
        ("max_page: 1MiB", "max_page", "it belongs under source:"),
        ("source: {epp: http://h, kv_ceiling: 1}", "source.kv_ceiling", "it belongs to providers.more"),
        ("source: {epp: http://h, gateways: {}}", "source.gateways", "it belongs to the top level"),
        ("source: {epp: http://h, token: hunter2}", "source.token", "secrets are only given as files: token_file"),
        ("password: hunter2", "password", "known: site, cluster"),
        ("source: {ep: http://h}", "source", "did you mean epp?"),
        ("source: {url: http://h}", "source", "such as epp:"),
    ],
)
def test_a_faulty_provider_is_told_at_its_fault(extra: str, path: str, hint: str) -> None:
    sound = {"site": "east", "cluster": "b", "models": "[m]", "source": "{epp: http://h}"}
    key, _, value = extra.partition(": ")
    settings = ", ".join(f"{key}: {value}" for key, value in {**sound, key: value}.items())
    [problem] = problems(SMALL.replace("gateways:", f"  more: {{{settings}}}\ngateways:"))
    assert problem.path == f"providers.more.{path}".rstrip(".")
    assert problem.line == 11
    assert hint in problem.hint
    assert "hunter2" not in str(problem)


def test_the_same_cluster_at_another_site_is_another_provider() -> None:
    extra = "{site: west, cluster: east-llama, models: [llama], source: {epp: http://h}}"
    assert len(parse(SMALL.replace("gateways:", f"  more: {extra}\ngateways:")).providers) == 2


def test_a_zone_needs_its_region() -> None:
    [problem] = problems("network: a\nsites: {east: {zone: z}}\n")
    assert (problem.path, problem.hint) == ("sites.east.zone", "set region too")


def test_names_of_things_are_judged_where_they_stand() -> None:
    found = problems("network: a\nsites:\n  East: {}\n  west: {labels: {'a b': c}}\nproviders:\n  site: 5\n")
    assert [(problem.path, problem.line) for problem in found] == [
        ("sites.East", 3),
        ("sites.west.labels.a b", 4),
        ("providers.site", 6),
    ]


def test_what_contradicts_a_faulty_value_waits_until_that_is_mended() -> None:
    text = "network: a\ndaemon: {listen: 0.0.0.0:70, token_file: 5, freshness: 1s, scrape_interval: 2}\n"
    assert [problem.path for problem in problems(text)] == ["daemon.token_file", "daemon.scrape_interval"]


def test_contradictions_are_told_beside_faults_of_other_sections() -> None:
    text = SMALL.replace("site: east}", "site: nowhere, placement: capacity}") + (
        "daemon: {listen: 0.0.0.0:70}\nadmission:\n  p:\n    bands:\n      - {name: a, ceiling: 0.5}\n"
        "      - 5\n      - {name: Q}\n  q:\n    bands:\n      - {name: a, ceiling: 0.5}\n      - {name: b}\n"
    )
    assert {problem.path for problem in problems(text)} == {
        "gateways.edge.site",
        "gateways.edge.placement",
        "daemon.listen",
        "admission.p.bands[1]",
        "admission.p.bands[2].name",
        "admission.q.bands[0]",
        "admission.q.bands[1].ceiling",
    }


def test_an_entirely_wrong_file_still_gives_every_fault() -> None:
    text = "network: 5\ndaemon: x\nbus: []\nsites: 1\nproviders: 2\ngateways: 3\nadmission: 4\nmore: 5\n"
    found = problems(text)
    assert [problem.line for problem in found] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("settings", "path", "detail"),
    [
        ("trusted_proxies: [10.0.0.1/8]", "trusted_proxies[0]", "has bits set behind its prefix"),
        ("trusted_proxies: [10.0.0.0/8, x]", "trusted_proxies[1]", "'x' is no block of addresses"),
        ("trusted_proxies: [5]", "trusted_proxies[0]", "bare value 5"),
        ("retry: {on: [503, 500]}", "retry.on[1]", "500 is none of connect, 503, 429, 502, 504"),
        ("retry: {on: ['503']}", "retry.on[0]", "'503' is none of connect"),
        ("retry: {on: [true]}", "retry.on[0]", "true is none of connect"),
        ("rescue: maybe", "rescue", "wants true or false, not 'maybe'"),
        ("picker: [random]", "picker", "a list is none of deterministic"),
        ("picker: ~", "picker", "has no value; wants one of deterministic"),
        ("namespace: [a]", "namespace", "wants a name, not a list"),
        ("spill: {}", "spill", "wants a number, not a section"),
        ("admission: fast", "admission", "'fast' is no admission policy"),
    ],
)
def test_a_faulty_gateway_is_told_at_its_fault(settings: str, path: str, detail: str) -> None:
    [problem] = problems(gateway(settings))
    assert (problem.path, problem.line) == (f"gateways.edge.{path}", 12)
    assert detail in problem.detail


def test_single_addresses_are_trusted_proxies_too() -> None:
    edge = parse(gateway("trusted_proxies: [10.0.0.7, 'fd00::/8']")).gateways["edge"]
    assert [str(block) for block in edge.trusted_proxies] == ["10.0.0.7/32", "fd00::/8"]


def test_a_name_with_nothing_behind_it_is_told() -> None:
    [problem] = problems("network: a\nproviders:\n  p:\n")
    assert (problem.path, problem.line) == ("providers.p", 3)
    assert problem.detail == "wants a section of settings, not nothing"


def test_a_list_has_an_end() -> None:
    models = ", ".join(f"m{n}" for n in range(1025))
    [problem] = problems(SMALL.replace("models: [llama]", f"models: [{models}]"))
    assert (problem.path, problem.detail) == (
        "providers.east-llama.models",
        "has more than 1024 entries, which is the most allowed",
    )


# Values that a hasty hand could put anywhere, as JSON.
JUNK = st.sampled_from(
    (
        *("null", "true", "0", "-1", "1.5", "NaN", '""', '"x"', '"5"', '"2s"', '"http://h/"'),
        *("[]", "[null]", '["x"]', "[{}]", "{}", '{"x": 1}', '{"": {}}'),
    )
)
KEYS = st.sampled_from(
    ["network", "site", "source", "epp", "prometheus", "match", "bands", "name", "header", "labels", "x", "on", "tls"]
)


@given(st.data())
def test_whatever_stands_in_the_file_it_is_loaded_or_refused_with_reasons(data: st.DataObject) -> None:
    tree = load(EXAMPLE, environ={}).redacted()
    for _ in range(data.draw(st.integers(1, 6))):
        node: Any = tree
        while True:
            inner = [key for key, value in node.items() if isinstance(value, dict)]
            if not inner or data.draw(st.booleans()):
                break
            node = node[data.draw(st.sampled_from(inner))]
        key = data.draw(st.sampled_from(sorted(node))) if node and data.draw(st.booleans()) else data.draw(KEYS)
        node[key] = json.loads(data.draw(JUNK))
    for problem in refused(json.dumps(tree)):
        assert problem.line == 1 or problem.path == "network"
        assert problem.detail


def refused(text: str) -> tuple[ConfigProblem, ...]:
    try:
        parse(text)
    except ConfigError as error:
        return error.problems or pytest.fail("refused without a reason")
    return ()


# --- advice ---------------------------------------------------------------------------------------------------------


def advice(text: str) -> dict[str, str]:
    return {problem.path: problem.detail for problem in warnings(parse(text))}


def test_a_configuration_without_providers_or_gateways_is_looked_at_again() -> None:
    found = warnings(parse("network: acme"))
    assert [(one.reason, one.path) for one in found] == [
        (Reason.CONFIG_EMPTY, "providers"),
        (Reason.CONFIG_EMPTY, "gateways"),
    ]
    assert all(one.hint for one in found)


def test_a_sound_configuration_has_no_warnings() -> None:
    assert advice(SMALL) == {}


def test_secrets_in_plain_text_are_pointed_out() -> None:
    text = SMALL.replace("metrics}", "metrics, token_file: t, ca_file: c}").replace(
        "    cluster: east-llama\n",
        "    cluster: east-llama\n    url: http://10.0.0.1\n    upstream: {token_file: t}\n",
    )
    assert advice(text + "bus: {url: redis://10.0.0.1, password_file: p}\n") == {
        "bus.password_file": "the password of Redis crosses the network unencrypted",
        "providers.east-llama.source.token_file": "the token crosses the network unencrypted",
        "providers.east-llama.upstream.token_file": "the token crosses the network unencrypted",
        "providers.east-llama.source.ca_file": "has no effect: the URL is http://, which is not encrypted",
    }


def test_loopback_and_tls_are_no_plain_text() -> None:
    text = SMALL.replace("http://10.0.0.11:9090/metrics}", "https://10.0.0.11:9090/metrics, token_file: t, ca_file: c}")
    assert advice(text + "bus: {url: 'redis://localhost', password_file: p}\n") == {}
    assert advice(text + "bus: {url: rediss://h, password_file: p, tls: {ca_file: c}}\n") == {}


def test_the_same_advice_for_many_providers_is_one_entry() -> None:
    more = "".join(
        f"  p{n}: {{site: east, cluster: c{n}, models: [m], source: {{prometheus: http://h, token_file: t}}}}\n"
        for n in range(5)
    )
    [problem] = warnings(parse(SMALL.replace("gateways:", f"{more}gateways:")))
    assert problem.path == "providers.p0.source.token_file"
    assert problem.detail.endswith("(and 4 more)")


def test_a_gateway_that_nothing_admits_is_pointed_out() -> None:
    text = SMALL.replace("models: [llama]", "models: [llama]\n    access: {sites: [west]}")
    assert advice(text) == {"gateways.edge": "no provider admits this gateway"}


def test_more_candidates_than_a_document_holds_are_pointed_out() -> None:
    models = ", ".join(f"m{n}" for n in range(1024))
    text = SMALL.replace("models: [llama]", f"models: [{models}]\n    tools: [one-more]")
    assert advice(text) == {"gateways.edge": "1025 candidates for this gateway; a document holds 1024 at most"}
    assert advice(SMALL.replace("models: [llama]", f"models: [{models}]")) == {}


def test_weights_that_a_picker_ignores_are_pointed_out() -> None:
    found = advice(gateway("picker: roundRobin, placement: capacity"))
    assert found == {"gateways.edge.placement": "capacity moves weights that picker roundRobin does not look at"}


# --- scale ----------------------------------------------------------------------------------------------------------


def test_a_thousand_providers_load_in_a_moment() -> None:
    lines = [SMALL.split("gateways:", maxsplit=1)[0].rstrip()]
    for n in range(1000):
        lines += [
            f"  p{n}:",
            "    site: west",
            f"    cluster: c{n}",
            f"    url: http://10.0.{n // 256}.{n % 256}:8000",
            "    models: [a, b, c, d]",
            f"    source: {{epp: 'http://10.1.{n // 256}.{n % 256}:9090/metrics', pool: llama, token_file: /t}}",
            "    readiness: {probe: http://10.0.0.1/health}",
            "    max_running: 64",
            "    access: {sites: [east, west]}",
            "    pressure: {enter: 0.9, exit: 0.7, min_time: 5s}",
        ]
    text = "\n".join(lines)
    taken = []
    for _ in range(3):
        begun = time.process_time()
        config = parse(text)
        taken.append(time.process_time() - begun)
    assert len(config.providers) == 1001
    assert min(taken) < (3.0 if sys.gettrace() is None else 15.0)  # coverage traces every line
    assert isinstance(config, Config)
