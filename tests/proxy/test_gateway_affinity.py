"""Sessions: from a header or a cookie, by tenant where that is believed."""

from collections import Counter
from typing import Any

import pytest

from grid.model import AdmissionState
from tests.overlay.build import candidate, envelope
from tests.proxy.rig import Rig, rig

NAMES = ("a", "b", "c", "d")


async def sites(made: Rig, headers: dict[str, str] | None = None, number: int = 12) -> Counter[str]:
    """Where so many requests with these headers went."""
    return Counter([(await made.ask(headers=headers))[1]["x-grid-site"] for _ in range(number)])


async def test_a_session_stays_where_it_began() -> None:
    async with rig(*NAMES, affinity={"header": "X-Session-Id"}) as made:
        homes = [next(iter(await sites(made, {"x-session-id": f"session-{n}"}))) for n in range(12)]
        for number, home in enumerate(homes):
            assert await sites(made, {"X-Session-ID": f" session-{number} "}, 4) == {home: 4}
        assert len(set(homes)) > 1
        assert sum(made.counted(name, "affinity") for name in NAMES) == 12 * 11 + 12 * 4
        assert len(await sites(made, number=60)) == 4, "without one it goes anywhere"


async def test_the_cookie_where_there_is_no_header() -> None:
    async with rig(*NAMES, affinity={"header": "x-session-id", "cookie": "Sid"}) as made:
        (home,) = await sites(made, {"cookie": "other=1; Sid=abc; more=2"})
        assert await sites(made, {"x-session-id": "abc"}) == {home: 12}, "the same key by another way"
        elsewhere = await sites(made, {"cookie": "Sid=abc", "x-session-id": "another"})
        assert len(elsewhere) == 1
        for useless in ("sid=abc", "Sid=", "Sid=" + "x" * 257, "Sid", "xSid=abc"):
            assert len(await sites(made, {"cookie": useless}, 40)) > 1
        assert len(await sites(made, {"x-session-id": "x" * 257}, 40)) > 1
        assert await sites(made, {"x-session-id": "x" * 257, "cookie": "Sid=abc"}) == {home: 12}


async def test_all_gateways_agree_where_the_session_is_hashed() -> None:
    settings: dict[str, Any] = {"affinity": {"header": "x-session-id", "mode": "hash"}}
    async with rig(*NAMES, **settings) as one, rig(*NAMES, **settings) as other:
        for number in range(8):
            session = {"x-session-id": f"session-{number}"}
            assert set(await sites(one, session, 2)) == set(await sites(other, session, 2))


async def test_one_that_takes_only_its_sessions_keeps_them() -> None:
    async with rig("east", "west", affinity={"header": "x-session-id"}) as made:
        mine = {"x-session-id": "mine"}
        (home,) = await sites(made, mine, 3)
        other = {"east": "west", "west": "east"}[home]
        held = [
            candidate(f"{home}-llama", rank=1, selection_group=1, admission_state=AdmissionState.EXISTING_ONLY),
            candidate(f"{other}-llama", rank=0, selection_group=0),
        ]
        made.gateway.client.apply(envelope(held[1], held[0]))
        assert await sites(made, mine, 3) == {home: 3}
        assert await sites(made, number=6) == {other: 6}


@pytest.mark.parametrize("trusted", [True, False])
async def test_tenants_have_sessions_of_their_own_where_their_header_is_believed(trusted: bool) -> None:
    def admission(settings: dict[str, Any]) -> None:
        settings["admission"] = {"fair": {"bands": [{"name": "all"}], "tenant": {"header": "x-tenant"}}}
        settings["gateways"]["edge"] |= {
            "admission": "fair", "affinity": {"header": "x-session-id"},
            "trusted_proxies": ["127.0.0.0/8"] if trusted else [],
        }  # fmt: skip

    async with rig(*NAMES, change=admission) as made:
        homes = [next(iter(await sites(made, {"x-session-id": "s", "x-tenant": f"tenant-{n}"}, 2))) for n in range(16)]
        assert (len(set(homes)) > 1) is trusted
