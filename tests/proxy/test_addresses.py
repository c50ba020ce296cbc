"""Names of providers and the addresses behind them."""

import asyncio
import socket
import threading
import time
from collections.abc import Sequence

import pytest

from grid.config import parse
from grid.proxy.addresses import Addresses, endpoints, look_up
from grid.proxy.eds import Endpoint, Place
from tests.proxy.words import config_text
from tests.support.until import PATIENCE

PLACE: Place = ("east", "east-llama")


class Names:
    """A name server of ours."""

    def __init__(self, **known: Sequence[str]) -> None:
        self.known = dict(known)
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        self.gate.wait(30)
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.known[host]


def filled(addresses: Addresses, host: str) -> Endpoint:
    return addresses.fill({PLACE: Endpoint(host, 80)})[PLACE]


class TestConfiguration:
    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("http://10.0.0.10:8000", Endpoint("10.0.0.10", 8000, addresses=("10.0.0.10",))),
            ("http://10.0.0.10", Endpoint("10.0.0.10", 80, addresses=("10.0.0.10",))),
            ("https://api.east.test/", Endpoint("api.east.test", 443, tls=True)),
            ("http://[2001:DB8::1]:8000", Endpoint("2001:db8::1", 8000, addresses=("2001:db8::1",))),
            (None, Endpoint("", 0, problem="provider east-llama has no url")),
        ],
    )
    def test_what_a_url_says(self, url: str | None, expected: Endpoint) -> None:
        assert endpoints(parse(config_text("embedded", {"east": url}))) == {PLACE: expected}

    @pytest.mark.parametrize("url", ["http://10.0.0.10/east", "http://10.0.0.10/?pool=east"])
    def test_a_path_cannot_be_had(self, url: str) -> None:
        (found,) = endpoints(parse(config_text("embedded", {"east": url}))).values()
        assert "east-llama has a path" in found.problem
        assert found.addresses == ()
        assert filled(Addresses(Names()), "x").addresses == ()


class TestLookingUp:
    async def test_all_addresses_of_one_family_lowest_first(self) -> None:
        addresses = Addresses(
            Names(both=["::1", "10.0.0.2", "10.0.0.10", "10.0.0.2"], six=["2001:db8::2", "2001:db8::1"])
        )
        assert await addresses.refresh(["both", "six"]) is True
        assert filled(addresses, "both").addresses == ("10.0.0.2", "10.0.0.10")
        assert filled(addresses, "six").addresses == ("2001:db8::1", "2001:db8::2")

    async def test_a_change_is_noticed_and_no_change_is_none(self) -> None:
        names = Names(api=["10.0.0.1"])
        addresses = Addresses(names)
        assert addresses.unasked(["api"]) == {"api"}
        assert await addresses.refresh(["api"]) is True
        assert addresses.unasked(["api"]) == set()
        assert await addresses.refresh(["api"]) is False
        names.known["api"] = ["10.0.0.2"]
        assert await addresses.refresh(["api"]) is True
        assert filled(addresses, "api").addresses == ("10.0.0.2",)

    @pytest.mark.parametrize("now", [None, ()])
    async def test_the_last_good_answer_stays(self, now: Sequence[str] | None) -> None:
        names = Names(api=["10.0.0.1"])
        addresses = Addresses(names)
        await addresses.refresh(["api"])
        names.known = {} if now is None else {"api": now}
        assert await addresses.refresh(["api"]) is False
        assert filled(addresses, "api") == Endpoint("api", 80, addresses=("10.0.0.1",))
        assert list(addresses.problems(["api"])) == ["api"]
        names.known["api"] = ["10.0.0.1"]
        await addresses.refresh(["api"])
        assert addresses.problems(["api"]) == {}

    async def test_what_never_resolved_says_why(self) -> None:
        addresses = Addresses(Names())
        assert filled(addresses, "api").problem == "api is not looked up yet"
        assert await addresses.refresh(["api"]) is False
        assert filled(addresses, "api") == Endpoint(
            "api", 80, problem="api does not resolve: Name or service not known"
        )

    async def test_a_name_that_is_none(self) -> None:
        addresses = Addresses()
        await addresses.refresh(["a" * 300 + ".test"])
        assert "does not resolve" in filled(addresses, "a" * 300 + ".test").problem

    async def test_addresses_of_an_earlier_run_serve_until_the_first_answer(self) -> None:
        names = Names(api=["10.0.0.9"])
        addresses = Addresses(names)
        addresses.remember({"api": ("10.0.0.1",)})
        assert addresses.unasked(["api"]) == set()
        assert filled(addresses, "api").addresses == ("10.0.0.1",)
        await addresses.refresh(["api"])
        assert filled(addresses, "api").addresses == ("10.0.0.9",)

    async def test_a_look_up_that_hangs_is_left_and_not_joined_by_more(self) -> None:
        names = Names(api=["10.0.0.1"])
        names.gate.clear()
        addresses = Addresses(names, deadline=0.05)
        begun = time.monotonic()
        try:
            for _ in range(3):
                await addresses.refresh(["api"])
            assert time.monotonic() - begun < 15
            assert names.asked == ["api"]
            assert filled(addresses, "api").problem == "no answer for api within 0.05 s"
        finally:
            names.gate.set()
        async with asyncio.timeout(PATIENCE):
            while not filled(addresses, "api").addresses:
                await addresses.refresh(["api"])

    async def test_one_slow_name_does_not_hold_up_another(self) -> None:
        slow = threading.Event()

        def ask(host: str) -> Sequence[str]:
            if host == "slow":
                slow.wait(30)
            return ["10.0.0.1"]

        addresses = Addresses(ask, deadline=1.0)
        try:
            await addresses.refresh(["slow", "quick"])
            assert filled(addresses, "quick").addresses == ("10.0.0.1",)
            assert filled(addresses, "slow").addresses == ()
        finally:
            slow.set()

    def test_the_systems_own_look_up(self) -> None:
        assert "127.0.0.1" in look_up("localhost") or "::1" in look_up("localhost")
