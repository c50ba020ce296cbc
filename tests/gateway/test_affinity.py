"""Sessions stay where their cache is."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.gateway import Affinity, Router, RoutingError, Settings
from grid.gateway.affinity import AffinityTable, Bound, bounded, ranking, seed, session_key
from grid.model import AdmissionState, Kind, Picker, Reason
from tests.gateway.stage import Time, chi_square, frame, grouped, hold, loads, members, router, signal
from tests.overlay.build import envelope

EXISTING, NEW, NONE = AdmissionState.EXISTING_ONLY, AdmissionState.NEW_AND_EXISTING, AdmissionState.NONE


def table(*groups: int | None, clock: Time | None = None, **affinity: Any) -> Router:
    return router(*groups, clock=clock, settings=Settings(affinity=Affinity(**affinity)))


def hashing(*groups: int | None, picker: Picker = Picker.SATURATION, seed: int = 1, **settings: Any) -> Router:
    affinity = Affinity(hashed=True, secret=b"acme")
    return router(*groups, picker=picker, seed=seed, settings=Settings(affinity=affinity, **settings))


# --- table ----------------------------------------------------------------------------------------------------------


def test_a_session_returns_to_where_it_began() -> None:
    made = table(0, 0, 0)
    first = made.pick("llama", session="s")
    assert (first.affinity, first.case) == (Bound.CREATED, "two_drawn")
    hold(made, int(first.site[1:]), 8)
    for _ in range(20):
        again = made.pick("llama", session="s")
        assert (again.site, again.affinity, again.case) == (first.site, Bound.REUSED, "bound")
    assert made.sessions == 1


def test_sessions_are_told_apart_by_tenant_and_capability() -> None:
    made = table(0, 0, 0)
    made.pick("llama", session="s", tenant="a")
    assert made.pick("llama", session="s", tenant="b").affinity is Bound.CREATED
    assert made.pick("llama", session="s").affinity is Bound.CREATED
    assert made.pick("llama", session="s", tenant="a").affinity is Bound.REUSED
    assert made.sessions == 3
    parts = [("a", "m", "s"), ("a", "ms", ""), ("am", "", "s"), ("", "m", "as")]
    keys = {session_key(b"k", kind, name, text, tenant) for tenant, name, text in parts for kind in Kind}
    assert len(keys) == 8
    assert session_key(b"k", Kind.MCP_TOOL, "m", "\ud800") != session_key(b"j", Kind.MCP_TOOL, "m", "\ud800")


@pytest.mark.parametrize("session", [None, ""])
def test_no_session_is_no_affinity(session: str | None) -> None:
    made = table(0, 0)
    decision = made.pick("llama", session=session)
    assert (decision.affinity, made.sessions) == (Bound.NONE, 0)


def test_without_affinity_a_session_means_nothing() -> None:
    made = router(0, 0)
    assert made.pick("llama", session="s").affinity is Bound.NONE
    assert made.sessions == 0


def test_what_is_held_back_keeps_its_sessions_and_takes_no_new_ones() -> None:
    made = table(0, 0)
    homes = {f"s{n}": made.pick("llama", session=f"s{n}").site for n in range(40)}
    made.apply(grouped(0, 1, states=(NEW, EXISTING)))
    for session, home in homes.items():
        again = made.pick("llama", session=session)
        assert (again.site, again.fallback, again.spilled, again.reason) == (home, False, False, "affinity")
    assert {made.pick("llama", session=f"new{n}").site for n in range(40)} == {"s0"}
    made.apply(grouped(0, 1, states=(EXISTING, EXISTING)))
    assert made.pick("llama", session="s1").affinity is Bound.REUSED
    with pytest.raises(RoutingError) as caught:
        made.pick("llama", session="another")
    assert caught.value.reason is Reason.CAPACITY_EXHAUSTED
    assert made.sessions == 80, "who was refused is bound to nothing"


@pytest.mark.parametrize("change", ["none", "gone", "dead", "tried", "not allowed"])
def test_failover_binds_elsewhere_and_says_so(change: str) -> None:
    made = table(0, 0)
    made.observe(loads(0.1, 0.2), 100.0)
    first = made.pick("llama", session="s")
    assert first.site == "s0"
    more: dict[str, Any] = {}
    if change == "none":
        made.apply(grouped(0, 1, states=(NONE, NEW)))
    elif change == "gone":
        made.apply(envelope(*members(0, 0)[1:], picker=Picker.SATURATION))
    elif change == "dead":
        made.observe(frame(signal(0, 0.1, ready=0), signal(1, 0.2)), 100.0)
    elif change == "tried":
        more["tried"] = [first]
    else:
        more["allowed"] = [made.targets[1]]
    decision = made.pick("llama", session="s", **more)
    assert (decision.site, decision.affinity) == ("s1", Bound.FAILOVER)
    assert decision.attempt == (2 if change == "tried" else 1)
    again = made.pick("llama", session="s")
    assert (again.site, again.affinity) == ("s1", Bound.REUSED)


def test_changed_weights_and_members_keep_bindings_and_counts() -> None:
    made = table(0, 0)
    homes = {f"s{n}": made.pick("llama", session=f"s{n}").site for n in range(20)}
    hold(made, 0, 3)
    made.apply(grouped(0, 0, 0, 1))
    assert all(made.pick("llama", session=session).site == home for session, home in homes.items())
    assert made.in_flight == {"s0/s0-llama": 3}


def test_a_binding_lives_from_its_last_use() -> None:
    time = Time()
    made = table(0, 0, 0, clock=time, ttl=10.0)
    home = made.pick("llama", session="s").site
    for _ in range(5):
        time.now += 9.9
        assert made.pick("llama", session="s").affinity is Bound.REUSED
    time.now += 10.0
    assert made.pick("llama", session="s").affinity is Bound.CREATED
    assert home


def test_a_full_table_lets_the_longest_unused_go() -> None:
    kept = AffinityTable(100.0, 2)
    kept.bind(b"a", "one", 0.0)
    kept.bind(b"b", "two", 1.0)
    assert kept.get(b"a", 2.0) == "one"
    kept.bind(b"c", "three", 3.0)
    assert (kept.get(b"a", 4.0), kept.get(b"b", 4.0), kept.get(b"c", 4.0)) == ("one", None, "three")
    assert (len(kept), kept.evicted) == (2, 1)
    kept.bind(b"a", "four", 5.0)
    assert (kept.get(b"a", 6.0), len(kept), kept.evicted) == ("four", 2, 1)
    assert kept.get(b"a", 106.0) is None
    assert len(kept) == 1


def test_a_session_is_never_kept_or_shown_in_clear() -> None:
    made = table(0, 0)
    decision = made.pick("llama", session="user-4711")
    assert made._table is not None
    shown = repr([vars(made), made._table._entries, decision, decision.explain()])
    assert "4711" not in shown
    assert "secret" not in repr(Affinity(secret=b"secret"))


# --- hash -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    seed: int
    weight: int = 100
    capacity: float = 10.0
    estimate: float = 0.0


def family(*weights: int) -> list[Member]:
    return [Member(seed(f"c{n}"), weight) for n, weight in enumerate(weights)]


def homes(group: Sequence[Member], sessions: int = 4000) -> list[int]:
    rng = random.Random(3)
    return [ranking(rng.randbytes(16), group)[0] for _ in range(sessions)]


def test_sessions_are_hashed_in_proportion_to_weight() -> None:
    seen = Counter(homes(family(100, 200, 300, 400), 20_000))
    assert chi_square([seen[n] for n in range(4)], [1, 2, 3, 4]) < 3


@pytest.mark.parametrize("weight", [0, 50, 1000])
def test_a_changed_member_moves_no_more_than_its_share(weight: int) -> None:
    before = family(100, 100, 100, 100)
    after = before[:3] if weight == 0 else family(100, 100, 100, weight)
    moved = [(old, new) for old, new in zip(homes(before), homes(after), strict=True) if old != new]
    assert moved
    assert all(3 in pair for pair in moved), "nobody moves between those that stayed as they were"
    assert all((old == 3) is (weight < 100) for old, _ in moved)


def test_the_order_of_members_does_not_matter() -> None:
    found = family(100, 50, 200)
    key = bytes(range(16))
    names = [found[n].seed for n in ranking(key, found)]
    assert [found[::-1][n].seed for n in ranking(key, found[::-1])] == names


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 3)), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_nobody_is_taken_past_its_load_bound(loads: list[tuple[float, float]], rng: random.Random) -> None:
    group = [Member(n, 100, capacity, estimate) for n, (capacity, estimate) in enumerate(loads)]
    order = list(range(len(group)))
    rng.shuffle(order)
    taken = bounded(order, group)
    capacity = sum(member.capacity for member in group)
    held = sum(member.estimate * member.capacity for member in group)

    def limit(n: int) -> float:
        return 1.25 * (held + 1) * group[n].capacity / capacity + 1

    assert group[taken].estimate * group[taken].capacity + 1 <= limit(taken) + 1e-6
    for passed in order[: order.index(taken)]:
        assert group[passed].estimate * group[passed].capacity + 1 > limit(passed) - 1 - 1e-6


def test_where_all_are_just_past_their_bound_the_first_is_taken() -> None:
    assert bounded([4, *range(4), *range(5, 10)], [Member(n, 100, 10.0, 0.05) for n in range(10)]) == 4


def test_all_gateways_agree_without_a_word() -> None:
    one, other = hashing(0, 0, 0, 0, seed=1), hashing(0, 0, 0, 0, seed=2)
    for made in (one, other):
        made.observe(loads(0.2, 0.2, 0.2, 0.2), 100.0)
    for n in range(200):
        found = one.pick("llama", session=f"s{n}")
        assert (found.case, found.affinity) == ("hashed", Bound.REUSED)
        assert other.pick("llama", session=f"s{n}").site == found.site
    assert {one.pick("llama", session=f"s{n}").site for n in range(200)} == {"s0", "s1", "s2", "s3"}


def test_a_loaded_member_sends_its_sessions_on() -> None:
    made = hashing(0, 0, 0)
    made.observe(loads(0.2, 0.2, 0.2), 100.0)
    mine = [f"s{n}" for n in range(100) if made.pick("llama", session=f"s{n}").site == "s0"]
    made.observe(loads(0.9, 0.2, 0.2), 100.0)
    assert {made.pick("llama", session=session).site for session in mine} == {"s1", "s2"}
    made.observe(loads(0.2, 0.2, 0.2), 100.0)
    assert {made.pick("llama", session=session).site for session in mine} == {"s0"}


def test_a_full_group_hashes_over_the_next() -> None:
    made = hashing(0, 0, 1, 1)
    made.observe(loads(0.2, 0.2, 0.2, 0.2), 100.0)
    assert {made.pick("llama", session=f"s{n}").site for n in range(50)} == {"s0", "s1"}
    made.observe(loads(1.0, 1.0, 0.2, 0.2), 100.0)
    assert {made.pick("llama", session=f"s{n}").site for n in range(50)} == {"s2", "s3"}
    made.observe(loads(1.0, 1.0, 1.0, 1.0), 100.0)
    assert {made.pick("llama", session=f"s{n}").site for n in range(50)} == {"s0", "s1"}


def test_load_blind_pickers_hash_over_the_first_group_only() -> None:
    made = hashing(0, 0, 1, picker=Picker.ROUND_ROBIN)
    made.observe(loads(1.0, 1.0, 0.2), 100.0)
    assert {made.pick("llama", session=f"s{n}").site for n in range(50)} == {"s0", "s1"}


def test_where_the_order_decides_there_is_nothing_to_hash() -> None:
    made = hashing(None, None, picker=Picker.DETERMINISTIC)
    decision = made.pick("llama", session="s")
    assert (decision.site, decision.case, decision.affinity) == ("s0", "in_order", Bound.REUSED)


def test_hashing_honours_who_failed_and_who_is_allowed() -> None:
    made = hashing(0, 0)
    first = made.pick("llama", session="s")
    second = made.pick("llama", session="s", tried=[first])
    assert second.site != first.site
    assert second.attempt == 2
    with pytest.raises(RoutingError) as caught:
        made.pick("llama", session="s", tried=[first, second])
    assert caught.value.reason is Reason.NO_HEALTHY_SITE
    allowed = [target for target in made.targets if target.site != first.site]
    assert made.pick("llama", session="s", allowed=allowed).site == second.site


def test_hashing_sheds_like_everything_else() -> None:
    made = hashing(0, 0)
    made.observe(loads(1.5, 1.5), 100.0)
    with pytest.raises(RoutingError) as caught:
        made.pick("llama", session="s")
    assert caught.value.status == 429
