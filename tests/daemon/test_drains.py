from hypothesis import given
from hypothesis import strategies as st

from grid.daemon.drains import in_force, merged, over
from grid.model import Drain

ends = st.none() | st.floats(min_value=0, max_value=1000)


def drain(until: float | None, reason: str = "", created: float = 0.0) -> Drain:
    return Drain("east", "east", reason, created, until)


def test_a_longer_drain_extends() -> None:
    held, moved = merged(drain(10, "first", 1), drain(60, "second", 5), now=5)
    assert moved
    assert (held.until, held.reason, held.created) == (60, "second", 1)


def test_a_shorter_drain_does_not_shorten() -> None:
    first = drain(60, "first")
    assert merged(first, drain(10, "second"), now=5) == (first, False)


def test_no_end_is_the_latest_end() -> None:
    forever = drain(None)
    assert merged(forever, drain(1e9), now=5) == (forever, False)
    held, moved = merged(drain(1e9, "why"), drain(None), now=5)
    assert moved
    assert (held.until, held.reason) == (None, "why")


def test_one_that_is_over_counts_as_none() -> None:
    asked = drain(20, created=15)
    assert merged(drain(10), asked, now=15) == (asked, True)
    assert merged(None, asked, now=15) == (asked, True)


@given(st.lists(ends, min_size=1, max_size=8))
def test_in_whatever_order_they_come_the_latest_end_holds(asked: list[float | None]) -> None:
    held = None
    for until in asked:
        held, _ = merged(held, drain(until), now=-1)
    assert held is not None
    assert held.until == (None if None in asked else max(until for until in asked if until is not None))


def test_those_in_force_and_those_over() -> None:
    drains = [Drain("a", "a", until=10), Drain("b", "b", until=20), Drain("c", "c")]
    assert set(in_force(drains, 10)) == {"b", "c"}
    assert [one.id for one in over({one.target: one for one in drains}, 10)] == ["a"]
