"""Every key of the example file, wrong in turn: one clear error each, with its line and the way out."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from grid.config import Config, parse
from grid.config.structure import Form, Shape, shape_of
from grid.model import ConfigError, ConfigProblem, Reason
from tests.config.emit import Raw, emit

EXAMPLE = Path(__file__).parents[2] / "docs" / "example.yaml"

TYPE, RANGE = Reason.CONFIG_WRONG_TYPE, Reason.CONFIG_OUT_OF_RANGE
REFERENCE, CONFLICT, MISSING = Reason.CONFIG_BAD_REFERENCE, Reason.CONFIG_CONFLICT, Reason.CONFIG_MISSING_KEY

SECTION = [("5", TYPE, "wants a section of settings, not 5"), ("[]", TYPE, "wants a section of settings, not a list")]
OPTIONAL = [*SECTION, ("", TYPE, "has no content")]
DURATION = [
    ("2", TYPE, "2 has no unit"),
    ("2 seconds", TYPE, "'2 seconds' is no duration"),
    ("[2s]", TYPE, "not a list"),
    ("", TYPE, "has no value"),
]
PERCENT = [
    ("5", TYPE, "5 has no percent sign"),
    ("150%", RANGE, "150% is outside its range"),
    ("x", TYPE, "no percentage"),
]
SIZE = [
    ("67108864", TYPE, "67108864 has no unit"),
    ("1B", RANGE, "1B is outside 1KiB to 4GiB"),
    ("64mib", TYPE, "has no known unit"),
    ("big", TYPE, "'big' is no size"),
]
FLAG = [("yes", TYPE, "wants true or false, not 'yes'"), ("1", TYPE, "not 1"), ("", TYPE, "has no value")]
FILE = [("7", TYPE, "not the bare value 7"), ("''", RANGE, "is blank"), ("", TYPE, "has no value")]
HEADER = [("3", TYPE, "bare value 3"), ("'x y'", RANGE, "'x y' is no header name")]
URL = [
    ("9090", TYPE, "wants a URL, not 9090"),
    ("10.0.0.1:9090", RANGE, "no URL with http:// or https://"),
    ("ftp://host/", RANGE, "'ftp' is neither http nor https"),
    ("http://user:hunter2@host/", RANGE, "user name or password"),
    ("http://host:70000/", RANGE, "no port from 1 to 65535"),
    ("http:///metrics", RANGE, "names no host"),
]
NAME = [("7", TYPE, "bare value 7"), ("East_1", RANGE, "'East_1' is no name"), (f"{'a' * 64}", RANGE, "is no name")]
LABEL = [("7", TYPE, "bare value 7"), ("'a b'", RANGE, "'a b' is no label")]
TEXT = [("7", TYPE, "bare value 7"), ("' '", RANGE, "is blank"), (f"'{'a' * 257}'", RANGE, "has 257 bytes")]


def whole(low: int, high: int) -> list[tuple[str, Reason, str]]:
    return [
        ("many", TYPE, "wants a whole number, not 'many'"),
        ("1.5", TYPE, "wants a whole number, not 1.5"),
        ("true", TYPE, "wants a whole number, not true"),
        ("'7'", TYPE, "not the text '7'"),
        ("", TYPE, "has no value"),
        (str(low - 1), RANGE, f"{low - 1} is outside {low} to {high}"),
        (str(high + 1), RANGE, f"{high + 1} is outside {low} to {high}"),
    ]


def number(high: str, over: str, low: str = "above 0, at most ") -> list[tuple[str, Reason, str]]:
    return [
        ("full", TYPE, "wants a number, not 'full'"),
        ("-1", RANGE, "outside its range"),
        (".nan", RANGE, "NaN is outside its range"),
        (".inf", RANGE, "inf is outside its range"),
        (over, RANGE, f"{over} is outside its range: {low}{high}"),
    ]


def words(*known: str) -> list[tuple[str, Reason, str]]:
    near = known[0][:-1]
    return [("5", RANGE, f"5 is none of {known[0]}"), (near, RANGE, f"'{near}' is none of {', '.join(known)}")]


TLS = {"ca_file": FILE, "cert_file": FILE, "key_file": FILE}

FAULTS: dict[str, list[tuple[str, Reason, str]]] = {
    "network": [*NAME, ("-a", RANGE, "is no name"), ("''", RANGE, "is no name")],
    "daemon": SECTION,
    "daemon.listen": [
        ("7070", TYPE, "bare value 7070"),
        ("localhost", RANGE, "no host:port"),
        ("127.0.0.1:65536", RANGE, "no host:port"),
        ("':7070'", RANGE, "names no host"),
        ("::1:7070", RANGE, "is ambiguous"),
        ("'a b:1'", RANGE, "no host that can be listened on"),
    ],
    "daemon.token_file": FILE,
    "daemon.scrape_interval": [*DURATION, ("10ms", RANGE, "10ms is outside 100ms to 1h")],
    "daemon.scrape_timeout": [*DURATION, ("1h", RANGE, "1h is outside 10ms to 5m")],
    "daemon.scrape_budget": [*PERCENT, ("0%", RANGE, "0% is outside its range: above 0% to 100%")],
    "daemon.freshness": [
        ("30", TYPE, "30 has no unit"),
        ("automatic", TYPE, "'automatic' is no duration"),
        ("3s", CONFLICT, "3s is shorter than scrape_interval + scrape_timeout (4s)"),
        ("2d", RANGE, "2d is outside 100ms to 1d"),
    ],
    "daemon.state_dir": FILE,
    "bus": SECTION,
    "bus.url": [
        ("6379", TYPE, "wants the address of a bus, not 6379"),
        ("http://h", RANGE, "'http' is neither embedded nor a known scheme"),
        ("redis://u:hunter2@h", RANGE, "has a password in it"),
        ("redis://:hunter2@h", RANGE, "has a password in it"),
        ("redis://h?password=hunter2", RANGE, "has a password in it"),
        ("redis://h?db=1", RANGE, "has a query or a fragment"),
        ("redis://h:x", RANGE, "no port"),
        ("redis://", RANGE, "names no host"),
        ("redis://h/x", RANGE, "names the database 'x'"),
        ("redis://a,b", RANGE, "names several hosts"),
        ("redis+sentinel://a,b", RANGE, "names no master"),
        ("redis+cluster://a/3", RANGE, "names the database '3'"),
        ("unix://redis.sock", RANGE, "names no absolute socket path"),
    ],
    "bus.username": TEXT,
    "bus.password_file": FILE,
    "bus.tls": OPTIONAL,
    **{f"bus.tls.{key}": faults for key, faults in TLS.items()},
    "bus.lease": [*DURATION, ("100ms", RANGE, "100ms is outside 1s to 10m")],
    "bus.history": whole(1, 100_000),
    "bus.sign_key_file": FILE,
    "sites": SECTION,
    "sites.east.region": LABEL,
    "sites.east.zone": LABEL,
    "sites.east.labels": SECTION,
    "sites.east.labels.tier": LABEL,
    "providers": SECTION,
    "providers.east-llama": SECTION,
    "providers.east-llama.site": [*NAME, ("esat", REFERENCE, "'esat' is no site of this file")],
    "providers.east-llama.cluster": [
        ("7", TYPE, "bare value 7"),
        ("'a b'", RANGE, "'a b' is no cluster name"),
        ("a" * 257, RANGE, "is no cluster name"),
    ],
    "providers.east-llama.url": URL,
    "providers.east-llama.upstream": OPTIONAL,
    "providers.east-llama.upstream.token_file": FILE,
    **{f"providers.east-llama.upstream.{key}": faults for key, faults in TLS.items()},
    "providers.east-llama.models": [
        ("llama", TYPE, "wants a list, not 'llama'"),
        ("[a, a]", CONFLICT, "names 'a' twice"),
    ],
    "providers.east-llama.tools": [("search", TYPE, "wants a list"), ("[a, b, a]", CONFLICT, "names 'a' twice")],
    "providers.east-llama.source": [
        ("http://h/metrics", TYPE, "wants a section of settings"),
        ("{}", MISSING, "names neither epp nor prometheus"),
        ("{epp: http://h, prometheus: http://h}", CONFLICT, "names both epp and prometheus"),
        ("{prometheus: http://h, max_page: 1MiB}", Reason.CONFIG_UNKNOWN_KEY, "no setting of a source that names prom"),
    ],
    "providers.east-llama.source.epp": URL,
    "providers.east-llama.source.pool": TEXT,
    "providers.east-llama.source.token_file": FILE,
    **{f"providers.east-llama.source.{key}": faults for key, faults in TLS.items()},
    "providers.east-llama.source.max_page": SIZE,
    "providers.east-llama.readiness": OPTIONAL,
    "providers.east-llama.readiness.probe": URL,
    "providers.east-llama.max_running": whole(1, 1_000_000),
    "providers.east-llama.queue_capacity": number("1e+06", "1000001"),
    "providers.east-llama.kv_ceiling": number("1", "1.01"),
    "providers.east-llama.capacity_weight": whole(1, 1000),
    "providers.east-llama.access": OPTIONAL,
    "providers.east-llama.access.sites": [
        ("east", TYPE, "wants a list"),
        ("[]", RANGE, "names no site"),
    ],
    "providers.east-llama.access.labels": SECTION,
    "providers.east-llama.access.labels.tier": LABEL,
    "providers.east-llama.pressure": OPTIONAL,
    "providers.east-llama.pressure.enter": number("10", "11"),
    "providers.east-llama.pressure.exit": [
        *number("10", "11"),
        ("0.85", CONFLICT, "0.85 is not below enter (0.85)"),
    ],
    "providers.east-llama.pressure.enter_scrapes": whole(1, 100),
    "providers.east-llama.pressure.exit_scrapes": whole(1, 100),
    "providers.east-llama.pressure.min_time": [*DURATION, ("2h", RANGE, "2h is outside 0s to 1h")],
    "providers.east-llama.pressure.hold_down": [*DURATION, ("2h", RANGE, "2h is outside 0s to 1h")],
    "providers.east-llama.disabled": FLAG,
    "providers.west-llama.source.prometheus": URL,
    "providers.west-llama.source.match": SECTION,
    "providers.west-llama.source.match.cluster": TEXT,
    "providers.west-llama.source.pool": TEXT,
    "providers.west-llama.source.token_file": FILE,
    **{f"providers.west-llama.source.{key}": faults for key, faults in TLS.items()},
    "gateways": SECTION,
    "gateways.edge-east": SECTION,
    "gateways.edge-east.site": [*NAME, ("weest", REFERENCE, "'weest' is no site of this file")],
    "gateways.edge-east.namespace": NAME,
    "gateways.edge-east.contract": words("grid", "praxis-grouped", "praxis-ordered"),
    "gateways.edge-east.order": words("geographyFirst", "scoreFirst"),
    "gateways.edge-east.placement": words("static", "capacity", "headroom"),
    "gateways.edge-east.picker": words("deterministic", "roundRobin", "random", "weightedRandom", "saturation"),
    "gateways.edge-east.spill": [*number("100", "101"), ("1.5", CONFLICT, "1.25 is below spill (1.5)")],
    "gateways.edge-east.overflow": [*number("100", "101"), ("0.5", CONFLICT, "0.5 is below spill (1)")],
    "gateways.edge-east.affinity": [*OPTIONAL, ("{}", MISSING, "names neither header nor cookie")],
    "gateways.edge-east.affinity.header": HEADER,
    "gateways.edge-east.affinity.cookie": [("3", TYPE, "bare value 3"), ("'a;b'", RANGE, "'a;b' is no cookie name")],
    "gateways.edge-east.affinity.ttl": [*DURATION, ("8d", RANGE, "8d is outside 1s to 7d")],
    "gateways.edge-east.affinity.mode": words("table", "hash"),
    "gateways.edge-east.affinity.max_sessions": whole(1, 10_000_000),
    "gateways.edge-east.retry": OPTIONAL,
    "gateways.edge-east.retry.budget": PERCENT,
    "gateways.edge-east.retry.min_per_s": number("10000", "10001", "0 to "),
    "gateways.edge-east.retry.on": [("connect", TYPE, "wants a list, not 'connect'"), ("503", TYPE, "not 503")],
    "gateways.edge-east.rescue": FLAG,
    "gateways.edge-east.max_body": SIZE,
    "gateways.edge-east.metrics_listen": [("9464", TYPE, "bare value 9464"), ("host", RANGE, "no host:port")],
    "gateways.edge-east.data_plane": OPTIONAL,
    "gateways.edge-east.data_plane.envoy_admin": URL,
    "gateways.edge-east.trusted_proxies": [("10.0.0.0/8", TYPE, "wants a list")],
    "gateways.edge-east.admission": [*NAME, ("interactve", REFERENCE, "is no admission policy of this file")],
    "admission": SECTION,
    "admission.interactive": SECTION,
    "admission.interactive.bands": [("gold", TYPE, "wants a list"), ("[]", RANGE, "wants 1 entry at least")],
    "admission.interactive.bands[0].name": [*NAME, ("bronze", CONFLICT, "'bronze' is a band already")],
    "admission.interactive.bands[0].match": OPTIONAL,
    "admission.interactive.bands[0].match.header": HEADER,
    "admission.interactive.bands[0].match.value": [*TEXT, ("gold", CONFLICT, "band platinum takes these requests")],
    "admission.interactive.bands[0].ceiling": number("100", "101"),
    "admission.interactive.bands[2].ceiling": [("1.2", CONFLICT, "1.2 is above the ceiling of the band before it")],
    "admission.interactive.tenant": OPTIONAL,
    "admission.interactive.tenant.header": HEADER,
    "admission.interactive.tenant.cost": words("requests", "tokens"),
    "admission.interactive.max_queued": whole(1, 1_000_000),
    "admission.interactive.max_wait": [*DURATION, ("2h", RANGE, "2h is outside 1ms to 1h")],
}

# Where a fault shows at another key than the one that was changed.
SHOWN_AT = {
    ("gateways.edge-east.spill", "1.5"): "gateways.edge-east.overflow",
    ("admission.interactive.bands[0].name", "bronze"): "admission.interactive.bands[2].name",
    ("admission.interactive.bands[0].match.value", "gold"): "admission.interactive.bands[1].match",
    ("providers.east-llama.source", "{prometheus: http://h, max_page: 1MiB}"): "providers.east-llama.source.max_page",
}


def example() -> dict[str, Any]:
    tree = yaml.safe_load(EXAMPLE.read_text())
    # YAML 1.1, which this oracle reads, takes the key on for a boolean.
    retry = tree["gateways"]["edge-east"]["retry"]
    retry["on"] = retry.pop(True)
    return dict(tree)


def steps(path: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in path.replace("[", ".").replace("]", "").split(".")]


def put(tree: Any, path: str, value: Any) -> None:
    *around, last = steps(path)
    for part in around:
        tree = tree[part]
    tree[last] = value


def get(tree: Any, path: str) -> Any:
    for part in steps(path):
        tree = tree[part]
    return tree


def problems(text: str) -> tuple[ConfigProblem, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.problems


def settings(shape: Shape, tree: Any, path: str = "") -> list[str]:
    """Every path of a setting that ``tree`` has; names in maps and entries of lists are no settings themselves."""
    found = []
    if shape.form is Form.LIST and shape.item is not None and shape.item.form is Form.SECTION:
        for index, item in enumerate(tree):
            found += settings(shape.item, item, f"{path}[{index}]")
    if not isinstance(tree, dict):
        return found
    for key, value in tree.items():
        here = f"{path}.{key}" if path else key
        if shape.form is Form.SECTION:
            found.append(here)
        found += settings(shape.at(key), value, here)
    return found


SETTINGS = settings(shape_of(Config), example())
CASES = [(path, value, reason, part) for path, faults in FAULTS.items() for value, reason, part in faults]


def test_the_example_loads_and_shows_every_setting() -> None:
    text = EXAMPLE.read_text()
    assert parse(text).network == "acme"
    possible: set[tuple[str, ...]] = set()

    def collect(shape: Shape, at: tuple[str, ...]) -> None:
        if shape.form is Form.SECTION and at:
            possible.add(at)
        for kind in shape.variants or (shape,):
            for key, inner in kind.fields.items():
                possible.add((*at, key))
                collect(inner, (*at, key))
        if shape.item is not None:
            collect(shape.item, (*at, "*"))

    collect(shape_of(Config), ())
    shown: set[tuple[str, ...]] = set()

    def walk(shape: Shape, tree: Any, at: tuple[str, ...]) -> None:
        shown.add(at)
        if isinstance(tree, dict):
            for key, value in tree.items():
                walk(shape.at(key), value, (*at, "*" if shape.form is Form.MAP else key))
        if isinstance(tree, list):
            for item in tree:
                walk(shape.item or shape, item, (*at, "*"))

    walk(shape_of(Config), example(), ())
    assert not possible - shown


def test_the_table_covers_every_setting() -> None:
    # A second site, provider and band show other values of settings that are in the table once.
    same = {"sites.west.region": "sites.east.region", "sites.west.zone": "sites.east.zone"}
    for key in ("site", "cluster", "models", "source"):
        same[f"providers.west-llama.{key}"] = f"providers.east-llama.{key}"
    for path in SETTINGS:
        for index in (1, 2):
            if path.startswith(f"admission.interactive.bands[{index}]"):
                same[path] = path.replace(f"[{index}]", "[0]")
    assert [path for path in SETTINGS if same.get(path, path) not in FAULTS] == []


@pytest.mark.parametrize(("path", "value", "reason", "part"), CASES, ids=[f"{c[0]}={c[1][:20]}" for c in CASES])
def test_a_wrong_value_gives_one_error_with_its_line(path: str, value: str, reason: Reason, part: str) -> None:
    tree = example()
    put(tree, path, Raw(value))
    text, where = emit(tree)
    [problem] = problems(text)
    expected = SHOWN_AT.get((path, value), path)
    assert (problem.path, problem.reason) == (expected, reason)
    assert problem.line == where.get(expected, where[path])
    assert part in problem.detail
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize("path", SETTINGS)
def test_a_misspelt_key_gives_one_error_with_the_right_one(path: str) -> None:
    around, _, key = path.rpartition(".")
    wrong = key.replace("_", "-") if "_" in key else key + key[-1]
    tree = example()
    inside = get(tree, around) if around else tree
    inside[wrong] = copy.deepcopy(inside[key])
    text, where = emit(tree)
    [problem] = problems(text)
    misspelt = path[: len(path) - len(key)] + wrong
    assert problem.reason is Reason.CONFIG_UNKNOWN_KEY
    assert (problem.path, problem.line) == (misspelt, where[misspelt])
    assert problem.hint == f"did you mean {key}?"


@pytest.mark.parametrize("path", SETTINGS)
def test_a_key_that_stands_twice_gives_one_error_with_both_lines(path: str) -> None:
    text, where = emit(example())
    lines = text.splitlines()
    first = where[path]
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip(" "))
    end = next(
        (at for at in range(first, len(lines)) if len(lines[at]) - len(lines[at].lstrip(" ")) <= indent), len(lines)
    )
    lines[end:end] = lines[first - 1 : end]
    [problem] = problems("\n".join(lines))
    assert problem.reason is Reason.CONFIG_DUPLICATE_KEY
    assert (problem.path, problem.line) == (path, end + 1)
    assert f"first on line {first}" in problem.hint


REQUIRED = [
    "network",
    "providers.east-llama.site",
    "providers.east-llama.cluster",
    "providers.east-llama.source",
    "providers.east-llama.readiness.probe",
    "gateways.edge-east.site",
    "gateways.edge-east.data_plane.envoy_admin",
    "admission.interactive.bands",
    "admission.interactive.bands[0].name",
    "admission.interactive.bands[0].match.header",
    "admission.interactive.bands[0].match.value",
    "admission.interactive.tenant.header",
]


@pytest.mark.parametrize("path", SETTINGS)
def test_only_required_settings_are_missed(path: str) -> None:
    tree = example()
    around, _, key = path.rpartition(".")
    inside = get(tree, around) if around else tree
    del inside[key]
    if not inside and around:
        put(tree, around, {})
    text, where = emit(tree)
    same_elsewhere = path.replace("west-llama", "east-llama").replace("[1]", "[0]").replace("[2]", "[0]")
    if same_elsewhere in REQUIRED:
        [problem] = problems(text)
        assert (problem.reason, problem.path) == (Reason.CONFIG_MISSING_KEY, path)
        assert problem.line == (where[around] if around else None)
    elif path in AFTERMATH:
        # What is left contradicts itself; that is said where it is, not as a missing setting.
        assert all(problem.path != path for problem in problems(text))
    else:
        parse(text)


# Removing these leaves a contradiction behind.
AFTERMATH = {
    "bus.tls.cert_file",
    "bus.tls.key_file",
    "sites",
    "sites.east.region",
    "sites.west.region",
    "providers.east-llama.url",
    "providers.east-llama.source.epp",
    "providers.west-llama.source.prometheus",
    "providers.west-llama.models",
    "admission",
    "admission.interactive.bands[0].match",
    "admission.interactive.bands[1].match",
    *(
        f"providers.{provider}.{section}.{key}"
        for provider in ("east-llama", "west-llama")
        for section in ("upstream", "source")
        for key in ("cert_file", "key_file")
    ),
}


def test_every_fault_is_reported_at_once() -> None:
    """One wrong value for each setting that is a leaf, all in one file: as many problems as faults."""
    tree = example()
    changed = []
    for path, faults in FAULTS.items():
        value = get(tree, path)
        if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
            continue
        wrong = next((value for value, reason, _ in faults if reason in (TYPE, RANGE)), None)
        if wrong is None:
            continue
        put(tree, path, Raw(wrong))
        changed.append(path)
    text, where = emit(tree)
    found = problems(text)
    assert sorted(problem.path for problem in found) == sorted(changed)
    assert [problem.line for problem in found] == sorted(where[path] for path in changed)
