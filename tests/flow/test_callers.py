"""Who calls: bands and tenants from headers, and only from proxies that are trusted."""

from ipaddress import ip_network

import pytest

from grid.config import parse
from grid.flow import AdmissionPolicy, Band, Caller, CallerRules
from grid.flow.callers import TenantKeys
from grid.model import ConfigError, Reason

CONFIG = """
network: acme
admission:
  interactive:
    bands:
      - {name: platinum, match: {header: X-Priority, value: platinum}, ceiling: 1.5}
      - {name: gold, match: {header: x-priority, value: gold}}
      - {name: bronze, ceiling: 0.7}
    tenant: {header: X-Tenant-Id, cost: tokens}
    max_queued: 7
    max_wait: 3s
  plain:
    bands:
      - {name: only}
"""
TRUSTED = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


def headers(**pairs: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in pairs.items()]


def rules() -> CallerRules:
    return CallerRules.from_config(parse(CONFIG).admission["interactive"], TRUSTED)


def test_a_policy_comes_from_the_configuration() -> None:
    config = parse(CONFIG)
    assert AdmissionPolicy.from_config(config.admission["interactive"]) == AdmissionPolicy(
        bands=(Band("platinum", 1.5), Band("gold", 1.0), Band("bronze", 0.7)), max_queued=7, max_wait=3.0, by_cost=True
    )
    plain = AdmissionPolicy.from_config(config.admission["plain"])
    assert (plain.by_cost, plain.max_queued, plain.max_wait) == (False, 1000, 30.0)
    nobody = CallerRules.from_config(config.admission["plain"], TRUSTED)
    assert nobody.who(headers(x_tenant_id="acme"), "10.0.0.1") == Caller("only", "")


def test_ceilings_that_rise_are_refused_at_load() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(CONFIG.replace("ceiling: 0.7", "ceiling: 1.2"))
    assert caught.value.reason is Reason.CONFIG_CONFLICT


@pytest.mark.parametrize(
    ("sent", "caller"),
    [
        ({"x_priority": "gold", "x_tenant_id": "acme"}, Caller("gold", "acme")),
        ({"x_priority": "platinum"}, Caller("platinum", "")),
        ({"x_priority": "Gold"}, Caller("bronze", "")),
        ({"x_tenant_id": "acme"}, Caller("bronze", "acme")),
        ({}, Caller("bronze", "")),
    ],
)
def test_band_and_tenant_are_read_from_headers(sent: dict[str, str], caller: Caller) -> None:
    assert rules().who(headers(**sent), "10.1.2.3") == caller


@pytest.mark.parametrize("client", ["10.1.2.3", "fd00::1", "::ffff:10.1.2.3"])
def test_trusted_proxies_are_believed(client: str) -> None:
    assert rules().who(headers(x_priority="gold"), client).band == "gold"


@pytest.mark.parametrize("client", ["192.168.0.1", "fe80::1", "not an address", "", None])
def test_nobody_else_is(client: str | None) -> None:
    assert rules().who(headers(x_priority="gold", x_tenant_id="acme"), client) == Caller("bronze", "")


def test_without_trusted_proxies_no_header_counts() -> None:
    none = CallerRules.from_config(parse(CONFIG).admission["interactive"])
    assert none.who(headers(x_priority="gold"), "127.0.0.1") == Caller("bronze", "")


def test_the_first_of_two_headers_counts() -> None:
    twice = headers(x_tenant_id="first") + headers(x_tenant_id="second")
    assert rules().who(twice, "10.0.0.1").tenant == "first"


def test_names_of_tenants_are_hashed_with_a_key() -> None:
    keys, other = TenantKeys(b"one"), TenantKeys(b"two")
    assert keys.of("") == ""
    assert keys.of("acme") == keys.of("acme") != other.of("acme")
    assert len(keys.of("x" * 100_000)) == 16
    assert len(keys.of("\udce9")) == 16


def test_classes_of_tenants_are_bounded() -> None:
    keys = TenantKeys(b"key", classes=4)
    assert {keys.label(keys.of(f"t{number}")) for number in range(200)} == {"c0", "c1", "c2", "c3"}
    assert keys.label("") == "none"
