"""The JSON Schema says what the loader does."""

from pathlib import Path
from typing import Any

import yaml

from grid.config import Config, json_schema, parse

EXAMPLE = Path(__file__).parents[2] / "docs" / "example.yaml"


def resolved(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        inner = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
        return {**inner, **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def walk(value: Any, node: dict[str, Any], schema: dict[str, Any], path: str) -> None:
    """Follow the example through the schema: everything in it has a place there."""
    node = resolved(node, schema)
    if "oneOf" in node:
        kinds = [resolved(kind, schema) for kind in node["oneOf"]]
        [node] = [kind for kind in kinds if set(kind["required"]) <= value.keys()]
    if isinstance(value, dict):
        assert node["type"] == "object", path
        for key, inner in value.items():
            place = node.get("properties", {}).get(key, node.get("additionalProperties"))
            assert isinstance(place, dict), f"{path}.{key}"
            walk(inner, place, schema, f"{path}.{key}")
    elif isinstance(value, list):
        assert node["type"] == "array", path
        for item in value:
            walk(item, node["items"], schema, path)
    elif isinstance(value, str):
        assert node.get("type", "string") == "string" or "anyOf" in node, path


def test_the_example_has_a_place_in_the_schema() -> None:
    schema = json_schema()
    walk(parse(EXAMPLE.read_text()).redacted(), schema, schema, "")


def test_every_section_is_closed_and_every_setting_described() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for name, section in {"": schema, **schema["$defs"]}.items():
        assert section["additionalProperties"] is False, name
        for key, setting in section["properties"].items():
            assert len(setting["description"]) > 10, f"{name}.{key}"
            assert "null" not in str(setting.get("anyOf")), f"{name}.{key}"
            assert "``" not in setting["description"]


def test_values_with_units_say_so() -> None:
    sections = json_schema()["$defs"]
    interval = sections["DaemonConfig"]["properties"]["scrape_interval"]
    assert interval["x-unit"] == "duration"
    assert (interval["default"], interval["x-minimum"], interval["x-maximum"]) == ("2s", "100ms", "1h")
    assert sections["EppSource"]["properties"]["max_page"]["default"] == "64MiB"
    assert sections["DaemonConfig"]["properties"]["scrape_budget"]["default"] == "5%"
    assert sections["DaemonConfig"]["properties"]["listen"]["default"] == "127.0.0.1:7070"
    assert sections["DaemonConfig"]["properties"]["freshness"]["default"] == "auto"
    assert "default" not in sections["DaemonConfig"]["properties"]["token_file"]


def test_the_schemas_defaults_are_the_loaders() -> None:
    """Written out into a file, the defaults of the schema change nothing."""
    schema = json_schema()

    def defaults(section: str) -> dict[str, Any]:
        properties = schema["$defs"][section]["properties"]
        return {key: setting["default"] for key, setting in properties.items() if "default" in setting}

    bare: dict[str, Any] = {
        "network": "a",
        "sites": {"s": {}},
        "providers": {
            "p": {"site": "s", "cluster": "c", "models": ["m"], "source": {"epp": "http://h/"}, "pressure": {}}
        },
        "gateways": {"g": {"site": "s", "affinity": {"header": "x"}, "admission": "a"}},
        "admission": {"a": {"bands": [{"name": "b"}], "tenant": {"header": "y"}}},
    }
    full = yaml.safe_load(yaml.safe_dump(bare))
    full["daemon"], full["bus"] = defaults("DaemonConfig"), defaults("BusConfig")
    provider = full["providers"]["p"]
    provider.update({**defaults("ProviderConfig"), "models": ["m"]})
    provider["source"].update(defaults("EppSource"))
    provider["pressure"] = defaults("PressureConfig")
    gateway = full["gateways"]["g"]
    gateway.update({**defaults("GatewayConfig"), "retry": defaults("RetryConfig")})
    gateway["affinity"].update(defaults("AffinityConfig"))
    full["admission"]["a"].update(defaults("AdmissionConfig"))
    full["admission"]["a"]["bands"][0].update(defaults("Band"))
    full["admission"]["a"]["tenant"].update(defaults("TenantConfig"))
    # The dumper of YAML 1.1 quotes the key on, so the text is the same in 1.2.
    written = parse(yaml.safe_dump(full))
    assert isinstance(written, Config)
    assert written == parse(yaml.safe_dump(bare))
