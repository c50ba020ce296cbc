"""The forms of bus.url."""

import pytest

from grid.bus.address import BusAddress, Place
from grid.model import ConfigError, Reason


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("embedded", BusAddress(Place.EMBEDDED)),
        ("redis://localhost", BusAddress(Place.STANDALONE, (("localhost", 6379),))),
        ("redis://h:7000/3", BusAddress(Place.STANDALONE, (("h", 7000),), db=3)),
        ("rediss://h:7000/", BusAddress(Place.STANDALONE, (("h", 7000),), tls=True)),
        ("redis://[::1]:7000", BusAddress(Place.STANDALONE, (("::1", 7000),))),
        ("unix:///run/redis.sock", BusAddress(Place.UNIX, path="/run/redis.sock")),
        (
            "redis+sentinel://a,b:7001/mymaster",
            BusAddress(Place.SENTINEL, (("a", 26379), ("b", 7001)), master="mymaster"),
        ),
        ("redis+sentinel://a/m/2", BusAddress(Place.SENTINEL, (("a", 26379),), master="m", db=2)),
        ("rediss+sentinel://a/m", BusAddress(Place.SENTINEL, (("a", 26379),), master="m", tls=True)),
        ("redis+cluster://a,b:7001", BusAddress(Place.CLUSTER, (("a", 6379), ("b", 7001)))),
        ("rediss+cluster://a", BusAddress(Place.CLUSTER, (("a", 6379),), tls=True)),
        (
            "redis://us%3Aer:pass@h",
            BusAddress(Place.STANDALONE, (("h", 6379),), username="us:er", password="pass"),
        ),
        ("redis://:pass@h", BusAddress(Place.STANDALONE, (("h", 6379),), password="pass")),
    ],
)
def test_forms(url: str, expected: BusAddress) -> None:
    assert BusAddress.parse(url) == expected


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "unknown scheme"),
        ("localhost:6379", "unknown scheme"),
        ("http://h", "unknown scheme"),
        ("redis+proxy://h", "unknown scheme"),
        ("redis://", "no host"),
        ("redis://h:port", "port"),
        ("redis://h:70000", "port"),
        ("redis://h/x", "database"),
        ("redis://a,b", "several hosts"),
        ("redis://h?db=1", "query"),
        ("redis://[::1", "cannot be read"),
        ("unix://run/redis.sock", "three slashes"),
        ("redis+sentinel://a,b", "no master"),
        ("redis+cluster://a/1", "only database 0"),
    ],
)
def test_faults_are_named(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        BusAddress.parse(url)
    assert caught.value.problems[0].reason is Reason.CONFIG_OUT_OF_RANGE
    assert "redis+sentinel://" in caught.value.problems[0].hint


@pytest.mark.parametrize("url", ["redis://u:hunter2@h/x", "redis://u:hunter2@a,b", "http://u:hunter2@h"])
def test_a_refused_url_does_not_give_the_password_away(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BusAddress.parse(url)
    assert "hunter2" not in str(caught.value) + str(caught.value.problems)


def test_neither_str_nor_repr_shows_the_password() -> None:
    address = BusAddress.parse("rediss+sentinel://u:hunter2@[::1]:7,b/m/4")
    assert str(address) == "rediss+sentinel://[::1]:7,b:26379/m/4"
    assert "hunter2" not in repr(address)
